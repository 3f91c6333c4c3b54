//! One limit for each key, in a table of fixed size.
//!
//! Keys come from the network, so whoever sends them chooses how many there are. The table has its
//! size from the start: sets of 16 places, two places for each key asked for, and a key's set
//! follows from its number alone. A decision looks at one set: no list, no rehashing, no
//! allocation, whatever comes.
//!
//! **At the bound.** A new key whose set is full takes the place of the one that is whole again
//! first. If any key of the set owes nothing, it is one of those, and nothing is forgotten: a key
//! that is whole and one that was never seen are the same. Otherwise the key with the *least* debt
//! starts afresh. So nobody resets a limit by sending other keys: the key that has used its burst
//! up is the last of its set to go, and each of the fifteen others would have to owe more first.
//! Evictions of keys with debt are counted.
//!
//! A key is a number made by the edge with a keyed hash whose seed is drawn at start; nothing here
//! walks the table in the order of a hash.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::{RateExceeded, RateOptions, RateParams, Span};
use crate::error::ConfigError;
use crate::time::Timestamp;

/// A key, as a number that spreads evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateKey(NonZeroU64);

impl RateKey {
    /// The key of a hash. The hash has to be keyed with a secret of the process, or whoever sends
    /// keys can pick them to share a set.
    #[must_use]
    pub const fn from_hash(hash: u64) -> Self {
        match NonZeroU64::new(hash) {
            Some(hash) => Self(hash),
            None => Self(NonZeroU64::MAX),
        }
    }
}

/// The options of a limit per key, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedRateOptions {
    /// The limit of each key.
    pub rate: RateOptions,
    /// Keys that can owe something at a time, 1 to 1,000,000. About 50 bytes each, taken at once.
    pub keys: u32,
}

impl KeyedRateOptions {
    /// This limit for each of 10,000 keys.
    #[must_use]
    pub const fn new(rate: RateOptions) -> Self {
        Self { rate, keys: KEYS }
    }
}

/// Checked [`KeyedRateOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedRateParams {
    rate: RateParams,
    keys: u32,
}

impl KeyedRateParams {
    /// Checks the options.
    ///
    /// # Errors
    /// `keys` outside 1 to 1,000,000, or what [`RateParams::new`] refuses.
    pub fn new(options: KeyedRateOptions) -> Result<Self, ConfigError> {
        if !(1..=KEYS_MAX).contains(&options.keys) {
            return Err(ConfigError::new("keys", options.keys, "1 to 1000000"));
        }
        Ok(Self { rate: RateParams::new(options.rate)?, keys: options.keys })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> KeyedRateOptions {
        KeyedRateOptions { rate: self.rate.options(), keys: self.keys }
    }

    pub(super) const fn sets(&self) -> usize {
        (self.keys as usize * PLACES_A_KEY).div_ceil(WAYS)
    }
}

/// The limits of all keys.
#[derive(Clone, Debug)]
pub struct KeyedRate {
    /// Zero: the place is free. Apart from `full_at`, so that a set of them is two cache lines.
    keys: Vec<u64>,
    full_at: Vec<Span>,
    /// The latest `now` seen.
    latest: Timestamp,
    evicted: u64,
}

impl KeyedRate {
    /// A table without keys, of its whole size.
    #[must_use]
    pub fn new(params: &KeyedRateParams) -> Self {
        let places = params.sets() * WAYS;
        Self {
            keys: vec![0; places],
            full_at: vec![Span::default(); places],
            latest: Timestamp::ZERO,
            evicted: 0,
        }
    }

    /// Takes `cost` of the limit of `key`.
    ///
    /// # Errors
    /// The key's rate would be exceeded; nothing was taken.
    pub fn try_acquire(
        &mut self,
        now: Timestamp,
        params: &KeyedRateParams,
        key: RateKey,
        cost: u32,
    ) -> Result<(), RateExceeded> {
        let (found, full_at) = self.settle(now, params, key);
        let decided = params.rate.decide(full_at, self.latest, cost)?;
        let place = found.unwrap_or_else(|| self.make_room(key));
        self.full_at[place] = decided;
        Ok(())
    }

