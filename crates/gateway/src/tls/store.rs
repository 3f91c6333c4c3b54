//! The TLS of all listeners and upstreams, and the files it comes from, watched.

mod succession;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use seawall::{Clock, FileWatch};
use seawall_policy::ConfigError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::certificate::CertificateView;
use super::files::{Contents, FILE_BYTES_MAX, FileError};
use super::places::{Places, Shaking};
use super::server::ListenerTls;
use super::{UpstreamTls, client, provider, server};
use crate::config::{self, Alpn, GatewayConfig, Protocol};
use crate::diagnostics::{Diagnostics, Topic};
use crate::lines;

/// What reading the files again came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reloaded {
    /// Listeners and upstreams that use other material now.
    pub(crate) changed: usize,
    /// Those whose files cannot be used, and why; they keep what they had.
    pub(crate) failed: Vec<String>,
}

/// The TLS of a gateway.
#[derive(Debug)]
pub(crate) struct TlsStore {
    listeners: Vec<Option<Arc<ListenerTls>>>,
    upstreams: Vec<Option<Arc<UpstreamTls>>>,
    /// Held for no reading: a file may hang.
    entries: Mutex<Vec<Entry>>,
    /// One look at the files at a time.
    looking: Arc<Semaphore>,
    provider: Arc<CryptoProvider>,
    places: Arc<Places>,
    clock: Clock,
    diagnostics: Diagnostics,
    changed: AtomicU64,
    failed: AtomicU64,
    failing: AtomicBool,
}

/// The files of one listener or upstream.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    what: What,
    /// What the files in use hold, as a number.
    used: u64,
    /// The same of `client_ca` alone.
    trust: u64,
    /// What files that could not be used held, once it was told.
    bad: Option<u64>,
}

impl Entry {
    fn new(name: &str, what: What, contents: &Contents) -> Self {
        let (used, trust) = (contents.fingerprint(), what.trust(contents));
        Self { name: name.to_owned(), what, used, trust, bad: None }
    }
}

#[derive(Clone, Debug)]
enum What {
    Listener(Arc<ListenerTls>),
    Upstream(Arc<UpstreamTls>),
}

impl What {
    fn contents(&self) -> Contents {
        match self {
            Self::Listener(tls) => Contents::read(tls.options().files()),
            Self::Upstream(tls) => Contents::read(tls.options().files()),
        }
    }

    fn trust(&self, contents: &Contents) -> u64 {
        match self {
            Self::Listener(tls) => contents.fingerprint_of(tls.options().client_ca.as_deref()),
            Self::Upstream(_) => 0,
        }
    }

    fn renew(
        &self,
        contents: &Contents,
        new_trust: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Vec<CertificateView>, String> {
        match self {
            Self::Listener(tls) => {
                let material = server::Material::new(tls.options(), contents, provider)
                    .map_err(|error| error.to_string())?;
                tls.renew(material, new_trust).map_err(|error| error.to_string())?;
                Ok(tls.views())
            }
            Self::Upstream(tls) => {
                let material = client::Material::new(tls.options(), contents, provider)
                    .map_err(|error| error.to_string())?;
                tls.renew(material).map_err(|error| error.to_string())?;
                Ok(tls.view().into_iter().collect())
            }
        }
    }
}

impl TlsStore {
    /// Reads every file of the configuration.
    ///
    /// # Errors
    ///
    /// The first that cannot be used.
    pub(crate) fn load(
        config: &GatewayConfig,
        diagnostics: Diagnostics,
        clock: Clock,
    ) -> Result<Arc<Self>, ConfigError> {
        let store = Self {
            listeners: Vec::new(),
            upstreams: Vec::new(),
            entries: Mutex::default(),
            looking: Arc::new(Semaphore::new(1)),
            provider: provider(),
            places: Arc::new(Places::new()),
            clock,
            diagnostics,
            changed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        };
        let store = store.filled(config, |_| None, |_| None)?;
        store.warn_of_times(None);
        Ok(store)
    }

