//! How permits and slots come back.

use super::Dependency;
use super::terms::{Permit, Slot, SlotKind};
use crate::stack::StackParams;
use crate::time::Timestamp;

impl Dependency {
    /// A permit that ends without an outcome gives back its probe, and its payment if nothing was
    /// sent.
    pub(super) fn settle_unrecorded(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
    ) {
        if let Some(breaker) = permit.breaker.take() {
            let Slot { endpoint, lane, .. } = permit.slot;
            self.breaker(endpoint, lane).on_ignore(now, &params.breaker, breaker);
        }
        if let Some(outlier) = permit.outlier.take() {
            self.endpoints[permit.slot.endpoint].conduct.on_ignore(&outlier);
        }
        if permit.is_sent() {
            return;
        }
        self.give_rate_back(params, permit);
        if permit.take_paid() {
            self.refund(now, params);
        }
        if permit.take_allowance() {
            self.refund_allowance(now, params);
        }
    }

    /// Frees the slot before its permit comes back: nothing was sent and nothing will be.
    pub(in crate::stack) fn vacate(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
    ) {
        self.free(now, params, permit.slot);
        permit.slot.kind = SlotKind::Vacated;
        permit.limit = None;
        self.give_rate_back(params, permit);
    }

    pub(super) fn free(&mut self, now: Timestamp, params: &StackParams, slot: Slot) {
        if slot.kind == SlotKind::Vacated {
            return;
        }
        if slot.is_limited {
            self.leave_limited(now, params);
        }
        match slot.kind {
            SlotKind::Bulkhead => self.bulkhead.release(now, params.slots(), slot.lane),
            SlotKind::Stream => self.bulkhead.release_stream(),
            SlotKind::Unlimited | SlotKind::Vacated => {}
        }
        if slot.kind != SlotKind::Stream {
            self.active = self.active.saturating_sub(1);
        }
        let endpoint = &mut self.endpoints[slot.endpoint];
        endpoint.in_flight = endpoint.in_flight.saturating_sub(1);
        let lane = &mut self.lanes[slot.lane];
        lane.permits = lane.permits.saturating_sub(1);
    }
}
