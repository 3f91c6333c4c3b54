//! Divides a limit among groups of calls: each has a share that it always gets, and lends what it
//! does not use.
//!
//! A group is admitted while it has less in flight than its share, or while anything is free at
//! all. So a borrower may fill the whole limit, and an owner who comes back is not made to wait for
//! it: it is let in above the limit, by at most what is borrowed, and what the borrower has in
//! flight counts against the borrower until it has ended. The limit is exceeded for one call's time
//! at most, and never to more than twice.
//!
//! ```text
//! share of group i = max(1, ⌊limit · shareᵢ⌋)
//! admitted         = in flightᵢ < share of group i,  or  in flight < limit
//! ```
//!
//! Source: netflix-limits (`AbstractPartitionedLimiter`). O(1); a number for each group.

use alloc::vec::Vec;

use crate::error::ConfigError;
use crate::ratio::Ratio;

/// The checked shares of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionsParams(Vec<Ratio>);

impl PartitionsParams {
    /// Checks the shares, one for each group, in the order of their numbers; together at most
    /// 100 %. What is left is nobody's: whoever comes first.
    ///
    /// # Errors
    /// No group, more than 1,024, or shares that come to more than the whole.
    pub fn new(shares: &[Ratio]) -> Result<Self, ConfigError> {
        if shares.is_empty() || shares.len() > GROUPS_MAX {
            return Err(ConfigError::new("shares", shares.len(), "1 to 1024 groups"));
        }
        let sum: u64 = shares.iter().map(|share| u64::from(share.millionths())).sum();
        if sum > u64::from(Ratio::SCALE) {
            let sum = u32::try_from(sum).unwrap_or(u32::MAX);
            let value = Ratio::from_millionths(sum);
            return Err(ConfigError::new("shares", value, "together at most 100%"));
        }
        Ok(Self(shares.to_vec()))
    }

    /// What a group may have in flight in any case. A group that has no share has nothing of its
    /// own.
    #[must_use]
    pub fn share(&self, group: usize, limit: u32) -> u32 {
        match self.0.get(group) {
            Some(share) if *share > Ratio::ZERO => {
                u32::try_from(share.of(limit.into())).unwrap_or(limit).max(1)
            }
            _ => 0,
        }
    }

    /// Number of groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.0.len()
    }
}

/// What each group has in flight.
#[derive(Clone, Debug)]
pub struct Partitions {
    in_flight: Vec<u32>,
}

impl Partitions {
    /// Nothing is in flight.
    #[must_use]
    pub fn new(params: &PartitionsParams) -> Self {
        Self { in_flight: alloc::vec![0; params.groups()] }
    }

    /// Whether a call of the group may begin with so many in flight in all; counts it if so.
    pub fn try_acquire(
        &mut self,
        params: &PartitionsParams,
        group: usize,
        in_flight: u32,
        limit: u32,
    ) -> bool {
        let Some(own) = self.in_flight.get_mut(group) else { return false };
        let admits = *own < params.share(group, limit) || in_flight < limit;
        *own += u32::from(admits);
        admits
    }

    /// A call of the group has ended.
    pub fn release(&mut self, group: usize) {
        if let Some(own) = self.in_flight.get_mut(group) {
            debug_assert!(*own > 0, "a place comes back once");
            *own = own.saturating_sub(1);
        }
    }

    /// Calls of a group in flight.
    #[must_use]
    pub fn in_flight(&self, group: usize) -> u32 {
        self.in_flight.get(group).copied().unwrap_or(0)
    }
}

/// Source: own choice.
const GROUPS_MAX: usize = 1_024;
