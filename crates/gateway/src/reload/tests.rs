//! Every key of the file, against what the page says a reload makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use seawall::Clock;
use seawall_policy::{DoorParams, SpreadParams, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::SCHEMA;
use crate::config::Origin;
use crate::diagnostics::Diagnostics;
use crate::lines::tests::Page;
use crate::server::{Change, ListenerOptions, ServerOptions};

const PAGE: &str = include_str!("../../../../docs/reload.md");

/// Of each key: what it becomes, and what stands beside it, or in its place, before.
const CHANGES: &[(&str, &str, &str)] = &[
    ("version", r#""1""#, ""),
    ("access_log", "off", ""),
    ("kill_switch", "/run/seawall/other", ""),
    ("admin.address", "[::1]:0", ""),
    ("admin.token", "0123456789abcdef", ""),
    ("admin.token_file", "{dir}/token", ""),
    ("admin.open_metrics", "true", "admin.token=0123456789abcdef"),
    ("drain.accept", "1s", ""),
    ("drain.in_flight", "1s", ""),
    ("drain.close", "1s", ""),
    ("headers.remaining", "X-Other", ""),
    ("headers.attempt", "X-Other", ""),
    ("headers.tenant", "X-Other", ""),
    ("headers.priority", "X-Other", ""),
    ("headers.cost", "X-Other", ""),
    ("headers.request_id", "X-Other", ""),
    ("headers.correlation_id", "X-Other", ""),
    ("limits.max_connections", "100", ""),
    ("limits.head", "16KiB", ""),
    ("limits.head_fields", "50", ""),
    ("limits.replay", "1KiB", ""),
    ("limits.h2_streams", "10", ""),
    ("listeners[].address", "[::1]:0", ""),
    ("listeners[].socket_mode", "0660", SOCKET),
    ("listeners[].trusted_peers", r#"["10.0.0.0/8"]"#, ""),
    ("listeners[].trust_loopback_deadline", "false", ""),
    ("listeners[].accept.rate", "500/s", "listeners[].accept.rate=100/s"),
    ("listeners[].accept.burst", "5", "listeners[].accept.rate=100/s"),
    ("listeners[].accept.refuse", "answer", "listeners[].accept.rate=100/s"),
    ("listeners[].per_address.connections", "10", OF_ADDRESSES),
    ("listeners[].per_address.connection_rate", "20/s", OF_ADDRESSES),
    ("listeners[].per_address.connection_burst", "5", OF_ADDRESSES),
    ("listeners[].per_address.request_rate", "20/s", OF_ADDRESSES),
    ("listeners[].per_address.request_burst", "5", OF_ADDRESSES),
    ("listeners[].per_address.ipv6_prefix", "56", OF_ADDRESSES),
    ("listeners[].per_address.addresses", "100", OF_ADDRESSES),
    (
        "listeners[].proxy_protocol.from",
        r#"["10.0.0.1"]"#,
        r#"listeners[].proxy_protocol.from=["10.0.0.2"]"#,
    ),
    ("listeners[].client_header", "X-Forwarded-For", r#"listeners[].trusted_peers=["10.0.0.0/8"]"#),
    ("listeners[].slow_readers.stall", "5s", ""),
    ("listeners[].slow_readers.close_rate", "5/s", ""),
    ("listeners[].slow_readers.send_buffer", "64KiB", ""),
    ("listeners[].timeouts.first_byte", "1s", ""),
    ("listeners[].timeouts.head", "1s", ""),
    ("listeners[].timeouts.idle", "1s", ""),
    ("listeners[].timeouts.max_age", "1m", ""),
    ("listeners[].tls.cert", "{dir}/b.crt", SERVES),
    ("listeners[].tls.key", "{dir}/b.key", SERVES),
    ("listeners[].tls.certificates[].cert", "{dir}/b.crt", SERVES_TWO),
    ("listeners[].tls.certificates[].key", "{dir}/b.key", SERVES_TWO),
    ("listeners[].tls.client_ca", "{dir}/b.crt", SERVES_KNOWN),
    ("listeners[].tls.client_auth", "optional", SERVES_KNOWN),
    ("listeners[].tls.min_version", "1.3", SERVES),
    ("listeners[].tls.alpn", r#"["h2"]"#, SERVES),
    ("routes[].upstream", "other", r#"upstreams.other.endpoints=["http://127.0.0.1:8"]"#),
    ("routes[].path_prefix", "/a", ""),
    ("routes[].path", "/b", "routes[].path=/a"),
    ("routes[].strip_prefix", "true", "routes[].path_prefix=/a"),
    ("routes[].prefix_rewrite", "/v2", ""),
    ("routes[].name", "other", ""),
    ("routes[].host", "a.test", ""),
    ("routes[].methods", r#"["GET"]"#, ""),
    ("routes[].headers[].name", "X-B", "routes[].headers[].name=X-A|routes[].headers[].exact=a"),
    ("routes[].headers[].exact", "b", "routes[].headers[].name=X-A|routes[].headers[].exact=a"),
    ("routes[].headers[].prefix", "b", "routes[].headers[].name=X-A|routes[].headers[].prefix=a"),
    (
        "routes[].headers[].present",
        "false",
        "routes[].headers[].name=X-A|routes[].headers[].present=true",
    ),
    ("routes[].request_headers.set", r#"{"X-A":"b"}"#, ""),
    ("routes[].request_headers.remove", r#"["X-A"]"#, ""),
    ("routes[].response_headers.set", r#"{"X-A":"b"}"#, ""),
    ("routes[].response_headers.remove", r#"["X-A"]"#, ""),
    ("routes[].total", "5s", ""),
    ("routes[].attempt", "1s", ""),
    ("routes[].idempotent", "true", ""),
    ("routes[].retry", "off", ""),
    ("routes[].retry.max_attempts", "3", ""),
    ("routes[].retry.backoff.base", "1ms", ""),
    ("routes[].retry.backoff.cap", "1s", ""),
    ("routes[].retry.backoff.jitter", "none", ""),
    ("routes[].retry.retry_after_max", "1s", ""),
    ("routes[].retry.redispatches", "1", ""),
    ("routes[].retry.honour_stop", "false", ""),
    ("routes[].retry.on", r#"["unknown"]"#, ""),
    ("routes[].retry_owner", "caller", ""),
    ("routes[].retry_after", "verbatim", ""),
    ("routes[].max_body", "10B", ""),
    ("routes[].grpc.idempotent", "true", ""),
    ("routes[].grpc.retry_on", r#"["unavailable"]"#, ""),
    ("routes[].grpc.streaming", "true", ""),
    ("routes[].fallback.on", r#"["budget"]"#, r#"routes[].fallback.on=["failure"]"#),
    ("routes[].fallback.status", "201", r#"routes[].fallback.on=["failure"]"#),
    ("routes[].fallback.content_type", "text/plain", r#"routes[].fallback.on=["failure"]"#),
    ("routes[].fallback.body", "sorry", r#"routes[].fallback.on=["failure"]"#),
    ("upstreams.<name>.endpoints", r#"["http://127.0.0.1:8"]"#, ""),
    ("upstreams.<name>.protocol", "h2c", ""),
    ("upstreams.<name>.tls.ca", "{dir}/b.crt", SECURE),
    ("upstreams.<name>.tls.server_name", "other.test", SECURE),
    ("upstreams.<name>.tls.client_cert", "{dir}/b.crt", SECURE_BOTH),
    ("upstreams.<name>.tls.client_key", "{dir}/b.key", SECURE_BOTH),
    ("upstreams.<name>.tls.min_version", "1.3", SECURE),
    ("upstreams.<name>.credentials.file", "{dir}/other-token", PROVEN),
    ("upstreams.<name>.credentials.header", "X-Token", PROVEN),
    ("upstreams.<name>.credentials.scheme", "Token", PROVEN),
    ("upstreams.<name>.credentials.timeout", "1s", PROVEN),
    ("upstreams.<name>.credentials.override", "true", PROVEN),
    ("upstreams.<name>.max_connections", "2000", ""),
    ("upstreams.<name>.host_header", "endpoint", ""),
    ("upstreams.<name>.on_abandon", "cancel", ""),
    ("upstreams.<name>.send_deadline", "false", ""),
    ("upstreams.<name>.peak_load", "10/s", SIZED),
    ("upstreams.<name>.capacity", "300/s", SIZED),
    ("upstreams.<name>.timeouts.connect", "1s", ""),
    ("upstreams.<name>.timeouts.checkout", "500ms", ""),
    ("upstreams.<name>.timeouts.attempt", "5s", ""),
    ("upstreams.<name>.timeouts.total", "20s", ""),
    ("upstreams.<name>.timeouts.idle", "10s", ""),
    ("upstreams.<name>.timeouts.body", "10s", ""),
    ("upstreams.<name>.retry", "off", ""),
    ("upstreams.<name>.retry.max_attempts", "3", ""),
    ("upstreams.<name>.retry.backoff.base", "1ms", ""),
    ("upstreams.<name>.retry.backoff.cap", "1s", ""),
    ("upstreams.<name>.retry.backoff.jitter", "none", ""),
    ("upstreams.<name>.retry.retry_after_max", "1s", ""),
    ("upstreams.<name>.retry.redispatches", "1", ""),
    ("upstreams.<name>.retry.honour_stop", "false", ""),
    ("upstreams.<name>.retry.on", r#"["unknown"]"#, ""),
    ("upstreams.<name>.retry_budget", "off", ""),
    ("upstreams.<name>.retry_budget.kind", "grpc", ""),
    ("upstreams.<name>.retry_budget.ratio", "5%", ""),
    ("upstreams.<name>.retry_budget.initial", "1", ""),
    ("upstreams.<name>.retry_budget.cap", "20", ""),
    ("upstreams.<name>.retry_budget.reserve", "1/s", ""),
    ("upstreams.<name>.retry_budget.ttl", "5s", "upstreams.<name>.retry_budget.kind=finagle"),
    ("upstreams.<name>.retry_budget.max_tokens", "5", "upstreams.<name>.retry_budget.kind=grpc"),
    ("upstreams.<name>.retry_budget.token_ratio", "1", "upstreams.<name>.retry_budget.kind=grpc"),
    ("upstreams.<name>.hedge", "{}", ""),
    ("upstreams.<name>.hedge.delay", "20ms", HEDGED),
    ("upstreams.<name>.hedge.delay_min", "2ms", HEDGED),
    ("upstreams.<name>.hedge.max_extra", "1%", HEDGED),
    ("upstreams.<name>.hedge.max_load", "50%", HEDGED),
    ("upstreams.<name>.hedge.same_endpoint", "true", HEDGED),
    ("upstreams.<name>.breaker", "off", ""),
    ("upstreams.<name>.breaker.preset", "bridge", ""),
    ("upstreams.<name>.breaker.window", "5s", ""),
    ("upstreams.<name>.breaker.min_calls", "5", ""),
    ("upstreams.<name>.breaker.failure_ratio", "20%", ""),
    ("upstreams.<name>.breaker.consecutive_failures", "5", ""),
    ("upstreams.<name>.breaker.slow", "1s", ""),
    ("upstreams.<name>.breaker.slow_ratio", "20%", "upstreams.<name>.breaker.slow=2s"),
    ("upstreams.<name>.breaker.open.base", "1s", ""),
    ("upstreams.<name>.breaker.open.cap", "20s", ""),
    ("upstreams.<name>.breaker.probes", "1", ""),
    ("upstreams.<name>.breaker.mode", "disabled", ""),
    ("upstreams.<name>.rate.limit", "500/s", "upstreams.<name>.rate.limit=100/s"),
    ("upstreams.<name>.rate.burst", "5", "upstreams.<name>.rate.limit=100/s"),
    ("upstreams.<name>.rate.per_key.key", "header:X-A", RATED),
    ("upstreams.<name>.rate.per_key.limit", "20/s", RATED),
    ("upstreams.<name>.rate.per_key.burst", "5", RATED),
    ("upstreams.<name>.rate.per_key.keys", "100", RATED),
    ("upstreams.<name>.bulkhead.limit", "2000", ""),
    ("upstreams.<name>.bulkhead.per_route", "10", ""),
    ("upstreams.<name>.bulkhead.wait", "10ms", ""),
    ("upstreams.<name>.bulkhead.queue", "10", ""),
    ("upstreams.<name>.bulkhead.max_streams", "10", ""),
    ("upstreams.<name>.balance", "peak_ewma", ""),
    ("upstreams.<name>.outlier", "{}", ""),
    ("upstreams.<name>.outlier.interval", "2s", OUTLIERS),
    ("upstreams.<name>.outlier.min_calls", "10", OUTLIERS),
    ("upstreams.<name>.outlier.failure_excess", "20%", OUTLIERS),
    ("upstreams.<name>.outlier.slow_excess", "20%", OUTLIERS),
    ("upstreams.<name>.outlier.slow_factor", "4", OUTLIERS),
    ("upstreams.<name>.outlier.slow_floor", "20ms", OUTLIERS),
    ("upstreams.<name>.outlier.ejection.base", "5s", OUTLIERS),
    ("upstreams.<name>.outlier.ejection.cap", "90s", OUTLIERS),
    ("upstreams.<name>.outlier.max_ejected", "20%", OUTLIERS),
    ("upstreams.<name>.outlier.probes", "2", OUTLIERS),
    ("upstreams.<name>.slow_start", "{}", ""),
    ("upstreams.<name>.slow_start.window", "10s", "upstreams.<name>.slow_start={}"),
    ("upstreams.<name>.slow_start.least", "20%", "upstreams.<name>.slow_start={}"),
    ("upstreams.<name>.health_check.path", "/other", CHECKED),
    (
        "upstreams.<name>.health_check.grpc_service",
        "b",
        "upstreams.<name>.protocol=h2c|upstreams.<name>.health_check.grpc_service=a",
    ),
    ("upstreams.<name>.health_check.interval", "9s", CHECKED),
    ("upstreams.<name>.health_check.timeout", "2s", CHECKED),
    ("upstreams.<name>.health_check.unhealthy", "5", CHECKED),
    ("upstreams.<name>.health_check.healthy", "5", CHECKED),
    ("upstreams.<name>.health_check.status", r#"["204"]"#, CHECKED),
    ("upstreams.<name>.health_check.port", "9001", CHECKED),
    ("upstreams.<name>.rules[].name", "other", RULED),
    ("upstreams.<name>.rules[].status", r#"["201"]"#, RULED),
    ("upstreams.<name>.rules[].means", "failure", RULED),
    ("upstreams.<name>.rules[].headers[].name", "X-B", RULED_BY_FIELD),
    ("upstreams.<name>.rules[].headers[].exact", "b", RULED_BY_FIELD),
    (
        "upstreams.<name>.rules[].headers[].prefix",
        "b",
        "upstreams.<name>.rules[].name=busy|upstreams.<name>.rules[].means=overloaded|\
         upstreams.<name>.rules[].headers[].name=X-A|upstreams.<name>.rules[].headers[].prefix=a",
    ),
    (
        "upstreams.<name>.rules[].headers[].present",
        "false",
        "upstreams.<name>.rules[].name=busy|upstreams.<name>.rules[].means=overloaded|\
         upstreams.<name>.rules[].headers[].name=X-A|upstreams.<name>.rules[].headers[].present=true",
    ),
    ("upstreams.<name>.rules[].body.pointer", "/b", RULED_BY_BODY),
    ("upstreams.<name>.rules[].body.equals", r#"["2"]"#, RULED_BY_BODY),
];

const OF_ADDRESSES: &str = "listeners[].per_address.connection_rate=10/s|\
    listeners[].per_address.request_rate=10/s";
const SOCKET: &str = "listeners[].address=unix:{dir}/seawall.sock|listeners[].socket_mode=0600";
const PROVEN: &str = "upstreams.<name>.credentials.file={dir}/token";
const SERVES: &str = "listeners[].tls.cert={dir}/a.crt|listeners[].tls.key={dir}/a.key";
const SERVES_TWO: &str = "listeners[].tls.cert={dir}/a.crt|listeners[].tls.key={dir}/a.key|\
    listeners[].tls.certificates[].cert={dir}/a.crt|listeners[].tls.certificates[].key={dir}/a.key";
const SERVES_KNOWN: &str = "listeners[].tls.cert={dir}/a.crt|listeners[].tls.key={dir}/a.key|\
    listeners[].tls.client_ca={dir}/a.crt";
const SIZED: &str = "upstreams.<name>.peak_load=20/s|upstreams.<name>.capacity=200/s";
const SECURE: &str = "upstreams.<name>.endpoints=[\"https://localhost:9\"]|\
    upstreams.<name>.tls.ca={dir}/a.crt";
const SECURE_BOTH: &str = "upstreams.<name>.endpoints=[\"https://localhost:9\"]|\
    upstreams.<name>.tls.ca={dir}/a.crt|upstreams.<name>.tls.client_cert={dir}/a.crt|\
    upstreams.<name>.tls.client_key={dir}/a.key";
const HEDGED: &str = "upstreams.<name>.hedge={}";
const RATED: &str = "upstreams.<name>.rate.per_key.key=peer|\
    upstreams.<name>.rate.per_key.limit=10/s";
const OUTLIERS: &str = "upstreams.<name>.outlier={}";
const CHECKED: &str = "upstreams.<name>.health_check.path=/healthz";
const RULED: &str = "upstreams.<name>.rules[].name=busy|\
    upstreams.<name>.rules[].means=overloaded|upstreams.<name>.rules[].status=[\"200\"]";
const RULED_BY_FIELD: &str = "upstreams.<name>.rules[].name=busy|\
    upstreams.<name>.rules[].means=overloaded|upstreams.<name>.rules[].headers[].name=X-A|\
    upstreams.<name>.rules[].headers[].exact=a";
const RULED_BY_BODY: &str = "upstreams.<name>.rules[].name=busy|\
    upstreams.<name>.rules[].means=overloaded|upstreams.<name>.rules[].body.pointer=/a|\
    upstreams.<name>.rules[].body.equals=[\"1\"]";

/// A folder with what the changes name, gone with the value.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("seawall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap().pem();
        for name in ["a", "b"] {
            std::fs::write(folder.join(format!("{name}.crt")), &certificate).unwrap();
            std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        for name in ["token", "other-token"] {
            std::fs::write(folder.join(name), format!("{name}-0123456789abcdef\n")).unwrap();
        }
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("seawall.yaml")
    }

    /// Writes a configuration, and reads it.
    fn write(&self, config: &Value) -> GatewayConfig {
        let text = config.to_string().replace("{dir}", &self.0.display().to_string());
        std::fs::write(self.file(), &text).unwrap();
        match GatewayConfig::load(&self.file()) {
            Ok((config, _)) => config,
            Err(errors) => panic!("{text}\n{errors}"),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn base() -> Value {
    json!({
        "version": 1,
        "listeners": [{"address": "127.0.0.1:0"}],
        "admin": {"address": "127.0.0.1:0"},
        "upstreams": {"up": {"endpoints": ["http://127.0.0.1:9"]}},
    })
}

/// Puts a value at a key, the first entry of every list.
fn put(config: &mut Value, key: &str, value: &str) {
    let mut at = config;
    for part in key.split('.') {
        let (name, is_list) = match part.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (if part == "<name>" { "up" } else { part }, false),
        };
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut().unwrap().entry(name).or_insert(Value::Null);
        if is_list {
            if !at.is_array() {
                *at = json!([{}]);
            }
            at = &mut at.as_array_mut().unwrap()[0];
        }
    }
    let is_more = value.starts_with(['{', '[']) && !value.starts_with("{dir}");
    let parsed = if is_more { serde_json::from_str(value).ok() } else { None };
    *at = parsed.unwrap_or_else(|| json!(value.trim_matches('"')));
}

/// The configuration before a key changes, and after.
fn both(key: &str, becomes: &str, beside: &str) -> (Value, Value) {
    let mut before = base();
    if key.starts_with("routes[]") {
        put(&mut before, "routes[].upstream", "up");
        if key != "routes[].path" {
            put(&mut before, "routes[].path_prefix", "/");
        }
    }
    for (key, value) in beside.split('|').filter_map(|one| one.split_once('=')) {
        put(&mut before, key, value);
    }
    let mut after = before.clone();
    put(&mut after, key, becomes);
    (before, after)
}

/// Every key that holds no other keys, and every section that can be switched.
fn keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    walk("", &serde_json::from_str(SCHEMA).unwrap(), &mut keys);
    keys
}

fn walk(path: &str, schema: &Value, keys: &mut BTreeSet<String>) {
    let joined = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    if let Some(forms) = schema["oneOf"].as_array() {
        keys.insert(path.to_owned());
        return walk(path, forms.last().unwrap(), keys);
    }
    if let Some(properties) = schema["properties"].as_object() {
        properties.iter().for_each(|(key, schema)| walk(&joined(key), schema, keys));
    } else if schema["additionalProperties"]["properties"].is_object() {
        walk(&joined("<name>"), &schema["additionalProperties"], keys);
    } else if schema["items"]["properties"].is_object() {
        walk(&format!("{path}[]"), &schema["items"], keys);
    } else {
        keys.insert(path.to_owned());
    }
}

/// What the page says of each key.
fn rows() -> BTreeMap<String, &'static str> {
    let mut rows = BTreeMap::new();
    for line in PAGE.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [under, names, acts, _kept] = cells[..] else { panic!("{line}") };
        let under = under.trim_matches('`');
        for name in names.split('`').skip(1).step_by(2) {
            let key = if under == "/" { name.to_owned() } else { format!("{under}.{name}") };
            assert!(rows.insert(key, acts).is_none(), "{name} stands there twice: {line}");
        }
    }
    rows
}

/// Everything that decides what a gateway does, and nothing that it has learned.
fn knobs(gateway: &Gateway) -> String {
    let upstreams = gateway.upstreams.iter().map(|upstream| {
        let params = upstream.stack.with(|_, params, _| format!("{params:?}"));
        let endpoints: Vec<_> = upstream.endpoints.iter().map(|at| &*at.name).collect();
        let lanes: Vec<_> = upstream.lanes.iter().map(|lane| lane.route).collect();
        let health = upstream.health.as_ref().map(|health| health.knobs());
        let hosts = upstream.hosts.is_some();
        let rules = format!("{:?}", upstream.rules);
        let rules = rules.split(", clock:").next().unwrap();
        format!(
            "{params}\n{endpoints:?} {lanes:?} {hosts}\n{:?}\n{rules}\n{health:?}\n{:?}",
            upstream.pool, upstream.config
        )
    });
    let upstreams: Vec<_> = upstreams.collect();
    let fields = format!("{:?}", gateway.fields);
    // Our own name in `Via` follows, which is drawn.
    let names = fields.split(" via:").next().unwrap();
    let config = GatewayConfig { origin: Origin::default(), ..gateway.config.clone() };
    format!("{names}\n{:?}\n{config:?}\n{}", gateway.routes, upstreams.join("\n"))
}

/// What a connection is told when it begins.
fn of_connections(server: ServerOptions, listeners: &[ListenerOptions]) -> String {
    let unset = ServerOptions::default();
    let of_each = ServerOptions {
        max_connections: unset.max_connections,
        write_stall: unset.write_stall,
        drain: unset.drain,
        ..server
    };
    let tls = |at: &ListenerOptions| at.tls.as_ref().map(Arc::as_ptr);
    // Who comes is asked what holds now.
    let of_it = |at: &ListenerOptions| ListenerOptions {
        door: DoorParams::OPEN,
        ipv6_prefix: 0,
        ends: SpreadParams::default(),
        ..at.clone()
    };
    let listeners = listeners.iter().map(|at| format!("{:?} {:?}", of_it(at), tls(at)));
    format!("{of_each:?} {:?}", listeners.collect::<Vec<_>>())
}

const FILES: u64 = 10_000;

fn made(config: GatewayConfig, diagnostics: &Diagnostics, clock: Clock) -> Arc<Gateway> {
    let log = match config.access_log {
        LogTo::Stdout => AccessLog::to(std::io::sink()).unwrap(),
        LogTo::Off => AccessLog::off(),
    };
    Gateway::new(config, log, diagnostics.clone(), clock).unwrap()
}

fn under(gateway: &Gateway) -> (ServerOptions, Vec<ListenerOptions>) {
    let listeners = gateway.config.listeners.iter().enumerate();
    let options = listeners.map(|(at, it)| listener_options(it, gateway.tls.listener(at).cloned()));
    (server_options(&gateway.config, FILES), options.collect())
}

/// A gateway that reloads, and the server it tells, played by the test.
struct Reloading {
    reloader: Arc<Reloader>,
    changes: mpsc::Receiver<Change>,
    drain: channel::Sender<DrainView>,
}

impl Reloading {
    fn new(gateway: Arc<Gateway>) -> Self {
        let (control, changes) = Control::apart();
        let (sender, drain) = channel::channel(DrainView::SERVING);
        let reloader = Reloader::new(gateway, control, drain, FILES, true);
        Self { reloader, changes, drain: sender }
    }

    /// Reads the file again; what the server was told.
    async fn reload(&mut self) -> (Reloaded, Option<(ServerOptions, Vec<ListenerOptions>)>) {
        let mut told = None;
        let reloader = Arc::clone(&self.reloader);
        let mut reload = std::pin::pin!(reloader.reload("the test"));
        loop {
            tokio::select! {
                reloaded = &mut reload => return (reloaded, told),
                Some(change) = self.changes.recv() => {
                    let listeners = change.listeners.into_iter().map(|it| it.options).collect();
                    told = Some((change.options, listeners));
                    change.done.send(()).unwrap();
                }
            }
        }
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        self.reloader.close();
    }
}

/// What a reload makes of a change, in the words of the page.
async fn seen(files: &Files, key: &str, before: &Value, after: &Value) -> &'static str {
    let clock = Clock::new();
    let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
    let old = made(files.write(before), &diagnostics, clock);
    // What a stack knows, in one mark: no switch has set it.
    let mark = |gateway: &Gateway| {
        let marked = |it: &mut seawall_policy::Dependency| it.retries_off_until(Timestamp::ZERO);
        gateway.upstreams[0].stack.with(|dependency, _, _| marked(dependency).is_some())
    };
    old.upstreams[0].stack.with(|dependency, _, _| dependency.switch_retries_off(Timestamp::MAX));
    let (known, listeners) = (knobs(&old), old.listeners.clone());
    let (server, options) = under(&old);
    let connections = of_connections(server, &options);
    let mut reloading = Reloading::new(old);
    let wanted = files.write(after);
    let (reloaded, told) = reloading.reload().await;
    let now = reloading.reloader.gateway();
    if let Reloaded::Refused(why) = reloaded {
        let why = why.to_string();
        assert!(why.starts_with(&format!("{key}: ")), "{key}: {why}");
        assert!(why.ends_with(" needs a restart"), "{key}: {why}");
        assert_eq!(knobs(&now), known, "{key} is refused and does something");
        return "restart";
    }
    // A reload makes what a start would have made.
    let fresh = made(wanted, &diagnostics, clock);
    for (is, should) in knobs(&now).lines().zip(knobs(&fresh).lines()) {
        assert_eq!(is, should, "{key}");
    }
    assert_eq!(now.access_log.is_silent(), now.config.access_log == LogTo::Off, "{key}");
    let (server, options) = told.unwrap_or_else(|| under(&now));
    let (wanted, wanted_options) = under(&fresh);
    assert_eq!(
        format!("{server:?} {options:?}"),
        format!("{wanted:?} {wanted_options:?}"),
        "{key}"
    );
    match () {
        () if !mark(&now) => "new upstream",
        () if now.listeners != listeners => "new listener",
        () if of_connections(server, &options) != connections => "new connections",
        () if knobs(&now) != known => "at once",
        () => "nothing",
    }
}

#[tokio::test]
async fn every_key_stands_on_the_page_with_what_a_reload_makes_of_it() {
    let (keys, rows) = (keys(), rows());
    assert!(keys.contains("upstreams.<name>.rate.per_key.burst"), "the walk goes all the way");
    let told: BTreeSet<_> = rows.keys().cloned().collect();
    let tried: BTreeSet<_> = CHANGES.iter().map(|(key, ..)| (*key).to_owned()).collect();
    for (place, known) in [("docs/reload.md", told), ("CHANGES", tried)] {
        let differs: Vec<_> = known.symmetric_difference(&keys).collect();
        assert!(differs.is_empty(), "in {place} or in the file, and not in both: {differs:?}");
    }
    let files = Files::new("reload-keys");
    let mut wrong = Vec::new();
    for (key, becomes, beside) in CHANGES {
        let (before, after) = both(key, becomes, beside);
        let seen = seen(&files, key, &before, &after).await;
        if rows[*key] != seen {
            wrong.push(format!("{key}: the page says {:?}, it is {seen:?}", rows[*key]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn what_needs_a_restart_is_said_in_the_answer_in_a_line_and_in_the_metric() {
    let files = Files::new("reload-restart");
    let clock = Clock::new();
    let page = Page::default();
    let diagnostics = Diagnostics::to(page.clone(), false, clock).unwrap();
    let mut reloading = Reloading::new(made(files.write(&base()), &diagnostics, clock));
    let mut after = base();
    put(&mut after, "admin.address", "[::1]:0");
    // What could change at once stays out as well: a file is in force whole, or not at all.
    put(&mut after, "upstreams.<name>.timeouts.total", "20s");
    files.write(&after);
    let (reloaded, told) = reloading.reload().await;
    let why = "admin.address: [::1]:0 in place of 127.0.0.1:0 needs a restart";
    assert_eq!(reloaded, Reloaded::Refused(why.to_owned().into()));
    assert!(told.is_none(), "the server is told nothing");
    let total = reloading.reloader.gateway().config.upstreams[0].timeouts.total;
    assert_eq!(total, Duration::from_secs(25));
    let status = reloading.reloader.status();
    assert_eq!((status.counts, status.refused), ([0, 0, 1], Some(why.to_owned().into())));
    drop(reloading);
    assert!(diagnostics.close().await);
    let text = page.text();
    let line = text.lines().last().unwrap();
    assert!(line.contains(" WARN configuration not reloaded: the one in force stays"), "{line}");
    assert!(line.contains("admin.address: [::1]:0 in place of"), "{line}");
}

/// A certificate and its key that are not those of [`Files`].
fn fresh_pair() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (certificate.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A gateway that serves TLS and follows its file, on virtual time.
fn following(name: &str) -> (Files, Value, Reloading, JoinHandle<()>) {
    let files = Files::new(name);
    let (config, _) = both("listeners[].tls.cert", "{dir}/a.crt", SERVES);
    let clock = Clock::new();
    let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
    let reloading = Reloading::new(made(files.write(&config), &diagnostics, clock));
    let reloader = Arc::clone(&reloading.reloader);
    let follows = tokio::spawn(async move { watch_file(&reloader).await });
    (files, config, reloading, follows)
}

#[tokio::test(start_paused = true)]
async fn a_change_beside_a_pair_half_rotated_is_in_force_once_the_pair_is_whole() {
    let (files, mut config, mut reloading, follows) = following("reload-half");
    sleep(LOOK_EVERY * 4).await;
    let (certificate, key) = fresh_pair();
    std::fs::write(files.0.join("a.crt"), certificate).unwrap();
    put(&mut config, "upstreams.<name>.timeouts.total", "20s");
    let text = config.to_string().replace("{dir}", &files.0.display().to_string());
    std::fs::write(files.file(), text).unwrap();
    // Tried again and again, and told once.
    sleep(AGAIN_EVERY * 4).await;
    let status = reloading.reloader.status();
    assert_eq!(status.counts, [0, 0, 1]);
    let why = status.refused.unwrap().to_string();
    assert!(why.contains("this is another's"), "{why}");
    std::fs::write(files.0.join("a.key"), key).unwrap();
    let change = timeout(AGAIN_EVERY * 4, reloading.changes.recv()).await.unwrap().unwrap();
    change.done.send(()).unwrap();
    sleep(AGAIN_EVERY).await;
    let status = reloading.reloader.status();
    assert_eq!((status.counts, status.refused), ([1, 0, 1], None));
    let total = reloading.reloader.gateway().config.upstreams[0].timeouts.total;
    assert_eq!(total, Duration::from_secs(20));
    follows.abort();
}

#[tokio::test(start_paused = true)]
async fn a_rotation_right_after_the_start_is_no_change_of_the_file() {
    let (files, _, reloading, follows) = following("reload-first");
    std::fs::write(files.0.join("a.crt"), fresh_pair().0).unwrap();
    sleep(AGAIN_EVERY * 4).await;
    let status = reloading.reloader.status();
    assert_eq!((status.counts, status.refused), ([0; 3], None));
    follows.abort();
}

#[tokio::test]
async fn readings_that_hang_are_bounded_and_end_with_their_files() {
    let files = Files::new("reload-hangs");
    let clock = Clock::new();
    let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
    let mut reloading = Reloading::new(made(files.write(&base()), &diagnostics, clock));
    let begin = |count| reloading.reloader.readings.begin(count).unwrap();
    let (most, last) = (begin(READINGS_MAX - 1), begin(1));
    let (reloaded, _) = reloading.reload().await;
    assert!(
        matches!(&reloaded, Reloaded::Refused(why) if why.to_string().contains("hang")),
        "{reloaded:?}"
    );
    drop(last);
    // Nobody takes a thread from those who ask, though there is one.
    reloading.reloader.try_again().await;
    assert_eq!(reloading.reloader.status().counts, [0, 0, 1]);
    assert_eq!(reloading.reload().await.0, Reloaded::Unchanged);
    drop(most);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_not_waited_for_twice() {
    let files = Files::new("reload-twice");
    let (config, _) = both("listeners[].tls.cert", "{dir}/a.crt", SERVES);
    let clock = Clock::new();
    let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
    let mut reloading = Reloading::new(made(files.write(&config), &diagnostics, clock));
    let gateway = reloading.reloader.gateway();
    let hangs = (reloading.reloader.readings.begin(READINGS_MAX), gateway.tls.hang());
    assert!(hangs.0.is_some() && hangs.1.is_some());
    let (reloaded, _) = timeout(LOOK_EVERY, reloading.reload()).await.unwrap();
    assert!(matches!(reloaded, Reloaded::Refused(_)));
}

#[tokio::test]
async fn a_reload_goes_on_when_nobody_waits_for_it_any_more() {
    let files = Files::new("reload-left");
    let clock = Clock::new();
    let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
    let mut reloading = Reloading::new(made(files.write(&base()), &diagnostics, clock));
    let mut after = base();
    put(&mut after, "upstreams.<name>.timeouts.total", "20s");
    files.write(&after);
    let change = tokio::select! {
        reloaded = reloading.reloader.reload("the test") => panic!("{reloaded:?}"),
        change = reloading.changes.recv() => change.unwrap(),
    };
    change.done.send(()).unwrap();
    let _one = reloading.reloader.one.lock().await;
    assert_eq!(reloading.reloader.status().counts, [1, 0, 0]);
}

#[test]
fn a_reload_that_a_drain_overtakes_changes_nothing() {
    let one_thread =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    one_thread.unwrap().block_on(async {
        let files = Files::new("reload-overtaken");
        let clock = Clock::new();
        let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
        let mut reloading = Reloading::new(made(files.write(&base()), &diagnostics, clock));
        let mut after = base();
        put(&mut after, "upstreams.<name>.timeouts.total", "20s");
        files.write(&after);
        // Nothing is read while its thread is taken.
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let taken = tokio::task::spawn_blocking(move || waits.recv());
        let reloader = Arc::clone(&reloading.reloader);
        let reload = tokio::spawn(async move { reloader.reload("the test").await });
        while !reloading.reloader.readings.hang() {
            tokio::task::yield_now().await;
        }
        reloading.drain.send_modify(|it| it.phase = DrainPhase::Accept);
        drop(go);
        assert!(taken.await.unwrap().is_err());
        let reloaded = tokio::select! {
            reloaded = reload => reloaded.unwrap(),
            _ = reloading.changes.recv() => panic!("the server is told of a change"),
        };
        assert_eq!(reloaded, Reloaded::Refused("the process is leaving".to_owned().into()));
        assert!(matches!(reloading.reload().await, (Reloaded::Refused(_), None)), "nor later");
    });
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_told_of_once_it_is_in_force() {
    let files = Files::new("reload-expired");
    let clock = Clock::new();
    let page = Page::default();
    let diagnostics = Diagnostics::to(page.clone(), false, clock).unwrap();
    let mut reloading = Reloading::new(made(files.write(&base()), &diagnostics, clock));
    let key = rcgen::KeyPair::generate().unwrap();
    let mut expired = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    expired.not_after = rcgen::date_time_ymd(2001, 1, 1);
    std::fs::write(files.0.join("a.crt"), expired.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(files.0.join("a.key"), key.serialize_pem()).unwrap();
    let (mut config, _) = both("listeners[].tls.cert", "{dir}/a.crt", SERVES);
    let admin = std::mem::replace(&mut config["admin"], json!({"address": "[::1]:0"}));
    files.write(&config);
    assert!(matches!(reloading.reload().await.0, Reloaded::Refused(_)));
    reloading.reloader.try_again().await;
    config["admin"] = admin;
    files.write(&config);
    assert_eq!(reloading.reload().await.0, Reloaded::Applied);
    put(&mut config, "upstreams.<name>.timeouts.total", "20s");
    files.write(&config);
    assert_eq!(reloading.reload().await.0, Reloaded::Applied);
    drop(reloading);
    assert!(diagnostics.close().await);
    assert_eq!(page.text().matches("the certificate has expired").count(), 1, "{}", page.text());
}

#[tokio::test(start_paused = true)]
async fn a_pipe_that_was_read_is_not_read_again_by_itself() {
    let files = Files::new("reload-pipe");
    let clock = Clock::new();
    let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
    let reloading = Reloading::new(made(files.write(&base()), &diagnostics, clock));
    std::fs::remove_file(files.file()).unwrap();
    crate::file::pipe(&files.file());
    timeout(AGAIN_EVERY, watch_file(&reloading.reloader)).await.unwrap();
    assert_eq!(reloading.reloader.status().counts, [0; 3]);
}
