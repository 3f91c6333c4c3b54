//! What a fleet's own numbers say against it before it is run: retries that its capacity could not
//! carry.

use seawall_policy::Ratio;

use super::{Cell, Role, Scenario};
use crate::fleet::{Calls, Fleet, Work};

impl Scenario {
    /// What its own numbers say against the arms under test before anything is run: case, arm and
    /// a sentence.
    #[must_use]
    pub fn advice(&self) -> Vec<(&str, &str, String)> {
        let ours = |cell: &&Cell| self.arms[cell.arm].role == Role::Test;
        let said = |cell: &Cell| cell.model.advice();
        let cells = self.cells.iter().filter(ours);
        let all = cells.flat_map(|cell| {
            let arm = self.arms[cell.arm].name.as_str();
            said(cell).into_iter().map(move |said| (cell.case.as_str(), arm, said))
        });
        all.collect()
    }
}

/// The most calls a second of a fleet, as a share of what its servers can work on; `None` where
/// calls come as their clients are free, or work is not that of the workers of one service.
pub(super) fn load(fleet: &Fleet) -> Option<f64> {
    // Of several services the one that gives way first is not known before it does.
    let ([called], Calls::Open(rate)) = (&fleet.services[..], &fleet.calls) else { return None };
    let Work::Queue { workers, service, .. } = &called.host.work else { return None };
    let each = service.mean();
    let capacity = f64::from(called.servers) * f64::from(*workers) / each;
    (each > 0.0).then(|| rate.most(fleet.calls_until) / capacity)
}

/// What the policy says of that load, unless somebody else's rules are followed.
pub(super) fn advice(fleet: &Fleet, load: f64) -> Option<String> {
    if fleet.baseline.is_some() {
        return None;
    }
    fleet.policy.advice_at(ratio(load))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn ratio(share: f64) -> Ratio {
    // Up, so that what is just too much is not called just enough.
    Ratio::from_millionths((share * 1e6).ceil() as u32)
}
