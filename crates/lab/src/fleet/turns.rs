//! When a client's next call comes.

use seawall_policy::Timestamp;

use super::Calls;
use super::world::{CALL_DRAWS, What, World};
use crate::draw::Purpose;
use crate::engine::Engine;
use crate::span::seconds_to_span;

impl World<'_> {
    /// Schedules the client's next call, its last having begun or, if it makes one at a time,
    /// ended.
    pub(super) fn next_call(&mut self, engine: &mut Engine, id: u32) {
        let now = engine.now();
        let client = &mut self.clients[id as usize];
        let draws = u64::from(client.begun) * CALL_DRAWS;
        let mut draw = self.draws.stream(id, Purpose::Arrival).at(draws);
        let at = match &self.fleet.calls {
            Calls::Open(rate) => {
                rate.after(now, draw.exponential() * f64::from(self.fleet.clients))
            }
            Calls::Serial(between) if client.begun == 0 => {
                now.after(seconds_to_span(between.draw(&mut draw).as_secs_f64() * draw.unit()))
            }
            Calls::Serial(between) => client.last.after(between.draw(&mut draw)).max(now),
            Calls::Closed(think) => now.after(think.draw(&mut draw)),
            Calls::Recorded(times) => {
                let turn = u64::from(client.begun) * u64::from(self.fleet.clients) + u64::from(id);
                let at = usize::try_from(turn).ok().and_then(|turn| times.get(turn).copied());
                at.unwrap_or(Timestamp::MAX)
            }
            Calls::Once { at, over, .. } if client.begun == 0 => {
                at.after(seconds_to_span(over.as_secs_f64() * draw.unit()))
            }
            Calls::Once { again, then, .. } => {
                let is_in = self.ledger.tries.is_in(id);
                now.after(then.as_ref().filter(|_| is_in).unwrap_or(again).draw(&mut draw))
            }
        };
        if at < self.fleet.calls_until {
            engine.schedule(at, &mut client.entity, What::Begin.of(0));
        }
    }

    /// A client's call has begun: the next comes whatever becomes of it, where it does.
    pub(super) fn next_meanwhile(&mut self, engine: &mut Engine, id: u32) {
        if matches!(self.fleet.calls, Calls::Open(_) | Calls::Recorded(_)) {
            self.next_call(engine, id);
        }
    }

    /// A client's call has ended, which another follows where one waits for its end.
    pub(super) fn next_after(&mut self, engine: &mut Engine, id: u32, is_answered: bool) {
        match &self.fleet.calls {
            Calls::Open(_) | Calls::Recorded(_) => {}
            Calls::Once { at, then, .. } if is_answered => {
                self.ledger.tries.answered(id, at.until(engine.now()));
                if then.is_some() {
                    self.next_call(engine, id);
                }
            }
            Calls::Once { .. } | Calls::Serial(_) | Calls::Closed(_) => self.next_call(engine, id),
        }
    }
}
