//! One upstream's TLS: whom it trusts, what it shows, and its sessions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio_rustls::{TlsConnector, TlsStream};

use super::certificate::{CertificateView, system_roots};
use super::files::{Contents, FileError};
use super::{Calendar, versions};
use crate::config::{self, Alpn, RootsOf};
use crate::diagnostics::{Diagnostics, Topic};
use crate::wire::Wire;

/// Why there is no TLS to an endpoint; nothing of a request was sent.
#[derive(Debug)]
pub(crate) struct TlsFailure(String);

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.0)
    }
}

/// An upstream's TLS.
#[derive(Debug)]
pub(crate) struct UpstreamTls {
    /// The upstream's name.
    name: String,
    options: config::UpstreamTls,
    alpn: Alpn,
    clock: Clock,
    provider: Arc<CryptoProvider>,
    config: ArcSwap<ClientConfig>,
    /// What is shown to the upstream, if anything.
    shown: Mutex<Option<CertificateView>>,
    counts: [AtomicU64; Self::LABELS.len()],
    diagnostics: Diagnostics,
    /// What was told last, and when.
    told: Mutex<Option<(String, Timestamp)>>,
}

/// What an upstream's files hold.
#[derive(Debug)]
pub(super) struct Material {
    roots: Arc<RootCertStore>,
    shown: Option<(CertifiedKey, CertificateView)>,
}

impl Material {
    /// Reads what is wanted out of the contents.
    pub(super) fn new(
        options: &config::UpstreamTls,
        contents: &Contents,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, FileError> {
        let roots = match &options.ca {
            RootsOf::System => system_roots()?,
            RootsOf::File(path) => Arc::new(contents.roots("ca", path)?),
        };
        let shown = match &options.client {
            None => None,
            Some(files) => {
                let keys = ("client_cert", "client_key");
                let (key, validity) = contents.pair(keys, files, provider)?;
                let view = CertificateView {
                    path: files.cert.display().to_string(),
                    not_before: validity.map(|it| it.not_before),
                    not_after: validity.map(|it| it.not_after),
                };
                Some((key, view))
            }
        };
        Ok(Self { roots, shown })
    }

    pub(super) fn views(&self) -> impl Iterator<Item = &CertificateView> {
        self.shown.iter().map(|(_, view)| view)
    }
}

impl UpstreamTls {
    /// Labels in metrics: a whole handshake, a session taken up, none.
    pub(crate) const LABELS: [&'static str; 3] = ["full", "resumed", "failed"];

    /// Ready to shake hands; ALPN offers `alpn` alone.
    pub(super) fn new(
        (name, alpn): (&str, Alpn),
        options: config::UpstreamTls,
        material: Material,
        (provider, clock, diagnostics): (&Arc<CryptoProvider>, Clock, &Diagnostics),
    ) -> Result<Self, rustls::Error> {
        let (config, shown) = client_config(&options, alpn, material, provider, clock)?;
        Ok(Self {
            name: name.to_owned(),
            options,
            alpn,
            clock,
            provider: Arc::clone(provider),
            config: ArcSwap::from_pointee(config),
            shown: Mutex::new(shown),
            counts: Default::default(),
            diagnostics: diagnostics.clone(),
            told: Mutex::default(),
        })
    }

    pub(super) const fn options(&self) -> &config::UpstreamTls {
        &self.options
    }

    /// Uses other material for every connection from now on, without the sessions there are.
    pub(super) fn renew(&self, material: Material) -> Result<(), rustls::Error> {
        let (config, shown) =
            client_config(&self.options, self.alpn, material, &self.provider, self.clock)?;
        self.config.store(Arc::new(config));
        *self.shown.lock() = shown;
        Ok(())
    }

    /// Speaks TLS with the endpoint of this host, and checks that it is the one.
    ///
    /// # Errors
    ///
    /// Why it is not, or does not.
    pub(crate) async fn connect(&self, host: &str, socket: Wire) -> Result<Wire, TlsFailure> {
        let connected = self.try_connect(host, socket).await;
        match &connected {
            Ok(wire) => {
                let resumed = wire.facts().is_some_and(|facts| facts.resumed);
                self.counts[usize::from(resumed)].fetch_add(1, Relaxed);
            }
            Err(failure) => {
                self.counts[2].fetch_add(1, Relaxed);
                self.tell(host, failure);
            }
        }
        connected
    }

    async fn try_connect(&self, host: &str, socket: Wire) -> Result<Wire, TlsFailure> {
        let name = self.options.server_name.as_deref().unwrap_or(host).trim_end_matches('.');
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| TlsFailure(format!("{name}: {error}")))?;
        let connector = TlsConnector::from(self.config.load_full());
        let stream =
            connector.connect(name, socket).await.map_err(|error| TlsFailure(error.to_string()))?;
        let wire = Wire::from(TlsStream::Client(stream));
        match (self.alpn, wire.alpn()) {
            (Alpn::H2, Some(b"h2")) | (Alpn::Http1, None | Some(b"http/1.1")) => Ok(wire),
            (wanted, chosen) => {
                let chosen = chosen.map_or("nothing".into(), String::from_utf8_lossy);
                let wanted = wanted.as_str();
                Err(TlsFailure(format!("ALPN offered {wanted}, and the upstream chose {chosen}")))
            }
        }
    }

