//! The path a route takes, and what it becomes on the way to the upstream.

use super::matching::PathMatch;
use super::raw::RawRoute;
use super::report::Finding;
use super::scope::Scope;
use crate::route::{is_ambiguous, unescape};

/// The path that is matched: a prefix unless `path` is written.
pub(super) fn path(scope: &mut Scope<'_>, raw: &RawRoute) -> PathMatch {
    let prefix = scope.read("path_prefix", &raw.path_prefix, prefix);
    let whole = scope.read("path", &raw.path, whole);
    if raw.path.is_some() && raw.path_prefix.is_some() {
        let message = "stands beside path_prefix; give one of them";
        scope.refuse_with("path", Finding::new(scope.path("path"), message));
    }
    match whole {
        Some(path) => PathMatch::Exact(path),
        None => PathMatch::Prefix(prefix.unwrap_or_else(|| "/".to_owned())),
    }
}

/// What goes in place of the matched path; empty for nothing.
pub(super) fn rewrite(scope: &mut Scope<'_>, raw: &RawRoute, path: &PathMatch) -> Option<String> {
    let strip = scope.flag("strip_prefix", &raw.strip_prefix).unwrap_or(false);
    let to = scope.read("prefix_rewrite", &raw.prefix_rewrite, |text| match path {
        PathMatch::Prefix(_) => prefix(text),
        PathMatch::Exact(_) => whole(text),
    });
    if !strip {
        let to = to?;
        return Some(if to == "/" { String::new() } else { to });
    }
    if raw.prefix_rewrite.is_some() {
        let message = "stands beside prefix_rewrite; give one of them";
        scope.refuse_with("strip_prefix", Finding::new(scope.path("strip_prefix"), message));
    } else if path.is_exact() || path.as_str() == "/" {
        let finding = Finding::new(scope.path("strip_prefix"), "has nothing to strip");
        scope.refuse_with("strip_prefix", finding.help("it goes with a path_prefix other than /"));
    }
    Some(String::new())
}

/// Reads a prefix of whole segments; a slash at its end says nothing more, and neither does an
/// escape that needs none. One that no request could match is refused.
fn prefix(text: &str) -> Result<String, &'static str> {
    let path = whole(text.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(text))?;
    if path.len() > 1 && path.ends_with('/') { Err(ONE_WAY) } else { Ok(path) }
}

/// Reads a whole path, in which a slash at the end counts.
fn whole(text: &str) -> Result<String, &'static str> {
    let visible = |b: u8| b.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&b);
    if !text.starts_with('/') || text.len() > MAX_PATH || !text.bytes().all(visible) {
        return Err("a path like /orders, percent-encoded as in a request, without a query");
    }
    if is_ambiguous(text) { Err(ONE_WAY) } else { Ok(unescape(text)) }
}

const ONE_WAY: &str =
    "a path that can be read in one way: without empty or dot segments, `%2f`, `%5c`";
/// Bytes. Source: seawall-design.
const MAX_PATH: usize = 1_024;
