//! Decides what the timers of one connection ask for.
//!
//! HTTP/1.1 waits for a request head, from its first byte; between requests, for its first byte.
//! HTTP/2 waits for the first stream after the last one ended. Beyond that both have an age, and a
//! point at which a leaving server tells them to close. *Tell* is the gentle way: an answer with
//! `Connection: close`, or GOAWAY and then time for the peer to take notice; *cut* is the other.

use std::time::Duration;

use seawall_policy::Timestamp;

use super::gauges::CloseReason;
use super::state::{ConnState, DownstreamProtocol};

/// What a connection's driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before then.
    Wait(Timestamp),
    /// Tell the peer that the connection closes.
    Tell(CloseReason),
    /// Close it now.
    Cut(CloseReason),
}

/// What the timers look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) in_flight: u32,
    pub(super) idle_since: Timestamp,
    pub(super) head_since: Option<Timestamp>,
    pub(super) abuses: bool,
}

impl Seen {
    pub(super) fn of(state: &ConnState) -> Self {
        Self {
            in_flight: state.in_flight(),
            idle_since: state.idle_since(),
            head_since: state.head_since(),
            abuses: state.abuses(),
        }
    }
}

/// The timers of one connection.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) protocol: DownstreamProtocol,
    /// Whether an abusive peer is told rather than cut.
    pub(super) trusted: bool,
    pub(super) head_timeout: Duration,
    pub(super) idle_timeout: Duration,
    /// When it is old.
    pub(super) old_at: Timestamp,
    /// When a leaving server tells it; [`Timestamp::MAX`] while serving.
    pub(super) drain_at: Timestamp,
    /// When it was told first, and why.
    pub(super) told: Option<(Timestamp, CloseReason)>,
}

impl Watch {
    pub(super) fn step(&self, now: Timestamp, seen: Seen) -> Step {
        if seen.abuses && !self.trusted {
            return Step::Cut(CloseReason::Abuse);
        }
        let (quiet_until, quiet_step) = self.quiet(seen);
        if now >= quiet_until {
            return quiet_step;
        }
        if self.told.is_some() {
            return Step::Wait(quiet_until);
        }
        match self.tell(now, seen) {
            Some(reason) => Step::Tell(reason),
            None => Step::Wait(quiet_until.min(self.old_at).min(self.drain_at)),
        }
    }

    /// Until when nothing may happen on the connection, and what then.
    fn quiet(&self, seen: Seen) -> (Timestamp, Step) {
        if seen.in_flight > 0 {
            return (Timestamp::MAX, Step::Wait(Timestamp::MAX));
        }
        let idle_until = seen.idle_since.after(self.idle_timeout);
        match (self.protocol, seen.head_since, self.told) {
            (DownstreamProtocol::Http1, Some(since), _) => {
                (since.after(self.head_timeout), Step::Cut(CloseReason::Head))
            }
            (DownstreamProtocol::Http1, None, _) => (idle_until, Step::Cut(CloseReason::Idle)),
            (DownstreamProtocol::Http2, _, None) => (idle_until, Step::Tell(CloseReason::Idle)),
            (DownstreamProtocol::Http2, _, Some((told, reason))) => {
                (told.max(seen.idle_since).after(NOTICE), Step::Cut(reason))
            }
        }
    }

    fn tell(&self, now: Timestamp, seen: Seen) -> Option<CloseReason> {
        if seen.abuses {
            Some(CloseReason::Abuse)
        } else if now >= self.drain_at {
            Some(CloseReason::Drain)
        } else if now >= self.old_at {
            Some(CloseReason::Age)
        } else {
            None
        }
    }
}

/// How long a peer without streams has to close after GOAWAY.
const NOTICE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::DownstreamProtocol::{Http1, Http2};
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn watch(protocol: DownstreamProtocol) -> Watch {
        Watch {
            protocol,
            trusted: false,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            old_at: at(3600),
            drain_at: Timestamp::MAX,
            told: None,
        }
    }

    const IDLE: Seen =
        Seen { in_flight: 0, idle_since: Timestamp::ZERO, head_since: None, abuses: false };

    #[test]
    fn a_head_is_given_its_time_from_its_first_byte() {
        let seen = Seen { head_since: Some(at(50)), ..IDLE };
        assert_eq!(watch(Http1).step(at(59), seen), Step::Wait(at(60)));
        assert_eq!(watch(Http1).step(at(60), seen), Step::Cut(CloseReason::Head));
    }

    #[test]
    fn an_idle_connection_is_cut_on_http_1_and_told_on_http_2() {
        for (protocol, step) in
            [(Http1, Step::Cut(CloseReason::Idle)), (Http2, Step::Tell(CloseReason::Idle))]
        {
            assert_eq!(watch(protocol).step(at(74), IDLE), Step::Wait(at(75)));
            assert_eq!(watch(protocol).step(at(75), IDLE), step);
        }
    }

    #[test]
    fn a_request_in_flight_stops_every_timer_but_age_and_drain() {
        let seen = Seen { in_flight: 1, ..IDLE };
        for protocol in [Http1, Http2] {
            assert_eq!(watch(protocol).step(at(3599), seen), Step::Wait(at(3600)));
            assert_eq!(watch(protocol).step(at(3600), seen), Step::Tell(CloseReason::Age));
            let leaving = Watch { drain_at: at(100), ..watch(protocol) };
            assert_eq!(leaving.step(at(99), seen), Step::Wait(at(100)));
            assert_eq!(leaving.step(at(100), seen), Step::Tell(CloseReason::Drain));
            let told = Watch { told: Some((at(100), CloseReason::Drain)), ..leaving };
            assert_eq!(told.step(at(9000), seen), Step::Wait(Timestamp::MAX));
        }
    }

    #[test]
    fn after_goaway_a_peer_without_streams_has_five_seconds() {
        let told = Watch { told: Some((at(70), CloseReason::Age)), ..watch(Http2) };
        assert_eq!(told.step(at(74), IDLE), Step::Wait(at(75)));
        assert_eq!(told.step(at(75), IDLE), Step::Cut(CloseReason::Age));
        let later = Seen { idle_since: at(80), ..IDLE };
        assert_eq!(told.step(at(84), later), Step::Wait(at(85)));
        assert_eq!(told.step(at(85), later), Step::Cut(CloseReason::Age));
    }

    #[test]
    fn an_idle_connection_told_on_http_1_keeps_its_idle_time() {
        let told = Watch { told: Some((at(70), CloseReason::Drain)), ..watch(Http1) };
        assert_eq!(told.step(at(74), IDLE), Step::Wait(at(75)));
        assert_eq!(told.step(at(75), IDLE), Step::Cut(CloseReason::Idle));
    }

    #[test]
    fn abuse_is_cut_for_strangers_and_told_to_the_trusted() {
        let seen = Seen { in_flight: 7, abuses: true, ..IDLE };
        assert_eq!(watch(Http2).step(at(1), seen), Step::Cut(CloseReason::Abuse));
        let trusted = Watch { trusted: true, ..watch(Http2) };
        assert_eq!(trusted.step(at(1), seen), Step::Tell(CloseReason::Abuse));
        let told = Watch { told: Some((at(1), CloseReason::Abuse)), ..trusted };
        assert_eq!(told.step(at(2), seen), Step::Wait(Timestamp::MAX));
    }
}
