//! Computes what one tap can cost at the bottom of a chain of layers.

/// One layer of a chain, as far as retries go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Attempts in all, counting the first.
    pub max_attempts: u32,
    /// Whether it owns the retries of the path; one that does not makes one attempt.
    pub owns_retries: bool,
    /// Whether it obeys a stop signal from below. An owner below always sends one when it gives
    /// up.
    pub honours_stop: bool,
}

/// The most attempts that can arrive at the bottom for one request at the top, for `hops` from
/// top to bottom over a bottom that fails every one, without counting budgets and breakers, which
/// only lower it.
///
/// Every owner multiplies, except one that hears and obeys the stop signal of an owner below it.
///
/// ```
/// use seawall_policy::{Hop, worst_case_attempts};
/// let owner = Hop { max_attempts: 3, owns_retries: true, honours_stop: true };
/// let passes = Hop { owns_retries: false, ..owner };
/// let deaf = Hop { honours_stop: false, ..owner };
/// assert_eq!(worst_case_attempts(&[passes, passes, owner]), 3);
/// assert_eq!(worst_case_attempts(&[owner, owner, owner]), 3);
/// assert_eq!(worst_case_attempts(&[deaf, deaf, deaf]), 27);
/// ```
#[must_use]
pub fn worst_case_attempts(hops: &[Hop]) -> u64 {
    let mut attempts = 1_u64;
    let mut stop_heard = false;
    for hop in hops.iter().rev().filter(|hop| hop.owns_retries) {
        if !(stop_heard && hop.honours_stop) {
            attempts = attempts.saturating_mul(u64::from(hop.max_attempts.max(1)));
        }
        stop_heard = true;
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_layers_of_three_that_hear_nothing_make_eighty_one() {
        let deaf = Hop { max_attempts: 3, owns_retries: true, honours_stop: false };
        assert_eq!(worst_case_attempts(&[deaf; 4]), 81);
        assert_eq!(worst_case_attempts(&[]), 1);
        assert_eq!(worst_case_attempts(&[Hop { max_attempts: u32::MAX, ..deaf }; 9]), u64::MAX);
    }

    #[test]
    fn one_deaf_layer_multiplies_what_is_below_it() {
        let hears = Hop { max_attempts: 3, owns_retries: true, honours_stop: true };
        let deaf = Hop { honours_stop: false, ..hears };
        assert_eq!(worst_case_attempts(&[deaf, hears, hears]), 9);
        assert_eq!(worst_case_attempts(&[hears, deaf, hears]), 9);
    }
}
