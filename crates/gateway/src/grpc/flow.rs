//! A gRPC answer while it flows: when it is a stream, when it is silent, and what its trailers say.
//!
//! The wire does not say whether a method streams. A call is taken for a stream once its second
//! message begins or nothing has come for a second; then it moves out of the bulkhead, and the
//! breaker has its answer: it was answered. If all places for streams are taken it stays where it
//! is, for its caller has its head already.
//!
//! A side that waits is not silent while the other speaks: the idle limit is for both together.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use seawall::{GrpcCode, SlotGuard, read_grpc_status};
use seawall_policy::{Cause, Outcome};

use super::{Outgoing, status_fields};
use crate::config::GrpcStreaming;
use crate::upload::Upload;

/// What is known of the answer so far.
#[derive(Debug)]
pub(crate) struct Flow {
    outgoing: Outgoing,
    upload: Option<Arc<Upload>>,
    /// Bytes of the message now flowing that are still to come.
    message_left: u64,
    /// The prefix of the next message, as far as it is there.
    prefix: [u8; PREFIX],
    prefix_len: usize,
    messages: u64,
    /// It has moved to the streams, or may not.
    settled_as: Kind,
    /// Frames of the upload when the wait began.
    upload_then: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One message, or not known yet.
    Single,
    /// It moved.
    Stream,
    /// It is to stay where it is.
    Stays,
}

impl Flow {
    /// For an answer whose head has no status. One of a route that always streams has moved.
    pub(crate) fn new(outgoing: Outgoing, upload: Option<Arc<Upload>>) -> Self {
        let settled_as = match outgoing.rules.streaming {
            GrpcStreaming::Auto => Kind::Single,
            GrpcStreaming::Always => Kind::Stream,
            GrpcStreaming::Never => Kind::Stays,
        };
        Self {
            outgoing,
            upload,
            message_left: 0,
            prefix: [0; PREFIX],
            prefix_len: 0,
            messages: 0,
            settled_as,
            upload_then: 0,
        }
    }

    /// Takes in data on its way; whether it shows that this is a stream.
    pub(crate) fn data(&mut self, data: &[u8]) -> bool {
        if let Some(upload) = &self.upload {
            upload.answer_moves();
        }
        if self.settled_as != Kind::Single {
            return false;
        }
        self.count(data);
        self.messages > 1
    }

    /// Counts the messages that begin in `data`: each is a byte, a length of four and itself.
    fn count(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let within = usize::try_from(self.message_left).unwrap_or(usize::MAX).min(data.len());
            self.message_left -= within as u64;
            data = &data[within..];
            let Some((&byte, rest)) = data.split_first() else { return };
            if self.prefix_len == 0 {
                self.messages = self.messages.saturating_add(1);
            }
            self.prefix[self.prefix_len] = byte;
            self.prefix_len += 1;
            data = rest;
            if self.prefix_len == PREFIX {
                let [_, a, b, c, d] = self.prefix;
                self.message_left = u64::from(u32::from_be_bytes([a, b, c, d]));
                self.prefix_len = 0;
            }
        }
    }

    /// How long to wait for the next frame before something is to be decided.
    pub(crate) fn patience(&mut self, idle: Duration) -> Duration {
        self.upload_then = self.uploaded();
        if self.settled_as == Kind::Single { idle.min(STREAMS_AFTER) } else { idle }
    }

    /// A wait of that patience was in vain. How much longer to wait; nothing: both sides are
    /// silent.
    pub(crate) fn waited(
        &mut self,
        idle: Duration,
        slot: &mut Option<SlotGuard>,
    ) -> Option<Duration> {
        if self.settled_as == Kind::Single && idle > STREAMS_AFTER {
            self.become_stream(slot);
            return Some(idle.saturating_sub(STREAMS_AFTER));
        }
        let uploaded = self.uploaded();
        if uploaded == self.upload_then {
            return None;
        }
        self.upload_then = uploaded;
        Some(idle)
    }

    fn uploaded(&self) -> u64 {
        self.upload.as_ref().map_or(0, |upload| upload.seen())
    }

    /// Moves the call to the streams.
    pub(crate) fn become_stream(&mut self, slot: &mut Option<SlotGuard>) {
        self.settled_as = Kind::Stays;
        if let Some(slot) = slot
            && slot.to_stream().is_ok()
        {
            self.settled_as = Kind::Stream;
        }
    }

    /// What the trailers say, for the breaker and the log.
    pub(crate) fn trailers(&self, trailers: &HeaderMap) -> (Option<GrpcCode>, Outcome) {
        match read_grpc_status(trailers) {
            Some(read) => (read.known(), self.outgoing.classify.outcome(read.code(), trailers)),
            None => (None, Outcome::of(Cause::Malformed)),
        }
    }

    /// What an end without trailers says; nothing where a stream was only silent.
    pub(crate) fn broke(&self, cause: Option<Cause>) -> Option<Outcome> {
        match cause {
            Some(cause) => Some(Outcome::of(cause)),
            None if self.settled_as == Kind::Stream => None,
            None => Some(Outcome::of(Cause::AttemptTimeout)),
        }
    }

    /// Trailers in place of those that did not come.
    pub(crate) fn trailers_of_ours(what: &str) -> (GrpcCode, HeaderMap) {
        let code = GrpcCode::Unavailable;
        (code, status_fields(code, what))
    }
}

