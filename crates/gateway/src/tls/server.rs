//! One listener's TLS: its certificates by name, its sessions, and the counts of its handshakes.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{
    ClientHello, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use seawall::Clock;

use super::certificate::CertificateView;
use super::files::{Contents, FileError};
use super::places::Places;
use super::{Calendar, versions};
use crate::config::{self, Alpn, ClientAuth};

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeResult {
    /// Whole, with a certificate shown.
    Full,
    /// Whole, an earlier session taken up.
    Resumed,
    /// The first byte was not TLS's.
    NotTls,
    /// Not done in the time for a head.
    Timeout,
    /// The peer left in the middle.
    Closed,
    /// The peer speaks another version, or no TLS after all.
    Protocol,
    /// No protocol of ALPN in common.
    Alpn,
    /// The client's certificate is missing or not good.
    ClientCertificate,
    /// The peer refused us, mostly our certificate.
    RefusedByPeer,
    /// Anything else.
    Failed,
}

impl HandshakeResult {
    /// Labels in metrics, in declaration order.
    pub(crate) const LABELS: [&'static str; Self::Failed as usize + 1] = [
        "full",
        "resumed",
        "not_tls",
        "timeout",
        "closed",
        "protocol",
        "alpn",
        "client_certificate",
        "refused_by_peer",
        "failed",
    ];

    /// What an error of the handshake says.
    pub(super) fn of(error: &io::Error) -> Self {
        use rustls::Error as E;
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<E>());
        match tls {
            Some(E::AlertReceived(_)) => Self::RefusedByPeer,
            Some(E::InvalidCertificate(_) | E::NoCertificatesPresented) => Self::ClientCertificate,
            Some(E::NoApplicationProtocol) => Self::Alpn,
            Some(E::General(_) | E::Other(_)) => Self::Failed,
            Some(_) => Self::Protocol,
            None => match error.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => Self::Closed,
                _ => Self::Failed,
            },
        }
    }
}

/// A listener's TLS.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    options: config::ListenerTls,
    clock: Clock,
    provider: Arc<CryptoProvider>,
    certificates: Arc<Certificates>,
    config: ArcSwap<ServerConfig>,
    /// Places for handshakes, shared with the other listeners.
    pub(super) places: Arc<Places>,
    counts: [AtomicU64; HandshakeResult::LABELS.len()],
}

/// What a listener's files hold.
#[derive(Debug)]
pub(super) struct Material {
    pairs: Vec<Pair>,
    client_roots: Option<RootCertStore>,
}

impl Material {
    /// Reads what is wanted out of the contents.
    pub(super) fn new(
        options: &config::ListenerTls,
        contents: &Contents,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, FileError> {
        let mut pairs = Vec::new();
        for (index, files) in options.certificates.iter().enumerate() {
            let [cert, key] = options.keys_of(index);
            let (key, validity) = contents.pair((&cert, &key), files, provider)?;
            let view = CertificateView {
                path: files.cert.display().to_string(),
                not_before: validity.map(|it| it.not_before),
                not_after: validity.map(|it| it.not_after),
            };
            pairs.push(Pair { key: Arc::new(key), view });
        }
        let client_roots =
            options.client_ca.as_ref().map(|path| contents.roots("client_ca", path)).transpose()?;
        Ok(Self { pairs, client_roots })
    }

    pub(super) fn views(&self) -> impl Iterator<Item = &CertificateView> {
        self.pairs.iter().map(|pair| &pair.view)
    }
}

impl ListenerTls {
    /// Ready to shake hands.
    pub(super) fn new(
        options: config::ListenerTls,
        material: Material,
        (provider, clock, places): (&Arc<CryptoProvider>, Clock, &Arc<Places>),
    ) -> Result<Self, rustls::Error> {
        let Material { pairs, client_roots } = material;
        let certificates = Arc::new(Certificates(ArcSwap::from_pointee(pairs)));
        let config = server_config(&options, &certificates, client_roots, provider, clock)?;
        Ok(Self {
            options,
            clock,
            provider: Arc::clone(provider),
            certificates,
            config: ArcSwap::from_pointee(config),
            places: Arc::clone(places),
            counts: Default::default(),
        })
    }

