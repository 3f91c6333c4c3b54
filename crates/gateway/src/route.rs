//! Decides which route a request takes, from its host, path, method and fields.
//!
//! An exact host goes before any host, a longer path before a shorter one, a whole path before a
//! prefix of its length; a prefix matches whole segments: `/orders` takes `/orders` and
//! `/orders/1`, not `/ordersX`. Of routes for one path those with more conditions go first. If
//! none of the host's own set takes the request, the routes of any host are asked; if all that
//! refuses it is its method, that is what is answered.
//!
//! Where a set has a route for a path other than `/`, the decision is only worth something if the
//! upstream reads the path the way we do. A path that two readers may understand differently is
//! therefore refused before it is matched against such a set: dot segments (also written `%2e`, or
//! followed by `;`), `%2f`, `%5c`, `\`, `//`, and a `%` without two hexadecimal digits. An escaped
//! unreserved character (`%6f` for `o`) is the same path and matches as such. Where every route is
//! for `/` and leaves the path alone, nothing depends on it and it passes untouched.
//!
//! What follows a `;` belongs to its segment, as for nginx, HAProxy and Envoy: `/orders;v=1` is not
//! `/orders`. Servlet containers read it as `/orders`, so it is refused where a route has that
//! segment, and would get around the route elsewhere; below all segments that routes name, `;`
//! passes as it is.
//!
//! Nothing is allocated per request; a lookup is one binary search over the hosts and one over the
//! children of each segment, in one or two trees of segments. A tree is left at the first segment
//! that it does not know, so a long path costs no more than a long prefix.

mod path;

use std::cmp::Ordering;

use http::{HeaderMap, Method};

pub(crate) use path::{is_ambiguous, rewritten, unescape};

use crate::config::{Conditions, PathMatch};
use path::compare_segment;

/// A path that may be read in two ways, where a route depends on it. Answered 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("match the path: it can be read in two ways")]
pub(crate) struct BadPath;

/// What was found for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The route of that number.
    Route(usize),
    /// Routes that take other methods.
    OtherMethods,
    /// Nothing.
    Nothing,
}

/// A route, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// `None` for any; case, port and a final dot do not matter.
    pub(crate) host: Option<&'a str>,
    pub(crate) path: &'a PathMatch,
    pub(crate) conditions: &'a Conditions,
    /// Whether what goes on depends on the path in another way, too.
    pub(crate) rewrites: bool,
}

/// All routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTable {
    /// Sorted by host, lower-case, no two alike.
    hosts: Vec<(Box<str>, Tree)>,
    any: Tree,
}

impl RouteTable {
    /// Routes are known by their number in the order given. Of two for one host and path the
    /// earlier one is asked first.
    pub(crate) fn new<'a>(routes: impl Iterator<Item = Key<'a>>) -> Self {
        let mut table = Self::default();
        for (index, key) in routes.enumerate() {
            match key.host {
                None => table.any.insert(&key, index),
                Some(host) => {
                    let host = bare_host(host).to_ascii_lowercase();
                    table.set_of(host).insert(&key, index);
                }
            }
        }
        table
    }

    /// The route for a request to `host` (a port is ignored; empty if the request named none) and
    /// `path` (without query; `*` for `OPTIONS *`).
    ///
    /// # Errors
    ///
    /// [`BadPath`] if the choice depends on a path that can be read in two ways.
    pub(crate) fn find(
        &self,
        host: &str,
        path: &str,
        method: &Method,
        fields: &HeaderMap,
    ) -> Result<Found, BadPath> {
        let mut other_methods = false;
        for tree in self.trees(host) {
            match tree.find(path, method, fields)? {
                Found::Route(index) => return Ok(Found::Route(index)),
                Found::OtherMethods => other_methods = true,
                Found::Nothing => {}
            }
        }
        Ok(if other_methods { Found::OtherMethods } else { Found::Nothing })
    }

    /// The methods with which the request would have found a route, each once.
    pub(crate) fn methods(&self, host: &str, path: &str, fields: &HeaderMap) -> Vec<&Method> {
        let mut methods = Vec::new();
        let found = |tree: &'_ Tree| tree.walk(path).ok();
        let entries =
            self.trees(host).filter_map(|tree| Some(tree.entries(found(tree)?))).flatten();
        for entry in entries.filter(|entry| entry.conditions.takes_fields(fields)) {
            for method in &entry.conditions.methods {
                if !methods.contains(&method) {
                    methods.push(method);
                }
            }
        }
        methods
    }

    /// The host's own routes, then those of any host.
    fn trees(&self, host: &str) -> impl Iterator<Item = &Tree> {
        let own = self.position(bare_host(host)).ok().map(|at| &self.hosts[at].1);
        own.into_iter().chain([&self.any])
    }

    fn position(&self, host: &str) -> Result<usize, usize> {
        self.hosts.binary_search_by(|(known, _)| compare_ignoring_case(known, host))
    }

    fn set_of(&mut self, host: String) -> &mut Tree {
        let at = self.position(&host).unwrap_or_else(|at| {
            self.hosts.insert(at, (host.into_boxed_str(), Tree::default()));
            at
        });
        &mut self.hosts[at].1
    }
}

