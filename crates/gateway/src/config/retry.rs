//! Checks of the retries of an upstream, and of a route that has its own.

use std::time::Duration;

use seawall_policy::{
    BackoffOptions, Class, Hop, Jitter, Ratio, RetryOn, RetryOptions, RetryParams, worst_case_time,
};

use super::model::Upstream;
use super::raw::{RawBackoff, RawRetry, RawRoute, Switch};
use super::report::{Finding, near_name};
use super::scope::{Scope, did_you_mean};
use super::upstream::checked;
use super::{DAY, HOUR, MILLISECOND};
use crate::units::format_duration;

/// Reads a section of retries; what it leaves out is as in `default`.
pub(super) fn retry(mut scope: Scope<'_>, raw: &RawRetry, default: RetryOptions) -> RetryOptions {
    let read = RetryOptions {
        max_attempts: scope
            .count("max_attempts", &raw.max_attempts, 1..=10)
            .unwrap_or(default.max_attempts),
        backoff: backoff(scope.inner("backoff"), &raw.backoff, default.backoff),
        redispatches: scope
            .count("redispatches", &raw.redispatches, 0..=10)
            .unwrap_or(default.redispatches),
        retry_after_max: scope
            .duration("retry_after_max", &raw.retry_after_max, Duration::ZERO..=DAY)
            .unwrap_or(default.retry_after_max),
        honour_stop: scope.flag("honour_stop", &raw.honour_stop).unwrap_or(default.honour_stop),
        on: on(&mut scope, &raw.on).unwrap_or(default.on),
    };
    checked(&mut scope, read, RetryParams::new(read).err(), &[])
}

fn backoff(mut scope: Scope<'_>, raw: &RawBackoff, default: BackoffOptions) -> BackoffOptions {
    let base = scope.duration("base", &raw.base, MILLISECOND..=HOUR);
    let cap = scope.duration("cap", &raw.cap, MILLISECOND..=HOUR);
    let base = base.unwrap_or(default.base);
    let cap = cap.unwrap_or(default.cap.max(base));
    scope.at_most(("base", base), ("cap", cap));
    let jitter = scope.read("jitter", &raw.jitter, |text| {
        let share = || text.strip_prefix('±').unwrap_or(text).parse::<Ratio>().ok();
        match text {
            "none" => Ok(Jitter::None),
            "full" => Ok(Jitter::Full),
            "equal" => Ok(Jitter::Equal),
            "decorrelated" => Ok(Jitter::Decorrelated),
            _ => share()
                .filter(|share| (Ratio::from_millionths(1)..=Ratio::ONE).contains(share))
                .map(Jitter::Factor)
                .ok_or("none, full, equal, decorrelated, or a share like ±20%"),
        }
    });
    BackoffOptions { base, cap, jitter: jitter.unwrap_or(default.jitter) }
}

/// Reads the list of what is tried again, if there is one.
fn on(scope: &mut Scope<'_>, raw: &[String]) -> Option<RetryOn> {
    if raw.is_empty() {
        if scope.is_written("on") {
            scope.refuse("on", "[]", "a class or a status, or leave it out");
        }
        return None;
    }
    if raw.len() > MAX_ON {
        scope.refuse("on", &format!("{} entries", raw.len()), format!("at most {MAX_ON}"));
        return None;
    }
    let (mut classes, mut statuses) = (Vec::new(), Vec::new());
    for (i, text) in raw.iter().enumerate() {
        let key = format!("on[{i}]");
        let status = text.parse::<u16>().ok().filter(|status| (400..=599).contains(status));
        let class = CLASSES.into_iter().find(|class| class.as_str() == text);
        let is_twice = match (status, class) {
            (Some(status), _) => statuses.contains(&status),
            (_, Some(class)) => classes.contains(&class),
            (None, None) => {
                let allowed = "not_processed, overloaded, unknown or a status from 400 to 599";
                let finding = Finding::refused(scope.path(&key), text, allowed);
                let near = near_name(text, CLASSES.map(Class::as_str));
                scope.refuse_with(&key, did_you_mean(finding, near));
                continue;
            }
        };
        if is_twice {
            scope.refuse(&key, text, "each once");
        }
        classes.extend(class);
        statuses.extend(status);
    }
    match RetryOn::only(&classes, &statuses) {
        Ok(on) => Some(on),
        Err(error) => {
            scope.refuse("on", error.value(), error.allowed());
            None
        }
    }
}

