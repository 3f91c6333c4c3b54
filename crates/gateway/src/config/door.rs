//! Checks of who a listener lets in.

use seawall_policy::{DoorOptions, DoorParams, RateParams};
use serde::Deserialize;

use super::raw::RawListener;
use super::report::Finding;
use super::scope::Scope;
use super::upstream::{MOST_CALLS, checked};
use crate::units::parse_rate;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAccept {
    rate: Option<String>,
    burst: Option<String>,
    refuse: Option<String>,
}

/// The door of a listener.
pub(super) fn door(scope: &mut Scope<'_>, raw: &RawListener) -> DoorOptions {
    let mut read = DoorOptions::default();
    if let Some(raw_accept) = &raw.accept {
        accept(scope.inner("accept"), raw_accept, raw.tls.is_some(), &mut read);
    }
    checked(scope, read, DoorParams::new(read).err(), &[])
}

fn accept(mut scope: Scope<'_>, raw: &RawAccept, is_tls: bool, into: &mut DoorOptions) {
    if raw.rate.is_none() {
        scope.missing("rate", "how many connections may come, like `rate: 500/s`");
    }
    let rate = scope.read("rate", &raw.rate, |text| parse_rate(text).map_err(|it| it.allowed()));
    let burst = scope.count("burst", &raw.burst, 1..=MOST_CALLS);
    let refuse = scope.choice("refuse", &raw.refuse, &[("reset", false), ("answer", true)]);
    if is_tls && refuse == Some(true) {
        let finding = Finding::refused(scope.path("refuse"), "answer", "reset");
        let help = "before the handshake a caller of TLS can read no answer";
        scope.refuse_with("refuse", finding.help(help));
    }
    let Some(rate) = rate else { return };
    let default = DoorOptions::accept_rate(rate.count.get(), rate.period);
    let options = seawall_policy::RateOptions { burst: burst.unwrap_or(default.burst), ..default };
    let refused = RateParams::new(options).err();
    into.accept = Some(checked(&mut scope, options, refused, &[("limit", "rate")]));
    into.answers = refuse.unwrap_or(false);
}
