//! Which ranks may enter, so that the calls of one chain are refused together or not at all.
//!
//! A task that needs four calls is worth nothing if the fourth is refused. Refused at random at
//! half of the load, one task in sixteen is done, and most of the work was for nothing. If all
//! services of a chain refuse the same tenants, what is begun is finished. So a tenant has a rank,
//! the same everywhere for an hour, and a class has a level: ranks below it enter (DAGOR).
//!
//! ```text
//! each second, or after 2,000 that came:
//! too much   if the mean strain of those started is above ½: let in 2 % less than was let in,
//!            and not more than was started
//! else       ½ % of what came more, and a quarter more if the strain is below 1/40
//! level      the rank up to which those who came cost as much as may be let in
//! ```
//!
//! The steps are smaller than DAGOR's: a tenant at the level whose rank goes in and out loses what
//! it has begun.
//!
//! Rank 0 is that of requests that have none: no level refuses them. While nothing was too much,
//! the level is above all ranks.

use alloc::boxed::Box;

use crate::rng::{Rng, SplitMix64};
use crate::time::Timestamp;

/// The rank of a tenant in the hour of that number (of the wall's clock, since 1970): 1 to 1,023.
///
/// It is made of the name and nothing else, so it is the same in every service that knows the name;
/// others get it in a header. Another hour gives another rank, so nobody is the last for good, and
/// not by session or request, or callers learn that asking again helps.
#[must_use]
pub fn tenant_rank(name: &[u8], hour: u64) -> u16 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    let name = name.iter().fold(FNV_OFFSET, hash);
    let rank = SplitMix64::new(name ^ hour.rotate_left(32)).below(u64::from(RANKS) - 1) + 1;
    u16::try_from(rank).unwrap_or(RANKS - 1)
}

/// The level of one class.
#[derive(Debug)]
pub(super) struct Level {
    /// Ranks from this one on are refused; [`RANKS`]: none is.
    level: u16,
    /// What those who came in the window cost, by rank.
    came: Box<[u32]>,
    came_cost: u64,
    came_count: u32,
    let_in: u64,
    started: u64,
    starts: u32,
    strain: u64,
    ends: Timestamp,
}

impl Level {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            level: RANKS,
            came: alloc::vec![0; RANKS as usize].into_boxed_slice(),
            came_cost: 0,
            came_count: 0,
            let_in: 0,
            started: 0,
            starts: 0,
            strain: 0,
            ends: now.after(WINDOW),
        }
    }

    /// One comes: whether its rank may enter.
    pub(super) fn lets_in(&mut self, now: Timestamp, rank: u16, cost: u32) -> bool {
        if now >= self.ends || self.came_count >= WINDOW_COUNT {
            self.turn(now);
        }
        let rank = rank.min(RANKS - 1);
        let came = &mut self.came[usize::from(rank)];
        *came = came.saturating_add(cost);
        self.came_cost += u64::from(cost);
        self.came_count += 1;
        let is_let_in = rank == 0 || rank < self.level;
        self.let_in += if is_let_in { u64::from(cost) } else { 0 };
        is_let_in
    }

    /// One is started that was so strained.
    pub(super) fn start(&mut self, cost: u32, strain: u32) {
        self.started += u64::from(cost);
        self.starts += 1;
        self.strain += u64::from(strain);
    }

    /// The window is over: the level of the next.
    fn turn(&mut self, now: Timestamp) {
        let strain = self.strain.checked_div(u64::from(self.starts)).unwrap_or(0);
        if strain > STRAIN_HIGH || self.level < RANKS {
            let more = self.came_cost / RISE_ONE_IN;
            let may = match strain {
                _ if strain > STRAIN_HIGH => {
                    (self.let_in - self.let_in * FALL_PERCENT / 100).min(self.started)
                }
                _ if strain < STRAIN_LOW => self.let_in + self.let_in / 4 + more,
                _ => self.let_in + more,
            };
            self.level = self.level_for(may.max(1));
        }
        self.came.fill(0);
        (self.came_cost, self.came_count, self.let_in) = (0, 0, 0);
        (self.started, self.starts, self.strain) = (0, 0, 0);
        self.ends = now.after(WINDOW);
    }

    /// The first rank that is too much.
    fn level_for(&self, may: u64) -> u16 {
        let mut sum = 0;
        let fits = self.came.iter().take_while(|came| {
            sum += u64::from(**came);
            sum <= may
        });
        u16::try_from(fits.count()).map_or(RANKS, |level| level.max(1))
    }
}

