//! Opens listening sockets, and says how many connections the process can hold.

use std::io;
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Binds `address` (port 0 takes a free one) and begins to listen, with SO_REUSEADDR and without
/// SO_REUSEPORT: closing one of several sockets on a port resets the connections in its backlog.
///
/// # Errors
///
/// What the system said: the address is in use, not ours, or not allowed.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // Both families, whatever the system's default is.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Raises the soft limit of open files to the hard one, as far as the system lets us, and returns
/// the limit that then holds; `u64::MAX` if there is none.
#[must_use]
pub(crate) fn raise_file_limit() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: before.maximum, maximum: before.maximum };
    // A refusal leaves the limit as it was, which is what is then reported.
    let _ = setrlimit(Resource::Nofile, wanted);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Downstream connections when nothing is configured: half of the files left beside 256 for
/// ourselves, because each may need one upstream; at most 8,192 and at least 1.
#[must_use]
pub(crate) fn max_connections_default(file_limit: u64) -> usize {
    let half = file_limit.saturating_sub(FILES_OF_OURS) / 2;
    usize::try_from(half).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX)
}

/// Connections the kernel holds for us until they are accepted.
pub(crate) const BACKLOG: i32 = 1024;
/// Files for listeners, logs, the admin port and the runtime itself.
const FILES_OF_OURS: u64 = 256;
/// About 0.5 GiB if each holds its 64 KiB.
const CONNECTIONS_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_files_left_are_for_downstream_connections() {
        for (limit, expected) in
            [(0, 1), (256, 1), (258, 1), (1024, 384), (16_640, 8192), (16_638, 8191)]
        {
            assert_eq!(max_connections_default(limit), expected, "{limit}");
        }
        assert_eq!(max_connections_default(u64::MAX), 8192);
    }

    #[test]
    fn the_file_limit_ends_at_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_file_limit(), hard);
    }

    #[tokio::test]
    async fn the_wildcard_of_ipv6_takes_both_families() {
        let listener = bind("[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1"] {
            let client = tokio::net::TcpStream::connect((host, port)).await.unwrap();
            let (_, peer) = crate::server::accept::Accept::accept(&listener).await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap().into(), "in its own family");
        }
    }

    #[tokio::test]
    async fn a_port_just_closed_can_be_bound_again_and_a_used_one_cannot() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        assert_eq!(bind(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let client = tokio::net::TcpStream::connect(address).await.unwrap();
        let (served, _) = first.accept().await.unwrap();
        drop((served, client, first));
        bind(address).unwrap();
    }
}
