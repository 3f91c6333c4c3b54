//! What the tests play with: a gateway, its upstream, its caller.

mod caller;
mod certs;
mod gateway;
mod upstream;

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;

pub(crate) use caller::{Answer, Caller, RawCaller, get, post};
pub(crate) use certs::{Ca, Folder, Leaf, TlsFront, tls_client, tls_connect, tls_over};
pub(crate) use gateway::{Gateway, Metrics, Setup};
pub(crate) use upstream::{Arrival, Arrivals, Call, RawConn, RawUpstream, Upstream, answer};

/// A body of either side.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// How a side is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    H2c,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::H2c];

/// Callers and upstreams of either protocol.
pub(crate) const PAIRS: [(Protocol, Protocol); 4] = [
    (Protocol::Http1, Protocol::Http1),
    (Protocol::Http1, Protocol::H2c),
    (Protocol::H2c, Protocol::Http1),
    (Protocol::H2c, Protocol::H2c),
];

/// Fails the test if it takes longer than ten seconds.
#[track_caller]
pub(crate) fn within<F: Future>(what: F) -> impl Future<Output = F::Output> {
    let at = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(Duration::from_secs(10), what).await {
            Ok(output) => output,
            Err(_) => panic!("waited in vain at {at}"),
        }
    }
}

/// A whole body.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The sending end of a streamed body.
#[derive(Debug)]
pub(crate) struct Frames(mpsc::Sender<io::Result<Frame<Bytes>>>);

impl Frames {
    /// Waits until the reader has room for it.
    #[track_caller]
    pub(crate) fn data(&self, bytes: impl Into<Bytes>) -> impl Future<Output = ()> {
        let sent = self.0.send(Ok(Frame::data(bytes.into())));
        let sent = within(sent);
        async move { sent.await.expect("somebody reads the body") }
    }

    /// Whether somebody still reads.
    pub(crate) async fn try_data(&self, bytes: impl Into<Bytes>) -> bool {
        within(self.0.send(Ok(Frame::data(bytes.into())))).await.is_ok()
    }

    pub(crate) async fn trailers(&self, trailers: HeaderMap) {
        within(self.0.send(Ok(Frame::trailers(trailers)))).await.expect("somebody reads the body");
    }

    /// Breaks the body off.
    pub(crate) async fn fail(&self) {
        let _ = self.0.send(Err(io::Error::other("broken off"))).await;
    }

    /// Waits until nobody reads any more.
    pub(crate) async fn closed(&self) {
        within(self.0.closed()).await;
    }

    /// Room left for frames, so that what is read ahead can be seen.
    pub(crate) fn try_send(&self, bytes: impl Into<Bytes>) -> bool {
        self.0.try_send(Ok(Frame::data(bytes.into()))).is_ok()
    }
}

/// A body that goes on until its sender is dropped. One frame waits at most.
pub(crate) fn streamed() -> (Frames, Body) {
    let (sender, receiver) = mpsc::channel(1);
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let frame: io::Result<Frame<Bytes>> = receiver.recv().await?;
        Some((frame, receiver))
    });
    (Frames(sender), StreamBody::new(frames).boxed_unsync())
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect()
}
