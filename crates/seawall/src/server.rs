//! A tower layer in front of a server: who is served, who waits, and who is refused at once.
//!
//! ```
//! # use seawall::{AdmissionLayer, GateOptions};
//! let layer = AdmissionLayer::new(&GateOptions::default())?;
//! // axum: Router::new().route(…).layer(layer)      tonic: Server::builder().layer(layer)
//! # Ok::<(), seawall::ConfigError>(())
//! ```
//!
//! The limit finds itself, and what is beyond it waits in a queue that drops the right request: see
//! [`Gate`](seawall_policy::Gate). One layer is one server: its clones, one for each connection
//! perhaps, share one state.
//!
//! - **Ready, always.** Nothing is decided before the future is polled for the first time, and a
//!   request that waits holds nothing of what is inside: a clone of the inner service is made ready
//!   when its turn has come.
//! - **A slot** is held from the start to the end of the answer's body, or until that is dropped.
//!   What the limit hears is the time to the head. An inner answer of 503, 429, UNAVAILABLE or
//!   RESOURCE_EXHAUSTED says that the work was refused; an error, 502 or 504 says nothing.
//! - **A caller that leaves** drops the future, at any point. If it waited, its place is free; if
//!   it was being served, its slot is. The queue hears how long it waited in all; the limit hears
//!   of a give-up, unless it waited in the queue for longer than it was served. Work that goes on
//!   elsewhere (another task, a blocking thread) is not counted from then on.
//! - **A panic** inside frees the slot and tells the limit nothing.
//! - **Refused** is an answer, never an error, so the service's error stays what it was:
//!
//! | why | HTTP | gRPC | when to come again |
//! |---|---|---|---|
//! | the queue is full, stands, or is too long for the deadline | 503 `overloaded` | UNAVAILABLE | 2 to 5 s, drawn |
//! | the tenant is over its rate | 429 `quota-exceeded` | RESOURCE_EXHAUSTED | when it has a share again |
//! | its time was up before its turn | 504 `deadline-passed` | DEADLINE_EXCEEDED | – |
//!
//! There is no task: each waits until its own time is up, and whoever comes, goes or waits does
//! what is due. The clock is read once for each event: in, started after a wait, head, end.
//!
//! Known bad cases: an answer without a body that becomes a tunnel (101, CONNECT) gives its slot
//! back at its head; a body that nobody reads holds its slot, so a server needs a stall limit.

mod asking;
mod body;
mod gate;
mod refused;
mod turn;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use seawall_policy::{
    AnswerSignals, Class, ConfigError, GateEntry, GateOptions, LimitOutcome, Outcome,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::grpc::{is_grpc, read_grpc_status};

pub use asking::{Asking, HttpAsking};
pub use body::AdmittedBody;
pub use gate::ServerGate;

use turn::{Slot, Turn};

/// Puts a gate in front of a server's service. See the module.
#[derive(Clone, Debug)]
pub struct AdmissionLayer<A = HttpAsking> {
    gate: ServerGate,
    asking: A,
}

impl AdmissionLayer {
    /// For HTTP and gRPC. No header is believed: all callers are one tenant with the patience of
    /// the options.
    ///
    /// # Errors
    /// An option outside its range; see [`GateParams::new`](seawall_policy::GateParams::new).
    pub fn new(options: &GateOptions) -> Result<Self, ConfigError> {
        Ok(Self { gate: ServerGate::new(options)?, asking: HttpAsking::new() })
    }

    /// Believes what requests say of themselves, see [`HttpAsking`]: for servers that only peers
    /// can reach which have the right to say it.
    #[must_use]
    pub fn trust_headers(self) -> Self {
        Self { asking: HttpAsking::trusting(), ..self }
    }
}

impl<A> AdmissionLayer<A> {
    /// With rules of your own on who asks, and a gate that other layers may share.
    #[must_use]
    pub const fn with(gate: ServerGate, asking: A) -> Self {
        Self { gate, asking }
    }

    /// What all that it wraps stand behind.
    #[must_use]
    pub const fn gate(&self) -> &ServerGate {
        &self.gate
    }
}

impl<S, A: Clone> Layer<S> for AdmissionLayer<A> {
    type Service = AdmissionService<S, A>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService { gate: self.gate.clone(), asking: self.asking.clone(), inner }
    }
}

/// A service behind a gate. See the module.
#[derive(Clone, Debug)]
pub struct AdmissionService<S, A = HttpAsking> {
    gate: ServerGate,
    asking: A,
    /// Never made ready: each request makes a clone of it ready.
    inner: S,
}