/// Ranks, from 0. Source: seawall-design (a rank is a thousandth of what comes).
pub(super) const RANKS: u16 = 1_024;
/// Source: fnv.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
/// Source: fnv.
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
/// Source: dagor.
const WINDOW: core::time::Duration = core::time::Duration::from_secs(1);
/// Source: dagor.
const WINDOW_COUNT: u32 = 2_000;
/// In thousandths. Source: seawall-defaults (an eighth of the patience, where the target is a
/// quarter). Differs: DAGOR's is 20 ms of a wait of 500.
const STRAIN_HIGH: u64 = 500;
/// Below it there is much room. Source: seawall-defaults.
const STRAIN_LOW: u64 = 25;
/// Source: seawall-defaults. Differs: DAGOR takes 5 % away.
const FALL_PERCENT: u64 = 2;
/// Of what came, one in so many. Source: seawall-defaults. Differs: DAGOR gives 1 %.
const RISE_ONE_IN: u64 = 200;

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    /// A second in which 1,000 come, one of each rank in turn, and what is let in is started with
    /// that strain, but at most so many. How many were let in.
    fn second(level: &mut Level, second: u64, strain: u32, starts: usize) -> usize {
        let mut let_in = 0;
        for n in 0..1_000_u64 {
            let now = Timestamp::from_millis(second * 1_000 + n);
            let rank = u16::try_from(n % 1_000 + 1).unwrap();
            let_in += usize::from(level.lets_in(now, rank, 1));
        }
        (0..let_in.min(starts)).for_each(|_| level.start(1, strain));
        let_in
    }

    #[test]
    fn all_enter_until_it_is_too_much_and_then_as_many_as_are_started() {
        let mut level = Level::new(Timestamp::ZERO);
        assert_eq!([0, 1].map(|at| second(&mut level, at, 500, 1_000)), [1_000; 2]);
        assert_eq!(second(&mut level, 2, 501, 400), 1_000);
        assert_eq!(second(&mut level, 3, 400, 400), 400, "what was started");
        assert_eq!(second(&mut level, 4, 501, 405), 405, "and ½ % of what came");
        assert_eq!(second(&mut level, 5, 501, 405), 397, "2 % less");
        assert!(level.lets_in(Timestamp::from_millis(5_999), 0, 1), "who has no rank");
        assert!(!level.lets_in(Timestamp::from_millis(5_999), u16::MAX, 1));
    }

    #[test]
    fn where_there_is_much_room_it_is_over_soon() {
        let mut level = Level::new(Timestamp::ZERO);
        second(&mut level, 0, 2_000, 100);
        let let_in: Vec<_> = (1..14).map(|at| second(&mut level, at, 0, 1_000)).collect();
        assert_eq!((let_in[0], let_in[1]), (100, 130));
        assert_eq!(let_in[12], 1_000);
    }

    #[test]
    fn ranks_are_spread_evenly_and_change_with_the_hour() {
        let rank = |n: u32, hour| tenant_rank(n.to_string().as_bytes(), hour);
        let ranks: Vec<_> = (0..10_000).map(|n| rank(n, 480_000)).collect();
        assert!(ranks.iter().all(|rank| (1..=1_023).contains(rank)));
        let lower = ranks.iter().filter(|rank| **rank < 512).count();
        assert!((4_800..5_200).contains(&lower), "{lower}");
        let same = (0..10_000).filter(|&n| rank(n, 480_001) == ranks[n as usize]).count();
        assert!(same < 30, "{same}");
    }
}
