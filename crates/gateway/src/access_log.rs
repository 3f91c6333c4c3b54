//! One JSON line on standard output for each request that has ended.
//!
//! The fields, their units and the response flags are listed in `docs/access-log.md`. A line has
//! all of them, always; what is not known is `null`. Text from the network is bounded and escaped,
//! so that no request can forge a line or a field. The query is left out: it is where secrets are.
//!
//! Logging never waits. Where the reader of standard output is too slow, lines are dropped and
//! counted.

mod flags;

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use seawall_policy::{Cause, StopReason};

use self::flags::{cause_flag, refusal_flag, stop_flag};
use crate::lines::{self, LineWriter};
use crate::metrics::Refusal;
use crate::server::Peer;

mod completion;

pub(crate) use completion::Completion;

/// Where lines go.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    writer: Option<LineWriter>,
    /// Where there is a writer: whether it is given anything.
    silent: bool,
}

impl AccessLog {
    /// Lines go to standard output.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn stdout() -> io::Result<Self> {
        Self::to(io::stdout())
    }

    /// Lines go to `writer`, from a thread of their own.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn to(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let writer = LineWriter::start("access-log", QUEUE, writer)?;
        Ok(Self { writer: Some(writer), silent: false })
    }

    /// Lines go nowhere.
    #[must_use]
    pub(crate) const fn off() -> Self {
        Self { writer: None, silent: true }
    }

    /// The same log, given nothing more; what it dropped stays counted.
    pub(crate) fn silenced(&self) -> Self {
        Self { silent: true, ..self.clone() }
    }

    /// The same log again, or, if there was none, standard output.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn or_stdout(&self) -> io::Result<Self> {
        match &self.writer {
            Some(_) => Ok(Self { silent: false, ..self.clone() }),
            None => Self::stdout(),
        }
    }

    /// Writes a line, or drops and counts it; never waits.
    pub(crate) fn log(&self, line: &AccessLine<'_>) {
        if let Some(writer) = self.writer.as_ref().filter(|_| !self.silent) {
            writer.line(|out| line.write_json(out));
        }
    }

    #[cfg(test)]
    pub(crate) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Lines dropped since the start.
    #[must_use]
    pub(crate) fn dropped(&self) -> u64 {
        self.writer.as_ref().map_or(0, LineWriter::dropped)
    }

    /// Lines that wait to be written, and as many as may wait; nothing where the log is off.
    #[must_use]
    pub(crate) fn depth(&self) -> Option<(usize, usize)> {
        self.writer.as_ref().map(LineWriter::depth)
    }

    /// Waits until every line logged before is written, at most 2 s; false if some are not.
    pub(crate) async fn close(&self) -> bool {
        match &self.writer {
            Some(writer) => writer.flush(CLOSE).await,
            None => true,
        }
    }
}

/// What a line tells. Text of the network is bytes, as it came.
#[derive(Clone, Debug)]
pub(crate) struct AccessLine<'a> {
    /// When the request's head was in, in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The request's id.
    pub request_id: &'a [u8],
    /// The id of the whole conversation, if one was stated.
    pub correlation_id: Option<&'a [u8]>,
    /// Trace id of `traceparent`.
    pub trace_id: Option<&'a [u8]>,
    /// Span id of `traceparent`.
    pub span_id: Option<&'a [u8]>,
    /// The caller's address.
    pub peer: Peer,
    /// Who it is from, where a trusted proxy said so.
    pub client: Option<IpAddr>,
    /// The method.
    pub method: &'a [u8],
    /// The host asked for.
    pub host: Option<&'a [u8]>,
    /// The path; a query is cut off here.
    pub path: &'a [u8],
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// The status the caller got; 0 if none.
    pub status: u16,
    /// The code a gRPC caller got, if it is one of the seventeen.
    pub grpc_status: Option<u16>,
    /// The route, if one matched.
    pub route: Option<&'a str>,
    /// Its upstream.
    pub upstream: Option<&'a str>,
    /// The endpoint of the last attempt.
    pub endpoint: Option<&'a str>,
    /// Attempts made, the first included; 0 if nothing was sent.
    pub attempts: u32,
    /// Moves to another endpoint after one that never took the request.
    pub redispatches: u32,
    /// Attempts made beside another one.
    pub hedges: u32,
    /// The attempt number the caller stated.
    pub caller_attempt: Option<u32>,
    /// Why the call ended.
    pub stop_reason: Option<StopReason>,
    /// What ended the last attempt.
    pub cause: Option<Cause>,
    /// Why nothing was sent; told in place of the cause.
    pub refusal: Option<Refusal>,
    /// Waiting for places and connections, over all attempts.
    pub queue_wait: Duration,
    /// From the first byte sent upstream to the end of the answer.
    pub execution: Duration,
    /// From the request's head in to the end of the answer.
    pub total: Duration,
    /// The total timeout of the route.
    pub configured_timeout: Option<Duration>,
    /// What was left until the deadline at the end; zero if it had passed.
    pub remaining_budget: Option<Duration>,
    /// How it ended.
    pub completion: Completion,
    /// Whether the route's fallback answered.
    pub degraded: bool,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
}

