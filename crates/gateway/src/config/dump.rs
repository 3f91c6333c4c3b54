//! The configuration in force as operators may see it: every value, defaults filled in, and nothing
//! that could be a secret.
//!
//! It is made of the checked configuration, field by field under the keys of the file, so that what
//! nobody named here is not shown; of tokens, keys and certificates there are only paths. Shown as
//! `***` are the admin token, values of headers that are set or asked for, what a body is compared
//! with, the query of a health check, and every text that holds what a variable gave: who keeps a
//! value out of the file keeps it out of here. Numbers and times are shown wherever they came from.
//! How large it can be, the bounds of the file decide.

mod policies;
mod routes;
mod upstreams;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use serde_json::{Value, json};

use super::env::Lookup;
use super::listen::ListenAddress;
use super::model::{AccessLog, Drain, GatewayConfig, HeaderNames, Limits, Listener, PeerRange};
use super::tls::{Alpn, ClientAuth, ListenerTls, TlsVersion};
use super::{AdminAccess, VERSION};
use crate::units::{format_duration, format_size};

/// What the variables of a file gave, in lower case. Not shown by `Debug`.
#[derive(Clone, Default)]
pub(super) struct Given(Arc<BTreeSet<String>>);

impl Given {
    /// Notes what `read` gets from `lookup`.
    pub(super) fn to<T>(lookup: &Lookup<'_>, read: impl FnOnce(&Lookup<'_>) -> T) -> (T, Self) {
        let given = RefCell::new(BTreeSet::new());
        let made = read(&|name| {
            let value = lookup(name)?;
            let held = value.trim().to_lowercase();
            given.borrow_mut().extend((!held.is_empty()).then_some(held));
            Some(value)
        });
        (made, Self(Arc::new(given.into_inner())))
    }

    /// Whether a text holds any of it; of something short, whether it is nothing else.
    fn is_in(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let is_in = |given: &String| match given.chars().count() < SHORT {
            true => *given == text,
            false => text.contains(given.as_str()),
        };
        self.0.iter().any(is_in)
    }

    /// A message without any of it, but for what is short, a number or a time.
    pub(super) fn scrubbed(&self, mut text: String) -> String {
        let is_number = |it: &str| it.len() < LONG && it.starts_with(|c: char| c.is_ascii_digit());
        let is_plain = |it: &str| it.len() < SHORT || is_number(it);
        for given in self.0.iter().filter(|given| !is_plain(given)) {
            // As long as the text itself, so that places in the one are places in the other.
            while let Some(at) = text.to_ascii_lowercase().find(given.as_str()) {
                text.replace_range(at..at + given.len(), MASK);
            }
        }
        text
    }

    fn hide(&self, value: &mut Value) {
        match value {
            Value::String(text) if self.is_in(text) => MASK.clone_into(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            // Keys are keys of the file and names that stand in it, where no variable can be.
            Value::Object(fields) => fields.values_mut().for_each(|item| self.hide(item)),
            _ => {}
        }
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given(..)")
    }
}

impl GatewayConfig {
    /// Every value in force, under the keys of the file, secrets hidden.
    pub(crate) fn dump(&self) -> Value {
        let Self {
            listeners,
            admin,
            admin_access: AdminAccess { token, token_file, open_metrics },
            upstreams,
            routes,
            limits,
            drain,
            headers,
            access_log,
            kill_switch,
            origin,
        } = self;
        let upstreams: serde_json::Map<_, _> =
            upstreams.iter().map(|it| (it.name.clone(), upstreams::upstream(it))).collect();
        let mut dump = json!({
            "version": VERSION,
            "listeners": listeners.iter().map(listener).collect::<Vec<_>>(),
            "admin": {
                "address": admin.to_string(),
                "token": token.as_ref().filter(|_| token_file.is_none()).map(|_| MASK),
                "token_file": token_file.as_deref().map(path),
                "open_metrics": token.as_ref().map(|_| open_metrics),
            },
            "upstreams": upstreams,
            "routes": routes.iter().map(|it| routes::route(self, it)).collect::<Vec<_>>(),
            "limits": self::limits(limits),
            "drain": self::drain(drain),
            "headers": self::headers(headers),
            "access_log": match access_log {
                AccessLog::Stdout => "stdout",
                AccessLog::Off => "off",
            },
            "kill_switch": kill_switch.as_deref().map(path),
        });
        origin.given().hide(&mut dump);
        dump
    }
}

