//! Checks of second attempts beside slow ones.

use std::time::Duration;

use seawall_policy::{HedgeDelay, HedgeOptions, HedgeParams, Ratio, RetryOptions};
use serde::Deserialize;

use super::balance::asked;
use super::raw::RawUpstream;
use super::report::Finding;
use super::scope::Scope;
use super::{DAY, MILLISECOND};
use crate::units::{format_duration, parse_duration};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawHedge {
    delay: Option<String>,
    delay_min: Option<String>,
    max_extra: Option<String>,
    max_load: Option<String>,
    same_endpoint: Option<String>,
}

/// What the hedges of an upstream are; `attempt` is the time of one attempt.
pub(super) fn read(
    scope: &mut Scope<'_>,
    raw: &RawUpstream,
    retry: Option<RetryOptions>,
    attempt: Duration,
) -> Option<HedgeOptions> {
    let read = asked(scope, "hedge", &raw.hedge, |scope, raw| hedge(scope, raw, attempt))?;
    if retry.map_or(1, |retry| retry.max_attempts) < 2 {
        let message = "is one of the attempts, and there is only one";
        let finding = Finding::new(scope.path("hedge"), message);
        let help = "set retry.max_attempts to 2 or more, or leave hedge out";
        scope.inner("hedge").refuse_whole(finding.help(help));
    } else if raw.endpoints.len() == 1 && !read.same_endpoint {
        let message = "has no effect with one endpoint: it goes to another one";
        let help = "list more endpoints; or set same_endpoint, if that one is several servers";
        scope.warn("hedge", message, help);
    }
    Some(read)
}

fn hedge(mut scope: Scope<'_>, raw: &RawHedge, attempt: Duration) -> HedgeOptions {
    let default = HedgeOptions::default();
    let over_zero = Ratio::from_millionths(1);
    let same_endpoint = scope.flag("same_endpoint", &raw.same_endpoint);
    let read = HedgeOptions {
        delay: scope.read("delay", &raw.delay, parse_delay).unwrap_or(default.delay),
        delay_min: scope
            .duration("delay_min", &raw.delay_min, MILLISECOND..=DAY)
            .unwrap_or(default.delay_min),
        max_extra: scope.ratio("max_extra", &raw.max_extra, over_zero).unwrap_or(default.max_extra),
        max_load: scope.ratio("max_load", &raw.max_load, over_zero).unwrap_or(default.max_load),
        same_endpoint: same_endpoint.unwrap_or(default.same_endpoint),
    };
    let fixed = match read.delay {
        HedgeDelay::Fixed(delay) => delay,
        HedgeDelay::Quantile(_) => Duration::ZERO,
    };
    for (key, least) in [("delay", fixed), ("delay_min", read.delay_min)] {
        if least >= attempt {
            let allowed = format!("less than timeouts.attempt ({})", format_duration(attempt));
            scope.refuse(key, &format_duration(least), allowed);
        }
    }
    match HedgeParams::new(read) {
        Err(refused) => scope.refuse_by_policy(&refused, &[]),
        Ok(params) => {
            if let Some(advice) = params.advice() {
                let help = "raise delay or max_extra, so that the slowest calls are those hedged";
                scope.warn("delay", advice, help);
            }
        }
    }
    read
}

/// Reads `p98` or `20ms`.
fn parse_delay(text: &str) -> Result<HedgeDelay, &'static str> {
    let allowed = "p50 to p99.9, or a time such as 20ms";
    if let Some(percent) = text.strip_prefix('p') {
        let share = format!("{percent}%").parse().map_err(|_| allowed)?;
        let delay = HedgeDelay::Quantile(share);
        let options = HedgeOptions { delay, ..HedgeOptions::default() };
        return HedgeParams::new(options).map(|_| delay).map_err(|_| allowed);
    }
    match parse_duration(text) {
        Ok(delay) if (MILLISECOND..=DAY).contains(&delay) => Ok(HedgeDelay::Fixed(delay)),
        _ => Err(allowed),
    }
}
