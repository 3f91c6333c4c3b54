//! Reads the header of the PROXY protocol from the first bytes of a connection.
//!
//! Everything here comes from a network. A decision is made of a prefix only where no more bytes
//! could change it; a header has a length that is bounded before it is whole.
//! Source: proxy-protocol.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// What the bytes so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The beginning of a header.
    Part,
    /// A header of so many bytes, and the client it names; nothing if the proxy speaks for itself.
    Whole { length: usize, client: Option<SocketAddr> },
}

/// They begin no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoHeader;

/// Reads what came so far.
///
/// # Errors
/// It is no header, and will not become one.
pub(super) fn parse(bytes: &[u8]) -> Result<Read, NoHeader> {
    let begins = |whole: &[u8]| {
        let common = bytes.len().min(whole.len());
        bytes[..common] == whole[..common]
    };
    if begins(SIGNATURE) {
        version_2(bytes)
    } else if begins(WORD) {
        version_1(bytes)
    } else {
        Err(NoHeader)
    }
}

/// `PROXY TCP4 <source> <destination> <port> <port>` and a line's end.
fn version_1(bytes: &[u8]) -> Result<Read, NoHeader> {
    let within = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LINE_MAX { Ok(Read::Part) } else { Err(NoHeader) };
    };
    let line = std::str::from_utf8(&bytes[WORD.len()..end]).map_err(|_| NoHeader)?;
    let whole = |client| Ok(Read::Whole { length: end + 2, client });
    // Whatever else stands in the line of one who does not know is to be left alone.
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return whole(None);
    }
    let words: Vec<_> = line.split(' ').collect();
    let [family, source, destination, from, to] = words[..] else { return Err(NoHeader) };
    let (source, _) = match family {
        "TCP4" => (address::<Ipv4Addr>(source)?, address::<Ipv4Addr>(destination)?),
        "TCP6" => (address::<Ipv6Addr>(source)?, address::<Ipv6Addr>(destination)?),
        _ => return Err(NoHeader),
    };
    let (from, _) = (port(from)?, port(to)?);
    whole(Some(client(source, from)))
}

fn address<A: FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, NoHeader> {
    text.parse::<A>().map(Into::into).map_err(|_| NoHeader)
}

/// Digits without zeros before them.
fn port(text: &str) -> Result<u16, NoHeader> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain && is_short).ok_or(NoHeader)
}

/// Sixteen bytes, the last two of which say how many follow.
fn version_2(bytes: &[u8]) -> Result<Read, NoHeader> {
    let at = |index: usize| bytes.get(index).copied();
    // In the order in which they come, so that what is wrong is known as soon as it is there.
    let Some(command) = at(12) else { return Ok(Read::Part) };
    if command != LOCAL && command != PROXY {
        return Err(NoHeader);
    }
    let Some(family) = at(13) else { return Ok(Read::Part) };
    let needed = match (command, family) {
        (LOCAL, _) => 0,
        (_, UNSPECIFIED) => 0,
        (_, STREAM_4) => 12,
        (_, STREAM_6) => 36,
        (_, STREAM_UNIX) => 216,
        _ => return Err(NoHeader),
    };
    let (Some(high), Some(low)) = (at(14), at(15)) else { return Ok(Read::Part) };
    let follow = usize::from(u16::from_be_bytes([high, low]));
    if follow < needed || follow > FOLLOW_MAX {
        return Err(NoHeader);
    }
    let length = FIXED + follow;
    let Some(body) = bytes.get(FIXED..length) else { return Ok(Read::Part) };
    let client = match (command, family) {
        (PROXY, STREAM_4) => {
            let source = octets::<4>(body, 0).map(Ipv4Addr::from);
            source.zip(octets(body, 8)).map(|(source, port)| client(source.into(), number(port)))
        }
        (PROXY, STREAM_6) => {
            let source = octets::<16>(body, 0).map(Ipv6Addr::from);
            source.zip(octets(body, 32)).map(|(source, port)| client(source.into(), number(port)))
        }
        _ => None,
    };
    Ok(Read::Whole { length, client })
}

fn octets<const N: usize>(body: &[u8], at: usize) -> Option<[u8; N]> {
    body.get(at..at + N)?.try_into().ok()
}

const fn number(port: [u8; 2]) -> u16 {
    u16::from_be_bytes(port)
}

/// An IPv4 client in the form of IPv6 is an IPv4 client.
fn client(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.to_canonical(), port)
}

/// What a header of version 1 begins with.
const WORD: &[u8] = b"PROXY ";
/// What a header of version 2 begins with.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 1, with its line's end.
const LINE_MAX: usize = 107;
/// Signature, command, family and length.
const FIXED: usize = 16;
/// Bytes that may follow: addresses, and a certificate in what we skip. Source: seawall-design.
const FOLLOW_MAX: usize = 4_096;
/// Version 2, the proxy speaks for itself.
const LOCAL: u8 = 0x20;
/// Version 2, the proxy speaks for a client.
const PROXY: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;
const STREAM_4: u8 = 0x11;
const STREAM_6: u8 = 0x21;
const STREAM_UNIX: u8 = 0x31;

#[cfg(test)]
mod tests;
