//! One request, one answer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use seawall_policy::ConfigError;
use serde::Serialize;
use tokio::time::timeout;

use super::guard::{Caller, admit, check_peer};
use super::query::Query;
use super::views::{Readiness, Reloading, RetriesChange, RetriesState};
use super::{Desk, Ends, switches, table};
use crate::metrics::Format;
use crate::reload::Reloaded;
use crate::units::parse_duration;

pub(super) type Answer = Response<Full<Bytes>>;

/// Answers a request.
pub(super) async fn answer(desk: &Desk, ends: Ends, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    let caller = match admit(desk, ends, &head) {
        Ok(caller) => caller,
        Err(refused) => return refused.answer(),
    };
    let known = match find(head.uri.path(), &head.method) {
        Ok(known) => known,
        Err(refused) => return refused.answer(),
    };
    if let Err(refused) = check_body(body).await {
        return refused.answer();
    }
    // Probes and scrapers put in what they like, and it changes nothing.
    let query = head.uri.query().filter(|_| !known.is_probe()).unwrap_or("");
    let query = match Query::parse(query, known.parameters()) {
        Ok(query) => query,
        Err(error) => return Refusal::of(StatusCode::BAD_REQUEST, error).answer(),
    };
    match known {
        Known::Index => text(StatusCode::OK, INDEX.to_owned()),
        Known::Live => text(StatusCode::OK, "ok\n".to_owned()),
        Known::Ready => ready(desk.backend.ready()),
        Known::Metrics => {
            let format = format_of(&head.headers);
            whole(StatusCode::OK, format.content_type(), desk.backend.render_metrics(format))
        }
        Known::Upstreams => upstreams(desk, &query),
        Known::Queues => {
            let mut queues = desk.backend.queues();
            queues.extend(desk.queues());
            json(&queues)
        }
        Known::Retries => json(&desk.backend.retries()),
        Known::ConfigDump => json(&desk.backend.config()),
        Known::SetRetries => {
            set_retries(desk, ends, caller, &query).unwrap_or_else(|refused| refused.answer())
        }
        Known::Switches => json(&desk.backend.switches()),
        Known::ForceBreakers => switches::force_breakers(desk, ends, caller, &query)
            .unwrap_or_else(|refused| refused.answer()),
        Known::Reload => match check_peer(ends, caller) {
            Ok(()) => reload(desk.backend.reload(ends.peer)).await,
            Err(refused) => refused.answer(),
        },
    }
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Index,
    Live,
    Ready,
    Metrics,
    Upstreams,
    Queues,
    Retries,
    SetRetries,
    Switches,
    ForceBreakers,
    ConfigDump,
    Reload,
}

impl Known {
    const fn is_probe(self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Metrics)
    }

    const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Upstreams => &["format"],
            Self::SetRetries => &["state", "ttl", "upstream", "reason"],
            Self::ForceBreakers => switches::PARAMETERS,
            _ => &[],
        }
    }
}

/// Finds what is asked for.
fn find(path: &str, method: &Method) -> Result<Known, Refusal> {
    if path == "/reload" {
        return match method {
            &Method::POST => Ok(Known::Reload),
            _ => Err(Refusal::of_method(method, "POST")),
        };
    }
    let (read, write) = match path {
        "/" => (Known::Index, None),
        "/livez" | "/healthz" => (Known::Live, None),
        "/ready" => (Known::Ready, None),
        "/metrics" => (Known::Metrics, None),
        "/upstreams" => (Known::Upstreams, None),
        "/queues" => (Known::Queues, None),
        "/retries" => (Known::Retries, Some(Known::SetRetries)),
        "/switches" => (Known::Switches, None),
        "/config_dump" => (Known::ConfigDump, None),
        "/breakers" => (Known::Switches, Some(Known::ForceBreakers)),
        other => {
            let error = ConfigError::new("path", shown(other), "one that GET / lists");
            return Err(Refusal::of(StatusCode::NOT_FOUND, error));
        }
    };
    match (method, write) {
        (&Method::GET | &Method::HEAD, _) => Ok(read),
        (&Method::PUT, Some(write)) => Ok(write),
        _ => {
            let allow = if write.is_some() { "GET, HEAD, PUT" } else { "GET, HEAD" };
            Err(Refusal::of_method(method, allow))
        }
    }
}

