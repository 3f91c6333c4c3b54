//! A socket that is listened on: a port, or a path of this host.
//!
//! The file of a socket outlives a process that was killed. It is taken away if nobody listens on
//! it any more, and only then; at the end it is taken away if it is still ours.
//!
//! Known limit: two processes that begin at one path in the same moment may each find that nobody
//! listens yet, and the later one is reached alone.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Type};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::accept::{Accept, take_queued};
use super::bind::{BACKLOG, bind};
use crate::config::ListenAddress;
use crate::wire::Wire;

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixDoor),
}

/// A socket of this host.
#[derive(Debug)]
pub(crate) struct UnixDoor {
    listener: UnixListener,
    file: SocketFile,
}

/// Its file, and which one it was: device and inode.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    /// Somebody on this host, who has no address.
    Unix,
}

impl Listener {
    /// Binds the address and begins to listen.
    ///
    /// # Errors
    ///
    /// What the system said, or that something is there that is no socket, or one in use.
    pub(crate) fn open(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => bind(*address).map(Self::Tcp),
            ListenAddress::Unix { path, mode } => bind_unix(path, *mode).map(Self::Unix),
        }
    }

    /// Gives a socket that is open already the permissions that are asked for now, if any are.
    ///
    /// # Errors
    ///
    /// What the system said, or that its file is no socket any more.
    pub(crate) fn set_mode(address: &ListenAddress) -> io::Result<()> {
        let ListenAddress::Unix { path, mode: Some(mode) } = address else { return Ok(()) };
        match fs::symlink_metadata(path)?.file_type().is_socket() {
            true => fs::set_permissions(path, fs::Permissions::from_mode(*mode)),
            false => Err(no_socket()),
        }
    }

    /// What the system knows it by, if it is a port.
    pub(super) fn inode(&self) -> Option<u64> {
        match self {
            Self::Tcp(listener) => rustix::fs::fstat(listener).ok().map(|found| found.st_ino),
            Self::Unix(_) => None,
        }
    }

    /// The port it took, if it is one.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Where callers find it, and whether they speak TLS there.
    pub(crate) fn url(&self, is_tls: bool) -> String {
        match self {
            Self::Tcp(listener) => {
                let scheme = if is_tls { "https" } else { "http" };
                listener.local_addr().map_or_else(
                    |error| format!("a port that cannot be told: {error}"),
                    |address| format!("{scheme}://{address}"),
                )
            }
            Self::Unix(door) => {
                let tls = if is_tls { " (TLS)" } else { "" };
                format!("unix:{}{tls}", door.file.path.display())
            }
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Accept for Listener {
    async fn accept(&self) -> io::Result<(Wire, Peer)> {
        match self {
            Self::Tcp(listener) => Accept::accept(listener).await,
            Self::Unix(door) => Ok((door.listener.accept().await?.0.into(), Peer::Unix)),
        }
    }

    fn finish(self, take: impl FnMut(Wire, Peer)) {
        let UnixDoor { listener, file } = match self {
            Self::Tcp(listener) => return listener.finish(take),
            Self::Unix(door) => door,
        };
        // Whoever comes from now on finds no socket, instead of one that will be closed.
        drop(file);
        let Ok(listener) = listener.into_std() else { return };
        let accept = || {
            let (socket, _) = listener.accept()?;
            socket.set_nonblocking(true)?;
            Ok((UnixStream::from_std(socket)?.into(), Peer::Unix))
        };
        take_queued(accept, take);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // Somebody else took it away: all the same.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Peer {
    /// The address it is trusted, counted and told onward by. Who is on this host is loopback.
    pub(crate) const fn ip(self) -> IpAddr {
        match self {
            Self::Tcp(address) => address.ip(),
            Self::Unix => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

fn bind_unix(path: &Path, mode: Option<u32>) -> io::Result<UnixDoor> {
    clear_stale(path)?;
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path) };
    // Nobody can connect before it listens, so nobody meets other permissions.
    if let Some(mode) = mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    socket.listen(BACKLOG)?;
    Ok(UnixDoor { listener: UnixListener::from_std(socket.into())?, file })
}

/// Takes away a socket on which nobody listens.
fn clear_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(no_socket());
    }
    let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // One that listens and takes nothing must not hold us up.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?).map_err(|error| (error.kind(), error)) {
        Err((io::ErrorKind::ConnectionRefused, _)) => fs::remove_file(path),
        // Whoever listened there has just left.
        Err((io::ErrorKind::NotFound, _)) => Ok(()),
        Err((io::ErrorKind::PermissionDenied, error)) => Err(error),
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

fn no_socket() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "what is there is no socket, and stays")
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> (PathBuf, ListenAddress) {
        let path = std::env::temp_dir().join(format!("seawall-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        (path.clone(), ListenAddress::Unix { path, mode: Some(0o600) })
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_and_its_file_goes_with_it() {
        let (path, address) = address("mode");
        let listener = Listener::open(&address).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let client = UnixStream::connect(&path).await.unwrap();
        assert_eq!(listener.accept().await.unwrap().1, Peer::Unix);
        let waiting = UnixStream::connect(&path).await.unwrap();
        let mut taken = 0;
        listener.finish(|_, _| taken += 1);
        assert_eq!(taken, 1, "what waited is taken before it closes");
        assert!(!path.exists());
        drop((client, waiting));
    }

    #[tokio::test]
    async fn a_stale_file_makes_room_and_one_in_use_or_of_another_kind_does_not() {
        let (path, address) = address("stale");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "as a killed process leaves it");
        let listener = Listener::open(&address).unwrap();
        assert_eq!(Listener::open(&address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        fs::write(&path, "kept").unwrap();
        assert_eq!(Listener::open(&address).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn a_link_is_followed_neither_to_bind_nor_to_change_permissions() {
        let (path, address) = address("link");
        let target = path.with_extension("target");
        drop(std::os::unix::net::UnixListener::bind(&target).unwrap());
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let before = fs::metadata(&target).unwrap().permissions();
        assert_eq!(Listener::open(&address).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Listener::set_mode(&address).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::metadata(&target).unwrap().permissions(), before);
        fs::remove_file(&path).unwrap();
        fs::remove_file(&target).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_another_s_now_stays() {
        let (path, address) = address("another");
        let listener = Listener::open(&address).unwrap();
        fs::remove_file(&path).unwrap();
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).unwrap();
    }
}
