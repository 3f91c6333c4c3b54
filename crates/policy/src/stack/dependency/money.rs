//! What retries pay, and when a payment comes back.

use super::Dependency;
use crate::budget::{Budget, BudgetParams};
use crate::outcome::Outcome;
use crate::stack::StackParams;
use crate::time::Timestamp;

/// The answer to a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stack) enum Payment {
    /// One token was taken; it comes back if the retry is never sent.
    Paid,
    /// There is no budget, so nothing was taken and nothing comes back.
    Free,
    /// The budget is empty.
    Refused,
}

impl Dependency {
    /// Pays for one retry.
    pub(in crate::stack) fn withdraw(&mut self, now: Timestamp, params: &StackParams) -> Payment {
        let Some((budget, budget_params)) = self.funds(now, params) else { return Payment::Free };
        if budget.try_withdraw(now, budget_params) {
            return Payment::Paid;
        }
        self.counters.budget_exhausted += 1;
        Payment::Refused
    }

    /// Gives a payment back: the retry was never sent.
    pub(in crate::stack) fn refund(&mut self, now: Timestamp, params: &StackParams) {
        match self.funds(now, params) {
            Some((budget, budget_params)) => budget.refund(now, budget_params),
            None => self.refunds_owed = self.refunds_owed.saturating_add(1),
        }
    }

    /// Adds what a first attempt is worth.
    pub(in crate::stack) fn count_first(&mut self, now: Timestamp, params: &StackParams) {
        if let Some((budget, budget_params)) = self.funds(now, params) {
            budget.on_first_attempt(now, budget_params);
        }
    }

    /// Adds what a success is worth, and takes what a failure costs.
    pub(super) fn account(&mut self, now: Timestamp, params: &StackParams, outcome: &Outcome) {
        if let Some((budget, budget_params)) = self.funds(now, params) {
            budget.record(now, budget_params, outcome);
        }
    }

    /// The budget, if there is one now, with what it was owed while there was none.
    pub(super) fn funds<'a>(
        &mut self,
        now: Timestamp,
        params: &'a StackParams,
    ) -> Option<(&mut Budget, &'a BudgetParams)> {
        let budget_params = params.budget.as_ref()?;
        let budget = self.budget.get_or_insert_with(|| Budget::new(now, budget_params));
        for _ in 0..core::mem::take(&mut self.refunds_owed) {
            budget.refund(now, budget_params);
        }
        Some((budget, budget_params))
    }
}
