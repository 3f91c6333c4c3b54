//! What the embedded upstream does with a request, and what it keeps of it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use seawall_policy::Timestamp;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When its head had been read.
    pub at: Timestamp,
    /// Its method.
    pub method: Method,
    /// Path and query as sent.
    pub path: String,
    /// How many requests of this path have arrived, this one included.
    pub nth: u64,
    /// `Idempotency-Key`, byte for byte where it is text.
    pub key: Option<String>,
    /// `X-Retry-Attempt`.
    pub attempt: Option<u32>,
    /// `X-Remaining-Ms`.
    pub remaining_ms: Option<u64>,
    /// The connection it came on, numbered from 1 in the order of acceptance.
    pub connection: u64,
    /// Its body, once it has been read to the end.
    pub body: Option<BodySeen>,
    /// Whether its effect took place here; a replayed answer has none.
    pub executed: bool,
}

impl Arrival {
    /// Whether this is the first attempt of its call, where every call has a path of its own
    /// (a query is enough). What the attempt header says is not asked.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.nth == 1
    }
}

/// A body, told apart from others without keeping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodySeen {
    /// Length in bytes.
    pub len: usize,
    /// A hash of all its bytes, the same in every run.
    pub hash: u64,
}

/// How a request is dealt with. Begin with [`Behaviour::ok`] or [`Behaviour::status`].
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// The answer's status.
    pub status: StatusCode,
    /// The answer's extra fields, sent as they are.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The answer's body.
    pub body: Bytes,
    /// Service time; spent while holding a slot if the upstream has slots.
    pub latency: Latency,
    /// How it ends.
    pub ending: Ending,
    /// Whether equal `Idempotency-Key`s have one effect, the first answer being replayed.
    pub honours_keys: bool,
    /// Whether work stops when the caller leaves. Most servers do not notice: default false.
    pub notices_leaving: bool,
}

impl Behaviour {
    /// 200 at once.
    #[must_use]
    pub fn ok() -> Self {
        Self::status(200)
    }

    /// This status at once; 500 if it is none.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            fields: Vec::new(),
            body: Bytes::from_static(b"seawall\n"),
            latency: Latency::Fixed(Duration::ZERO),
            ending: Ending::Answer,
            honours_keys: false,
            notices_leaving: false,
        }
    }

    /// With one more field; a value no field can carry is left out.
    #[must_use]
    pub fn field(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            self.fields.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// With this service time.
    #[must_use]
    pub fn after(mut self, latency: Duration) -> Self {
        self.latency = Latency::Fixed(latency);
        self
    }

    /// With this end.
    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Honouring `Idempotency-Key`.
    #[must_use]
    pub fn keyed(mut self) -> Self {
        self.honours_keys = true;
        self
    }
}

/// How long serving takes.
#[derive(Clone, Copy, Debug)]
pub enum Latency {
    /// Always this long.
    Fixed(Duration),
    /// Exponentially distributed around this mean.
    Exponential(Duration),
}

/// How a request ends.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// It is answered.
    Answer,
    /// It is executed, then its connection closes without an answer.
    LostReply,
    /// Its connection closes without an answer and without an effect.
    Close,
    /// HTTP/1.1: the connection is reset (RST). HTTP/2: the stream is. No effect.
    Reset,
    /// The body is read, then nothing happens until the caller leaves.
    Hang,
    /// Not even the body is read.
    NeverRead,
    /// The head at once, then the body in `pieces` with `gap` before each.
    SlowBody {
        /// How many times the body is sent.
        pieces: u64,
        /// The wait before each piece.
        gap: Duration,
    },
}

/// A bound on the work done at once.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Requests served at once.
    pub slots: usize,
    /// Requests that wait for a slot, in order; one more is answered 503 at once.
    pub queue: usize,
}