/// Parameters come in the query; a body is read to its bound only to tell what is wrong with it.
async fn check_body(body: Incoming) -> Result<(), Refusal> {
    if body.is_end_stream() {
        return Ok(());
    }
    let allowed = "no body; parameters go into the query";
    match Limited::new(body, BODY_BYTES).collect().await {
        Ok(read) => {
            let length = read.to_bytes().len();
            let error = ConfigError::new("body", format!("{length} bytes"), allowed);
            if length == 0 { Ok(()) } else { Err(Refusal::of(StatusCode::BAD_REQUEST, error)) }
        }
        Err(_) => {
            let value = format!("more than {BODY_BYTES} bytes, or broken");
            let error = ConfigError::new("body", value, allowed);
            Err(Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, error))
        }
    }
}

fn ready(readiness: Readiness) -> Answer {
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        Readiness::Starting | Readiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{}\n", readiness.as_str()))
}

fn upstreams(desk: &Desk, query: &Query<'_>) -> Answer {
    match query.value("format") {
        None | Some("json") => json(&desk.backend.upstreams()),
        Some("text") => text(StatusCode::OK, table::upstreams(&desk.backend.upstreams())),
        Some(other) => {
            let error = ConfigError::new("format", shown(other), "json or text");
            Refusal::of(StatusCode::BAD_REQUEST, error).answer()
        }
    }
}

/// Waits for a reload as long as there is time left to answer.
async fn reload(reloading: Reloading) -> Answer {
    match timeout(RELOAD_TIMEOUT, reloading).await {
        Ok(done) => reloaded(done),
        Err(_) => {
            let why = "a reload takes its time; its end stands in the log, or ask again\n";
            text(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
        }
    }
}

/// What became of a reload. What is wrong is said as `seawall check` says it.
fn reloaded((reloaded, hash): (Reloaded, String)) -> Answer {
    match &reloaded {
        Reloaded::Refused(why) => text(StatusCode::UNPROCESSABLE_ENTITY, format!("{why}\n")),
        Reloaded::Applied | Reloaded::Unchanged => {
            json(&serde_json::json!({"result": reloaded.as_str(), "hash": hash}))
        }
    }
}

/// Switches retries; the switch leaves the line that tells who did.
fn set_retries(
    desk: &Desk,
    ends: Ends,
    caller: Caller,
    query: &Query<'_>,
) -> Result<Answer, Refusal> {
    check_peer(ends, caller)?;
    let change =
        change(ends, query).map_err(|error| Refusal::of(StatusCode::BAD_REQUEST, error))?;
    let upstream = query.value("upstream");
    desk.backend.set_retries(upstream, change).map_err(|_| {
        let value = shown(upstream.unwrap_or(""));
        let error = ConfigError::new("upstream", value, "a name that GET /upstreams lists");
        Refusal::of(StatusCode::NOT_FOUND, error)
    })?;
    Ok(json(&desk.backend.retries()))
}

/// Reads the change that a query asks for.
fn change(ends: Ends, query: &Query<'_>) -> Result<RetriesChange, ConfigError> {
    let missing = |field: &'static str, allowed: &'static str| {
        ConfigError::new(field, query.value(field).map_or("nothing".into(), shown), allowed)
    };
    let state = match (query.value("state"), query.value("ttl")) {
        (Some("on"), None) => RetriesState::On,
        (Some("on"), Some(_)) => return Err(missing("ttl", "none with state=on")),
        (Some("off"), None) => {
            return Err(missing("ttl", "how long, at most 24h, like ttl=10m"));
        }
        (Some("off"), Some(ttl)) => {
            let ttl = parse_duration(ttl).map_err(|refused| refused.of_field("ttl"))?;
            if ttl.is_zero() || ttl > LONGEST_TTL {
                return Err(missing("ttl", "more than 0s and at most 24h, like 10m"));
            }
            RetriesState::Off(ttl)
        }
        _ => return Err(missing("state", "off or on")),
    };
    let reason = query.value("reason").filter(|reason| !reason.is_empty());
    if reason.is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
        return Err(missing("reason", "at most 256 characters"));
    }
    Ok(RetriesChange { state, by: ends.peer, reason: reason.map(str::to_owned) })
}

