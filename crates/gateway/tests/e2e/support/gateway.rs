//! A gateway in this process, with its log and its admin port.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use seawall_gateway::{Ended, GatewayConfig, Serving};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::sync::mpsc;

use super::{Answer, Body, Caller, Protocol, RawCaller, full, get, within};

/// A configuration, in pieces of YAML's flow style.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    endpoints: Vec<String>,
    protocol: Protocol,
    listen: String,
    listener: String,
    upstream: String,
    routes: Vec<String>,
    top: String,
}

impl Setup {
    /// One upstream named `up` that is all defaults, and one route for everything.
    pub(crate) fn new(endpoint: SocketAddr) -> Self {
        Self {
            endpoints: vec![format!("http://{endpoint}")],
            protocol: Protocol::Http1,
            listen: "127.0.0.1:0".to_owned(),
            listener: String::new(),
            upstream: String::new(),
            routes: Vec::new(),
            top: String::new(),
        }
    }

    pub(crate) fn endpoint(self, endpoint: SocketAddr) -> Self {
        self.and_at(&format!("http://{endpoint}"))
    }

    /// Another endpoint of the same upstream.
    pub(crate) fn and_at(mut self, url: &str) -> Self {
        self.endpoints.push(url.to_owned());
        self
    }

    /// One upstream at this URL.
    pub(crate) fn at(url: &str) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        Self { endpoints: vec![url.to_owned()], ..Self::new(nowhere) }
    }

    pub(crate) fn speaks(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    /// Loopback peers are trusted with everything.
    pub(crate) fn trusted(self) -> Self {
        self.listener("trusted_peers: [127.0.0.1]")
    }

    /// Listens there.
    pub(crate) fn listens(self, address: &str) -> Self {
        Self { listen: address.to_owned(), ..self }
    }

    pub(crate) fn listener(mut self, keys: &str) -> Self {
        self.listener = format!("{}, {keys}", self.listener);
        self
    }

    /// Keys of the upstream.
    pub(crate) fn upstream(mut self, keys: &str) -> Self {
        self.upstream = format!("{}, {keys}", self.upstream);
        self
    }

    /// Keys of a route beside its upstream.
    pub(crate) fn route(mut self, keys: &str) -> Self {
        self.routes.push(keys.to_owned());
        self
    }

    /// Lines at the top level.
    pub(crate) fn top(mut self, line: &str) -> Self {
        self.top = format!("{}{line}\n", self.top);
        self
    }

    pub(crate) fn yaml(&self) -> String {
        let endpoints = &self.endpoints;
        let protocol = match self.protocol {
            Protocol::Http1 => "http1",
            Protocol::H2c if endpoints[0].starts_with("https") => "h2",
            Protocol::H2c => "h2c",
        };
        let mut yaml = format!(
            "version: 1\nlisteners: [{{address: {}{}}}]\nadmin: {{address: 127.0.0.1:0}}\n\
             upstreams: {{up: {{endpoints: [{}], protocol: {protocol}{}}}}}\n{}",
            self.listen,
            self.listener,
            endpoints.join(", "),
            self.upstream,
            self.top,
        );
        if !self.routes.is_empty() {
            let routes = self.routes.iter().map(|keys| format!("  - {{upstream: up, {keys}}}\n"));
            yaml.push_str("routes:\n");
            yaml.extend(routes);
        }
        yaml
    }

    pub(crate) async fn start(&self) -> Gateway {
        let yaml = self.yaml();
        let config = GatewayConfig::parse(&yaml, "test");
        let (config, _) = config.unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
        Gateway::start(config).await
    }
}

/// A gateway that serves.
#[derive(Debug)]
pub(crate) struct Gateway {
    serving: Serving,
    pub(crate) address: SocketAddr,
    log: Mutex<mpsc::UnboundedReceiver<Value>>,
}

impl Gateway {
    pub(crate) async fn start(config: GatewayConfig) -> Self {
        let (lines, log) = mpsc::unbounded_channel();
        let writer = LogWriter { lines, partial: Vec::new() };
        let serving = within(seawall_gateway::start(config, writer)).await.unwrap();
        // Nowhere, if it listens on a socket of this host.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let address = serving.listeners().first().copied().unwrap_or(nowhere);
        Self { serving, address, log: Mutex::new(log) }
    }

    pub(crate) async fn caller(&self, protocol: Protocol) -> Caller {
        Caller::connect(self.address, protocol).await
    }

    pub(crate) async fn raw(&self) -> RawCaller {
        RawCaller::connect(self.address).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn send_over(&self, protocol: Protocol, request: Request<Body>) -> Answer {
        self.caller(protocol).await.send(request).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        self.send_over(Protocol::Http1, request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(get(path)).await
    }

    /// The next line of the access log.
    pub(crate) async fn line(&self) -> Value {
        let line = within(async { self.log.lock().await.recv().await }).await;
        line.expect("the log is open")
    }

    pub(crate) async fn metrics(&self) -> Metrics {
        let answer = self.admin(Method::GET, "/metrics", "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        Metrics::parse(&answer.text())
    }

    /// Scrapes until the metrics are as wanted.
    #[track_caller]
    pub(crate) fn until(&self, wanted: impl Fn(&Metrics) -> bool) -> impl Future<Output = Metrics> {
        within(async move {
            loop {
                let metrics = self.metrics().await;
                if wanted(&metrics) {
                    return metrics;
                }
            }
        })
    }

    /// Where the admin port is.
    pub(crate) fn admin_port(&self) -> u16 {
        self.serving.admin().port()
    }

    /// Asks the admin port.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: &'static str) -> Answer {
        let mut request = Request::new(full(Bytes::from_static(body.as_bytes())));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        let host = self.serving.admin().to_string();
        request.headers_mut().insert("host", host.parse().unwrap());
        Caller::connect(self.serving.admin(), Protocol::Http1).await.send(request).await
    }

    /// Reads the configuration again.
    pub(crate) async fn reload(&self) -> Answer {
        self.admin(Method::POST, "/reload", "").await
    }

    pub(crate) fn drain(&self) {
        self.serving.drain();
    }

    pub(crate) async fn ended(self) -> Ended {
        within(self.serving.ended()).await
    }

    /// And what the log holds at that moment.
    pub(crate) async fn ended_with_lines(self) -> (Ended, Vec<Value>) {
        let ended = within(self.serving.ended()).await;
        let mut log = self.log.into_inner();
        (ended, std::iter::from_fn(|| log.try_recv().ok()).collect())
    }
}

/// One scrape: values by series.
#[derive(Debug)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn parse(text: &str) -> Self {
        let series = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        });
        Self(series.collect())
    }

    /// The sum of the series of the family that have all of `labels`, as whole number.
    #[track_caller]
    pub(crate) fn count(&self, family: &str, labels: &[(&str, &str)]) -> u64 {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let mut found = false;
        let mut sum = 0.0;
        for (series, value) in &self.0 {
            let name = series.split('{').next().unwrap();
            if name == family && labels.iter().all(|label| series.contains(label)) {
                found = true;
                sum += value;
            }
        }
        assert!(found, "no series of {family} with {labels:?}");
        format!("{sum:.0}").parse().unwrap()
    }
}

/// Hands lines of JSON to the test.
struct LogWriter {
    lines: mpsc::UnboundedSender<Value>,
    partial: Vec<u8>,
}

impl io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<_> = self.partial.drain(..=end).collect();
            let _ = self.lines.send(serde_json::from_slice(&line).expect("a line is JSON"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
