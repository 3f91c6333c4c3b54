//! Counts the errors of upstreams that no rule of ours matches, by kind, and tells of each kind
//! once.
//!
//! Such an error is taken for *unknown*: tried again only where a second execution is harmless.
//! That is safe and may be wrong, so it must be seen. A kind is made of types and constants: of an
//! I/O error its kind, of an error of HTTP/2 its reason, else hyper's own description; nothing in
//! it comes from the network. At most 64 kinds are told apart, the rest are `other`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::diagnostics::{Diagnostics, Topic};
use crate::metrics::UpstreamLabels;

/// Such errors since the start.
#[derive(Debug)]
pub(crate) struct Unmatched {
    upstreams: Vec<UpstreamLabels>,
    diagnostics: Diagnostics,
    /// Over all reloads.
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// In the order of their coming; at most [`MOST_KINDS`].
    kinds: Vec<String>,
    /// By upstream's name, and place of the kind; [`MOST_KINDS`] is the place of all others.
    counts: BTreeMap<String, BTreeMap<usize, u64>>,
    /// Whether one of the others was told of.
    told_others: bool,
}

impl Seen {
    /// Counts one; whether it is to be told of.
    fn count(&mut self, upstream: &str, kind: &str) -> bool {
        let known = self.kinds.iter().position(|known| known == kind);
        let place = known.unwrap_or(self.kinds.len());
        let counts = match self.counts.get_mut(upstream) {
            Some(counts) => counts,
            None => self.counts.entry(upstream.to_owned()).or_default(),
        };
        *counts.entry(place).or_default() += 1;
        match (known, place < MOST_KINDS) {
            (Some(_), _) => false,
            (None, true) => {
                self.kinds.push(kind.to_owned());
                true
            }
            (None, false) => !std::mem::replace(&mut self.told_others, true),
        }
    }
}

impl Unmatched {
    /// None yet; kinds are told of through `diagnostics`.
    pub(crate) fn new(upstreams: Vec<UpstreamLabels>, diagnostics: Diagnostics) -> Self {
        Self { upstreams, diagnostics, seen: Arc::default() }
    }

    /// Goes on counting for the upstreams of another configuration; what was counted for those
    /// that it does not have is forgotten.
    pub(crate) fn succeed(&self, upstreams: Vec<UpstreamLabels>) -> Self {
        let is_known = |name: &String| upstreams.iter().any(|known| known.upstream == *name);
        self.seen.lock().counts.retain(|name, _| is_known(name));
        Self { upstreams, diagnostics: self.diagnostics.clone(), seen: Arc::clone(&self.seen) }
    }

    /// Counts an error of an attempt at an endpoint, both by index.
    pub(crate) fn record(
        &self,
        upstream: usize,
        endpoint: usize,
        error: &(dyn Error + Send + Sync + 'static),
    ) {
        let kind = kind_of(error);
        let known = self.upstreams.get(upstream);
        let name = known.map_or("", |known| known.upstream.as_str());
        if !self.seen.lock().count(name, &kind) {
            return;
        }
        let endpoint = known.and_then(|known| known.endpoints.get(endpoint));
        let endpoint = endpoint.map_or("", String::as_str);
        self.diagnostics.warn(
            Topic::Upstream,
            "error of a new kind, taken for one after which the request may have been executed",
            &[
                ("upstream", &name),
                ("endpoint", &endpoint),
                ("kind", &kind),
                ("error", &chain(error)),
            ],
        );
    }

    /// How many kinds were seen, and as many as are told apart.
    pub(crate) fn kinds(&self) -> (usize, usize) {
        (self.seen.lock().kinds.len(), MOST_KINDS)
    }

    /// The kinds that were seen of an upstream, and `other`, which is always there.
    pub(crate) fn counts(&self, upstream: usize) -> Vec<(String, u64)> {
        let seen = self.seen.lock();
        let name = self.upstreams.get(upstream).map_or("", |known| known.upstream.as_str());
        let of = seen.counts.get(name);
        let mut counts: Vec<_> = of
            .into_iter()
            .flatten()
            .filter_map(|(place, count)| Some((seen.kinds.get(*place)?.clone(), *count)))
            .collect();
        let others = of.and_then(|of| of.get(&MOST_KINDS)).copied().unwrap_or(0);
        counts.push((OTHER.to_owned(), others));
        counts
    }
}

/// The kind of an error, in small letters, digits and underscores.
fn kind_of(error: &(dyn Error + 'static)) -> String {
    for source in sources(error) {
        if let Some(error) = source.downcast_ref::<io::Error>() {
            return words("io", error.kind());
        }
        if let Some(error) = source.downcast_ref::<h2::Error>() {
            return match error.reason() {
                Some(reason) => words("h2", format_args!("{reason:?}")),
                None => "h2".to_owned(),
            };
        }
    }
    // Of hyper's errors this is a constant.
    words("", error)
}

/// What an error and its sources say.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for source in sources(error) {
        let colon = if text.is_empty() { "" } else { ": " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{colon}{source}");
    }
    text
}

/// An error and its sources; a chain longer than sixteen is taken for a loop.
fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
        .take(MOST_SOURCES)
}

/// `io` and `other error` are `io_other_error`.
fn words(before: &str, text: impl fmt::Display) -> String {
    let text = format!("{before} {text}").to_ascii_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut kind = words.collect::<Vec<_>>().join("_");
    kind.truncate(KIND_BYTES);
    kind
}

/// Kinds that are told apart. Source: seawall-design.
const MOST_KINDS: usize = 64;
/// Bytes of a kind.
const KIND_BYTES: usize = 64;
/// Errors of a chain that are looked at.
const MOST_SOURCES: usize = 16;
/// Stands for the kinds beyond those.
const OTHER: &str = "other";

#[cfg(test)]
pub(crate) mod tests;