    fn listener_tls(
        &self,
        name: &str,
        options: &config::ListenerTls,
    ) -> Result<(Arc<ListenerTls>, Entry), ConfigError> {
        let contents = Contents::read(options.files());
        let material = server::Material::new(options, &contents, &self.provider)
            .map_err(|error| refused(name, &error))?;
        let shared = (&self.provider, self.clock, &self.places);
        let tls = ListenerTls::new(options.clone(), material, shared);
        let tls = Arc::new(tls.map_err(|error| broken(name, &error))?);
        let entry = Entry::new(name, What::Listener(Arc::clone(&tls)), &contents);
        Ok((tls, entry))
    }

    fn upstream_tls(
        &self,
        name: &str,
        upstream: &config::Upstream,
        options: &config::UpstreamTls,
    ) -> Result<(Arc<UpstreamTls>, Entry), ConfigError> {
        let contents = Contents::read(options.files());
        let material = client::Material::new(options, &contents, &self.provider)
            .map_err(|error| refused(name, &error))?;
        let alpn = match upstream.protocol {
            Protocol::Http1 => Alpn::Http1,
            Protocol::H2c => Alpn::H2,
        };
        let shared = (&self.provider, self.clock, &self.diagnostics);
        let tls = UpstreamTls::new((&upstream.name, alpn), options.clone(), material, shared);
        let tls = Arc::new(tls.map_err(|error| broken(name, &error))?);
        let entry = Entry::new(name, What::Upstream(Arc::clone(&tls)), &contents);
        Ok((tls, entry))
    }

    /// The TLS of a listener, by its place.
    pub(crate) fn listener(&self, index: usize) -> Option<&Arc<ListenerTls>> {
        self.listeners.get(index)?.as_ref()
    }

    /// The TLS of an upstream, by its place.
    pub(crate) fn upstream(&self, index: usize) -> Option<&Arc<UpstreamTls>> {
        self.upstreams.get(index)?.as_ref()
    }

    /// Whether there is any TLS of callers.
    pub(crate) fn serves(&self) -> bool {
        self.listeners.iter().any(Option::is_some)
    }

    /// Whether there is none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.iter().all(Option::is_none) && self.upstreams.iter().all(Option::is_none)
    }

    /// Handshakes of callers under way, and as many as may be.
    pub(crate) fn handshakes(&self) -> Shaking {
        self.places.shaking()
    }

