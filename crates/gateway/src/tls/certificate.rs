//! What is told of a certificate, and whether files can be used before anything is made of them.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use seawall::Clock;

use super::files::{Contents, FileError};
use super::{client, provider, server};
use crate::config;

/// A certificate as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateView {
    /// Its file.
    pub(crate) path: String,
    /// Seconds since the Unix epoch, if they can be read.
    pub(crate) not_before: Option<u64>,
    /// As `not_before`.
    pub(crate) not_after: Option<u64>,
}

impl CertificateView {
    /// What is wrong with its time, if anything is.
    pub(crate) fn out_of_time(&self, clock: Clock) -> Option<&'static str> {
        let now = clock.unix_millis() / 1000;
        if self.not_after.is_some_and(|end| end < now) {
            return Some("the certificate has expired");
        }
        let early = self.not_before.is_some_and(|begin| begin > now);
        early.then_some("the certificate is not valid yet")
    }
}

/// Reads a listener's files, for the check of a configuration.
pub(crate) fn check_listener(
    options: &config::ListenerTls,
) -> Result<Vec<CertificateView>, FileError> {
    let contents = Contents::read(options.files());
    let material = server::Material::new(options, &contents, &provider())?;
    Ok(material.views().cloned().collect())
}

/// Reads an upstream's files, for the check of a configuration.
pub(crate) fn check_upstream(
    options: &config::UpstreamTls,
) -> Result<Vec<CertificateView>, FileError> {
    let contents = Contents::read(options.files());
    let material = client::Material::new(options, &contents, &provider())?;
    Ok(material.views().cloned().collect())
}

/// The roots that this system trusts, read once.
pub(super) fn system_roots() -> Result<Arc<RootCertStore>, FileError> {
    static ROOTS: OnceLock<Result<Arc<RootCertStore>, String>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map_or(String::new(), |error| format!(": {error}"));
            return Err(format!("a file; this system has no roots to trust{why}"));
        }
        Ok(Arc::new(roots))
    });
    let refuse = |allowed: &String| FileError::new("ca", Path::new("system"), allowed.clone());
    roots.as_ref().map(Arc::clone).map_err(refuse)
}
