//! Decides how a server leaves: what it still takes, what it lets end, and what it cuts.
//!
//! ```text
//! serving ──signal──▶ accept ──time──▶ in flight ──time, or nothing left──▶ close ──▶ over
//!                        └───────────── second signal ───────────────────────▲
//! ```
//! - *accept*: connections are still accepted, because load balancers still send them. Each
//!   connection has one random point within the phase from which its next answer says
//!   `Connection: close` (HTTP/1.1) or at which it gets GOAWAY (HTTP/2), so that callers come back
//!   elsewhere spread over the phase and not all at once.
//! - *in flight*: what the kernel had accepted for us is taken, the listeners close, every answer
//!   closes its connection. An idle HTTP/1.1 connection stays open for one more request: its
//!   caller may be sending it just now.
//! - *close*: idle connections are closed, the rest is cut when the phase ends.
//!
//! A phase ends early when nothing is left to wait for: *in flight* without connections, or
//! without requests and upgraded connections for a quarter of its length (what is then idle will
//! not speak); *close* without connections. *accept* keeps its length: it waits for others to
//! notice.
//! A second signal goes on to *close*, a third ends it.

use std::time::Duration;

use seawall_policy::Timestamp;
use tokio::sync::watch;

/// The lengths of the phases. Their sum must stay below the termination grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrainPhases {
    /// Not ready but accepting. Default 5 s; 0 skips the phase.
    pub accept: Duration,
    /// No longer accepting; what is in flight goes on. Default 20 s.
    pub in_flight: Duration,
    /// Closing what is left. Default 2 s.
    pub close: Duration,
}

impl Default for DrainPhases {
    fn default() -> Self {
        Self {
            accept: Duration::from_secs(5),
            in_flight: Duration::from_secs(20),
            close: Duration::from_secs(2),
        }
    }
}

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DrainPhase {
    /// Not leaving.
    Serving,
    /// Leaving but accepting.
    Accept,
    /// No longer accepting.
    InFlight,
    /// Closing what is left.
    Close,
    /// What is left has been cut.
    Over,
}

/// What a drain waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) connections: usize,
    pub(super) requests: usize,
    /// Upgraded connections: work like a request, for as long as they are open.
    pub(super) tunnels: usize,
    /// When the last request began.
    pub(super) last_request: Timestamp,
}

/// A drain under way, without I/O.
#[derive(Debug)]
pub(super) struct DrainClock {
    phases: DrainPhases,
    phase: DrainPhase,
    /// When `phase` began; for *accept*, when the drain began.
    began: Timestamp,
}

impl DrainClock {
    /// Begins with *accept*.
    pub(super) fn new(now: Timestamp, phases: DrainPhases) -> Self {
        Self { phases, phase: DrainPhase::Accept, began: now }
    }

    /// Goes on as far as time and what is left allow, and says where that is. Stops at the
    /// beginning of *in flight* in any case: what the kernel holds must be taken before it is
    /// known what is left.
    pub(super) fn advance(&mut self, now: Timestamp, left: Left) -> DrainPhase {
        while now >= self.deadline(left) {
            self.enter(now, next_phase(self.phase));
            if self.phase == DrainPhase::InFlight {
                break;
            }
        }
        self.phase
    }

    /// Goes on to *close*, or from there to the end.
    pub(super) fn hasten(&mut self, now: Timestamp) -> DrainPhase {
        let next =
            if self.phase < DrainPhase::Close { DrainPhase::Close } else { DrainPhase::Over };
        self.enter(now, next);
        next
    }

    /// When [`DrainClock::advance`] has something to do if nothing changes until then.
    pub(super) fn deadline(&self, left: Left) -> Timestamp {
        let end = self.began.after(self.length());
        match self.phase {
            DrainPhase::Serving | DrainPhase::Over => Timestamp::MAX,
            DrainPhase::Accept => end,
            DrainPhase::InFlight | DrainPhase::Close if left.connections == 0 => self.began,
            DrainPhase::InFlight if left.requests == 0 && left.tunnels == 0 => {
                let quiet = self.phases.in_flight / QUIET_PART;
                end.min(self.began.max(left.last_request).after(quiet))
            }
            DrainPhase::InFlight | DrainPhase::Close => end,
        }
    }

    /// The time the phase after *accept* ends if it is not cut short.
    pub(super) fn in_flight_until(&self) -> Timestamp {
        match self.phase {
            DrainPhase::Accept => self.began.after(self.phases.accept).after(self.phases.in_flight),
            DrainPhase::InFlight => self.began.after(self.phases.in_flight),
            DrainPhase::Serving => Timestamp::MAX,
            DrainPhase::Close | DrainPhase::Over => self.began,
        }
    }

