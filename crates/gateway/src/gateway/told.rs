//! What the diagnostics are told about breakers, endpoints and the kill switch.

use std::fmt::Display;

use seawall::{AuditEvent, KillSwitch};
use seawall_policy::{BreakerState, Transition, Verdict};

use super::millis;
use crate::diagnostics::{Diagnostics, Topic};
use crate::lines;

/// Somebody should look at a breaker that opens; the rest is news.
pub(super) fn tell_moved(
    diagnostics: &Diagnostics,
    whose: &[(&str, &(dyn Display + Sync))],
    moved: Transition,
) {
    let (from, to, trigger) = (moved.from.as_str(), moved.to.as_str(), moved.trigger.as_str());
    let how: [(&str, &(dyn Display + Sync)); 3] =
        [("from", &from), ("to", &to), ("trigger", &trigger)];
    let pairs: Vec<_> = whose.iter().chain(&how).copied().collect();
    if moved.to == BreakerState::Open {
        diagnostics.warn(Topic::Breaker, "breaker moved", &pairs);
    } else {
        diagnostics.info(Topic::Breaker, "breaker moved", &pairs);
    }
}

/// Somebody should look at an endpoint that is worse than the others.
pub(super) fn tell_verdict(
    diagnostics: &Diagnostics,
    whose: &[(&str, &(dyn Display + Sync))],
    verdict: Verdict,
) {
    match verdict {
        Verdict::Returned => diagnostics.info(Topic::Endpoint, "endpoint is back", whose),
        Verdict::Ejected(reason, time) => {
            let (reason, time) = (reason.as_str(), format!("{} ms", millis(time)));
            let why: [(&str, &(dyn Display + Sync)); 2] = [("reason", &reason), ("for", &time)];
            let pairs: Vec<_> = whose.iter().chain(&why).copied().collect();
            diagnostics.warn(Topic::Endpoint, "endpoint ejected", &pairs);
        }
    }
}

/// A kill switch whose record goes to the diagnostics.
pub(super) fn audited(diagnostics: Diagnostics) -> KillSwitch {
    KillSwitch::new(move |line| {
        let until = line.until_unix_ms().map_or(String::new(), |until| {
            let mut text = Vec::new();
            lines::utc(&mut text, until);
            String::from_utf8_lossy(&text).into_owned()
        });
        let message = match line.event {
            AuditEvent::Off { .. } => "retries switched off",
            AuditEvent::On => "retries switched on",
            AuditEvent::Expired => "retries on again: their time off is over",
            AuditEvent::Refused { allowed } => {
                let pairs: [(&str, &(dyn Display + Sync)); 3] =
                    [("by", &line.who), ("said", &line.reason), ("allowed", &allowed)];
                diagnostics.warn(Topic::Retries, "kill switch not understood", &pairs);
                return;
            }
        };
        let mut pairs: Vec<(&str, &(dyn Display + Sync))> = vec![("upstream", &line.scope)];
        let texts = [("until", &until), ("by", &line.who), ("reason", &line.reason)];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            pairs.push((key, text));
        }
        diagnostics.warn(Topic::Retries, message, &pairs);
    })
}
