//! Checks of TLS, on listeners and to upstreams; the files are read to see that they can be used.

use std::path::{Path, PathBuf};

use rustls::pki_types::ServerName;
use seawall::Clock;

use super::model::EndpointAddress;
use super::raw::{RawListenerTls, RawUpstreamTls};
use super::report::Finding;
use super::scope::Scope;
use crate::tls::{CertificateView, FileError, check_listener, check_upstream};

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// The first is for callers that name no other.
    pub certificates: Vec<CertificateFiles>,
    /// Whom clients' certificates must come from.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is refused. Default required.
    pub client_auth: ClientAuth,
    /// The oldest version. Default 1.2.
    pub min_version: TlsVersion,
    /// Protocols offered, the best first. Default h2 and http/1.1.
    pub alpn: Vec<Alpn>,
}

impl ListenerTls {
    /// The keys of the configuration for a certificate and its key.
    pub(crate) fn keys_of(&self, index: usize) -> [String; 2] {
        match index.checked_sub(1) {
            None => ["cert".to_owned(), "key".to_owned()],
            Some(further) => ["cert", "key"].map(|key| format!("certificates[{further}].{key}")),
        }
    }

    /// Every file it comes from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let pairs = self.certificates.iter().flat_map(CertificateFiles::files);
        pairs.chain(self.client_ca.as_deref())
    }
}

/// TLS to an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Whom its certificate must come from. Default the system's roots.
    pub ca: RootsOf,
    /// The name its certificate must have. Default the endpoint's host.
    pub server_name: Option<String>,
    /// What is shown to it. Default nothing.
    pub client: Option<CertificateFiles>,
    /// The oldest version. Default 1.2.
    pub min_version: TlsVersion,
}

impl UpstreamTls {
    /// Every file it comes from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let ca = match &self.ca {
            RootsOf::System => None,
            RootsOf::File(path) => Some(path.as_path()),
        };
        ca.into_iter().chain(self.client.iter().flat_map(CertificateFiles::files))
    }
}

/// A certificate chain and its private key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and those between it and a root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl CertificateFiles {
    fn files(&self) -> [&Path; 2] {
        [&self.cert, &self.key]
    }
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// One without is refused.
    Required,
    /// One without is served; a bad one is refused.
    Optional,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// A protocol to agree on by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/2.
    H2,
    /// HTTP/1.1.
    Http1,
}

impl Alpn {
    /// As it stands on the wire. Source: RFC 7301, RFC 9113 section 3.1.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::H2 => "h2",
            Self::Http1 => "http/1.1",
        }
    }
}

/// Whose signature on a certificate is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RootsOf {
    /// The system's roots.
    #[default]
    System,
    /// The certificates of a PEM file, and no others.
    File(PathBuf),
}

/// TLS of a listener.
pub(super) fn listener(mut scope: Scope<'_>, raw: &RawListenerTls) -> Option<ListenerTls> {
    for (key, written) in [("cert", &raw.cert), ("key", &raw.key)] {
        if written.is_none() {
            scope.missing(key, "TLS needs a certificate and its private key, each a PEM file");
        }
    }
    let mut certificates = Vec::new();
    let first = (path(&mut scope, "cert", &raw.cert), path(&mut scope, "key", &raw.key));
    certificates.extend(pair(first));
    if raw.certificates.len() > CERTIFICATES_MAX {
        let count = format!("{} certificates", raw.certificates.len());
        scope.refuse("certificates", &count, format!("at most {CERTIFICATES_MAX}"));
    }
    for (index, raw) in raw.certificates.iter().take(CERTIFICATES_MAX).enumerate() {
        let mut inner = scope.inner(&format!("certificates[{index}]"));
        for (key, written) in [("cert", &raw.cert), ("key", &raw.key)] {
            if written.is_none() {
                inner.missing(key, "a certificate and its private key go together");
            }
        }
        let further = (path(&mut inner, "cert", &raw.cert), path(&mut inner, "key", &raw.key));
        certificates.extend(pair(further));
    }
    let auths = [("required", ClientAuth::Required), ("optional", ClientAuth::Optional)];
    let client_auth = scope.choice("client_auth", &raw.client_auth, &auths);
    if raw.client_auth.is_some() && raw.client_ca.is_none() {
        let finding = Finding::new(scope.path("client_auth"), "has no effect without `client_ca`");
        let help = "client_ca says whose certificates are good";
        scope.refuse_with("client_auth", finding.help(help));
    }
    let tls = ListenerTls {
        client_ca: path(&mut scope, "client_ca", &raw.client_ca),
        client_auth: client_auth.unwrap_or(ClientAuth::Required),
        min_version: min_version(&mut scope, &raw.min_version),
        alpn: alpn(&mut scope, &raw.alpn),
        certificates,
    };
    // With a gap in it, the rest would be read under wrong names.
    if tls.certificates.len() == raw.certificates.len() + 1 {
        read(&mut scope, check_listener(&tls));
    }
    (!tls.certificates.is_empty()).then_some(tls)
}

