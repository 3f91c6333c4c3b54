//! Fields that a route sets and removes, and those it may not touch.
//!
//! What frames a message, belongs to one connection, or is ours to say stays ours: an edit of it
//! would break the message, or tell the next hop something that is not so.

use http::header::{CONTENT_TYPE, FORWARDED, HOST, RETRY_AFTER, VIA};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::harmless;
use super::model::HeaderNames;
use super::raw::RawEdits;
use super::report::Finding;
use super::scope::Scope;

/// What is done to the fields of a message: first some go, then some are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// In place of all lines the field had. Values are not shown by `Debug`: some are credentials.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// All lines of these go.
    pub remove: Vec<HeaderName>,
}

impl HeaderEdits {
    pub(crate) fn apply(&self, fields: &mut HeaderMap) {
        for name in &self.remove {
            fields.remove(name);
        }
        for (name, value) in &self.set {
            fields.insert(name.clone(), value.clone());
        }
    }

    /// The same for an answer made here, whose body is of a type of ours.
    pub(crate) fn apply_to_own(&self, fields: &mut HeaderMap) {
        for name in self.remove.iter().filter(|name| **name != CONTENT_TYPE) {
            fields.remove(name);
        }
        for (name, value) in self.set.iter().filter(|(name, _)| *name != CONTENT_TYPE) {
            fields.insert(name.clone(), value.clone());
        }
    }
}

/// Whose fields they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Edited on the way to the upstream.
    Request,
    /// Edited on the way to the caller.
    Response,
    /// Asked about when the route of a request is found.
    Condition,
}

/// Reads the edits under `scope`.
pub(super) fn edits(
    mut scope: Scope<'_>,
    raw: &RawEdits,
    side: Side,
    names: &HeaderNames,
) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    for (key, count) in [("set", raw.set.0.len()), ("remove", raw.remove.len())] {
        if count > MAX_EDITS {
            scope.refuse(key, &format!("{count} headers"), format!("at most {MAX_EDITS}"));
        }
    }
    let checked = |text: &str| {
        let name = name(text)?;
        match forbidden(&name, side, names) {
            Some(why) => Err(format!("another header: {why}")),
            None => Ok(name),
        }
    };
    let mut set = scope.inner("set");
    for (text, value) in raw.set.0.iter().take(MAX_EDITS) {
        let name = checked(text).and_then(|name| {
            let is_twice = edits.set.iter().any(|(other, _)| *other == name);
            if is_twice { Err("each header once".to_owned()) } else { Ok(name) }
        });
        let path = set.path(text);
        let name = match name {
            Ok(name) => name,
            Err(allowed) => {
                let shown = harmless::key(&path, text);
                let message = format!("`{shown}` is not allowed; give {allowed}");
                set.inner(text).refuse_whole(Finding::new(path, message));
                continue;
            }
        };
        let read = Some(value).filter(|value| is_value(value));
        let Some(mut value) = read.and_then(|value| HeaderValue::from_str(value).ok()) else {
            // The value may be a credential, so it is not repeated.
            let message = "has a value that is not allowed; give up to 4KiB of visible characters \
                           of ASCII, without spaces around them";
            set.refuse_with(text, Finding::new(path, message));
            continue;
        };
        value.set_sensitive(true);
        edits.set.push((name, value));
    }
    for (i, text) in raw.remove.iter().take(MAX_EDITS).enumerate() {
        let key = format!("remove[{i}]");
        let Some(name) = scope.read(&key, &Some(text.clone()), checked) else { continue };
        if edits.remove.contains(&name) {
            scope.refuse(&key, text, "each once");
        } else if edits.set.iter().any(|(set, _)| *set == name) {
            scope.refuse(&key, text, "a header that is not under `set`, which replaces all of it");
        }
        edits.remove.push(name);
    }
    edits
}

/// The name of a field, or what is allowed.
pub(super) fn name(text: &str) -> Result<HeaderName, String> {
    let allowed = || "a header name: letters, digits and hyphens".to_owned();
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| allowed())
}

/// Whether `text` can be the value of a field.
pub(super) fn is_value(text: &str) -> bool {
    text.len() <= MAX_VALUE
        && text.trim() == text
        && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// Why the field may not be edited, or asked about, on that side.
pub(super) fn forbidden(
    name: &HeaderName,
    side: Side,
    names: &HeaderNames,
) -> Option<&'static str> {
    let own = [
        &names.remaining,
        &names.attempt,
        &names.tenant,
        &names.priority,
        &names.cost,
        &names.request_id,
        &names.correlation_id,
    ];
    let text = name.as_str();
    if CONNECTION_FIELDS.contains(&text) {
        return Some("this one is for one connection, or frames the message");
    }
    let is_ours = own.contains(&name) || *name == VIA || text.starts_with("seawall-");
    let is_forwarded = *name == FORWARDED || text.starts_with("x-forwarded-");
    if is_ours || is_forwarded {
        return Some(match side {
            Side::Condition => "only trusted peers may state this one",
            _ => "what this one says is Seawall's to say",
        });
    }
    match side {
        Side::Condition | Side::Request if *name == HOST => Some(match side {
            Side::Condition => "`host` of the route is for this",
            _ => "`host_header` of the upstream is for this",
        }),
        Side::Request if ["idempotency-key", "grpc-timeout"].contains(&text) => {
            Some("retries and deadlines depend on this one")
        }
        Side::Response if *name == RETRY_AFTER => Some("`retry_after` of the route is for this"),
        _ => None,
    }
}

/// Fields for one connection, and those that say where a message ends.
/// Source: RFC 9110 sections 7.6.1 and 10.1.1, RFC 9112 section 6.
const CONNECTION_FIELDS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Set, and removed, on one side of one route. Source: seawall-design.
const MAX_EDITS: usize = 32;
/// Source: seawall-design.
const MAX_VALUE: usize = 4096;
