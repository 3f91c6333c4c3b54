//! Breakers that an operator forces into a mode for a while.

use core::time::Duration;

use super::retrying;
use super::sim::{GET, Sim, at, status};
use crate::breaker::{BreakerMode, BreakerOptions, BreakerState};
use crate::outcome::Cause;
use crate::stack::StackConfig;
use crate::time::Timestamp;

fn on() -> StackConfig {
    StackConfig { breaker: Some(BreakerOptions::default()), ..retrying(1) }
}

fn force(mode: BreakerMode, seconds: u64) -> impl Fn(&mut Sim) {
    move |sim| sim.dependency.force(mode, sim.now.after(Duration::from_secs(seconds)))
}

#[test]
fn forced_open_nothing_is_sent_until_its_time_is_over_whatever_is_reloaded_meanwhile() {
    // Where the breaker is configured, and where it is off.
    for config in [on(), retrying(1)] {
        let mut sim = Sim::new(&config, 2, 1, |_| status(1, 200));
        sim.load(100, 0, 20_000, GET);
        sim.run_until(5_000);
        let before = sim.sent.len();
        assert_eq!(before, 501);
        force(BreakerMode::ForcedOpen, 10)(&mut sim);
        let metrics_only =
            BreakerOptions { mode: BreakerMode::MetricsOnly, ..BreakerOptions::default() };
        sim.reload_at(at(7_000), &StackConfig { breaker: Some(metrics_only), ..config });
        sim.reload_at(at(9_000), &config);
        sim.run_until(14_995);
        assert_eq!(sim.sent.len(), before, "nothing was sent");
        assert_eq!(sim.dependency.forced(at(14_999)).unwrap().1, at(15_000));
        let refused = sim.ended().filter(|(_, done)| done.outcome.cause() == Cause::BreakerOpen);
        assert_eq!(refused.count(), 999);
        sim.run_until(20_000);
        assert_eq!(sim.dependency.forced(sim.now), None);
        assert_eq!(sim.sent.len(), before + 500, "and all of it again by itself");
    }
}

#[test]
fn forced_to_admit_an_open_breaker_keeps_its_state_and_goes_on_from_it() {
    for mode in [BreakerMode::Disabled, BreakerMode::MetricsOnly] {
        let mut sim = Sim::new(&on(), 1, 1, |_| status(1, 503));
        sim.load(100, 0, 3_000, GET);
        sim.run_until(505);
        let state =
            |sim: &Sim| sim.dependency.endpoint_view(sim.now, &sim.params, 0, 0).unwrap().breaker;
        assert_eq!(state(&sim), BreakerState::Open);
        let sent = sim.sent.len();
        force(mode, 60)(&mut sim);
        sim.run_until(1_005);
        assert_eq!(sim.sent.len() - sent, 50, "{mode:?}: all are sent");
        assert_eq!(state(&sim), BreakerState::Open, "{mode:?}");
        // Lifted before its time, it rejects as before.
        sim.dependency.force(mode, Timestamp::ZERO);
        let sent = sim.sent.len();
        sim.run_until(1_100);
        assert_eq!(sim.sent.len(), sent, "{mode:?}: none is sent");
    }
}
