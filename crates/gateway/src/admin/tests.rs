use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::*;
use crate::config::{AdminAccess, AdminToken};
use crate::metrics::Format;
use crate::reload::Reloaded;

#[derive(Debug)]
pub(super) struct Backend {
    readiness: Mutex<Readiness>,
    pub(super) changes: Mutex<Vec<(Option<String>, RetriesChange)>>,
    /// What is wrong with the configuration.
    refused: Mutex<Option<String>>,
    access: Mutex<AdminAccess>,
    unauthorized: Mutex<u64>,
    forced: Mutex<Vec<BreakerChange>>,
}

impl Backend {
    pub(super) fn new() -> Self {
        let (changes, refused) = (Mutex::default(), Mutex::default());
        Self {
            readiness: Mutex::new(Readiness::Starting),
            changes,
            refused,
            access: Mutex::default(),
            unauthorized: Mutex::default(),
            forced: Mutex::default(),
        }
    }
}

impl AdminBackend for Backend {
    fn access(&self) -> AdminAccess {
        self.access.lock().clone()
    }

    fn count_unauthorized(&self) {
        *self.unauthorized.lock() += 1;
    }

    fn ready(&self) -> Readiness {
        *self.readiness.lock()
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        let endpoint = EndpointView { endpoint: "e:1".to_owned(), ..Default::default() };
        vec![UpstreamView {
            name: "bridge".to_owned(),
            protocol: "http1",
            endpoints: vec![endpoint],
            ..Default::default()
        }]
    }

    fn queues(&self) -> Vec<QueueView> {
        vec![QueueView {
            name: "access log".to_owned(),
            bound: 8192,
            depth: Some(3),
            oldest_ms: None,
            when_full: "the line is dropped and counted",
        }]
    }

    fn retries(&self) -> Vec<RetriesView> {
        vec![RetriesView { upstream: "bridge".to_owned(), state: "on", ..Default::default() }]
    }

    fn set_retries(
        &self,
        upstream: Option<&str>,
        change: RetriesChange,
    ) -> Result<(), UnknownUpstream> {
        if upstream.is_some_and(|name| name != "bridge") {
            return Err(UnknownUpstream);
        }
        self.changes.lock().push((upstream.map(str::to_owned), change));
        Ok(())
    }

    fn switches(&self) -> Vec<SwitchView> {
        Vec::new()
    }

    fn force_breakers(&self, upstream: &str, change: BreakerChange) -> Result<(), UnknownUpstream> {
        if upstream != "bridge" {
            return Err(UnknownUpstream);
        }
        self.forced.lock().push(change);
        Ok(())
    }

    fn reload(&self, by: SocketAddr) -> Reloading {
        let refused = self.refused.lock().clone();
        let reloaded = refused.map_or(Reloaded::Applied, |why| Reloaded::Refused(why.into()));
        Box::pin(async move { (reloaded, format!("by {}", by.ip())) })
    }

    fn config(&self) -> ConfigView {
        ConfigView {
            generation: 3,
            config: serde_json::json!({"version": "1"}),
            ..Default::default()
        }
    }

    fn render_metrics(&self, format: Format) -> String {
        format!("{format:?}\n")
    }
}

struct Served {
    address: SocketAddr,
    backend: Arc<Backend>,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

async fn serve() -> Served {
    let admin = Admin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = admin.address();
    let backend = Arc::new(Backend::new());
    let diagnostics = Diagnostics::to(io::sink(), false, seawall::Clock::new()).unwrap();
    let (stop, stopped) = oneshot::channel();
    let serving = admin.serve(backend.clone(), diagnostics, async {
        let _ = stopped.await;
    });
    let ended = tokio::spawn(serving);
    Served { address, backend, stop, ended }
}

#[tokio::test]
async fn the_kernel_holds_more_connections_than_there_are_places() {
    let admin = Admin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // Nobody accepts.
    let connect = (0..4 * CONNECTIONS).map(|_| TcpStream::connect(admin.address()));
    let connected = futures_util::future::try_join_all(connect);
    tokio::time::timeout(BOUND, connected).await.expect("a SYN was left unanswered").unwrap();
}

/// Sends bytes as they are; the answer to its end.
async fn raw(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_ref()).await.unwrap();
        let mut answer = Vec::new();
        // A refusal may close before all of a body was sent; what was answered is still there.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    tokio::time::timeout(BOUND, exchange).await.unwrap()
}