/// A flag and a length in four bytes. Source: grpc-http2.
const PREFIX: usize = 5;
/// An answer that has sent nothing for so long is a stream. Source: own choice (below every idle
/// limit, above every pause within a message).
const STREAMS_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Grpc;
    use proptest::prelude::*;

    fn flow(streaming: GrpcStreaming) -> Flow {
        Flow::new(Outgoing::new(Grpc { streaming, ..Grpc::default() }, None), None)
    }

    fn message(length: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
        bytes.resize(PREFIX + length, 7);
        bytes
    }

    #[test]
    fn the_second_message_shows_a_stream_however_the_bytes_are_cut() {
        let bytes = [message(3), message(0)].concat();
        for size in 1..bytes.len() {
            let mut flow = flow(GrpcStreaming::Auto);
            let mut seen = 0;
            for chunk in bytes.chunks(size) {
                seen += chunk.len();
                assert_eq!(flow.data(chunk), seen > message(3).len(), "{size} {seen}");
            }
        }
    }

    #[test]
    fn a_route_that_says_what_its_calls_are_is_believed() {
        for streaming in [GrpcStreaming::Always, GrpcStreaming::Never] {
            let mut flow = flow(streaming);
            assert!(!flow.data(&[message(1), message(1)].concat()));
            assert_eq!(flow.patience(Duration::from_secs(60)), Duration::from_secs(60));
        }
    }

    #[test]
    fn a_second_of_silence_makes_a_stream_and_the_idle_limit_ends_it() {
        let idle = Duration::from_secs(60);
        let (mut quiet, mut hurried) = (flow(GrpcStreaming::Auto), flow(GrpcStreaming::Auto));
        assert_eq!(quiet.patience(idle), STREAMS_AFTER);
        assert_eq!(quiet.waited(idle, &mut None), Some(Duration::from_secs(59)));
        assert_eq!(quiet.waited(idle, &mut None), None);
        let idle = Duration::from_millis(500);
        assert_eq!(hurried.patience(idle), idle);
        assert_eq!(hurried.waited(idle, &mut None), None);
    }

    #[test]
    fn trailers_decide_and_their_absence_is_a_failure() {
        let flow = flow(GrpcStreaming::Auto);
        let (_, trailers) = Flow::trailers_of_ours("it broke off");
        let (code, outcome) = flow.trailers(&trailers);
        assert_eq!(code, Some(GrpcCode::Unavailable));
        assert_eq!(outcome.cause(), Cause::Grpc(GrpcCode::Unavailable));
        let (code, outcome) = flow.trailers(&HeaderMap::new());
        assert_eq!((code, outcome.cause()), (None, Cause::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_counted_without_a_panic(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        ) {
            let mut flow = flow(GrpcStreaming::Auto);
            for chunk in chunks {
                flow.data(&chunk);
            }
        }
    }
}
