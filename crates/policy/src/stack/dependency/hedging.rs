//! What a dependency knows for its hedges: usual times, how busy it is, what is left to pay.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Dependency, Payment, Permit};
use crate::budget::Budget;
use crate::hedge::{HedgeDelay, HedgeParams, HedgeRefusal, RecentQuantile};
use crate::ratio::Ratio;
use crate::stack::StackParams;
use crate::time::Timestamp;
use crate::utilisation::Utilisation;

/// See the module.
#[derive(Debug)]
pub(super) struct Hedging {
    /// What `max_extra` pays.
    allowance: Budget,
    utilisation: Utilisation,
    /// One a lane that was asked about.
    lanes: Vec<LaneTimes>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LaneTimes {
    delay: RecentQuantile,
    /// Longer times count as this in the utilisation.
    cut: RecentQuantile,
}

impl Hedging {
    fn new(now: Timestamp, params: &HedgeParams) -> Self {
        Self {
            allowance: Budget::new(now, params.allowance()),
            utilisation: Utilisation::new(now),
            lanes: Vec::new(),
        }
    }

    /// What is known of a lane; lanes may have come since.
    fn lane_mut(&mut self, lane: usize) -> &mut LaneTimes {
        if lane >= self.lanes.len() {
            self.lanes.resize(lane + 1, LaneTimes::default());
        }
        &mut self.lanes[lane]
    }
}

impl Dependency {
    /// How long an attempt in `lane` is given alone, if that is known.
    pub(in crate::stack) fn hedge_delay(
        &mut self,
        now: Timestamp,
        params: &HedgeParams,
        lane: usize,
    ) -> Option<Duration> {
        let options = params.options();
        let delay = match options.delay {
            HedgeDelay::Fixed(delay) => delay,
            HedgeDelay::Quantile(share) => {
                self.make_hedging(now, params);
                let times = &self.lanes[lane].times;
                let hedging = self.hedging.as_mut()?;
                hedging.lane_mut(lane).delay.read(now, times, share)?
            }
        };
        Some(delay.max(options.delay_min))
    }

    /// Earns what one first attempt is worth.
    pub(in crate::stack) fn earn_hedge(&mut self, now: Timestamp, params: &HedgeParams) {
        self.make_hedging(now, params).allowance.deposit(now, params.allowance());
    }

    /// Whether the dependency is too busy for a hedge.
    pub(in crate::stack) fn is_busy(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        hedge: &HedgeParams,
    ) -> bool {
        let most = hedge.options().max_load;
        if let Some(bulkhead) = &params.bulkhead
            && most
                .is_reached(self.bulkhead.in_flight().into(), self.bulkhead.limit(bulkhead).into())
        {
            return true;
        }
        let active = self.active;
        let busy = self.make_hedging(now, hedge).utilisation.busy(now);
        // What is asked for at 100 % is not to be judged by an estimate.
        most < Ratio::ONE
            && busy.is_some_and(|busy| busy.utilisation >= most || active >= busy.tenth)
    }

    /// Pays for one hedge: from the allowance, then from the retry budget, if there is one.
    ///
    /// # Errors
    /// Which of the two is empty; nothing was taken.
    pub(in crate::stack) fn pay_hedge(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        hedge: &HedgeParams,
    ) -> Result<Payment, HedgeRefusal> {
        if !self.make_hedging(now, hedge).allowance.try_withdraw(now, hedge.allowance()) {
            return Err(HedgeRefusal::MaxExtra);
        }
        let Some((budget, budget_params)) = self.funds(now, params) else {
            return Ok(Payment::Free);
        };
        if budget.try_withdraw(now, budget_params) {
            return Ok(Payment::Paid);
        }
        self.refund_allowance(now, params);
        Err(HedgeRefusal::Budget)
    }

    /// Gives both payments back of a hedge that was never sent.
    pub(in crate::stack) fn refund_hedge(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        payment: Payment,
    ) {
        self.refund_allowance(now, params);
        if payment == Payment::Paid {
            self.refund(now, params);
        }
    }

    /// Gives back what a hedge took from the allowance, if there still is one.
    pub(in crate::stack) fn refund_allowance(&mut self, now: Timestamp, params: &StackParams) {
        if let Some(hedge) = &params.hedge {
            self.make_hedging(now, hedge).allowance.refund(now, hedge.allowance());
        }
    }

    /// Adds the time of a call to what is known of the load. One that was cut, by its hedge or its
    /// caller, tells as much as one that was answered if it had lasted to where times are cut.
    pub(super) fn record_utilisation(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &Permit,
        elapsed: Duration,
        was_answered: bool,
    ) {
        let Some(hedge) = &params.hedge else { return };
        self.make_hedging(now, hedge);
        let lane = permit.slot.lane;
        let times = &self.lanes[lane].times;
        let Some(hedging) = &mut self.hedging else { return };
        let Some(cut) = hedging.lane_mut(lane).cut.read(now, times, CUT) else { return };
        if was_answered || elapsed >= cut {
            hedging.utilisation.record(now, permit.found, elapsed.min(cut));
        }
    }

    fn make_hedging(&mut self, now: Timestamp, params: &HedgeParams) -> &mut Hedging {
        self.hedging.get_or_insert_with(|| Box::new(Hedging::new(now, params)))
    }
}

/// Times above this share of them count as it. Source: seawall-defaults.
const CUT: Ratio = Ratio::from_percent(98);
