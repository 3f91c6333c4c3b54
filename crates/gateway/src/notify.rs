//! Tells systemd where this process stands, if it was started by one that asked (`Type=notify`).
//!
//! A datagram to the socket that `NOTIFY_SOCKET` names; whether somebody reads it changes nothing
//! here. Source: systemd-notify.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Requests would be taken.
pub(crate) const READY: &str = "READY=1";
/// A drain has begun.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Tells it, if somebody asked.
pub(crate) fn tell(state: &str) {
    if let Some(socket) = std::env::var_os(SOCKET) {
        // Nobody listens any more: nothing to be done, and nothing to be said to anybody else.
        let _ = tell_at(&socket, state);
    }
}

fn tell_at(socket: &OsStr, state: &str) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    // A full queue of the reader must not hold up the start.
    datagram.set_nonblocking(true)?;
    datagram.send_to_addr(state.as_bytes(), &address(socket)?)?;
    Ok(())
}

/// A path, or a name without one, which is written with an `@`.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(socket)
}

const SOCKET: &str = "NOTIFY_SOCKET";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 64];
        let read = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    }

    #[test]
    fn both_kinds_of_socket_are_told() {
        let path = std::env::temp_dir().join(format!("seawall-notify-{}", std::process::id()));
        let socket = UnixDatagram::bind(&path).unwrap();
        tell_at(path.as_os_str(), READY).unwrap();
        assert_eq!(read(&socket), "READY=1");
        std::fs::remove_file(path).unwrap();

        let name = format!("@seawall-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&address(OsStr::new(&name)).unwrap()).unwrap();
        tell_at(OsStr::new(&name), STOPPING).unwrap();
        assert_eq!(read(&socket), "STOPPING=1");
    }

    #[test]
    fn nobody_there_is_an_error_and_no_end() {
        assert!(tell_at(OsStr::new("/nowhere/notify"), READY).is_err());
        assert!(tell_at(OsStr::new(""), READY).is_err());
    }
}
