//! Who filled the queue: the tenants with the largest part of what had to wait lately.
//!
//! Space-saving (Metwally and others): so many counters, and a tenant that has none takes the
//! least one over, its count included. A tenant with more than one in 32 of the whole is always
//! among them, and each count is too high by at most `over`, which is known. Counts halve every
//! 10 s, so the present weighs most.

use alloc::vec::Vec;
use core::time::Duration;

use super::Tenant;
use crate::ratio::Ratio;
use crate::time::Timestamp;

/// One of those that filled the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopTenant {
    /// Who.
    pub tenant: Tenant,
    /// Its part of the cost of all that had to wait, at most.
    pub share: Ratio,
    /// The same, at least.
    pub share_min: Ratio,
}

#[derive(Debug)]
pub(super) struct Top {
    tenants: [u64; COUNTERS_MAX],
    counts: [u64; COUNTERS_MAX],
    /// What each count may be too high by.
    over: [u64; COUNTERS_MAX],
    total: u64,
    halve_at: Timestamp,
}

impl Top {
    pub(super) const fn new() -> Self {
        Self {
            tenants: [0; COUNTERS_MAX],
            counts: [0; COUNTERS_MAX],
            over: [0; COUNTERS_MAX],
            total: 0,
            halve_at: Timestamp::ZERO,
        }
    }

    /// A request of that cost has to wait.
    pub(super) fn add(&mut self, now: Timestamp, tenant: u64, cost: u32) {
        if now >= self.halve_at {
            self.halve_at = now.after(HALF_LIFE);
            let all = self.counts.iter_mut().chain(&mut self.over).chain([&mut self.total]);
            all.for_each(|count| *count /= 2);
        }
        let cost = u64::from(cost);
        self.total = self.total.saturating_add(cost);
        // One that counts nothing is free, whoever it is of.
        let known = self.tenants.iter().position(|known| *known == tenant);
        let at = known.unwrap_or_else(|| {
            let least = (0..COUNTERS_MAX).min_by_key(|&at| self.counts[at]).unwrap_or(0);
            (self.tenants[least], self.over[least]) = (tenant, self.counts[least]);
            least
        });
        self.counts[at] = self.counts[at].saturating_add(cost);
    }

    /// The largest first; nobody who may have had nothing.
    pub(super) fn list(&self) -> Vec<TopTenant> {
        let share = |part: u64| {
            let millionths = u128::from(part) * u128::from(Ratio::SCALE);
            let share = millionths / u128::from(self.total.max(1));
            Ratio::from_millionths(u32::try_from(share).unwrap_or(Ratio::SCALE))
        };
        let known = (0..COUNTERS_MAX).filter(|&at| self.counts[at] > self.over[at]);
        let mut list: Vec<_> = known
            .map(|at| TopTenant {
                tenant: Tenant(self.tenants[at]),
                share: share(self.counts[at]).min(Ratio::ONE),
                share_min: share(self.counts[at] - self.over[at]),
            })
            .collect();
        list.sort_unstable_by_key(|top| (core::cmp::Reverse(top.share), top.tenant.0));
        list
    }
}

/// Source: space-saving.
const COUNTERS_MAX: usize = 32;
/// Source: own choice (a rush of minutes is seen while it lasts).
const HALF_LIFE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_one_is_found_among_more_than_can_be_counted() {
        let mut top = Top::new();
        for number in 0..10_000 {
            // One in ten is of tenant 7; the others are of 9,000 invented ones.
            let tenant = if number % 10 == 0 { 7 } else { 1_000 + number };
            top.add(Timestamp::ZERO, tenant, 3);
        }
        let list = top.list();
        assert!(list.len() <= 32);
        assert_eq!(list[0].tenant, Tenant(7));
        assert!(list[0].share >= Ratio::from_percent(10), "{list:?}");
        assert!(list[0].share_min <= Ratio::from_percent(10), "{list:?}");
        let alone = |top: &Top| top.list()[0].share_min;
        assert!(alone(&top) >= Ratio::from_percent(9), "{:?}", alone(&top));
    }

    #[test]
    fn what_was_long_ago_weighs_less() {
        let mut top = Top::new();
        (0..1_000).for_each(|_| top.add(Timestamp::from_millis(1), 7, 1));
        // Six half-lives later.
        (1..=6).for_each(|n| top.add(Timestamp::from_millis(n * 10_001), 8, 1));
        (0..100).for_each(|_| top.add(Timestamp::from_millis(60_007), 8, 1));
        let list = top.list();
        assert_eq!((list[0].tenant, list[1].tenant), (Tenant(8), Tenant(7)));
        assert!(list[0].share > Ratio::from_percent(85), "{list:?}");
    }
}