impl AccessLine<'_> {
    /// Appends the line, without its line feed: one JSON object of at most 5 KiB, if the names of
    /// the configuration are shorter than 256 bytes.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        let mut object = Object::new(out);
        object.key("time").push(b'"');
        lines::utc(object.out, self.time_unix_ms);
        object.out.push(b'"');
        object.text("request_id", Some(self.request_id), ID);
        object.text("correlation_id", self.correlation_id, ID);
        object.text("trace_id", self.trace_id, ID);
        object.text("span_id", self.span_id, ID);
        object.peer(self.peer);
        object.client(self.client);
        object.text("method", Some(self.method), METHOD);
        object.text("host", self.host, NAME);
        let path = self.path.split(|&byte| matches!(byte, b'?' | b'#')).next();
        object.text("path", path, PATH);
        object.word("protocol", Some(self.protocol));
        object.number("status", (self.status != 0).then_some(self.status));
        object.number("grpc_status", self.grpc_status);
        object.text("route", self.route.map(str::as_bytes), NAME);
        object.text("upstream", self.upstream.map(str::as_bytes), NAME);
        object.text("endpoint", self.endpoint.map(str::as_bytes), NAME);
        object.number("attempts", Some(self.attempts));
        object.number("redispatches", Some(self.redispatches));
        object.number("hedges", Some(self.hedges));
        object.number("caller_attempt", self.caller_attempt);
        object.word("stop_reason", self.stop_reason.map(StopReason::as_str));
        let cause = self.refusal.map(Refusal::as_str).or(self.cause.map(Cause::as_str));
        object.word("cause", cause);
        object.millis("queue_wait_ms", Some(self.queue_wait));
        object.millis("execution_ms", Some(self.execution));
        object.millis("total_ms", Some(self.total));
        object.millis("configured_timeout_ms", self.configured_timeout);
        object.millis("remaining_budget_ms", self.remaining_budget);
        object.word("completion_reason", Some(self.completion.as_str()));
        object.plain("degraded", if self.degraded { "true" } else { "false" });
        object.number("bytes_in", Some(self.bytes_in));
        object.number("bytes_out", Some(self.bytes_out));
        object.key("response_flags").push(b'"');
        self.write_flags(object.out);
        object.out.extend_from_slice(b"\"}");
    }

    /// Two or three letters for each thing that went wrong, separated by commas.
    fn write_flags(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let flags = [
            self.completion_flag(),
            self.refusal.and_then(refusal_flag).or(self.cause.and_then(cause_flag)),
            self.stop_reason.and_then(stop_flag),
            self.degraded.then_some("FB"),
        ];
        for (place, flag) in flags.iter().enumerate() {
            let Some(flag) = flag.filter(|flag| !flags[..place].contains(&Some(flag))) else {
                continue;
            };
            if out.len() > start {
                out.push(b',');
            }
            out.extend_from_slice(flag.as_bytes());
        }
    }

    const fn completion_flag(&self) -> Option<&'static str> {
        match self.completion {
            Completion::CallerLeft => Some("DC"),
            Completion::UpstreamBroke
                if matches!(self.cause, Some(Cause::Status(_) | Cause::Grpc(_)) | None) =>
            {
                Some("UC")
            }
            Completion::Drained => Some("DR"),
            _ => None,
        }
    }
}

/// A JSON object being written.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Object<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A value that is JSON as it stands.
    fn plain(&mut self, key: &str, value: &str) {
        self.key(key).extend_from_slice(value.as_bytes());
    }

    /// A label of ours, which needs no escape.
    fn word(&mut self, key: &str, value: Option<&'static str>) {
        let Some(value) = value else { return self.plain(key, "null") };
        let out = self.key(key);
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    }

    fn text(&mut self, key: &str, value: Option<&[u8]>, bound: usize) {
        let Some(value) = value else { return self.plain(key, "null") };
        self.key(key).push(b'"');
        lines::json_text(self.out, value, bound);
        self.out.push(b'"');
    }

    fn number(&mut self, key: &str, value: Option<impl Into<u64>>) {
        let Some(value) = value else { return self.plain(key, "null") };
        lines::decimal(self.key(key), value);
    }

    /// Milliseconds with three decimals.
    fn millis(&mut self, key: &str, value: Option<Duration>) {
        let Some(value) = value else { return self.plain(key, "null") };
        let us = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        let out = self.key(key);
        lines::decimal(out, us / 1000);
        out.push(b'.');
        lines::digits::<3>(out, us % 1000);
    }

    /// An address alone.
    fn client(&mut self, client: Option<IpAddr>) {
        let Some(client) = client else { return self.plain("client", "null") };
        let out = self.key("client");
        out.push(b'"');
        lines::ip(out, client);
        out.push(b'"');
    }

    /// An address and its port.
    fn peer(&mut self, peer: Peer) {
        let Peer::Tcp(address) = peer else { return self.word("peer", Some("unix")) };
        let out = self.key("peer");
        out.push(b'"');
        match address {
            SocketAddr::V4(address) => {
                lines::ip(out, (*address.ip()).into());
                out.push(b':');
                lines::decimal(out, address.port());
            }
            // Writing to a vector cannot fail.
            SocketAddr::V6(address) => drop(write!(out, "{address}")),
        }
        out.push(b'"');
    }
}

/// Lines that may wait. At most 40 MiB, if every line is as long as it can be.
const QUEUE: usize = 8192;
/// How long a shutdown waits for the reader. Source: seawall-design (the drain's last phase).
const CLOSE: Duration = Duration::from_secs(2);
/// Bytes of an id, escaped.
const ID: usize = 128;
/// Bytes of a method, escaped.
const METHOD: usize = 32;
/// Bytes of a host or a configured name, escaped. Source: rfc1035 (names end at 255).
const NAME: usize = 256;
/// Bytes of a path, escaped.
const PATH: usize = 2048;

#[cfg(test)]
mod tests;
