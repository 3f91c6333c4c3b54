//! Certificates and TLS for the tests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::within;

/// Signs certificates.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Leaf {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("ca {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, names: &[&str]) -> Leaf {
        self.issue_with(names, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Leaf {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        Leaf { cert: cert.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

impl Leaf {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()]
    }

    pub(crate) fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// A folder of files, gone with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file whole, by a rename.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let fresh = self.0.join(format!("{name}.new"));
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, self.0.join(name)).unwrap();
        self.path(name)
    }

    /// The keys of a listener's or an upstream's `tls` for this certificate.
    pub(crate) fn write_leaf(&self, name: &str, leaf: &Leaf) -> String {
        let cert = self.write(&format!("{name}.pem"), &leaf.cert);
        let key = self.write(&format!("{name}.key"), &leaf.key);
        format!("cert: {cert}, key: {key}")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A client that trusts this CA, offers these protocols, and shows this certificate.
pub(crate) fn tls_client(ca: &Ca, alpn: &[&str], shown: Option<&Leaf>) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(ca.roots());
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(leaf) => builder.with_client_auth_cert(leaf.chain(), leaf.private()).unwrap(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// A connection with TLS to `name`.
pub(crate) async fn tls_connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    tls_over(within(TcpStream::connect(address)).await?, config, name).await
}

/// As [`tls_connect`], over a connection that is there.
pub(crate) async fn tls_over<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    config: &Arc<ClientConfig>,
    name: &str,
) -> std::io::Result<TlsStream<S>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    within(TlsConnector::from(Arc::clone(config)).connect(name, socket)).await
}

/// The name that was asked for, and whether a session was taken up.
pub(crate) type Handshake = (Option<String>, HandshakeKind);

/// Speaks TLS in front of a plain upstream.
pub(crate) struct TlsFront {
    pub(crate) address: SocketAddr,
    /// Server name and kind of each handshake that was whole.
    pub(crate) handshakes: Arc<Mutex<Vec<Handshake>>>,
}

impl TlsFront {
    /// `clients`: whose certificates clients must show.
    pub(crate) async fn start(
        upstream: SocketAddr,
        leaf: &Leaf,
        alpn: &[&str],
        clients: Option<&Ca>,
    ) -> Self {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ca) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(ca.roots()), provider())
                    .build()
                    .unwrap(),
            ),
        };
        let mut config = builder.with_single_cert(leaf.chain(), leaf.private()).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&handshakes);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(socket).await else { return };
                    {
                        let (_, state) = stream.get_ref();
                        let name = state.server_name().map(str::to_owned);
                        seen.lock().unwrap().push((name, state.handshake_kind().unwrap()));
                    }
                    let Ok(mut plain) = TcpStream::connect(upstream).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut plain).await;
                });
            }
        });
        Self { address, handshakes }
    }
}
