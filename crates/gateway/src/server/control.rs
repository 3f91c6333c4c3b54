//! What changes of a server while it serves: its listeners, their limits, and its own.
//!
//! A new limit holds for the connections that come from now on. A listener that is gone takes what
//! the kernel had accepted for it and closes; its connections are told to close at their next
//! answer, or by GOAWAY, as in a drain, and finish what they have.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use seawall_policy::Timestamp;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::conn::ConnSettings;
use super::drain::{DrainPhase, DrainView};
use super::{Listener, ListenerOptions, ServerOptions};

/// A listener as it should be.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Its number, for as long as the process lives.
    pub number: usize,
    /// Its socket, if it does not listen yet.
    pub socket: Option<Listener>,
    /// Its limits.
    pub options: ListenerOptions,
}

/// All that should be from now on.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) options: ServerOptions,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) done: oneshot::Sender<()>,
}

/// The handle to change a server by.
#[derive(Clone, Debug)]
pub(crate) struct Control(pub(super) mpsc::Sender<Change>);

impl Control {
    /// Has the server be what is given, and waits until it is. A server that leaves changes
    /// nothing more.
    pub(crate) async fn change(&self, options: ServerOptions, listeners: Vec<Listening>) {
        let (done, changed) = oneshot::channel();
        if self.0.send(Change { options, listeners, done }).await.is_ok() {
            // It has begun to leave.
            let _ = changed.await;
        }
    }
}

#[cfg(test)]
impl Control {
    /// One that leads to no server but to a test.
    pub(crate) fn apart() -> (Self, mpsc::Receiver<Change>) {
        let (sender, changes) = mpsc::channel(1);
        (Self(sender), changes)
    }
}

/// A listener that accepts.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) settings: Arc<ArcSwap<ConnSettings>>,
    pub(super) view: watch::Sender<DrainView>,
    /// Ends once it has closed.
    pub(super) acceptor: JoinHandle<()>,
}

/// The listeners of a server, and those it had whose connections are still there.
#[derive(Debug, Default)]
pub(super) struct Doors {
    open: BTreeMap<usize, Open>,
    closing: Vec<watch::Sender<DrainView>>,
}

impl Doors {
    /// The listener of that number, if it accepts.
    pub(super) fn open(&self, number: usize) -> Option<&Open> {
        self.open.get(&number)
    }

    /// A listener that accepts from now on.
    pub(super) fn add(&mut self, number: usize, open: Open) {
        self.open.insert(number, open);
    }

    /// Closes every listener but those for which `stays` says yes, and waits until they are.
    pub(super) async fn close_all_but(&mut self, now: Timestamp, stays: impl Fn(usize) -> bool) {
        self.closing.retain(|view| view.receiver_count() > 0);
        for open in self.open.extract_if(.., |number, _| !stays(*number)).map(|(_, open)| open) {
            open.view.send_replace(DrainView {
                phase: DrainPhase::InFlight,
                in_flight_until: Timestamp::MAX,
                began: now,
                accept_until: now,
            });
            // What it panicked with was told where it did.
            let _ = open.acceptor.await;
            self.closing.push(open.view);
        }
    }

    /// Waits until every listener is closed; they have been told to.
    pub(super) async fn closed(&mut self) {
        for open in std::mem::take(&mut self.open).into_values() {
            let _ = open.acceptor.await;
            self.closing.push(open.view);
        }
    }

    /// Tells every connection how far the server is.
    pub(super) fn show(&self, view: DrainView) {
        for listener in self.open.values().map(|open| &open.view).chain(&self.closing) {
            listener.send_if_modified(|shown| {
                let goes_on = shown.phase <= view.phase;
                if goes_on {
                    *shown = view;
                }
                goes_on
            });
        }
    }
}

/// The places for connections; their number can change while they are taken.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) places: Arc<Semaphore>,
    /// As many as there should be.
    wanted: usize,
    /// Takes away, as they fall free, those that are too many.
    shrinking: Option<JoinHandle<()>>,
    /// As many as it still has to.
    excess: usize,
}

impl Room {
    pub(super) fn new(places: usize) -> Self {
        let wanted = places.max(1);
        let places = Arc::new(Semaphore::new(wanted));
        Self { places, wanted, shrinking: None, excess: 0 }
    }

    /// Makes it so many places.
    pub(super) async fn resize(&mut self, wanted: usize) {
        let wanted = wanted.max(1);
        if wanted == self.wanted {
            return;
        }
        if let Some(task) = self.shrinking.take() {
            task.abort();
            // Done: it took all of them away.
            if task.await.is_ok() {
                self.excess = 0;
            }
        }
        let there_are = self.wanted + std::mem::take(&mut self.excess);
        self.wanted = wanted;
        if wanted >= there_are {
            self.places.add_permits(wanted - there_are);
            return;
        }
        let excess = there_are - wanted;
        let left = excess - self.places.forget_permits(excess);
        self.excess = left;
        if let Some(many) = u32::try_from(left).ok().filter(|many| *many > 0) {
            let places = Arc::clone(&self.places);
            self.shrinking = Some(tokio::spawn(async move {
                // The semaphore is never closed.
                if let Ok(taken) = places.acquire_many_owned(many).await {
                    taken.forget();
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_that_are_too_many_go_as_they_fall_free() {
        let mut room = Room::new(4);
        let mut taken: Vec<_> =
            (0..4).map(|_| Arc::clone(&room.places).try_acquire_owned().unwrap()).collect();
        room.resize(2).await;
        taken.truncate(2);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(room.places.available_permits(), 0);
        taken.pop();
        assert_eq!(room.places.available_permits(), 1);
        // Fewer still, and more again before that has come about.
        taken.push(Arc::clone(&room.places).try_acquire_owned().unwrap());
        room.resize(1).await;
        room.resize(3).await;
        assert_eq!(room.places.available_permits(), 1);
        drop(taken);
        tokio::task::yield_now().await;
        assert_eq!(room.places.available_permits(), 3);
        room.resize(0).await;
        assert_eq!(room.places.available_permits(), 1, "one at least");
    }
}