/// TLS to an upstream, which its endpoints ask for by `https`.
pub(super) fn upstream(
    mut scope: Scope<'_>,
    raw: Option<&RawUpstreamTls>,
    endpoints: &[EndpointAddress],
) -> Option<UpstreamTls> {
    if !endpoints.iter().any(EndpointAddress::is_tls) {
        if raw.is_some() && !endpoints.is_empty() {
            let finding = Finding::new(scope.whole(), "has no effect without `https` endpoints");
            scope.refuse_whole(finding.help("write the endpoints as https://host:port"));
        }
        return None;
    }
    let absent = RawUpstreamTls::default();
    let raw = raw.unwrap_or(&absent);
    let ca = scope.read("ca", &raw.ca, |text| match text {
        "system" => Ok(RootsOf::System),
        path => read_path(path).map(RootsOf::File).map_err(|_| "system, or the path of a PEM file"),
    });
    let server_name = scope.read("server_name", &raw.server_name, |text| {
        let name = ServerName::try_from(text).map(|_| text.to_owned());
        name.map_err(|_| "a host name, like orders.internal, or an address")
    });
    for (key, other, alone) in [
        ("client_cert", "client_key", raw.client_cert.is_some() && raw.client_key.is_none()),
        ("client_key", "client_cert", raw.client_key.is_some() && raw.client_cert.is_none()),
    ] {
        if alone {
            let message = format!("has no effect without `{other}`");
            let finding = Finding::new(scope.path(key), message);
            scope.refuse_with(key, finding.help("a certificate and its private key go together"));
        }
    }
    let client = (
        path(&mut scope, "client_cert", &raw.client_cert),
        path(&mut scope, "client_key", &raw.client_key),
    );
    let tls = UpstreamTls {
        ca: ca.unwrap_or_default(),
        server_name,
        client: pair(client),
        min_version: min_version(&mut scope, &raw.min_version),
    };
    if scope.is_sound("ca") {
        read(&mut scope, check_upstream(&tls));
    }
    Some(tls)
}

/// Tells what is wrong with the files, or with the time of a certificate.
fn read(scope: &mut Scope<'_>, read: Result<Vec<CertificateView>, FileError>) {
    match read {
        Err(FileError { key, path, allowed }) => {
            scope.refuse(&key, &path.display().to_string(), allowed);
        }
        Ok(views) => {
            let clock = Clock::new();
            for view in views {
                if let Some(message) = view.out_of_time(clock) {
                    let help = "peers that check it refuse the connection";
                    scope.warn("cert", format!("{}: {message}", view.path), help);
                }
            }
        }
    }
}

fn pair((cert, key): (Option<PathBuf>, Option<PathBuf>)) -> Option<CertificateFiles> {
    Some(CertificateFiles { cert: cert?, key: key? })
}

fn path(scope: &mut Scope<'_>, key: &str, raw: &Option<String>) -> Option<PathBuf> {
    scope.read(key, raw, read_path)
}

fn read_path(text: &str) -> Result<PathBuf, &'static str> {
    match text {
        "" => Err("the path of a PEM file"),
        path if path.contains('\0') => Err("the path of a PEM file"),
        path => Ok(PathBuf::from(path)),
    }
}

fn min_version(scope: &mut Scope<'_>, raw: &Option<String>) -> TlsVersion {
    let versions = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
    scope.choice("min_version", raw, &versions).unwrap_or_default()
}

fn alpn(scope: &mut Scope<'_>, raw: &[String]) -> Vec<Alpn> {
    let known = [Alpn::H2, Alpn::Http1];
    let mut chosen = Vec::new();
    for (index, text) in raw.iter().take(known.len() + 1).enumerate() {
        let key = format!("alpn[{index}]");
        let Some(alpn) =
            scope.choice(&key, &Some(text.clone()), &known.map(|alpn| (alpn.as_str(), alpn)))
        else {
            continue;
        };
        if chosen.contains(&alpn) {
            scope.refuse(&key, text, "each protocol once");
        }
        chosen.push(alpn);
    }
    if chosen.is_empty() { known.to_vec() } else { chosen }
}

/// Certificates of a listener beside its first, searched in order at a handshake.
/// Source: own choice.
const CERTIFICATES_MAX: usize = 64;