impl<S, A, B, R> Service<Request<B>> for AdmissionService<S, A>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: Asking<B> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<AdmittedBody<R>>;
    type Error = S::Error;
    type Future = AdmissionFuture<S, A, B>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        AdmissionFuture {
            call: None,
            service: self.inner.clone(),
            asking: self.asking.clone(),
            speaks_grpc: is_grpc(request.headers()),
            request: Some(request),
            stage: Stage::New(self.gate.clone()),
        }
    }
}

pin_project! {
    /// The future of an [`AdmissionService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct AdmissionFuture<S, A, B>
    where
        S: Service<Request<B>>,
    {
        // First, so that what it works with is gone before its slot is free.
        #[pin]
        call: Option<S::Future>,
        service: S,
        asking: A,
        speaks_grpc: bool,
        // Until the inner service has it.
        request: Option<Request<B>>,
        stage: Stage,
    }
}

/// How far a request has come.
enum Stage {
    New(ServerGate),
    Waiting(Turn),
    Started(Slot),
    /// It has been answered.
    Over,
}

impl<S, A, B, R> Future for AdmissionFuture<S, A, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    A: Asking<B>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<AdmittedBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let shed = match this.stage {
                Stage::New(gate) => {
                    let Some(request) = &*this.request else { return Poll::Pending };
                    let now = gate.clock().now();
                    let ask = this.asking.ask(request, now, gate);
                    match gate.enter(now, ask) {
                        GateEntry::Admitted(permit) => {
                            *this.stage = Stage::Started(Slot::new(gate.clone(), permit, now, now));
                            continue;
                        }
                        GateEntry::Queued(ticket, until) => {
                            *this.stage =
                                Stage::Waiting(Turn::new(gate.clone(), ticket, now, until));
                            continue;
                        }
                        GateEntry::Rejected(shed) => shed,
                    }
                }
                Stage::Waiting(turn) => match ready!(turn.poll(cx)) {
                    Ok(slot) => {
                        *this.stage = Stage::Started(slot);
                        continue;
                    }
                    Err(shed) => shed,
                },
                Stage::Started(slot) => {
                    let running = slot.run();
                    let answer = serve(this.service, this.request, &mut this.call, cx);
                    running.return_from();
                    let answer = ready!(answer);
                    let stage = std::mem::replace(this.stage, Stage::Over);
                    this.call.set(None);
                    let Stage::Started(slot) = stage else { return Poll::Pending };
                    return Poll::Ready(hand_out(answer, slot));
                }
                Stage::Over => return Poll::Pending,
            };
            *this.stage = Stage::Over;
            return Poll::Ready(Ok(refused::answer(shed, *this.speaks_grpc)));
        }
    }
}

impl<S: Service<Request<B>>, A, B> fmt::Debug for AdmissionFuture<S, A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionFuture").finish_non_exhaustive()
    }
}

/// Makes the inner service ready, hands it the request and waits for the head of its answer.
fn serve<S: Service<Request<B>>, B>(
    service: &mut S,
    request: &mut Option<Request<B>>,
    call: &mut Pin<&mut Option<S::Future>>,
    cx: &mut Context<'_>,
) -> Poll<Result<S::Response, S::Error>> {
    if request.is_some() {
        ready!(service.poll_ready(cx))?;
    }
    if let Some(request) = request.take() {
        call.set(Some(service.call(request)));
    }
    match call.as_mut().as_pin_mut() {
        Some(call) => call.poll(cx),
        None => Poll::Pending,
    }
}

/// The answer, whose body holds the slot if there is any of it to come.
fn hand_out<R: Body, E>(
    answer: Result<Response<R>, E>,
    mut slot: Slot,
) -> Result<Response<AdmittedBody<R>>, E> {
    let now = slot.now();
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            slot.end(now, LimitOutcome::Ignore);
            return Err(error);
        }
    };
    let outcome = outcome(&answer);
    Ok(answer.map(|body| {
        if body.is_end_stream() {
            slot.end(now, outcome);
            return AdmittedBody::new(body, None);
        }
        slot.tell(now, outcome);
        AdmittedBody::new(body, Some(slot))
    }))
}

/// What an answer's head says to the limit.
fn outcome<R>(answer: &Response<R>) -> LimitOutcome {
    let (status, fields) = (answer.status(), answer.headers());
    let class = match read_grpc_status(fields) {
        Some(read) if status == StatusCode::OK && is_grpc(fields) => read.code().class(),
        _ => Outcome::of_status(status.as_u16(), AnswerSignals::NONE).class(),
    };
    match class {
        Class::Success | Class::Rejected => LimitOutcome::Success,
        Class::Overloaded => LimitOutcome::Dropped,
        _ => LimitOutcome::Ignore,
    }
}

#[cfg(test)]
mod tests;