/// The retries of a route and its time for one attempt, where it has its own.
pub(super) fn of_route(
    scope: &mut Scope<'_>,
    raw: &RawRoute,
    total: Option<Duration>,
    owns: bool,
    target: Option<&Upstream>,
) -> (Option<RetryParams>, Option<Duration>) {
    let base = target.and_then(|target| target.retry).unwrap_or_default();
    let read = match &raw.retry {
        None => None,
        Some(Switch::Off) => Some(RetryOptions { max_attempts: 1, ..base }),
        Some(Switch::On(raw)) => Some(retry(scope.inner("retry"), raw, base)),
    };
    if let Some(Switch::On(raw)) = &raw.retry
        && !owns
        && raw.max_attempts.as_deref().is_some_and(|attempts| attempts != "1")
    {
        let mut scope = scope.inner("retry");
        let finding = Finding::new(scope.path("max_attempts"), "has no effect");
        scope.refuse_with("max_attempts", finding.help("the route says `retry_owner: caller`"));
    }
    let attempt = scope.duration("attempt", &raw.attempt, MILLISECOND..=DAY);
    if let Some(target) = target {
        nest(scope, attempt, total, target);
        if read.is_some() || attempt.is_some() {
            let most = Most {
                attempt: attempt.unwrap_or(target.timeouts.attempt),
                total: total.unwrap_or(target.timeouts.total),
                retry: read.or(target.retry).filter(|_| owns),
            };
            let key = if raw.attempt.is_some() { "attempt" } else { "retry" };
            most.advise(scope, key, target.budget.is_some() || target.retry.is_some());
        }
    }
    (read.and_then(|read| RetryParams::new(read).ok()), attempt)
}

/// Refuses a time for one attempt that the whole call never has.
fn nest(
    scope: &mut Scope<'_>,
    attempt: Option<Duration>,
    total: Option<Duration>,
    target: &Upstream,
) {
    let Some(attempt) = attempt else { return };
    match total {
        Some(total) => scope.at_most(("attempt", attempt), ("total", total)),
        None if attempt > target.timeouts.total => {
            let total = format_duration(target.timeouts.total);
            let allowed = format!("at most the total of `{}` ({total})", target.name);
            scope.refuse("attempt", &format_duration(attempt), allowed);
        }
        None => {}
    }
}

/// The most that one call may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) attempt: Duration,
    pub(super) total: Duration,
    pub(super) retry: Option<RetryOptions>,
}

impl Most {
    /// Warns of what works and will be regretted; of times at `key`.
    pub(super) fn advise(&self, scope: &mut Scope<'_>, key: &str, has_budget: bool) {
        let Some(retry) = self.retry.filter(|retry| retry.max_attempts > 1) else { return };
        let attempts = retry.max_attempts;
        let waits = RetryParams::new(retry).map_or(Duration::ZERO, |it| it.longest_backoff());
        let attempt_timeout = Some(self.attempt);
        let hop =
            Hop { max_attempts: attempts, owns_retries: true, attempt_timeout, ..Hop::PASSES };
        let longest = worst_case_time(&[Hop { longest_backoff: waits, ..hop }]);
        let longest = longest.unwrap_or(Duration::MAX);
        if longest > self.total {
            let [attempt, waits, longest, total] =
                [self.attempt, waits, longest, self.total].map(format_duration);
            let message = format!(
                "{attempts} attempts of {attempt} and {waits} of backoff come to {longest}, and \
                 total is {total}"
            );
            let help = "the last attempts are cut or never made; raise total, or lower attempt";
            scope.warn(key, message, help);
        }
        if attempts >= MANY_ATTEMPTS {
            let message = format!(
                "{attempts} attempts; behind two more layers like this one, {} for one request",
                attempts.pow(3)
            );
            let help = "2 gain nearly all there is to gain";
            scope.inner("retry").warn("max_attempts", message, help);
        }
        if !has_budget {
            let message = format!("without a budget, an outage multiplies the load by {attempts}");
            let help = "the default budget holds retries to a tenth of the successes";
            scope.warn("retry_budget", message, help);
        }
        if !retry.honour_stop {
            let message = "layers that do not obey each other's stop multiply their attempts";
            scope.inner("retry").warn(
                "honour_stop",
                message,
                "leave it true unless the signal lies",
            );
        }
    }
}

const CLASSES: [Class; 3] = [Class::NotProcessed, Class::Overloaded, Class::Unknown];
/// Three classes and the statuses a list may hold. Source: seawall-design.
const MAX_ON: usize = 11;
/// From here on attempts are many. Source: seawall-design.
const MANY_ATTEMPTS: u32 = 4;