/// Status, head and body of an answer.
async fn ask(address: SocketAddr, line: &str, fields: &str) -> (u16, String, String) {
    let answer = raw(address, format!("{line} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n")).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

async fn problem(address: SocketAddr, line: &str, fields: &str) -> (u16, String, String, String) {
    let (status, head, body) = ask(address, line, fields).await;
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    assert_eq!(body.matches('\n').count(), 1, "one line: {body}");
    let read: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(read["status"], status);
    let field = |name: &str| read[name].as_str().unwrap().to_owned();
    (status, field("field"), field("value"), field("allowed"))
}

#[tokio::test]
async fn readiness_follows_the_gateway_and_liveness_does_not() {
    let served = serve().await;
    for (readiness, status, word) in [
        (Readiness::Starting, 503, "starting\n"),
        (Readiness::Ready, 200, "ready\n"),
        (Readiness::Draining, 503, "draining\n"),
    ] {
        *served.backend.readiness.lock() = readiness;
        let (told, _, body) = ask(served.address, "GET /ready", "").await;
        assert_eq!((told, body.as_str()), (status, word));
        for live in ["GET /livez", "GET /healthz"] {
            assert_eq!(ask(served.address, live, "").await.0, 200, "{live}");
        }
    }
}

#[tokio::test]
async fn metrics_come_in_the_format_that_is_liked_best() {
    let served = serve().await;
    for (accept, format) in [
        ("", Format::Prometheus),
        ("Accept: */*\r\n", Format::Prometheus),
        ("Accept: application/openmetrics-text\r\n", Format::OpenMetrics),
        (
            "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3\r\n",
            Format::OpenMetrics,
        ),
        ("Accept: text/plain;q=0.9, application/openmetrics-text;q=0.5\r\n", Format::Prometheus),
        ("Accept: application/openmetrics-text;q=0\r\n", Format::Prometheus),
        ("Accept: application/openmetrics-text;q=banana\r\n", Format::Prometheus),
    ] {
        let (status, head, body) = ask(served.address, "GET /metrics", accept).await;
        assert_eq!((status, body), (200, format!("{format:?}\n")), "{accept}");
        assert!(head.contains(&format!("content-type: {}", format.content_type())), "{head}");
    }
}

#[tokio::test]
async fn state_is_told_in_json_and_upstreams_in_a_table_too() {
    let served = serve().await;
    let read = async |line: &str| -> Value {
        let (status, head, body) = ask(served.address, line, "").await;
        assert_eq!(status, 200);
        assert!(head.contains("content-type: application/json"), "{head}");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(read("GET /upstreams").await[0]["endpoints"][0]["endpoint"], "e:1");
    assert_eq!(read("GET /upstreams?format=json").await[0]["name"], "bridge");
    let queue = &read("GET /queues").await[0];
    for (field, value) in [
        ("name", Value::from("access log")),
        ("bound", 8192.into()),
        ("depth", 3.into()),
        ("oldest_ms", Value::Null),
        ("when_full", "the line is dropped and counted".into()),
    ] {
        assert_eq!(queue[field], value, "{field}");
    }
    assert_eq!(read("GET /retries").await[0]["state"], "on");
    let dump = read("GET /config_dump").await;
    assert_eq!((&dump["generation"], &dump["config"]["version"]), (&3.into(), &"1".into()));
    let (_, head, table) = ask(served.address, "GET /upstreams?format=text", "").await;
    assert!(head.contains("content-type: text/plain"));
    assert!(table.lines().nth(1).unwrap().starts_with("bridge    e:1"), "{table}");
    let (status, _, index) = ask(served.address, "GET /", "").await;
    assert_eq!(status, 200);
    for path in
        ["/livez", "/ready", "/metrics", "/upstreams", "/queues", "/retries", "/config_dump"]
    {
        assert!(index.contains(path), "{path}");
    }
}

#[tokio::test]
async fn what_probes_and_scrapers_add_to_a_path_changes_nothing() {
    let served = serve().await;
    for path in ["/livez?at=1", "/ready?at=1", "/metrics?format=any&format=other"] {
        assert_ne!(ask(served.address, &format!("GET {path}"), "").await.0, 400, "{path}");
    }
    assert_eq!(ask(served.address, "GET /queues?at=1", "").await.0, 400, "others tell a typo");
}

#[tokio::test]
async fn head_answers_as_get_without_a_body() {
    let served = serve().await;
    for path in ["/", "/livez", "/metrics", "/upstreams", "/queues", "/retries", "/config_dump"] {
        let (status, head, body) = ask(served.address, &format!("HEAD {path}"), "").await;
        assert_eq!((status, body.as_str()), (200, ""), "{path}");
        let (_, got, full) = ask(served.address, &format!("GET {path}"), "").await;
        let length = format!("content-length: {}", full.len());
        assert!(head.contains(&length) && got.contains(&length), "{path}: {head}");
    }
}

#[tokio::test]
async fn retries_are_switched_off_for_a_while_by_who_asked() {
    let served = serve().await;
    let off = "PUT /retries?state=off&ttl=1h30m&upstream=bridge&reason=slow+half-minute%0aX";
    let (status, _, body) = ask(served.address, off, "").await;
    assert_eq!(status, 200);
    assert!(body.starts_with("[{\"upstream\":\"bridge\""), "the state after the change: {body}");
    assert_eq!(ask(served.address, "PUT /retries?state=on", "Content-Length: 0\r\n").await.0, 200);
    let changes = served.backend.changes.lock().clone();
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[0].0.as_deref(), Some("bridge"));
    assert_eq!(changes[0].1.state, RetriesState::Off(Duration::from_secs(5400)));
    assert_eq!(changes[0].1.reason.as_deref(), Some("slow half-minute\nX"));
    assert!(changes[0].1.by.ip().is_loopback());
    assert_eq!((changes[1].0.clone(), changes[1].1.state), (None, RetriesState::On));
}

#[tokio::test]
async fn a_switch_that_is_not_allowed_names_field_value_and_what_would_be() {
    let served = serve().await;
    let long = "x".repeat(257);
    for (query, status, field, value, allowed) in [
        ("", 400, "state", "nothing", "off or on"),
        ("?state=maybe", 400, "state", "maybe", "off or on"),
        ("?state=off", 400, "ttl", "nothing", "how long, at most 24h, like ttl=10m"),
        ("?state=off&ttl=10", 400, "ttl", "10", "a unit with the number, like 800ms, 5s or 1m30s"),
        ("?state=off&ttl=0s", 400, "ttl", "0s", "more than 0s and at most 24h, like 10m"),
        ("?state=off&ttl=24h1ms", 400, "ttl", "24h1ms", "more than 0s and at most 24h, like 10m"),
        ("?state=on&ttl=10m", 400, "ttl", "10m", "none with state=on"),
        ("?state=on&for=10m", 400, "query", "for", "only state, ttl, upstream, reason"),
        ("?state=on&state=on", 400, "state", "on", "it once"),
        ("?state=on&upstream=x", 404, "upstream", "x", "a name that GET /upstreams lists"),
        ("?state=on&upstream=", 404, "upstream", "", "a name that GET /upstreams lists"),
        (&format!("?state=on&reason={long}"), 400, "reason", &long[..64], "at most 256 characters"),
    ] {
        let told = problem(served.address, &format!("PUT /retries{query}"), "").await;
        let expected = (status, field.to_owned(), value.to_owned(), allowed.to_owned());
        assert_eq!(told, expected, "{query}");
    }
    assert!(served.backend.changes.lock().is_empty());
    let day = ask(served.address, "PUT /retries?state=off&ttl=24h", "").await;
    assert_eq!(day.0, 200, "a day is still allowed");
}

#[tokio::test]
async fn unknown_paths_methods_and_parameters_are_refused_by_name() {
    let served = serve().await;
    let (status, field, value, _) = problem(served.address, "GET /nothing", "").await;
    assert_eq!((status, field.as_str(), value.as_str()), (404, "path", "/nothing"));
    assert_eq!(problem(served.address, "GET /livez/", "").await.0, 404);
    for (line, allow) in [
        ("POST /retries", "allow: get, head, put"),
        ("DELETE /retries", "allow: get, head, put"),
        ("PUT /livez", "allow: get, head\r\n"),
        ("POST /metrics", "allow: get, head\r\n"),
        ("OPTIONS /ready", "allow: get, head\r\n"),
    ] {
        let (status, head, _) = ask(served.address, line, "Content-Length: 0\r\n").await;
        assert_eq!(status, 405, "{line}");
        assert!(format!("{head}\r\n").contains(allow), "{line}: {head}");
    }
    assert_eq!(problem(served.address, "GET /queues?x=1", "").await.1, "query");
    let (status, field, ..) = problem(served.address, "GET /upstreams?format=xml", "").await;
    assert_eq!((status, field.as_str()), (400, "format"));
}

#[tokio::test]
async fn a_request_with_an_origin_is_refused() {
    let served = serve().await;
    for origin in ["http://evil.test", "null", "http://localhost"] {
        let fields = format!("Origin: {origin}\r\n");
        let told = problem(served.address, "GET /metrics", &fields).await;
        assert_eq!((told.0, told.1.as_str(), told.2.as_str()), (403, "origin", origin));
        assert_eq!(problem(served.address, "PUT /retries?state=on", &fields).await.0, 403);
    }
    assert!(served.backend.changes.lock().is_empty());
}

#[tokio::test]
async fn only_a_host_that_means_this_machine_is_answered() {
    let served = serve().await;
    let status = async |request: String| -> u16 {
        let answer = raw(served.address, request).await;
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    };
    for (host, expected) in [
        ("localhost", 200),
        ("LOCALHOST:9901", 200),
        ("127.0.0.1", 200),
        ("127.8.8.8:1", 200),
        ("[::1]:9901", 200),
        ("[::ffff:127.0.0.1]", 200),
        ("rebound.test", 403),
        ("rebound.test:9901", 403),
        ("localhost.rebound.test", 403),
        ("127.0.0.1.rebound.test", 403),
        ("192.0.2.1", 403),
        ("[2001:db8::1]", 403),
        ("0.0.0.0", 403),
        ("localhost@rebound.test", 403),
        ("", 403),
        ("\u{e9}", 403),
    ] {
        let told = status(format!("GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_eq!(told, expected, "{host}");
    }
    assert_eq!(status("GET /livez HTTP/1.1\r\n\r\n".to_owned()).await, 400);
    let twice = "GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: rebound.test\r\n\r\n";
    assert_eq!(status(twice.to_owned()).await, 400);
    let absolute = "GET http://rebound.test/livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(status(absolute.to_owned()).await, 403);
}

#[tokio::test]
async fn a_forced_breaker_names_its_upstream_mode_and_time() {
    let served = serve().await;
    let long = "x".repeat(257);
    for (query, status, field) in [
        ("", 400, "mode"),
        ("?upstream=bridge&mode=open", 400, "mode"),
        ("?upstream=bridge&mode=forced_open&ttl=0s", 400, "ttl"),
        ("?upstream=bridge&mode=forced_open&ttl=24h1ms", 400, "ttl"),
        ("?upstream=bridge&mode=forced_open&ttl=10", 400, "ttl"),
        ("?upstream=bridge&mode=normal&ttl=10m", 400, "ttl"),
        (&format!("?upstream=bridge&mode=disabled&who={long}"), 400, "who"),
        (&format!("?upstream=bridge&mode=disabled&reason={long}"), 400, "reason"),
        ("?mode=forced_open", 404, "upstream"),
        ("?upstream=x&mode=forced_open", 404, "upstream"),
    ] {
        let told = problem(served.address, &format!("PUT /breakers{query}"), "").await;
        assert_eq!((told.0, told.1.as_str()), (status, field), "{query}");
    }
    assert!(served.backend.forced.lock().is_empty());
    let ask_for = async |query: &str| {
        ask(served.address, &format!("PUT /breakers?upstream=bridge&{query}"), "").await.0
    };
    assert_eq!(ask_for("mode=forced_open").await, 200);
    assert_eq!(ask_for("mode=normal&who=kim&reason=all+well").await, 200);
    let forced = served.backend.forced.lock().clone();
    assert_eq!(forced[0].mode, Some(seawall_policy::BreakerMode::ForcedOpen));
    assert_eq!(forced[0].ttl, Duration::from_secs(600));
    assert!(forced[0].by.starts_with("127.0.0.1:"));
    assert_eq!((forced[1].mode, forced[1].reason.as_str()), (None, "all well"));
    assert!(forced[1].by.starts_with("kim (127.0.0.1:"));
}

#[tokio::test]
async fn behind_a_token_only_probes_are_for_everybody() {
    let served = serve().await;
    let token = "a-token-of-twenty-three";
    let with = |open_metrics| {
        let token = AdminToken::parse(token).ok();
        *served.backend.access.lock() = AdminAccess { token, token_file: None, open_metrics };
    };
    with(false);
    let mut counted = 0;
    for line in ["GET /metrics", "GET /", "GET /upstreams", "GET /nothing", "PUT /retries?state=on"]
    {
        for shown in
            ["", "Bearer", "Bearer a-token-of-twenty-thre", "Basic a-token-of-twenty-three"]
        {
            let fields = match shown {
                "" => String::new(),
                shown => format!("Authorization: {shown}\r\n"),
            };
            let (status, head, body) = ask(served.address, line, &fields).await;
            assert_eq!(status, 401, "{line} {shown}");
            assert!(head.contains("\r\nwww-authenticate: bearer\r\n"), "{head}");
            assert!(!body.contains("a-token"), "{body}");
            counted += 1;
        }
    }
    assert_eq!(*served.backend.unauthorized.lock(), counted);
    assert!(served.backend.changes.lock().is_empty());
    for line in ["GET /livez", "GET /healthz"] {
        assert_eq!(ask(served.address, line, "").await.0, 200, "{line}");
    }
    assert_eq!(ask(served.address, "GET /ready", "").await.0, 503, "as it is starting");
    let shown = format!("Authorization: bearer {token}\r\n");
    for line in ["GET /metrics", "GET /", "GET /upstreams", "PUT /retries?state=on", "GET /livez"] {
        assert_eq!(ask(served.address, line, &shown).await.0, 200, "{line}");
    }
    with(true);
    assert_eq!(ask(served.address, "GET /metrics", "").await.0, 200);
    assert_eq!(ask(served.address, "GET /upstreams", "").await.0, 401);
    assert_eq!(*served.backend.unauthorized.lock(), counted + 1);
}

#[tokio::test]
async fn a_body_is_refused_and_a_long_one_is_not_read() {
    let served = serve().await;
    for (length, status, value) in [
        (1, 400, "1 bytes"),
        (4096, 400, "4096 bytes"),
        (4097, 413, "more than 4096 bytes, or broken"),
    ] {
        let head = "PUT /retries?state=on HTTP/1.1\r\nHost: localhost\r\n";
        let body = "x".repeat(length);
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        let answer = raw(served.address, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
        assert!(answer.contains(&format!("\"field\":\"body\",\"value\":\"{value}\"")));
    }
    assert!(served.backend.changes.lock().is_empty());
}

#[tokio::test]
async fn an_answer_closes_its_connection() {
    let served = serve().await;
    let both = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    let answer = raw(served.address, both).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1);
    assert!(answer.to_ascii_lowercase().contains("connection: close"));
}

#[tokio::test]
async fn the_sixty_fifth_connection_waits_until_one_ends() {
    let served = serve().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    let mut late = TcpStream::connect(served.address).await.unwrap();
    late.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let waited = tokio::time::timeout(Duration::from_millis(200), late.read_to_string(&mut answer));
    assert!(waited.await.is_err(), "{answer}");
    held.pop();
    tokio::time::timeout(BOUND, late.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_head_beyond_its_bound_is_refused() {
    let served = serve().await;
    let fields = format!("X: {}\r\n", "x".repeat(HEAD_BYTES));
    assert_eq!(ask(served.address, "GET /livez", &fields).await.0, 431);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_ends() {
    let served = serve().await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let mut answer = Vec::new();
    // Well before the end of the whole connection's time.
    let bound = HEAD_TIMEOUT + Duration::from_secs(2);
    tokio::time::timeout(bound, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
}

#[tokio::test]
async fn after_stop_the_port_is_free_again() {
    let served = serve().await;
    served.stop.send(()).unwrap();
    tokio::time::timeout(BOUND, served.ended).await.unwrap().unwrap();
    TcpListener::bind(served.address).await.unwrap();
}

/// Bound of everything that waits in these tests.
const BOUND: Duration = Duration::from_secs(20);