/// OpenMetrics where `Accept` likes it at least as well as plain text.
fn format_of(headers: &HeaderMap) -> Format {
    let (mut open, mut plain) = (0.0_f32, 0.0_f32);
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in accepts.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("").to_ascii_lowercase();
        let quality = parts
            .find_map(|part| part.strip_prefix("q="))
            .map_or(1.0, |quality| quality.parse().unwrap_or(0.0));
        match kind.as_str() {
            "application/openmetrics-text" => open = open.max(quality),
            "text/plain" => plain = plain.max(quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
}

/// An answer that says what was wrong with a request.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: ConfigError,
    allow: Option<&'static str>,
}

/// The body of such an answer. Source: rfc9457.
#[derive(Serialize)]
struct Problem<'a> {
    title: &'a str,
    status: u16,
    detail: String,
    field: &'a str,
    value: &'a str,
    allowed: &'a str,
}

impl Refusal {
    pub(super) const fn of(status: StatusCode, error: ConfigError) -> Self {
        Self { status, error, allow: None }
    }

    /// A method that is none of `allow`.
    fn of_method(method: &Method, allow: &'static str) -> Self {
        let error = ConfigError::new("method", shown(method.as_str()), allow);
        Self { allow: Some(allow), ..Self::of(StatusCode::METHOD_NOT_ALLOWED, error) }
    }

    fn answer(&self) -> Answer {
        let body = line(&Problem {
            title: self.status.canonical_reason().unwrap_or("refused"),
            status: self.status.as_u16(),
            detail: self.error.to_string(),
            field: self.error.field(),
            value: self.error.value(),
            allowed: self.error.allowed(),
        });
        let mut answer = whole(self.status, "application/problem+json", body);
        if let Some(allow) = self.allow {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

/// One line of JSON.
fn line(value: &impl Serialize) -> String {
    // Our views have string keys and finite numbers, which always serialize.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

pub(super) fn json(value: &impl Serialize) -> Answer {
    whole(StatusCode::OK, "application/json", line(value))
}

fn text(status: StatusCode, body: String) -> Answer {
    whole(status, "text/plain; charset=utf-8", body)
}

fn whole(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    answer
}

/// A refused text, short enough to say back.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

pub(super) fn shown_value(value: &HeaderValue) -> String {
    shown(&String::from_utf8_lossy(value.as_bytes()))
}

const INDEX: &str = "\
seawall

GET  /livez               200 while the process works, in a drain too (also /healthz)
GET  /ready               200 while traffic should come, otherwise 503
GET  /metrics             OpenMetrics, or Prometheus text
GET  /upstreams           JSON; ?format=text for a table
GET  /queues              JSON: every queue with its bound
GET  /retries             JSON: whether retries are on
PUT  /retries?state=off&ttl=10m[&upstream=NAME][&reason=TEXT]
PUT  /retries?state=on[&upstream=NAME][&reason=TEXT]
GET  /switches            JSON: what is switched, by whom, how long still
PUT  /breakers?upstream=NAME&mode=MODE[&ttl=10m][&who=NAME][&reason=TEXT]
GET  /config_dump         JSON: the configuration in force, secrets hidden
POST /reload              reads the configuration again; 422 with what is wrong
";
/// Bytes of a request body that are read.
const BODY_BYTES: usize = 4096;
/// The longest that a reload is waited for: shorter than a connection lives, so that there is an
/// answer, and longer than a file that hangs is waited for. Source: own choice.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(8);
/// The longest that retries stay off by themselves. Source: seawall-design.
pub(super) const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);
/// Characters of a reason.
pub(super) const REASON_CHARS: usize = 256;
/// Characters of a refused text that are said back.
const SHOWN_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::CONNECTION_TIMEOUT;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reload_that_takes_its_time_is_answered_before_the_connection_ends() {
        let answer = reload(Box::pin(std::future::pending()));
        let answer = timeout(CONNECTION_TIMEOUT, answer).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
