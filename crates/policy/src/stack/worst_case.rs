//! Computes what one tap can cost at the bottom of a chain of layers, and how long it can take.
//!
//! A hedge is one of its layer's attempts, so it adds nothing to the number and shortens the time.

use core::time::Duration;

use super::StackParams;
use crate::retry::RetryParams;

/// One layer of a chain, as far as retries and time go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Attempts in all, counting the first.
    pub max_attempts: u32,
    /// Whether it owns the retries of the path; one that does not makes one attempt.
    pub owns_retries: bool,
    /// Whether it obeys a stop signal from below. An owner below always sends one when it gives
    /// up.
    pub honours_stop: bool,
    /// Time for one attempt; `None`: as long as the layer below takes.
    pub attempt_timeout: Option<Duration>,
    /// How long the refresh of a rejected credential may take, after which it makes one attempt
    /// more, owner or not; `None`: it has none.
    pub refresh: Option<Duration>,
    /// All waits before retries together, at their longest.
    pub longest_backoff: Duration,
    /// Time for the whole call; `None`: no limit of its own.
    pub total: Option<Duration>,
}

impl Hop {
    /// A layer that passes everything on once and sets no limit.
    pub const PASSES: Self = Self {
        max_attempts: 1,
        owns_retries: false,
        honours_stop: true,
        attempt_timeout: None,
        refresh: None,
        longest_backoff: Duration::ZERO,
        total: None,
    };

    /// The layer that `params` make, whose calls carry no credential that can be refreshed.
    #[must_use]
    pub fn of(params: &StackParams, owns_retries: bool) -> Self {
        let retry = params.retry.as_ref();
        Self {
            max_attempts: params.max_attempts(),
            owns_retries,
            honours_stop: retry.is_none_or(RetryParams::honour_stop),
            attempt_timeout: params.attempt_timeout,
            refresh: None,
            longest_backoff: retry.map_or(Duration::ZERO, RetryParams::longest_backoff),
            total: params.total,
        }
    }

    /// The same layer with other retries.
    #[must_use]
    pub fn with_retry(self, retry: &RetryParams) -> Self {
        Self {
            max_attempts: retry.max_attempts(),
            honours_stop: retry.honour_stop(),
            longest_backoff: retry.longest_backoff(),
            ..self
        }
    }

    /// Attempts it makes for one call that fails to the end, all retries included or none.
    const fn attempts(&self, retries: bool) -> u32 {
        let attempts = match self.max_attempts {
            attempts @ 1.. if retries => attempts,
            _ => 1,
        };
        attempts.saturating_add(self.refresh.is_some() as u32)
    }
}

/// The most attempts that can arrive at the bottom for one request at the top, for `hops` from
/// top to bottom over a bottom that fails every one, without counting budgets and breakers, which
/// only lower it.
///
/// Every owner multiplies, except one that hears and obeys the stop signal of an owner below it.
/// A refresh adds an attempt to those of its layer.
///
/// ```
/// use seawall_policy::{Hop, StackConfig, StackParams, RetryOptions, worst_case_attempts};
/// let retry = Some(RetryOptions { max_attempts: 3, ..RetryOptions::default() });
/// let params = StackParams::new(&StackConfig { retry, ..StackConfig::default() })?;
/// let owner = Hop::of(&params, true);
/// let passes = Hop::of(&params, false);
/// let deaf = Hop { honours_stop: false, ..owner };
/// assert_eq!(worst_case_attempts(&[passes, passes, owner]), 3);
/// assert_eq!(worst_case_attempts(&[owner, owner, owner]), 3);
/// assert_eq!(worst_case_attempts(&[deaf, deaf, deaf]), 27);
/// # Ok::<(), seawall_policy::ConfigError>(())
/// ```
#[must_use]
pub fn worst_case_attempts(hops: &[Hop]) -> u64 {
    let mut attempts = 1_u64;
    let mut stop_heard = false;
    for hop in hops.iter().rev() {
        let retries = hop.owns_retries && !(stop_heard && hop.honours_stop);
        attempts = attempts.saturating_mul(u64::from(hop.attempts(retries)));
        stop_heard |= hop.owns_retries;
    }
    attempts
}

