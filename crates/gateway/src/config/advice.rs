//! What works, and will be regretted: said as a warning.

use std::time::Duration;

use seawall_policy::{
    BudgetOptions, BudgetParams, Hop, Ratio, RetryOptions, RetryParams, worst_case_time,
};

use super::model::UpstreamTimeouts;
use super::raw::RawUpstream;
use super::report::Finding;
use super::scope::Scope;
use crate::units::{Rate, format_duration, format_rate, parse_rate};

/// Peak load and capacity, which are for advice alone.
pub(super) fn peak(scope: &mut Scope<'_>, raw: &RawUpstream, budget: Option<BudgetOptions>) {
    let mut rate =
        |key, raw| scope.read(key, raw, |text| parse_rate(text).map_err(|it| it.allowed()));
    let read = (rate("peak_load", &raw.peak_load), rate("capacity", &raw.capacity));
    for (key, is_there, other) in [
        ("peak_load", raw.peak_load.is_some(), raw.capacity.is_some()),
        ("capacity", raw.capacity.is_some(), raw.peak_load.is_some()),
    ] {
        if is_there && !other {
            let message = "has no effect alone; give peak_load and capacity";
            scope.refuse_with(key, Finding::new(scope.path(key), message));
        }
    }
    let ((Some(peak), Some(capacity)), Some(budget)) = (read, budget) else { return };
    let advice = BudgetParams::new(budget).ok().and_then(|it| it.advice(share(peak, capacity)));
    if let Some(advice) = advice {
        let help = format!(
            "peak_load is {}, capacity {}; lower retry_budget.ratio or add capacity",
            format_rate(peak),
            format_rate(capacity)
        );
        scope.warn("peak_load", advice, &help);
    }
}

/// `part / whole`, rounded up; stops at the largest ratio.
fn share(part: Rate, whole: Rate) -> Ratio {
    let each = |one: Rate, other: Rate| u128::from(one.count.get()) * other.period.as_millis();
    let millionths = (each(part, whole) * u128::from(Ratio::SCALE)).div_ceil(each(whole, part));
    Ratio::from_millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
}

/// What works, and will be regretted.
pub(super) fn advise(
    scope: &mut Scope<'_>,
    timeouts: &UpstreamTimeouts,
    retry: Option<RetryOptions>,
    budget: Option<BudgetOptions>,
) {
    let Some(retry) = retry.filter(|retry| retry.max_attempts > 1) else { return };
    let attempts = retry.max_attempts;
    let waits = RetryParams::new(retry).map_or(Duration::ZERO, |params| params.longest_backoff());
    let attempt_timeout = Some(timeouts.attempt);
    let hop = Hop { max_attempts: attempts, owns_retries: true, attempt_timeout, ..Hop::PASSES };
    let hop = Hop { longest_backoff: waits, ..hop };
    let longest = worst_case_time(&[hop]).unwrap_or(Duration::MAX);
    if longest > timeouts.total {
        let [attempt, waits, longest, total] =
            [timeouts.attempt, waits, longest, timeouts.total].map(format_duration);
        let message = format!(
            "{attempts} attempts of {attempt} and {waits} of backoff come to {longest}, and total is \
             {total}"
        );
        let help = "the last attempts are cut or never made; raise total, or lower attempt";
        scope.inner("timeouts").warn("total", message, help);
    }
    if attempts >= MANY_ATTEMPTS {
        let message = format!(
            "{attempts} attempts; behind two more layers like this one, {} for one request",
            attempts.pow(3)
        );
        scope.inner("retry").warn("max_attempts", message, "2 gain nearly all there is to gain");
    }
    if budget.is_none() {
        let message = format!("without a budget, an outage multiplies the load by {attempts}");
        let help = "the default budget holds retries to a tenth of the successes";
        scope.warn("retry_budget", message, help);
    }
    if !retry.honour_stop {
        let message = "layers that do not obey each other's stop multiply their attempts";
        scope.inner("retry").warn("honour_stop", message, "leave it true unless the signal lies");
    }
}

/// From here on attempts are many. Source: seawall-design.
const MANY_ATTEMPTS: u32 = 4;
