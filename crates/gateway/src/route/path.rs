//! Paths as they are compared, and what stands in place of a matched one.

use std::cmp::Ordering;

use http::uri::PathAndQuery;

use crate::config::PathMatch;

/// A path as it is compared: with escaped unreserved characters unescaped, everything else as it
/// is. Two that are equal take the same requests.
pub(crate) fn unescape(path: &str) -> String {
    let bytes: Vec<_> = Unescaped(path.as_bytes()).collect();
    // What is unescaped is ASCII, so text stays text.
    String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned())
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
            (b'/', Segment::Start | Segment::Nameless) => return true,
            (b'/' | b';', Segment::Dots(1 | 2)) => return true,
            (b'/', Segment::Before | Segment::Named | Segment::Dots(_)) => Segment::Start,
            (b';', Segment::Start) | (_, Segment::Nameless) => Segment::Nameless,
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
    /// Nothing but what follows a semicolon.
    Nameless,
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

/// A segment of a request's path against `known`, which is unescaped.
pub(super) fn compare_segment(known: &str, asked: &str) -> Ordering {
    known.bytes().cmp(Unescaped(asked.as_bytes()))
}

/// The target with `to` in place of what the route matched; the query stays byte for byte. What
/// does not match, as `*`, stays as it is.
pub(crate) fn rewritten(target: &PathAndQuery, matched: &PathMatch, to: &str) -> PathAndQuery {
    let path = target.path();
    let known = match matched {
        PathMatch::Prefix(prefix) => prefix.trim_end_matches('/'),
        PathMatch::Exact(path) => path,
    };
    let mut rest = Unescaped(path.as_bytes());
    if !path.starts_with('/') || !known.bytes().all(|wanted| rest.next() == Some(wanted)) {
        return target.clone();
    }
    let rest = path.get(path.len() - rest.0.len()..).unwrap_or_default();
    let query = target.query();
    let mut text = String::with_capacity(to.len() + rest.len() + query.map_or(1, str::len) + 1);
    text.push_str(to);
    text.push_str(rest);
    if text.is_empty() {
        text.push('/');
    }
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    // The parts were a target before.
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(text)).unwrap_or_else(|_| target.clone())
}