/// The longest that one request at the top can wait for its answer, for `hops` from top to bottom
/// over a bottom that never answers; `None` if nothing bounds it. Redispatches and a server's
/// Retry-After come on top where no total bounds them.
///
/// A layer waits for each attempt as long as its attempt timeout or the layer below allows,
/// whichever is shorter, and for all of them no longer than its total.
#[must_use]
pub fn worst_case_time(hops: &[Hop]) -> Option<Duration> {
    let shorter = |one: Option<Duration>, other: Option<Duration>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    hops.iter().rev().fold(None, |below, hop| {
        let attempt = shorter(hop.attempt_timeout, below);
        let backoff = if hop.owns_retries { hop.longest_backoff } else { Duration::ZERO };
        let waits = backoff.saturating_add(hop.refresh.unwrap_or_default());
        let attempts = hop.attempts(hop.owns_retries);
        let own = attempt.map(|time| time.saturating_mul(attempts).saturating_add(waits));
        shorter(own, hop.total)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAF: Hop = Hop {
        max_attempts: 3,
        owns_retries: true,
        honours_stop: false,
        attempt_timeout: Some(Duration::from_secs(1)),
        refresh: None,
        longest_backoff: Duration::from_millis(300),
        total: None,
    };

    #[test]
    fn four_layers_of_three_that_hear_nothing_make_eighty_one() {
        assert_eq!(worst_case_attempts(&[DEAF; 4]), 81);
        assert_eq!(worst_case_attempts(&[]), 1);
        assert_eq!(worst_case_attempts(&[Hop { max_attempts: u32::MAX, ..DEAF }; 9]), u64::MAX);
    }

    #[test]
    fn one_deaf_layer_multiplies_what_is_below_it() {
        let hears = Hop { honours_stop: true, ..DEAF };
        assert_eq!(worst_case_attempts(&[DEAF, hears, hears]), 9);
        assert_eq!(worst_case_attempts(&[hears, DEAF, hears]), 9);
    }

    #[test]
    fn a_layer_waits_for_its_attempts_and_backoffs_within_its_total() {
        assert_eq!(worst_case_time(&[DEAF]), Some(Duration::from_millis(3300)));
        let capped = Hop { total: Some(Duration::from_secs(2)), ..DEAF };
        assert_eq!(worst_case_time(&[capped]), Some(Duration::from_secs(2)));
        let passes = Hop { owns_retries: false, ..DEAF };
        assert_eq!(worst_case_time(&[passes]), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_refresh_adds_an_attempt_and_its_wait_to_its_layer() {
        let refreshes = Hop { refresh: Some(Duration::from_secs(2)), ..DEAF };
        assert_eq!(worst_case_attempts(&[refreshes]), 4);
        assert_eq!(worst_case_time(&[refreshes]), Some(Duration::from_millis(6300)));
        let passes = Hop { owns_retries: false, ..refreshes };
        assert_eq!(worst_case_attempts(&[passes, DEAF]), 6);
        let hears = Hop { honours_stop: true, ..refreshes };
        assert_eq!(worst_case_attempts(&[hears, DEAF]), 6, "a 401 comes without a stop");
    }

    #[test]
    fn a_layer_without_a_limit_of_its_own_waits_as_long_as_the_one_below() {
        let open = Hop { attempt_timeout: None, longest_backoff: Duration::ZERO, ..DEAF };
        assert_eq!(worst_case_time(&[open, DEAF]), Some(Duration::from_millis(9900)));
        assert_eq!(worst_case_time(&[DEAF, open]), Some(Duration::from_millis(3300)));
        assert_eq!(worst_case_time(&[open]), None);
        assert_eq!(worst_case_time(&[]), None);
    }
}