    /// Whether [`try_acquire`](Self::try_acquire) would admit; takes nothing.
    ///
    /// # Errors
    /// It would not.
    pub fn check(
        &mut self,
        now: Timestamp,
        params: &KeyedRateParams,
        key: RateKey,
        cost: u32,
    ) -> Result<(), RateExceeded> {
        let (_, full_at) = self.settle(now, params, key);
        params.rate.decide(full_at, self.latest, cost).map(|_| ())
    }

    /// Gives back what was taken for a call of `key` that was never sent.
    pub fn give_back(&mut self, params: &KeyedRateParams, key: RateKey, cost: u32) {
        if let Some(place) = self.find(key) {
            let full_at = &mut self.full_at[place];
            *full_at = params.rate.difference(*full_at, params.rate.price(cost));
        }
    }

    /// How many of `key` could go now.
    #[must_use]
    pub fn available(&self, now: Timestamp, params: &KeyedRateParams, key: RateKey) -> u32 {
        let full_at = self.find(key).map_or(Span::default(), |place| self.full_at[place]);
        params.rate.available(full_at, self.latest.max(now))
    }

    /// Keys that were forgotten while they owed something, since the start.
    #[must_use]
    pub const fn evicted_total(&self) -> u64 {
        self.evicted
    }

    /// Places there are.
    #[must_use]
    pub fn places(&self) -> usize {
        self.keys.len()
    }

    /// Where the key is, and what it owes, cut to what can be owed.
    fn settle(
        &mut self,
        now: Timestamp,
        params: &KeyedRateParams,
        key: RateKey,
    ) -> (Option<usize>, Span) {
        self.fit(params);
        self.latest = self.latest.max(now);
        let Some(place) = self.find(key) else { return (None, Span::default()) };
        self.full_at[place] = params.rate.start(self.full_at[place], self.latest);
        (Some(place), self.full_at[place])
    }

    /// The places of the set of `key`.
    fn set(&self, key: RateKey) -> core::ops::Range<usize> {
        let sets = (self.keys.len() / WAYS) as u128;
        let set = usize::try_from((u128::from(key.0.get()) * sets) >> 64).unwrap_or(0);
        set * WAYS..(set + 1) * WAYS
    }

    fn find(&self, key: RateKey) -> Option<usize> {
        let set = self.set(key);
        let at = self.keys[set.clone()].iter().position(|known| *known == key.0.get())?;
        Some(set.start + at)
    }

    /// A place for a new key: a free one, or that of the key that is whole again first.
    fn make_room(&mut self, key: RateKey) -> usize {
        let set = self.set(key);
        // A free place was never whole later than the origin of the clock.
        let owes = |place: &usize| self.full_at[*place];
        let place = set.clone().min_by_key(owes).unwrap_or(set.start);
        if self.keys[place] != 0 && self.full_at[place] > Span::at(self.latest) {
            self.evicted = self.evicted.saturating_add(1);
        }
        self.keys[place] = key.0.get();
        place
    }

    /// After a reload with another number of keys: moves what is known into a table of that size.
    fn fit(&mut self, params: &KeyedRateParams) {
        if self.keys.len() == params.sets() * WAYS {
            return;
        }
        let old = core::mem::replace(self, Self::new(params));
        (self.latest, self.evicted) = (old.latest, old.evicted);
        for (key, full_at) in old.keys.into_iter().zip(old.full_at) {
            if let Some(key) = NonZeroU64::new(key).map(RateKey)
                && full_at > Span::at(self.latest)
            {
                let place = self.make_room(key);
                self.full_at[place] = full_at;
            }
        }
    }
}

/// Places of a set; a decision compares as many numbers. Source: seawall-design.
const WAYS: usize = 16;
/// So that few sets are full while there are as many keys as were asked for.
/// Source: seawall-design.
const PLACES_A_KEY: usize = 2;
/// Source: seawall-defaults.
const KEYS: u32 = 10_000;
/// 48 MB of them. Source: seawall-design.
const KEYS_MAX: u32 = 1_000_000;