fn listener(listener: &Listener) -> Value {
    let Listener {
        address,
        trusted_peers,
        trust_loopback_deadline,
        door,
        ipv6_prefix,
        proxies,
        client_header,
        slow_readers,
        tls,
        first_byte_timeout,
        head_timeout,
        idle_timeout,
        max_age,
    } = listener;
    let mode = match address {
        ListenAddress::Unix { mode, .. } => mode.map(|mode| format!("{mode:04o}")),
        ListenAddress::Tcp(_) => None,
    };
    let ranges = |ranges: &[PeerRange]| {
        let range = |it: &PeerRange| format!("{}/{}", it.network, it.prefix);
        ranges.iter().map(range).collect::<Vec<_>>()
    };
    json!({
        "address": address.to_string(),
        "socket_mode": mode,
        "trusted_peers": ranges(trusted_peers),
        "trust_loopback_deadline": trust_loopback_deadline,
        "accept": policies::accept(door),
        "per_address": policies::per_address(door, *ipv6_prefix),
        "proxy_protocol": proxies.as_deref().map(|proxies| json!({"from": ranges(proxies)})),
        "client_header": client_header.as_ref().map(HeaderName::as_str),
        "slow_readers": policies::slow_readers(slow_readers),
        "tls": tls.as_ref().map(listener_tls),
        "timeouts": {
            "first_byte": time(*first_byte_timeout),
            "head": time(*head_timeout),
            "idle": time(*idle_timeout),
            "max_age": time(*max_age),
        },
    })
}

fn listener_tls(tls: &ListenerTls) -> Value {
    let ListenerTls { certificates, client_ca, client_auth, min_version, alpn } = tls;
    let pair = |files: &super::CertificateFiles| json!({"cert": path(&files.cert), "key": path(&files.key)});
    let first = certificates.first();
    json!({
        "cert": first.map(|files| path(&files.cert)),
        "key": first.map(|files| path(&files.key)),
        "certificates": certificates.iter().skip(1).map(pair).collect::<Vec<_>>(),
        "client_ca": client_ca.as_deref().map(path),
        "client_auth": match client_auth {
            ClientAuth::Required => "required",
            ClientAuth::Optional => "optional",
        },
        "min_version": version(*min_version),
        "alpn": alpn.iter().map(|it| match it {
            Alpn::H2 => "h2",
            Alpn::Http1 => "http/1.1",
        }).collect::<Vec<_>>(),
    })
}

fn limits(limits: &Limits) -> Value {
    let Limits { max_connections, head_bytes, head_fields, replay_bytes, h2_streams } = limits;
    json!({
        "max_connections": max_connections,
        "head": format_size(*head_bytes as u64),
        "head_fields": head_fields,
        "replay": format_size(*replay_bytes as u64),
        "h2_streams": h2_streams,
    })
}

fn drain(drain: &Drain) -> Value {
    let Drain { accept, in_flight, close } = drain;
    json!({"accept": time(*accept), "in_flight": time(*in_flight), "close": time(*close)})
}

fn headers(headers: &HeaderNames) -> Value {
    let HeaderNames { remaining, attempt, tenant, priority, cost, request_id, correlation_id } =
        headers;
    json!({
        "remaining": remaining.as_str(),
        "attempt": attempt.as_str(),
        "tenant": tenant.as_str(),
        "priority": priority.as_str(),
        "cost": cost.as_str(),
        "request_id": request_id.as_str(),
        "correlation_id": correlation_id.as_str(),
    })
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn time(time: Duration) -> String {
    format_duration(time)
}

const fn version(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::V1_2 => "1.2",
        TlsVersion::V1_3 => "1.3",
    }
}

/// Stands for what is hidden, whatever its length.
pub(super) use super::mask::MASK;
/// A text of fewer characters is in too many others to hide them all. Source: seawall-design.
const SHORT: usize = 4;
/// A text of fewer that begins with a digit is a number or a time. Source: seawall-design.
const LONG: usize = 8;
