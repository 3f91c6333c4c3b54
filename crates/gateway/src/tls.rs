//! TLS on either side: what the files hold, what is made of them, and when they are read again.
//!
//! Certificates are replaced while the process runs, and whoever replaces them has no time to wait
//! for a restart. So every file is read again every second and at a SIGHUP, and compared by its
//! content: an atomic rename, a symlink that moves (`..data` of Kubernetes) and a file written
//! in place all look the same. What can be used is used for every handshake from then on; the
//! connections there are go on. What cannot be used changes nothing: the last good material stays,
//! a line says why, and `seawall_tls_reload_failing` is 1 until it is mended.
//!
//! A session that a listener handed out is taken up on every thread and after a new certificate,
//! because keys of tickets and the cache belong to the listener and not to its certificate. A new
//! `client_ca` begins both anew: a session holds the proof of a client's certificate, and must not
//! outlive the trust in it.
//!
//! Known limits: no stapled OCSP and no revocation lists; tickets are of this process alone, so a
//! caller that meets another instance makes a full handshake; a key that needs a password is not
//! read.

mod certificate;
mod client;
mod files;
mod handshake;
mod places;
mod server;
mod store;
mod validity;

use std::sync::Arc;
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use seawall::Clock;

pub(crate) use certificate::{CertificateView, check_listener, check_upstream};
pub(crate) use client::{TlsFailure, UpstreamTls};
pub(crate) use files::FileError;
pub(crate) use handshake::{Shaken, shake};
pub(crate) use server::{HandshakeResult, ListenerTls};
pub(crate) use store::TlsStore;

use crate::config::TlsVersion;

/// The one provider of cryptography; nothing is installed for the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The versions from `min` on, newest first.
fn versions(min: TlsVersion) -> Vec<&'static SupportedProtocolVersion> {
    match min {
        TlsVersion::V1_2 => vec![&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::V1_3 => vec![&rustls::version::TLS13],
    }
}

/// The calendar, for the validity of certificates.
#[derive(Debug)]
struct Calendar(Clock);

impl TimeProvider for Calendar {
    fn current_time(&self) -> Option<UnixTime> {
        let since_epoch = Duration::from_millis(self.0.unix_millis());
        Some(UnixTime::since_unix_epoch(since_epoch))
    }
}

#[cfg(test)]
mod tests;
