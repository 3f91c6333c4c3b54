//! What an attempt's future is handed, and what it says back while it runs.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use seawall_policy::{
    Attempt, Purpose, Timestamp, grpc_timeout_to_send, parse_grpc_timeout, remaining_to_send,
};
use tokio::time::timeout_at;

use crate::credentials::{Credential, Credentials, Issued};
use crate::stack::Stack;

mod shared;

pub use shared::{CallShared, Upload};

/// One attempt, as the code that makes it sees it.
#[derive(Clone, Debug)]
pub struct AttemptContext {
    stack: Stack,
    shared: Arc<CallShared>,
    sequence: u32,
    number: u32,
    endpoint: usize,
    purpose: Purpose,
    granted: Timestamp,
    deadline: Timestamp,
    cut_by_call: bool,
    issued: Option<Arc<Issued>>,
}

impl AttemptContext {
    pub(crate) fn new(
        stack: &Stack,
        shared: &Arc<CallShared>,
        attempt: &Attempt,
        sequence: u32,
    ) -> Self {
        Self {
            stack: stack.clone(),
            shared: Arc::clone(shared),
            sequence,
            number: attempt.number,
            endpoint: attempt.permit.endpoint(),
            purpose: attempt.permit.purpose(),
            granted: attempt.permit.granted(),
            deadline: attempt.deadline,
            cut_by_call: attempt.cut_by_call,
            issued: stack.credentials().map(Credentials::issued),
        }
    }

    /// 1 for the first attempt.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The endpoint to send to.
    #[must_use]
    pub const fn endpoint(&self) -> usize {
        self.endpoint
    }

    /// What it is in its call: the first attempt, a retry, a redispatch or a hedge.
    #[must_use]
    pub const fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// When it was granted: it begins here.
    #[must_use]
    pub const fn granted(&self) -> Timestamp {
        self.granted
    }

    /// Whether [`AttemptContext::deadline`] is the call's, and not the attempt's own timeout.
    #[must_use]
    pub const fn is_cut_by_call(&self) -> bool {
        self.cut_by_call
    }

    /// When the attempt is given up.
    #[must_use]
    pub const fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The milliseconds to tell the next hop, in `X-Remaining-Ms`: from the attempt's grant to its
    /// deadline, less 5 ms for the way back. `None` without a deadline, or with less than a
    /// millisecond left.
    #[must_use]
    pub fn remaining_ms(&self) -> Option<u64> {
        let is_bounded = self.deadline != Timestamp::MAX;
        is_bounded.then(|| remaining_to_send(self.granted, self.deadline, RETURN_MARGIN, None))?
    }

    /// States the attempt's time and number among the fields of a gRPC request: `grpc-timeout`
    /// with what [`AttemptContext::remaining_ms`] gives, unless a shorter one stands there, and
    /// `grpc-previous-rpc-attempts` from the second attempt on.
    ///
    /// The other side bounds the whole call by it, a stream included. That its time was up is from
    /// here on no sign of illness, where that time ends with the call.
    pub fn stamp_grpc(&self, fields: &mut HeaderMap) {
        let stated =
            fields.get(GRPC_TIMEOUT).and_then(|stated| parse_grpc_timeout(stated.as_bytes()));
        let left = self.remaining_ms().map(Duration::from_millis);
        if let Some(left) = left.filter(|left| stated.is_none_or(|stated| *left <= stated))
            && let Some((number, unit)) = grpc_timeout_to_send(left)
            && let Ok(value) = HeaderValue::try_from(format!("{number}{unit}"))
        {
            fields.insert(GRPC_TIMEOUT, value);
            if self.cut_by_call {
                self.shared.tell_calls_end(self.sequence);
            }
        }
        match self.number.checked_sub(1) {
            Some(earlier @ 1..) => fields.insert(GRPC_ATTEMPTS, HeaderValue::from(earlier)),
            _ => fields.remove(GRPC_ATTEMPTS),
        };
    }

