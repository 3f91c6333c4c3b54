//! Takes connections and turns them into requests, and lets go of both in an orderly way.
//!
//! One task per listener accepts; one task per connection finds out whether it speaks HTTP/1.1 or
//! HTTP/2, serves it, and keeps its timers. A request goes to a handler with the [`ConnInfo`] of
//! its connection. A handler's future is dropped when its caller leaves.
//!
//! Who is let in decides `door`. What ends a connection, and the reason it is then counted under
//! ([`CloseReason`]):
//!
//! | what | limit | reason |
//! |---|---|---|
//! | no byte | `first_byte_timeout`, 10 s | first_byte |
//! | a TLS handshake, from its first byte | `head_timeout`, 10 s | handshake |
//! | a request head, from its first byte | `head_timeout`, 10 s | head |
//! | no request | `idle_timeout`, 75 s | idle |
//! | age, told at the next answer or by GOAWAY | `max_age` ± 10 %, 1 h | age |
//! | a write or an HTTP/2 stream without progress | `write_stall`, 60 s | stall |
//! | control frames, resets, abandoned requests | see `frames`, `abandon` | abuse |
//! | the server leaves | see [`DrainPhases`] | drain |
//!
//! Nothing ends a connection while a request on it waits for its answer, nor a long answer that is
//! being read: those limits are the pipeline's. On HTTP/2 a stream that stalls is reset alone.
//!
//! Known limits: a lone LF ends a line of an HTTP/1.1 head, as RFC 9112 section 2.2 allows; it has
//! one reading here, and what goes upstream is written anew. A head that begins right behind
//! another request is given the idle time until its next byte comes.

mod abandon;
mod accept;
mod backlog;
mod bind;
mod conn;
mod control;
mod detect;
mod door;
mod drain;
mod frames;
mod gauges;
mod io;
mod listener;
mod options;
mod proxied;
mod reception;
mod service;
mod stall;
mod state;
mod watch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::sync::{Notify, mpsc, watch as channel};

pub(crate) use backlog::{overflows, waiting};
pub(crate) use bind::{BACKLOG, bind, max_connections_default, raise_file_limit};
pub(crate) use conn::H2_SEND_BYTES;
pub(crate) use control::{Change, Control, Listening};
pub(crate) use door::{Answers, TooManyRequests};
pub(crate) use drain::{
    DrainPhase, DrainPhases, DrainReport, DrainSignal, DrainTrigger, DrainView, drain_signal,
};
pub(crate) use gauges::{CloseReason, ConnectionGauges};
pub(crate) use listener::{Listener, Peer};
pub(crate) use options::{ListenerOptions, ServerOptions};
pub(crate) use state::ConnInfo;

use accept::Acceptor;
use conn::ConnSettings;
use control::{Doors, Open, Room};
use door::Door;
use drain::{DrainClock, Left};
use reception::Reception;

/// Serves HTTP on any number of listeners until it is told to leave.
#[derive(Debug)]
pub(crate) struct Server {
    options: ServerOptions,
    clock: Clock,
    gauges: Arc<ConnectionGauges>,
    answers: Arc<Answers>,
    changed: Arc<Notify>,
    view: channel::Sender<DrainView>,
    doors: Doors,
    control: Control,
    changes: mpsc::Receiver<Change>,
}

impl Server {
    /// A server for so many listeners, that accepts nothing yet.
    #[must_use]
    pub(crate) fn new(options: ServerOptions, clock: Clock, listeners: usize) -> Self {
        let view = channel::Sender::new(DrainView::SERVING);
        let gauges = Arc::new(ConnectionGauges::new(listeners));
        // One at a time: a reload waits until it is done.
        let (control, changes) = mpsc::channel(1);
        let (doors, control) = (Doors::default(), Control(control));
        let (answers, changed) = (Arc::new(Answers::new()), Arc::default());
        Self { options, clock, gauges, answers, changed, view, doors, control, changes }
    }

    /// What to change it by while it runs.
    #[must_use]
    pub(crate) fn control(&self) -> Control {
        self.control.clone()
    }

    /// Its counts.
    #[must_use]
    pub(crate) fn gauges(&self) -> Arc<ConnectionGauges> {
        Arc::clone(&self.gauges)
    }

    /// Its places for refusals that are answered.
    #[must_use]
    pub(crate) fn answers(&self) -> Arc<Answers> {
        Arc::clone(&self.answers)
    }

    /// Where its drain stands, now and later; for readiness and for deadlines.
    #[must_use]
    pub(crate) fn drain_view(&self) -> channel::Receiver<DrainView> {
        self.view.subscribe()
    }

