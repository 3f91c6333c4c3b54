//! Places for the handshakes of callers: so many for all, and a quarter of them for each peer.
//!
//! A handshake holds memory while it waits for its peer, who may take as long as a head may. So
//! there is a bound; and so that one peer which begins many and ends none keeps nobody else out,
//! there is one of its own: for an IPv4 address, or the network of an IPv6 address. Whoever comes
//! by a unix socket counts as this host.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use seawall_policy::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::quota::{IPV6_PREFIX, network};

/// The places of all listeners.
#[derive(Debug)]
pub(super) struct Places {
    all: Semaphore,
    /// Of each peer that has or wants any: how many, and those it may have.
    peers: Mutex<HashMap<IpAddr, (usize, Arc<Semaphore>)>>,
    /// When each that has or wants one began, in that order.
    begun: Mutex<Begun>,
}

#[derive(Debug, Default)]
struct Begun {
    next: u64,
    since: BTreeMap<u64, Timestamp>,
}

/// How many handshakes there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shaking {
    /// Those that have a place.
    pub(crate) taken: usize,
    /// As many as may have one.
    pub(crate) most: usize,
    /// Those that wait for one.
    pub(crate) waiting: usize,
    /// When the oldest of both began.
    pub(crate) oldest: Option<Timestamp>,
}

/// A place; free again once dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    _all: Option<SemaphorePermit<'a>>,
    _own: Option<OwnedSemaphorePermit>,
    _peer: Known<'a>,
}

/// A peer that has a place or waits for one.
#[derive(Debug)]
struct Known<'a> {
    places: &'a Places,
    peer: IpAddr,
    number: u64,
}

impl Places {
    pub(super) fn new() -> Self {
        let all = Semaphore::new(HANDSHAKES_MAX);
        Self { all, peers: Mutex::default(), begun: Mutex::default() }
    }

    /// How many there are.
    pub(super) fn shaking(&self) -> Shaking {
        let taken = HANDSHAKES_MAX - self.all.available_permits();
        let begun = self.begun.lock();
        let oldest = begun.since.first_key_value().map(|(_, since)| *since);
        let waiting = begun.since.len().saturating_sub(taken);
        Shaking { taken, most: HANDSHAKES_MAX, waiting, oldest }
    }

    /// Waits for a place. The peer's own comes first, so that those it has to wait for keep nobody
    /// else waiting.
    pub(super) async fn take(&self, now: Timestamp, peer: IpAddr) -> Place<'_> {
        let (peer, own) = self.know(now, network(peer, IPV6_PREFIX));
        // Neither is ever closed.
        let own = own.acquire_owned().await.ok();
        Place { _all: self.all.acquire().await.ok(), _own: own, _peer: peer }
    }

    fn know(&self, now: Timestamp, peer: IpAddr) -> (Known<'_>, Arc<Semaphore>) {
        let number = {
            let mut begun = self.begun.lock();
            let number = begun.next;
            begun.next += 1;
            begun.since.insert(number, now);
            number
        };
        let mut peers = self.peers.lock();
        let fresh = || (0, Arc::new(Semaphore::new(HANDSHAKES_OF_PEER_MAX)));
        let (count, own) = peers.entry(peer).or_insert_with(fresh);
        *count += 1;
        (Known { places: self, peer, number }, Arc::clone(own))
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.places.begun.lock().since.remove(&self.number);
        let mut peers = self.places.peers.lock();
        if let Some((count, _)) = peers.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

/// Handshakes of callers at once; more wait within the time for a head. Source: own choice.
pub(super) const HANDSHAKES_MAX: usize = 1_024;
/// Those of one peer. Source: own choice: three more have room.
const HANDSHAKES_OF_PEER_MAX: usize = HANDSHAKES_MAX / 4;

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn one_peer_has_a_quarter_and_is_forgotten_with_its_last_handshake() {
        let places = Places::new();
        let at = Timestamp::from_nanos;
        let take = |peer: &str| places.take(at(7), peer.parse().unwrap()).now_or_never();
        for peer in ["192.0.2.1", "2001:db8::1"] {
            let taken: Vec<_> = (0..HANDSHAKES_OF_PEER_MAX).map(|_| take(peer)).collect();
            assert!(taken.iter().all(Option::is_some));
            assert!(take(peer).is_none(), "{peer} has all it may have");
            assert!(take("2001:db8::2").is_some() == (peer == "192.0.2.1"), "one network");
            assert!(take("192.0.2.2").is_some());
            assert_eq!(places.shaking().taken, HANDSHAKES_OF_PEER_MAX);
            assert_eq!(places.peers.lock().len(), 1);
            drop(taken);
            assert!(places.peers.lock().is_empty());
        }
        let all: Vec<_> =
            (0..HANDSHAKES_MAX).map(|at| take(&format!("192.0.2.{}", at % 4))).collect();
        assert!(all.iter().all(Option::is_some));
        assert_eq!(places.shaking().taken, HANDSHAKES_MAX);
        assert!(take("192.0.2.9").is_none());
        let waits = places.take(at(5), "192.0.2.9".parse().unwrap());
        let mut waits = Box::pin(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        let shaking = places.shaking();
        assert_eq!((shaking.waiting, shaking.oldest), (1, Some(at(7))), "the first that came");
        drop(waits);
        drop(all);
        let shaking = places.shaking();
        assert_eq!((shaking.taken, shaking.waiting, shaking.oldest), (0, 0, None));
        assert!(places.peers.lock().is_empty());
    }
}
