//! Where a listener listens: on a port, or on a socket of this host.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::address::{overlap, parse_bind, parse_unix, reaches};
use super::model::EndpointAddress;
use super::report::Finding;
use super::scope::Scope;

/// What a listener takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A port; 0 takes a free one.
    Tcp(SocketAddr),
    /// A socket of this host, whose peers count as loopback.
    Unix {
        /// The socket.
        path: PathBuf,
        /// Its permissions. Default: as the process's umask has it.
        mode: Option<u32>,
    },
}

impl ListenAddress {
    /// The port, if it is one.
    #[must_use]
    pub const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix { .. } => None,
        }
    }

    /// Whether both would take the same.
    pub(super) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => overlap(*one, *other),
            (Self::Unix { path: one, .. }, Self::Unix { path: other, .. }) => one == other,
            _ => false,
        }
    }

    /// Whether a call to the endpoint arrives here.
    pub(super) fn is_reached_by(&self, endpoint: &EndpointAddress) -> bool {
        match (self, endpoint) {
            (Self::Tcp(bound), endpoint) => reaches(endpoint, *bound),
            (Self::Unix { path, .. }, EndpointAddress::Unix(called)) => path == called,
            (Self::Unix { .. }, EndpointAddress::Tcp { .. }) => false,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The address of a listener, if one is written that can be read.
pub(super) fn listen_address(
    scope: &mut Scope<'_>,
    address: &Option<String>,
    mode: &Option<String>,
) -> Option<ListenAddress> {
    let bits = scope.read("socket_mode", mode, |text| {
        let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| digits && *bits <= 0o777);
        bits.ok_or("permissions in octal, from 000 to 0777, like 0660")
    });
    let read = scope.read("address", address, |text| match text.strip_prefix("unix:") {
        Some(path) => parse_unix(path).map(|path| ListenAddress::Unix { path, mode: bits }),
        None => parse_bind(text).map(ListenAddress::Tcp).map_err(|allowed| {
            format!("{allowed}, or a socket of this host, like unix:/run/seawall.sock")
        }),
    });
    let is_port = !address.as_deref().is_some_and(|text| text.starts_with("unix:"));
    if mode.is_some() && is_port {
        let finding = Finding::new(scope.path("socket_mode"), "has no effect on a port");
        scope.refuse_with("socket_mode", finding.help("it is for an address like unix:/path"));
    }
    read
}