    /// Serves until `signal` was given and the drain is over, then says what had to be cut.
    ///
    /// Upgraded connections are in the hands of those who upgraded them: they should end by
    /// [`ConnInfo::closing`], and are counted as cut if they did not end before.
    pub(crate) async fn run<H, F, B>(
        mut self,
        listeners: Vec<(impl Into<Listener>, ListenerOptions)>,
        handler: H,
        mut signal: DrainSignal,
    ) -> DrainReport
    where
        H: Fn(Request<Incoming>, ConnInfo) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut room = Room::new(self.options.max_connections);
        for (number, (socket, options)) in listeners.into_iter().enumerate() {
            let listening = Listening { number, socket: None, options };
            self.open(listening, socket.into(), &room, &handler);
        }
        loop {
            let change = tokio::select! {
                biased;
                () = signal.reached(1) => break,
                Some(change) = self.changes.recv() => change,
            };
            self.options = change.options;
            room.resize(change.options.max_connections).await;
            let stays = |number| change.listeners.iter().any(|it| it.number == number);
            // Before others open: what is closed now may be opened again by the next change.
            self.doors.close_all_but(self.clock.now(), stays).await;
            for mut listening in change.listeners {
                let settings = self.settings(&listening.options);
                match (self.doors.open(listening.number), listening.socket.take()) {
                    (Some(open), _) => open.settings.store(Arc::new(settings)),
                    (None, Some(socket)) => {
                        self.open(listening, socket, &room, &handler);
                    }
                    (None, None) => {}
                }
            }
            // Whoever asked may have left.
            let _ = change.done.send(());
        }
        self.changes.close();
        self.drain(signal).await
    }

    fn settings(&self, options: &ListenerOptions) -> ConnSettings {
        ConnSettings { server: self.options, listener: options.clone() }
    }

    /// Accepts from a socket from now on.
    fn open<H, F, B>(&mut self, listening: Listening, listener: Listener, room: &Room, handler: &H)
    where
        H: Fn(Request<Incoming>, ConnInfo) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let index = listening.number;
        self.gauges.grow(index + 1);
        self.gauges.on_listen(index, listener.inode());
        let settings = Arc::new(ArcSwap::from_pointee(self.settings(&listening.options)));
        let view = channel::Sender::new(DrainView::SERVING);
        let drain = view.subscribe();
        let of_listener = (self.gauges(), index);
        let door = Door::new(Arc::clone(&settings), self.clock, of_listener, self.answers());
        let reception = Reception {
            listener: index,
            door,
            drain: drain.clone(),
            clock: self.clock,
            gauges: self.gauges(),
            changed: Arc::clone(&self.changed),
            handler: handler.clone(),
        };
        let start = move |socket, peer, permit| reception.take(socket, peer, permit);
        let (room, gauges) = (Arc::clone(&room.places), self.gauges());
        let acceptor = Acceptor { listener, index, room, gauges, drain, start };
        let acceptor = tokio::spawn(acceptor.run());
        self.doors.add(index, Open { settings, view, acceptor });
    }

    async fn drain(mut self, mut signal: DrainSignal) -> DrainReport {
        let began = self.clock.now();
        let mut drain = DrainClock::new(began, self.options.drain);
        let mut phase = DrainPhase::Serving;
        let mut signals = 1;
        loop {
            let reached = drain.advance(self.clock.now(), self.left());
            if reached != phase {
                phase = reached;
                self.show(began, phase, &drain);
                // The listeners take what had come before anything is said to be over.
                if phase >= DrainPhase::InFlight {
                    self.doors.closed().await;
                }
                continue;
            }
            if phase == DrainPhase::Over {
                return self.finish(began).await;
            }
            let due = self.clock.instant(drain.deadline(self.left()));
            tokio::select! {
                () = signal.reached(signals + 1) => {
                    signals += 1;
                    drain.hasten(self.clock.now());
                }
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    fn show(&self, began: Timestamp, phase: DrainPhase, drain: &DrainClock) {
        let view = DrainView {
            phase,
            in_flight_until: drain.in_flight_until(),
            began,
            accept_until: began.after(self.options.drain.accept),
        };
        self.view.send_replace(view);
        self.doors.show(view);
    }

    fn left(&self) -> Left {
        Left {
            connections: self.gauges.active(),
            requests: self.gauges.requests(),
            tunnels: self.gauges.tunnels(),
            last_request: self.gauges.last_request(),
        }
    }

    /// Waits a moment for the connections that were just told that it is over.
    async fn finish(self, began: Timestamp) -> DrainReport {
        let took = self.clock.now().since(began);
        let gone = async {
            while self.gauges.active() > 0 || self.gauges.requests() > 0 {
                self.changed.notified().await;
            }
        };
        // Those that stay were upgraded, or their task is busy; they go with the process.
        let _ = tokio::time::timeout(CUT_TIME, gone).await;
        let connections_cut = self.gauges.active() + self.gauges.cut();
        let requests_cut = self.gauges.requests() + self.gauges.requests_cut();
        DrainReport { connections_cut, requests_cut, took }
    }
}

/// Long enough for every connection's task to run once.
const CUT_TIME: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
