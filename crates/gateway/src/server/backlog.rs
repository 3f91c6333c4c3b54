//! What the kernel holds of connections that nobody has accepted yet, and what it had no room for.
//!
//! Linux tells both in files: `/proc/net/tcp` has, for a socket that listens, as its receive queue
//! the connections that wait (as `ss -l` shows), and `/proc/net/netstat` counts those that a full
//! queue threw away. A socket is known there by its inode. Listening sockets come first, so a few
//! kilobytes are read however many connections there are; fit for a scrape, not for a request.
//!
//! Known limits: the counts are of the whole network namespace, all its listeners; elsewhere than
//! on Linux, and for sockets of this host, nothing is known.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

/// Of each of these sockets, by inode, how many connections wait to be accepted.
pub(crate) fn waiting(inodes: &[u64]) -> Vec<Option<u64>> {
    let mut found = vec![None; inodes.len()];
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        if let Ok(file) = File::open(path) {
            look(BufReader::new(file), inodes, &mut found);
        }
    }
    found
}

/// Connections that a full queue threw away, and those that were lost for any reason before they
/// could be accepted, since the system started.
pub(crate) fn overflows() -> Option<[u64; 2]> {
    read_overflows(&fs::read_to_string("/proc/net/netstat").ok()?)
}

/// Looks at the lines of sockets that listen, up to the first that does not.
fn look(lines: impl BufRead, inodes: &[u64], found: &mut [Option<u64>]) {
    // Under a heading.
    for line in lines.lines().skip(1).map_while(Result::ok) {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let (Some(&LISTENS), Some(queues), Some(inode)) =
            (words.get(3), words.get(4), words.get(9))
        else {
            return;
        };
        let wanted = inode
            .parse()
            .ok()
            .and_then(|inode: u64| inodes.iter().position(|known| *known == inode && inode != 0));
        if let (Some(at), Some((_, waiting))) = (wanted, queues.split_once(':')) {
            found[at] = u64::from_str_radix(waiting, 16).ok();
        }
    }
}

/// A line of names, and one of numbers in the same order.
fn read_overflows(text: &str) -> Option<[u64; 2]> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let number = |wanted: &str| {
        let at = names.split(' ').position(|name| name == wanted)?;
        numbers.split(' ').nth(at)?.parse().ok()
    };
    Some([number("ListenOverflows")?, number("ListenDrops")?])
}

/// How the state of a socket that listens is written.
const LISTENS: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n   \
        0: 0100007F:9325 00000000:0000 0A 00000000:00000011 00:00000000 00000000 0 0 77 1 0\n   \
        1: 0100007F:9326 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 78 1 0\n   \
        2: 0100007F:BCF8 0100007F:984D 01 00000000:00000005 03:000000F9 00000000 0 0 79 3 0\n   \
        3: 0100007F:9327 00000000:0000 0A 00000000:00000009 00:00000000 00000000 0 0 80 1 0\n";

    #[test]
    fn a_listening_socket_is_found_by_its_inode_and_others_are_not_looked_at() {
        let mut found = [None; 5];
        look(TCP.as_bytes(), &[78, 77, 79, 80, 0], &mut found);
        assert_eq!(found, [Some(0), Some(17), None, None, None]);
        look("".as_bytes(), &[77], &mut found[..1]);
        look("heading\nx\n".as_bytes(), &[77], &mut found[..1]);
        assert_eq!(found[0], Some(0), "what cannot be read changes nothing");
    }

    #[test]
    fn overflows_are_found_by_their_names() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops TW\nTcpExt: 1 22 333 4\n\
                    IpExt: InNoRoutes\nIpExt: 5\n";
        assert_eq!(read_overflows(text), Some([22, 333]));
        assert_eq!(read_overflows("TcpExt: ListenOverflows\nTcpExt: 1\n"), None);
        assert_eq!(read_overflows("TcpExt: ListenOverflows ListenDrops\n"), None);
        assert_eq!(read_overflows(""), None);
    }

    /// Three have come, nobody has accepted any.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_waits_in_the_kernel_is_seen() {
        use crate::server::{Listener, bind::bind};
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let socket = bind(address.parse().unwrap()).unwrap();
            let port = socket.local_addr().unwrap().port();
            let host = if address.starts_with("127") { "127.0.0.1" } else { "::1" };
            let listener = Listener::from(socket);
            let inode = listener.inode().unwrap();
            assert_eq!(waiting(&[inode]), [Some(0)]);
            let mut came = Vec::new();
            for _ in 0..3 {
                came.push(tokio::net::TcpStream::connect((host, port)).await.unwrap());
            }
            assert_eq!(waiting(&[0, inode]), [None, Some(3)], "{address}");
        }
        assert!(overflows().is_some());
    }
}