    /// The endpoint refused us after our side of the handshake had ended.
    pub(crate) fn note_refused(&self, host: &str, why: &str) {
        self.counts[2].fetch_add(1, Relaxed);
        self.tell(host, &TlsFailure(why.to_owned()));
    }

    /// Tells of a failure, once in ten seconds if it stays the same.
    fn tell(&self, host: &str, failure: &TlsFailure) {
        let now = self.clock.now();
        {
            let mut told = self.told.lock();
            let known = told
                .as_ref()
                .is_some_and(|(text, at)| *text == failure.0 && now.since(*at) < TELL_AGAIN);
            if known {
                return;
            }
            *told = Some((failure.0.clone(), now));
        }
        self.diagnostics.warn(
            Topic::Upstream,
            "no TLS to an endpoint; nothing is sent to it",
            &[("upstream", &self.name), ("endpoint", &host), ("error", &failure.0)],
        );
    }

    /// Handshakes since the start, by [`Self::LABELS`].
    pub(crate) fn counts(&self) -> [u64; Self::LABELS.len()] {
        std::array::from_fn(|at| self.counts[at].load(Relaxed))
    }

    /// The certificate in use, if there is one.
    pub(super) fn view(&self) -> Option<CertificateView> {
        self.shown.lock().clone()
    }
}

fn client_config(
    options: &config::UpstreamTls,
    alpn: Alpn,
    material: Material,
    provider: &Arc<CryptoProvider>,
    clock: Clock,
) -> Result<(ClientConfig, Option<CertificateView>), rustls::Error> {
    let Material { roots, shown } = material;
    let builder =
        ClientConfig::builder_with_details(Arc::clone(provider), Arc::new(Calendar(clock)))
            .with_protocol_versions(&versions(options.min_version))?
            .with_root_certificates(roots);
    let (mut config, shown) = match shown {
        None => (builder.with_no_client_auth(), None),
        Some((key, view)) => {
            let resolver = Arc::new(SingleCertAndKey::from(key));
            (builder.with_client_cert_resolver(resolver), Some(view))
        }
    };
    config.alpn_protocols = vec![alpn.as_str().as_bytes().to_vec()];
    config.resumption = rustls::client::Resumption::in_memory_sessions(SESSIONS_MAX);
    Ok((config, shown))
}

/// Names whose sessions are kept for the next connection. Source: own choice.
pub(super) const SESSIONS_MAX: usize = 256;
/// Source: own choice: an outage is told of as long as it lasts.
const TELL_AGAIN: Duration = Duration::from_secs(10);