    pub(super) const fn options(&self) -> &config::ListenerTls {
        &self.options
    }

    /// Uses other material for every handshake from now on. Sessions go on unless the trust in
    /// clients is another.
    pub(super) fn renew(&self, material: Material, new_trust: bool) -> Result<(), rustls::Error> {
        let Material { pairs, client_roots } = material;
        if new_trust {
            let config = server_config(
                &self.options,
                &self.certificates,
                client_roots,
                &self.provider,
                self.clock,
            )?;
            self.config.store(Arc::new(config));
        }
        self.certificates.0.store(Arc::new(pairs));
        Ok(())
    }

    /// What a handshake that begins now is made with.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    pub(super) fn count(&self, result: HandshakeResult) {
        self.counts[result as usize].fetch_add(1, Relaxed);
    }

    /// Handshakes since the start, by result.
    pub(crate) fn counts(&self) -> [u64; HandshakeResult::LABELS.len()] {
        std::array::from_fn(|at| self.counts[at].load(Relaxed))
    }

    /// The certificates in use.
    pub(super) fn views(&self) -> Vec<CertificateView> {
        self.certificates.0.load().iter().map(|pair| pair.view.clone()).collect()
    }
}

fn server_config(
    options: &config::ListenerTls,
    certificates: &Arc<Certificates>,
    client_roots: Option<RootCertStore>,
    provider: &Arc<CryptoProvider>,
    clock: Clock,
) -> Result<ServerConfig, rustls::Error> {
    let builder =
        ServerConfig::builder_with_details(Arc::clone(provider), Arc::new(Calendar(clock)))
            .with_protocol_versions(&versions(options.min_version))?;
    let builder = match client_roots {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            let verifier = match options.client_auth {
                ClientAuth::Required => verifier,
                ClientAuth::Optional => verifier.allow_unauthenticated(),
            };
            let built = verifier.build();
            builder.with_client_cert_verifier(
                built.map_err(|error| rustls::Error::General(error.to_string()))?,
            )
        }
    };
    let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(certificates) as _;
    let mut config = builder.with_cert_resolver(resolver);
    let name = |alpn: &Alpn| alpn.as_str().as_bytes().to_vec();
    config.alpn_protocols = options.alpn.iter().map(name).collect();
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    config.ticketer = rustls::crypto::ring::Ticketer::new()?;
    Ok(config)
}

/// A certificate with its key.
#[derive(Debug)]
struct Pair {
    key: Arc<CertifiedKey>,
    view: CertificateView,
}

impl Pair {
    fn is_for(&self, name: &ServerName<'_>) -> bool {
        let certificate = self.key.end_entity_cert().ok();
        certificate
            .and_then(|der| webpki::EndEntityCert::try_from(der).ok())
            .is_some_and(|certificate| certificate.verify_is_valid_for_subject_name(name).is_ok())
    }
}

/// The certificates of a listener; swapped whole.
struct Certificates(ArcSwap<Vec<Pair>>);

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Certificates {
    /// The first that is for the name and that the client can verify; else the first.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pairs = self.0.load();
        let named = hello.server_name().filter(|_| pairs.len() > 1).and_then(|name| {
            let name = ServerName::try_from(name).ok()?;
            let schemes = hello.signature_schemes();
            pairs
                .iter()
                .find(|pair| pair.is_for(&name) && pair.key.key.choose_scheme(schemes).is_some())
        });
        named.or(pairs.first()).map(|pair| Arc::clone(&pair.key))
    }
}

/// Sessions of TLS 1.2 kept for callers without tickets; the oldest makes room.
/// Source: own choice.
pub(super) const SESSIONS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_result_has_the_last_label() {
        assert_eq!(HandshakeResult::LABELS[HandshakeResult::Failed as usize], "failed");
        assert_eq!(
            HandshakeResult::LABELS[HandshakeResult::ClientCertificate as usize],
            "client_certificate"
        );
    }
}
