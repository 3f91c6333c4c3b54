//! The TLS of another configuration: what has the same options goes on as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use seawall_policy::ConfigError;
use tokio::sync::Semaphore;

use super::{Entry, TlsStore, What};
use crate::config::{self, GatewayConfig};
use crate::tls::UpstreamTls;
use crate::tls::server::ListenerTls;

impl TlsStore {
    /// The TLS of another configuration. What has the same options goes on as it is, with its
    /// sessions and its counts: a listener by its address, an upstream by its name. Blocks on the
    /// files of the others.
    ///
    /// # Errors
    ///
    /// As [`Self::load`]; nothing has changed then.
    pub(crate) fn succeed(
        &self,
        before: &GatewayConfig,
        config: &GatewayConfig,
    ) -> Result<Arc<Self>, ConfigError> {
        let (changed, failed) = self.reloads();
        let store = Self {
            listeners: Vec::new(),
            upstreams: Vec::new(),
            entries: Mutex::default(),
            looking: Arc::new(Semaphore::new(1)),
            provider: Arc::clone(&self.provider),
            places: Arc::clone(&self.places),
            clock: self.clock,
            diagnostics: self.diagnostics.clone(),
            changed: AtomicU64::new(changed),
            failed: AtomicU64::new(failed),
            failing: AtomicBool::new(self.is_failing()),
        };
        let of_listener = |listener: &config::Listener| {
            let same = |known: &config::Listener| {
                known.address == listener.address && known.tls == listener.tls
            };
            let tls = self.listener(before.listeners.iter().position(same)?)?;
            Some((Arc::clone(tls), self.entry(&What::Listener(Arc::clone(tls)))?))
        };
        let of_upstream = |upstream: &config::Upstream| {
            let same = |known: &config::Upstream| {
                known.name == upstream.name
                    && known.protocol == upstream.protocol
                    && known.tls == upstream.tls
            };
            let tls = self.upstream(before.upstreams.iter().position(same)?)?;
            Some((Arc::clone(tls), self.entry(&What::Upstream(Arc::clone(tls)))?))
        };
        store.filled(config, of_listener, of_upstream)
    }

    /// Warns of certificates out of their time, but for those of `before`, which did.
    pub(crate) fn warn_of_times(&self, before: Option<&Self>) {
        let is_fresh = |entry: &Entry| before.is_none_or(|it| it.entry(&entry.what).is_none());
        let mut fresh = self.entries.lock().clone();
        fresh.retain(is_fresh);
        for (name, view) in self.named_views(&fresh) {
            self.warn_of_time(&name, &view);
        }
    }

    /// What is known of the files of one that goes on.
    fn entry(&self, of: &What) -> Option<Entry> {
        let entries = self.entries.lock();
        let is_it = |entry: &&Entry| match (&entry.what, of) {
            (What::Listener(known), What::Listener(it)) => Arc::ptr_eq(known, it),
            (What::Upstream(known), What::Upstream(it)) => Arc::ptr_eq(known, it),
            _ => false,
        };
        entries.iter().find(is_it).cloned()
    }

    /// With what goes on, and the rest made anew.
    pub(super) fn filled(
        mut self,
        config: &GatewayConfig,
        of_listener: impl Fn(&config::Listener) -> Option<(Arc<ListenerTls>, Entry)>,
        of_upstream: impl Fn(&config::Upstream) -> Option<(Arc<UpstreamTls>, Entry)>,
    ) -> Result<Arc<Self>, ConfigError> {
        let store = &mut self;
        let mut entries = Vec::new();
        let mut fresh = Vec::new();
        for (index, listener) in config.listeners.iter().enumerate() {
            let name = format!("listeners[{index}].tls");
            if let Some((tls, entry)) = of_listener(listener) {
                entries.push(Entry { name, ..entry });
                store.listeners.push(Some(tls));
                continue;
            }
            let tls = listener.tls.as_ref().map(|options| store.listener_tls(&name, options));
            let (tls, entry) = tls.transpose()?.unzip();
            fresh.extend(entry);
            store.listeners.push(tls);
        }
        for upstream in &config.upstreams {
            let name = format!("upstreams.{}.tls", upstream.name);
            if let Some((tls, entry)) = of_upstream(upstream) {
                entries.push(entry);
                store.upstreams.push(Some(tls));
                continue;
            }
            let tls = upstream.tls.as_ref();
            let tls = tls.map(|options| store.upstream_tls(&name, upstream, options));
            let (tls, entry) = tls.transpose()?.unzip();
            fresh.extend(entry);
            store.upstreams.push(tls);
        }
        entries.extend(fresh);
        *store.entries.get_mut() = entries;
        Ok(Arc::new(self))
    }
}