    fn length(&self) -> Duration {
        match self.phase {
            DrainPhase::Accept => self.phases.accept,
            DrainPhase::InFlight => self.phases.in_flight,
            DrainPhase::Close => self.phases.close,
            DrainPhase::Serving | DrainPhase::Over => Duration::MAX,
        }
    }

    /// A phase begins when the one before ended, not when that was noticed, but never before it
    /// ended early.
    fn enter(&mut self, now: Timestamp, phase: DrainPhase) {
        self.began = self.began.after(self.length()).min(now);
        self.phase = phase;
    }
}

fn next_phase(phase: DrainPhase) -> DrainPhase {
    match phase {
        DrainPhase::Serving => DrainPhase::Accept,
        DrainPhase::Accept => DrainPhase::InFlight,
        DrainPhase::InFlight => DrainPhase::Close,
        DrainPhase::Close | DrainPhase::Over => DrainPhase::Over,
    }
}

/// Where a drain stands, for connections and for the pipeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainView {
    /// The phase.
    pub phase: DrainPhase,
    /// The end of *in flight*, which a request admitted now may not outlast;
    /// [`Timestamp::MAX`] while serving.
    pub in_flight_until: Timestamp,
    /// When *accept* began.
    pub(super) began: Timestamp,
    /// When *accept* ends.
    pub(super) accept_until: Timestamp,
}

impl DrainView {
    pub(crate) const SERVING: Self = Self {
        phase: DrainPhase::Serving,
        in_flight_until: Timestamp::MAX,
        began: Timestamp::MAX,
        accept_until: Timestamp::MAX,
    };

    /// When a connection that was `opened` then and drew `share` (0 to 2³² − 1) is told to close;
    /// `None` while serving.
    pub(super) fn close_point(&self, opened: Timestamp, share: u32) -> Option<Timestamp> {
        match self.phase {
            DrainPhase::Serving => None,
            DrainPhase::Accept => {
                let from = self.began.max(opened);
                let span = (from.until(self.accept_until).as_nanos() * u128::from(share)) >> 32;
                let delay = Duration::from_nanos(u64::try_from(span).unwrap_or(u64::MAX));
                Some(from.after(delay))
            }
            DrainPhase::InFlight | DrainPhase::Close | DrainPhase::Over => Some(Timestamp::ZERO),
        }
    }
}

/// Tells a server to leave; any clone will do.
#[derive(Clone, Debug)]
pub(crate) struct DrainTrigger(std::sync::Arc<watch::Sender<u32>>);

impl DrainTrigger {
    /// The first call begins the drain, the second goes on to its last phase, the third ends it.
    pub(crate) fn signal(&self) {
        self.0.send_modify(|signals| *signals = signals.saturating_add(1));
    }

    /// How often it was called.
    #[cfg(test)]
    pub(crate) fn signals(&self) -> u32 {
        *self.0.borrow()
    }
}

/// The server's end of a [`DrainTrigger`].
#[derive(Clone, Debug)]
pub(crate) struct DrainSignal(watch::Receiver<u32>);

