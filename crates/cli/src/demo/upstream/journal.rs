//! The upstream's own account of what reached it: the only witness a verdict may call.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::AsHeaderName;
use http::{HeaderMap, StatusCode, request};
use parking_lot::Mutex;
use seawall_policy::Timestamp;

use super::behaviour::{Arrival, BodySeen};

/// Every arrival since the start, and how many are being served.
///
/// One short critical section per event: at 1,000 requests/s it costs less than a thousandth of a
/// core. Holds about a million arrivals; later ones are served and not kept.
#[derive(Debug, Default)]
pub struct Journal {
    book: Mutex<Book>,
    open: AtomicUsize,
    in_flight: AtomicUsize,
    peak: AtomicUsize,
}

#[derive(Debug, Default)]
struct Book {
    arrivals: Vec<Arrival>,
    per_path: HashMap<String, u64>,
    answers: HashMap<String, StatusCode>,
    connections: u64,
}

/// How many attempts arrived, and how many of them were the first of their call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// All of them.
    pub all: u64,
    /// Calls among them, where every call has a path of its own.
    pub first: u64,
}

impl Attempts {
    /// Attempts per first attempt; 1 if there was none.
    #[must_use]
    pub fn amplification(self) -> f64 {
        if self.first == 0 { 1.0 } else { self.all as f64 / self.first as f64 }
    }
}

impl Journal {
    /// What has arrived so far; the place to count from later.
    #[must_use]
    pub fn len(&self) -> usize {
        self.book.lock().arrivals.len()
    }

    /// Whether nothing has arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arrivals after the first `mark`.
    #[must_use]
    pub fn since(&self, mark: usize) -> Vec<Arrival> {
        self.book.lock().arrivals.get(mark..).map(<[_]>::to_vec).unwrap_or_default()
    }

    /// The arrivals of this path, query included.
    #[must_use]
    pub fn of_path(&self, path: &str) -> Vec<Arrival> {
        self.book.lock().arrivals.iter().filter(|arrival| arrival.path == path).cloned().collect()
    }

    /// Attempts that arrived in `from..to`.
    #[must_use]
    pub fn attempts(&self, from: Timestamp, to: Timestamp) -> Attempts {
        let book = self.book.lock();
        let begin = book.arrivals.partition_point(|arrival| arrival.at < from);
        let within = book.arrivals.get(begin..).unwrap_or_default();
        let mut attempts = Attempts::default();
        for arrival in within.iter().take_while(|arrival| arrival.at < to) {
            attempts.all += 1;
            attempts.first += u64::from(arrival.is_first());
        }
        attempts
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.book.lock().connections
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Requests that have arrived and whose connection or stream is open, unanswered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The most there ever were in flight since the last [`Journal::reset_peak`].
    #[must_use]
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Begins a new peak at what is in flight now.
    pub fn reset_peak(&self) {
        self.peak.store(self.in_flight(), Ordering::Relaxed);
    }

    /// Numbers a connection, which is open for as long as the value lives.
    pub(super) fn connected(self: &Arc<Self>) -> (u64, Open) {
        let mut book = self.book.lock();
        book.connections += 1;
        self.open.fetch_add(1, Ordering::Relaxed);
        (book.connections, Open(Arc::clone(self)))
    }

    /// Notes a request; the number is its place in the journal. `now` is read inside, so that
    /// places are in the order of times.
    pub(super) fn arrive(
        &self,
        now: impl FnOnce() -> Timestamp,
        connection: u64,
        head: &request::Parts,
    ) -> (usize, Arrival) {
        let path = head.uri.path_and_query().map_or("", |path| path.as_str());
        let mut book = self.book.lock();
        let nth = book.next_of_path(path);
        let arrival = Arrival {
            at: now(),
            method: head.method.clone(),
            path: path.to_owned(),
            nth,
            key: text(&head.headers, "idempotency-key").map(str::to_owned),
            attempt: number(&head.headers, "x-retry-attempt"),
            remaining_ms: number(&head.headers, "x-remaining-ms"),
            connection,
            body: None,
            executed: false,
        };
        let place = book.arrivals.len();
        if place < ARRIVALS_MAX {
            book.arrivals.push(arrival.clone());
        }
        (place, arrival)
    }

    /// Notes the body of an arrival.
    pub(super) fn read_body(&self, place: usize, body: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write(body);
        let seen = BodySeen { len: body.len(), hash: hasher.finish() };
        if let Some(arrival) = self.book.lock().arrivals.get_mut(place) {
            arrival.body = Some(seen);
        }
    }

    /// Executes an arrival with `status`; if its key is known already, nothing happens and the
    /// status of then is returned.
    pub(super) fn execute(
        &self,
        place: usize,
        key: Option<&str>,
        status: StatusCode,
    ) -> StatusCode {
        let mut book = self.book.lock();
        if let Some(key) = key {
            if let Some(answered) = book.answers.get(key) {
                return *answered;
            }
            book.answers.insert(key.to_owned(), status);
        }
        if let Some(arrival) = book.arrivals.get_mut(place) {
            arrival.executed = true;
        }
        status
    }

    /// Counts a request as in flight for as long as the value lives.
    pub(super) fn enter(self: &Arc<Self>) -> InFlight {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(now, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }
}

impl Book {
    fn next_of_path(&mut self, path: &str) -> u64 {
        if let Some(count) = self.per_path.get_mut(path) {
            *count += 1;
            return *count;
        }
        if self.per_path.len() < PATHS_MAX {
            self.per_path.insert(path.to_owned(), 1);
        }
        1
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Open(Arc<Journal>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Journal>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn text(fields: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    fields.get(name)?.to_str().ok()
}

fn number<N: std::str::FromStr>(fields: &HeaderMap, name: impl AsHeaderName) -> Option<N> {
    text(fields, name)?.trim().parse().ok()
}

/// About an hour at 300 requests/s.
const ARRIVALS_MAX: usize = 1 << 20;
/// Paths counted apart; those beyond always are the first of theirs.
const PATHS_MAX: usize = 1 << 20;
