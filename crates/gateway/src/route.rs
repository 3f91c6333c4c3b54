//! Decides which route a request takes, from its host and path.
//!
//! An exact host goes before any host, a longer prefix before a shorter one, and a prefix matches
//! whole segments: `/orders` takes `/orders` and `/orders/1`, not `/ordersX`. If no route of the
//! host's own set matches, the routes of any host are asked.
//!
//! Where a set has a route for a path other than `/`, the decision is only worth something if the
//! upstream reads the path the way we do. A path that two readers may understand differently is
//! therefore refused before it is matched against such a set: dot segments (also written `%2e`, or
//! followed by `;`), `%2f`, `%5c`, `\`, `//`, and a `%` without two hexadecimal digits. An escaped
//! unreserved character (`%6f` for `o`) is the same path and matches as such. Where every route is
//! for `/`, nothing depends on the path and it passes untouched.
//!
//! Nothing is allocated per request; a lookup is one binary search over the hosts and a walk over
//! the prefixes of one or two sets.

use std::cmp::Ordering;

/// A path that may be read in two ways, where a route depends on it. Answered 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("match the path: it can be read in two ways")]
pub(crate) struct BadPath;

/// All routes, by host and path prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTable {
    /// Sorted by host, lower-case, no two alike.
    hosts: Vec<(Box<str>, Prefixes)>,
    any: Prefixes,
}

impl RouteTable {
    /// Takes host (`None` for any; case, port and a final dot do not matter), path prefix (begins
    /// with `/`; a final `/` does not matter) and the number the route is known by. Of two routes
    /// with equal host and prefix the earlier one wins.
    pub(crate) fn new<H, P>(routes: impl Iterator<Item = (Option<H>, P, usize)>) -> Self
    where
        H: AsRef<str>,
        P: AsRef<str>,
    {
        let mut table = Self::default();
        for (host, prefix, index) in routes {
            match host {
                None => table.any.insert(prefix.as_ref(), index),
                Some(host) => {
                    let host = bare_host(host.as_ref()).to_ascii_lowercase();
                    table.set_of(host).insert(prefix.as_ref(), index);
                }
            }
        }
        table
    }

    /// The route for a request to `host` (a port is ignored; empty if the request named none) and
    /// `path` (without query; `*` for `OPTIONS *`), if there is one.
    ///
    /// # Errors
    ///
    /// [`BadPath`] if the choice depends on a path that can be read in two ways.
    pub(crate) fn find(&self, host: &str, path: &str) -> Result<Option<usize>, BadPath> {
        let host = bare_host(host);
        if let Ok(at) = self.position(host)
            && let Some(index) = self.hosts[at].1.find(path)?
        {
            return Ok(Some(index));
        }
        self.any.find(path)
    }

    fn position(&self, host: &str) -> Result<usize, usize> {
        self.hosts.binary_search_by(|(known, _)| compare_ignoring_case(known, host))
    }

    fn set_of(&mut self, host: String) -> &mut Prefixes {
        let at = self.position(&host).unwrap_or_else(|at| {
            self.hosts.insert(at, (host.into_boxed_str(), Prefixes::default()));
            at
        });
        &mut self.hosts[at].1
    }
}

/// The prefixes of one host, longest first.
#[derive(Clone, Debug, Default)]
struct Prefixes {
    /// Without a final slash: the empty prefix matches any path.
    routes: Vec<(Box<str>, usize)>,
}

impl Prefixes {
    fn insert(&mut self, prefix: &str, index: usize) {
        let prefix = unescape(prefix.trim_end_matches('/'));
        let at = self.routes.partition_point(|(known, _)| known.len() >= prefix.len());
        self.routes.insert(at, (prefix.into_boxed_str(), index));
    }

    fn find(&self, path: &str) -> Result<Option<usize>, BadPath> {
        if self.routes.first().is_some_and(|(longest, _)| !longest.is_empty()) && is_ambiguous(path)
        {
            return Err(BadPath);
        }
        let found = self.routes.iter().find(|(prefix, _)| covers(prefix, path));
        Ok(found.map(|&(_, index)| index))
    }
}

/// Whether `prefix` matches whole segments of `path`.
fn covers(prefix: &str, path: &str) -> bool {
    if prefix.is_empty() {
        return true;
    }
    let mut rest = Unescaped(path.as_bytes());
    prefix.bytes().all(|wanted| rest.next() == Some(wanted))
        && matches!(rest.next(), None | Some(b'/'))
}

/// A prefix as it is compared: with escaped unreserved characters unescaped, everything else as it
/// is. Two that are equal take the same requests.
pub(crate) fn unescape(prefix: &str) -> String {
    let bytes: Vec<_> = Unescaped(prefix.as_bytes()).collect();
    // What is unescaped is ASCII, so text stays text.
    String::from_utf8(bytes).unwrap_or_else(|_| prefix.to_owned())
}

/// The bytes of a path with escaped unreserved characters unescaped, everything else as it is.
struct Unescaped<'a>(&'a [u8]);

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match *self.0 {
            [b'%', high, low, ref rest @ ..] => match escaped(high, low) {
                Some(byte) if is_unreserved(byte) => (byte, rest),
                _ => (b'%', &self.0[1..]),
            },
            [byte, ref rest @ ..] => (byte, rest),
            [] => return None,
        };
        self.0 = rest;
        Some(byte)
    }
}

/// Whether two readers may understand `path` differently. As a prefix it never matches: a request
/// for it is refused.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    let mut rest = path.as_bytes();
    let mut segment = Segment::Before;
    loop {
        let byte = match *rest {
            [] => return segment.is_dots(),
            [b'%', high, low, ref after @ ..] => match escaped(high, low) {
                None | Some(b'/' | b'\\') => return true,
                Some(byte) => {
                    rest = after;
                    // Escaped, a semicolon begins no parameter.
                    if byte == b';' { b'a' } else { byte }
                }
            },
            [b'%' | b'\\', ..] => return true,
            [byte, ref after @ ..] => {
                rest = after;
                byte
            }
        };
        segment = match (byte, segment) {
            (b'/', Segment::Start) | (b'/' | b';', Segment::Dots(1 | 2)) => return true,
            (b'/', Segment::Before | Segment::Named | Segment::Dots(_)) => Segment::Start,
            (b'.', Segment::Start) => Segment::Dots(1),
            (b'.', Segment::Dots(dots)) => Segment::Dots(dots.saturating_add(1)),
            _ => Segment::Named,
        };
    }
}

/// What has been seen of the segment a byte belongs to.
#[derive(Clone, Copy, Debug)]
enum Segment {
    /// Before the first slash.
    Before,
    /// Right after a slash.
    Start,
    /// Only so many dots.
    Dots(u8),
    /// Anything else.
    Named,
}

impl Segment {
    fn is_dots(self) -> bool {
        matches!(self, Self::Dots(1 | 2))
    }
}

/// The byte written as `%` and two hexadecimal digits.
fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Characters that mean the same escaped or not. Source: RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A host without its port and final dot; an IPv6 address keeps its brackets.
fn bare_host(host: &str) -> &str {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let host = &host[..end];
    host.strip_suffix('.').unwrap_or(host)
}

/// Orders `known`, which is lower-case, against `asked` in any case.
fn compare_ignoring_case(known: &str, asked: &str) -> Ordering {
    known.bytes().cmp(asked.bytes().map(|byte| byte.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests;