impl DrainSignal {
    /// Waits for the signal number `count`; for ever if every trigger is gone before.
    pub(super) async fn reached(&mut self, count: u32) {
        if self.0.wait_for(|&signals| signals >= count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A trigger and the signal it gives.
#[must_use]
pub(crate) fn drain_signal() -> (DrainTrigger, DrainSignal) {
    let (sender, receiver) = watch::channel(0);
    (DrainTrigger(std::sync::Arc::new(sender)), DrainSignal(receiver))
}

/// What a drain could not let end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrainReport {
    /// Connections cut in the middle of a request, of its head or of what they were upgraded to.
    /// An idle one that its peer had not closed yet is none.
    pub connections_cut: usize,
    /// Requests that were in flight on them.
    pub requests_cut: usize,
    /// From the signal to the end.
    pub took: Duration,
}

/// The part of *in flight* without any request after which what is left counts as idle.
const QUIET_PART: u32 = 4;

#[cfg(test)]
mod tests {
    use super::DrainPhase::{Accept, Close, InFlight, Over};
    use super::*;

    const NOTHING: Left =
        Left { connections: 0, requests: 0, tunnels: 0, last_request: Timestamp::ZERO };
    const BUSY: Left = Left { connections: 3, requests: 1, ..NOTHING };

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::from_millis(100_000 + seconds * 1000)
    }

    fn clock() -> DrainClock {
        DrainClock::new(seconds(0), DrainPhases::default())
    }

    #[test]
    fn phases_take_their_time_while_something_is_left() {
        let mut clock = clock();
        for (at, expected) in [
            (0, Accept),
            (4, Accept),
            (5, InFlight),
            (24, InFlight),
            (25, Close),
            (26, Close),
            (27, Over),
            (1000, Over),
        ] {
            assert_eq!(clock.advance(seconds(at), BUSY), expected, "{at}");
        }
    }

    #[test]
    fn phases_that_were_noticed_late_still_end_on_time() {
        let mut clock = clock();
        assert_eq!(clock.advance(seconds(9), BUSY), InFlight);
        assert_eq!(clock.in_flight_until(), seconds(25));
        assert_eq!(clock.advance(seconds(26), BUSY), Close);
        assert_eq!(clock.deadline(BUSY), seconds(27));
        let mut clock = self::clock();
        assert_eq!(clock.advance(seconds(60), BUSY), InFlight);
        assert_eq!(clock.advance(seconds(60), BUSY), Over);
    }

    #[test]
    fn accept_keeps_its_length_and_the_rest_ends_when_no_connection_is_left() {
        let mut clock = clock();
        assert_eq!(clock.advance(seconds(4), NOTHING), Accept);
        assert_eq!(clock.advance(seconds(5), NOTHING), InFlight);
        assert_eq!(clock.advance(seconds(5), NOTHING), Over);
    }

    #[test]
    fn in_flight_ends_after_a_quarter_without_a_request() {
        let mut clock = clock();
        let idle = |last| Left { connections: 3, last_request: seconds(last), ..NOTHING };
        assert_eq!(clock.advance(seconds(9), idle(4)), InFlight);
        assert_eq!(clock.deadline(idle(4)), seconds(10));
        assert_eq!(clock.advance(seconds(12), idle(8)), InFlight);
        assert_eq!(clock.advance(seconds(13), idle(8)), Close);
        assert_eq!(clock.deadline(idle(8)), seconds(15));
    }

    #[test]
    fn an_upgraded_connection_keeps_in_flight_open_to_its_end() {
        let mut clock = clock();
        let tunnel = Left { connections: 1, tunnels: 1, ..NOTHING };
        assert_eq!(clock.advance(seconds(5), tunnel), InFlight);
        assert_eq!(clock.deadline(tunnel), seconds(25));
        assert_eq!(clock.advance(seconds(24), tunnel), InFlight);
        assert_eq!(clock.advance(seconds(25), tunnel), Close);
    }

    #[test]
    fn a_second_signal_goes_on_to_close_and_a_third_ends_it() {
        let mut clock = clock();
        assert_eq!(clock.hasten(seconds(1)), Close);
        assert_eq!(clock.advance(seconds(2), BUSY), Close);
        assert_eq!(clock.in_flight_until(), seconds(1));
        assert_eq!(clock.hasten(seconds(2)), Over);
        let mut clock = self::clock();
        clock.hasten(seconds(1));
        assert_eq!(clock.advance(seconds(3), BUSY), Over);
    }

    #[test]
    fn lengths_of_zero_are_skipped() {
        let phases = DrainPhases { accept: Duration::ZERO, ..DrainPhases::default() };
        assert_eq!(DrainClock::new(seconds(0), phases).advance(seconds(0), BUSY), InFlight);
    }

    #[test]
    fn close_points_are_spread_over_what_is_left_of_accept() {
        let view = DrainView {
            phase: Accept,
            in_flight_until: seconds(25),
            began: seconds(0),
            accept_until: seconds(5),
        };
        let half = u32::MAX / 2 + 1;
        assert_eq!(view.close_point(Timestamp::ZERO, 0), Some(seconds(0)));
        assert_eq!(view.close_point(Timestamp::ZERO, half).map(|at| at.since(seconds(0))), {
            Some(Duration::from_millis(2500))
        });
        assert!(view.close_point(Timestamp::ZERO, u32::MAX) < Some(seconds(5)));
        assert_eq!(view.close_point(seconds(3), half), Some(seconds(4)));
        assert_eq!(view.close_point(seconds(9), half), Some(seconds(9)));
        assert_eq!(DrainView::SERVING.close_point(seconds(0), half), None);
        let later = DrainView { phase: InFlight, ..view };
        assert_eq!(later.close_point(seconds(0), u32::MAX), Some(Timestamp::ZERO));
    }
}