    /// Material put to use since the start, and files that could not be.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        (self.changed.load(Relaxed), self.failed.load(Relaxed))
    }

    /// Whether the files of now cannot be used.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    /// Every certificate in use, each file once.
    pub(crate) fn certificates(&self) -> Vec<CertificateView> {
        let of_listeners = self.listeners.iter().flatten().flat_map(|tls| tls.views());
        let of_upstreams = self.upstreams.iter().flatten().filter_map(|tls| tls.view());
        let mut views: Vec<CertificateView> = Vec::new();
        for view in of_listeners.chain(of_upstreams) {
            if !views.iter().any(|known| known.path == view.path) {
                views.push(view);
            }
        }
        views
    }

    /// Reads the files again and uses what is new, on a thread of its own: one that hangs holds up
    /// neither this for long nor other threads. What it found is told where it is found.
    pub(crate) async fn reload(self: Arc<Self>) -> Reloaded {
        let store = Arc::clone(&self);
        let look = async move {
            let place = Arc::clone(&store.looking).acquire_owned().await;
            let look = move || {
                let _place = place;
                store.look()
            };
            crate::blocking::apart(look).await.unwrap_or_default()
        };
        timeout(READING, look).await.unwrap_or_else(|_| {
            let why = format!("reading the files took longer than {READING:?}");
            self.failed.fetch_add(1, Relaxed);
            // Until a look comes to its end.
            self.failing.store(true, Relaxed);
            self.tell_failed("its files", &why);
            Reloaded { changed: 0, failed: vec![why] }
        })
    }

    /// A look that does not end until this is dropped.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        Arc::clone(&self.looking).try_acquire_owned().ok()
    }

    /// Follows the files of the store in force for as long as it is polled.
    pub(crate) async fn watch(store: impl Fn() -> Arc<Self>) {
        let mut watch = FileWatch::new(LOOK_EVERY, FILE_BYTES_MAX);
        loop {
            watch.changed(|| store().files()).await;
            store().reload().await;
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let of_listeners = self.listeners.iter().flatten().flat_map(|tls| tls.options().files());
        let of_upstreams = self.upstreams.iter().flatten().flat_map(|tls| tls.options().files());
        of_listeners.chain(of_upstreams).map(Path::to_owned).collect()
    }

    /// What cannot be used is told once: who asks again is told by the refusal of the
    /// configuration, which names the file. Blocks on the files; one at a time.
    pub(super) fn look(&self) -> Reloaded {
        let mut reloaded = Reloaded::default();
        let mut entries = self.entries.lock().clone();
        for entry in entries.iter_mut() {
            let contents = entry.what.contents();
            let seen = contents.fingerprint();
            if seen == entry.used {
                entry.bad = None;
                continue;
            }
            if entry.bad == Some(seen) {
                reloaded.failed.push(entry.name.clone());
                continue;
            }
            let trust = entry.what.trust(&contents);
            match entry.what.renew(&contents, trust != entry.trust, &self.provider) {
                Ok(views) => {
                    (entry.used, entry.trust, entry.bad) = (seen, trust, None);
                    reloaded.changed += 1;
                    self.changed.fetch_add(1, Relaxed);
                    self.tell_renewed(&entry.name, &views);
                }
                Err(why) => {
                    self.failed.fetch_add(1, Relaxed);
                    self.tell_failed(&entry.name, &why);
                    reloaded.failed.push(format!("{}.{why}", entry.name));
                    entry.bad = Some(seen);
                }
            }
        }
        let failing = entries.iter().any(|entry| entry.bad.is_some());
        *self.entries.lock() = entries;
        self.failing.store(failing, Relaxed);
        reloaded
    }

    fn tell_failed(&self, name: &str, why: &str) {
        self.diagnostics.error(
            Topic::Tls,
            "certificates not renewed; the last good ones stay",
            &[("of", &name), ("error", &why)],
        );
    }

    fn tell_renewed(&self, name: &str, views: &[CertificateView]) {
        let mut until = Vec::new();
        let first = views.iter().filter_map(|view| view.not_after).min();
        lines::utc(&mut until, first.unwrap_or_default().saturating_mul(1000));
        let until = String::from_utf8_lossy(&until).into_owned();
        self.diagnostics.info(
            Topic::Tls,
            "certificates renewed",
            &[("of", &name), ("not_after", &until)],
        );
        for view in views {
            self.warn_of_time(name, view);
        }
    }

    fn named_views(&self, entries: &[Entry]) -> Vec<(String, CertificateView)> {
        let views = |what: &What| match what {
            What::Listener(tls) => tls.views(),
            What::Upstream(tls) => tls.view().into_iter().collect(),
        };
        let each = |entry: &Entry| {
            let name = entry.name.clone();
            views(&entry.what).into_iter().map(move |view| (name.clone(), view))
        };
        entries.iter().flat_map(each).collect()
    }

    fn warn_of_time(&self, name: &str, view: &CertificateView) {
        if let Some(message) = view.out_of_time(self.clock) {
            self.diagnostics.warn(
                Topic::Tls,
                message,
                &[("of", &name), ("certificate", &view.path)],
            );
        }
    }
}

fn refused(name: &str, error: &FileError) -> ConfigError {
    let FileError { key, path, allowed } = error;
    ConfigError::new(format!("{name}.{key}"), path.display(), allowed.clone())
}

fn broken(name: &str, error: &rustls::Error) -> ConfigError {
    ConfigError::new(name.to_owned(), error, "files that TLS can be made of")
}

/// The longest that a look is waited for. Source: seawall-design.
const READING: Duration = Duration::from_secs(5);
/// Source: own choice: soon, and next to nothing for a few small files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