/// The routes of one host, by the segments of their paths.
#[derive(Clone, Debug)]
struct Tree {
    /// The first is the root, which stands for any path.
    nodes: Vec<Node>,
    /// Whether a route depends on the path.
    reads_path: bool,
}

/// A path.
#[derive(Clone, Debug, Default)]
struct Node {
    /// The path without its last segment; the root's is the root.
    parent: usize,
    /// Sorted by segment, unescaped.
    children: Vec<(Box<str>, usize)>,
    /// Routes for this path alone, and for all that begin with it.
    whole: Vec<Entry>,
    within: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    conditions: Conditions,
    index: usize,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], reads_path: false }
    }
}

impl Tree {
    fn insert(&mut self, key: &Key<'_>, index: usize) {
        let entry = Entry { conditions: key.conditions.clone(), index };
        self.reads_path |= key.rewrites;
        match key.path {
            PathMatch::Exact(path) => {
                let at = self.node(&unescape(path));
                self.nodes[at].whole.push(entry);
            }
            PathMatch::Prefix(path) => {
                let at = self.node(&unescape(path.trim_end_matches('/')));
                self.nodes[at].within.push(entry);
            }
        }
    }

    /// The node of a path, made if it is not there.
    fn node(&mut self, path: &str) -> usize {
        let Some(rest) = path.strip_prefix('/') else { return ROOT };
        self.reads_path = true;
        let mut at = ROOT;
        for segment in rest.split('/') {
            at = match self.child(at, segment) {
                Ok(child) => child,
                Err(place) => {
                    let made = self.nodes.len();
                    self.nodes.push(Node { parent: at, ..Node::default() });
                    self.nodes[at].children.insert(place, (segment.into(), made));
                    made
                }
            };
        }
        at
    }

    fn child(&self, at: usize, segment: &str) -> Result<usize, usize> {
        let children = &self.nodes[at].children;
        let found = children.binary_search_by(|(known, _)| compare_segment(known, segment));
        found.map(|place| children[place].1)
    }

    fn find(&self, path: &str, method: &Method, fields: &HeaderMap) -> Result<Found, BadPath> {
        if self.reads_path && is_ambiguous(path) {
            return Err(BadPath);
        }
        let mut other_methods = false;
        for Entry { conditions, index } in self.entries(self.walk(path)?) {
            match (conditions.takes_fields(fields), conditions.takes_method(method)) {
                (true, true) => return Ok(Found::Route(*index)),
                (true, false) => other_methods = true,
                (false, _) => {}
            }
        }
        Ok(if other_methods { Found::OtherMethods } else { Found::Nothing })
    }

    /// What is for a path that leads there, in the order in which it is asked.
    fn entries(&self, (deepest, is_whole): (usize, bool)) -> impl Iterator<Item = &Entry> {
        let whole = &self.nodes[deepest].whole[..];
        let above = |at: &usize| (*at != ROOT).then(|| self.nodes[*at].parent);
        let within = std::iter::successors(Some(deepest), above);
        let whole = whole.iter().filter(move |_| is_whole);
        whole.chain(within.flat_map(|at| &self.nodes[at].within))
    }

    /// The node that knows most of the path, and whether that is all of it.
    fn walk(&self, path: &str) -> Result<(usize, bool), BadPath> {
        let Some(rest) = path.strip_prefix('/') else { return Ok((ROOT, false)) };
        let mut at = ROOT;
        for segment in rest.split('/') {
            match self.child(at, segment) {
                Ok(child) => at = child,
                Err(_) => {
                    let name = segment.split_once(';').map(|(name, _)| name);
                    let is_known = name.is_some_and(|name| self.child(at, name).is_ok());
                    return if is_known { Err(BadPath) } else { Ok((at, false)) };
                }
            }
        }
        Ok((at, true))
    }
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

/// Of a tree, its first node.
const ROOT: usize = 0;

#[cfg(test)]
mod tests;
