//! Whether the retries fit the capacity: said as a warning.

use seawall_policy::{BudgetOptions, BudgetParams, Ratio};

use super::raw::RawUpstream;
use super::report::Finding;
use super::scope::Scope;
use crate::units::{Rate, format_rate, parse_rate};

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
