//! Which address of a name is tried first, and which only when the others failed.
//!
//! Dials take the addresses in turn, so that all of a name's servers get connections. One that
//! failed lately is tried after the others: an address that swallows SYNs costs one dial its delay
//! in ten seconds, and not every dial. The two families alternate, so that one that does not work
//! here is left after one try. Source: RFC 8305 section 4.

use std::net::IpAddr;
use std::time::Duration;

use seawall_policy::Timestamp;

/// What is remembered of the addresses of one name.
#[derive(Debug, Default)]
pub(super) struct Turns {
    next: usize,
    /// Those that failed, and until when that counts. As many as the name had addresses, at most.
    failed: Vec<(IpAddr, Timestamp)>,
}

impl Turns {
    /// The addresses in the order to try them.
    pub(super) fn order(&mut self, now: Timestamp, addresses: &[IpAddr]) -> Vec<IpAddr> {
        self.failed.retain(|(ip, until)| now < *until && addresses.contains(ip));
        let has_failed = |ip: &IpAddr| self.failed.iter().any(|(failed, _)| failed == ip);
        let (last, first): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(has_failed);
        let mut order = in_families(&first, self.next);
        order.extend(in_families(&last, self.next));
        self.next = self.next.wrapping_add(1);
        order
    }

    pub(super) fn note_failed(&mut self, now: Timestamp, ip: IpAddr) {
        self.note_worked(ip);
        self.failed.push((ip, now.after(FAILED_FOR)));
    }

    pub(super) fn note_worked(&mut self, ip: IpAddr) {
        self.failed.retain(|(failed, _)| *failed != ip);
    }
}

/// `addresses` from the one at `turn` on, the families alternating.
fn in_families(addresses: &[IpAddr], turn: usize) -> Vec<IpAddr> {
    let count = addresses.len();
    if count == 0 {
        return Vec::new();
    }
    let mut turned: Vec<_> = addresses.to_vec();
    turned.rotate_left(turn % count);
    let is_first = |ip: &IpAddr| ip.is_ipv4() == turned[0].is_ipv4();
    let (one, other): (Vec<_>, Vec<_>) = turned.iter().copied().partition(is_first);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut order = Vec::with_capacity(count);
    while order.len() < count {
        order.extend(one.next());
        order.extend(other.next());
    }
    order
}

/// Source: own choice: a dial in ten seconds may be slow.
const FAILED_FOR: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn every_address_has_its_turn_and_families_alternate() {
        let addresses = ips(&["2001:db8::1", "2001:db8::2", "192.0.2.1"]);
        let mut turns = Turns::default();
        let now = Timestamp::ZERO;
        for expected in [
            ["2001:db8::1", "192.0.2.1", "2001:db8::2"],
            ["2001:db8::2", "192.0.2.1", "2001:db8::1"],
            ["192.0.2.1", "2001:db8::1", "2001:db8::2"],
            ["2001:db8::1", "192.0.2.1", "2001:db8::2"],
        ] {
            assert_eq!(turns.order(now, &addresses), ips(&expected));
        }
        assert!(turns.order(now, &[]).is_empty());
    }

    #[test]
    fn what_failed_is_last_for_ten_seconds_or_until_it_works() {
        let addresses = ips(&["192.0.2.1", "192.0.2.2"]);
        let mut turns = Turns::default();
        let now = Timestamp::ZERO;
        turns.note_failed(now, addresses[0]);
        turns.note_failed(now, addresses[0]);
        let later = now.after(FAILED_FOR - Duration::from_millis(1));
        for _ in 0..3 {
            assert_eq!(turns.order(later, &addresses)[1], addresses[0]);
        }
        turns.note_worked(addresses[0]);
        turns.next = 0;
        assert_eq!(turns.order(later, &addresses)[0], addresses[0]);
        turns.note_failed(now, addresses[1]);
        turns.next = 1;
        assert_eq!(turns.order(now.after(FAILED_FOR), &addresses)[0], addresses[1]);
    }

    #[test]
    fn addresses_that_are_gone_are_forgotten() {
        let mut turns = Turns::default();
        for ip in ips(&["192.0.2.1", "192.0.2.2", "192.0.2.3"]) {
            turns.note_failed(Timestamp::ZERO, ip);
        }
        turns.order(Timestamp::ZERO, &ips(&["192.0.2.3"]));
        assert_eq!(turns.failed.len(), 1);
    }
}