    /// What to prove itself with, of a stack that has
    /// [credentials](Stack::with_credentials). Of two attempts, the later may have another.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        self.issued.as_ref().map(|issued| &issued.credential)
    }

    /// The generation of that credential.
    pub(crate) fn generation(&self) -> u64 {
        self.issued.as_ref().map_or(0, |issued| issued.generation)
    }

    /// Says that the first byte is about to leave. Until then a lost attempt is no lost call.
    pub fn mark_sent(&self) {
        self.shared.sent.set(self.sequence);
    }

    /// Takes [`AttemptContext::mark_sent`] back: the transport gave the message back unsent.
    pub fn mark_unsent(&self) {
        self.shared.sent.clear(self.sequence);
    }

    /// Waits for a connection from a pool, at most the stack's checkout time; the attempt's own
    /// deadline goes on meanwhile. Nothing counts as sent while it waits, and its time and its
    /// failures have a class and a metric of their own: a pool that is empty is no sign of a sick
    /// dependency, and asking it again in the same moment would not fill it. Service time, and
    /// slowness, are measured from the end of the wait.
    ///
    /// Give the pool no shorter wait of its own, or its error will be taken for the dependency's.
    /// A pool without any finite wait is what this is for: without a checkout time in the stack,
    /// and without an attempt timeout, nothing here bounds it either.
    ///
    /// # Errors
    /// [`CheckoutTimeout`]; the call ends with that reason if the attempt then returns an error.
    pub async fn checkout<F: Future>(&self, connection: F) -> Result<F::Output, CheckoutTimeout> {
        let mut connection = pin!(connection);
        let at_once = poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx)));
        if let Poll::Ready(output) = at_once.await {
            self.stack.checkouts().count(Duration::ZERO, false);
            return Ok(output);
        }
        let begun = self.stack.clock().now();
        let mut wait = CheckoutWait { attempt: self, begun, outcome: Waited::Dropped };
        self.shared.in_checkout.set(self.sequence);
        let limit = self.stack.params().checkout();
        let waited = self.limited(begun, limit, connection).await;
        wait.outcome = if waited.is_some() { Waited::Given } else { Waited::TimedOut };
        drop(wait);
        if waited.is_none() {
            self.shared.connect_failed.clear(self.sequence);
            self.shared.checkout_failed.set(self.sequence);
        }
        waited.ok_or(CheckoutTimeout)
    }

    /// Makes a connection, within the stack's connect time; the attempt's own deadline goes on
    /// meanwhile. Nothing counts as sent while it is being made, so running out of time here is
    /// *not processed*: any method may be tried again, and the breaker counts a failure.
    ///
    /// # Errors
    /// [`ConnectTimeout`]; the attempt ends with that cause if it then returns an error.
    pub async fn connect<F: Future>(&self, connection: F) -> Result<F::Output, ConnectTimeout> {
        self.shared.in_connect.set(self.sequence);
        let wait = ConnectWait(self);
        let connected = match self.stack.params().connect() {
            Some(limit) => {
                let begun = self.stack.clock().now();
                self.limited(begun, Some(limit), connection).await
            }
            None => Some(connection.await),
        };
        drop(wait);
        if connected.is_none() {
            self.shared.checkout_failed.clear(self.sequence);
            self.shared.connect_failed.set(self.sequence);
        }
        connected.ok_or(ConnectTimeout)
    }

    /// Waits for `future`, at most `limit`; a limit that ends no earlier than the attempt is the
    /// attempt's to keep, which knows whose time it was.
    async fn limited<F: Future>(
        &self,
        begun: Timestamp,
        limit: Option<Duration>,
        future: F,
    ) -> Option<F::Output> {
        let until = limit.map_or(Timestamp::MAX, |limit| begun.after(limit));
        if until >= self.deadline {
            return Some(future.await);
        }
        timeout_at(self.stack.clock().instant(until), future).await.ok()
    }

    #[cfg(test)]
    pub(crate) const fn shared(&self) -> &Arc<CallShared> {
        &self.shared
    }

    /// Its place among all that the call makes, redispatches and hedges too; from 0.
    #[must_use]
    pub const fn sequence(&self) -> u32 {
        self.sequence
    }
}

/// A wait for a pool; ends with its drop, whoever drops it.
struct CheckoutWait<'a> {
    attempt: &'a AttemptContext,
    begun: Timestamp,
    outcome: Waited,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    Given,
    TimedOut,
    Dropped,
}

impl Drop for CheckoutWait<'_> {
    fn drop(&mut self) {
        let AttemptContext { stack, shared, sequence, deadline, .. } = self.attempt;
        shared.in_checkout.clear(*sequence);
        let now = stack.clock().now();
        shared.checkout_ended(*sequence, now);
        let cut = self.outcome == Waited::Dropped && now >= *deadline;
        let wait = now.since(self.begun);
        shared.add_checkout_wait(wait);
        stack.checkouts().count(wait, cut || self.outcome == Waited::TimedOut);
    }
}

/// A connection being made.
struct ConnectWait<'a>(&'a AttemptContext);

impl Drop for ConnectWait<'_> {
    fn drop(&mut self) {
        self.0.shared.in_connect.clear(self.0.sequence);
    }
}

/// No connection was to be had from the pool in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no connection from the pool in time")]
pub struct CheckoutTimeout;

/// No connection was made in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no connection made in time")]
pub struct ConnectTimeout;

/// What the answer needs for its way back. Source: seawall-design.
const RETURN_MARGIN: Duration = Duration::from_millis(5);
/// The time a whole call may take. Source: grpc-http2.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Attempts made before this one. Source: grpc-a6.
const GRPC_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

#[cfg(test)]
mod tests;
