//! What faults do to servers, and to what passes between them and their callers.

use seawall_policy::Timestamp;

use super::Work;
use super::world::{Made, What, World};
use crate::draw::Purpose;
use crate::engine::{Engine, Event};
use crate::fault::{Condition, Trouble};

impl World<'_> {
    /// A fault begins or ends.
    pub(super) fn weather(&mut self, engine: &mut Engine, number: u32) {
        let now = engine.now();
        let Some(fault) = self.fleet.faults.get(number as usize) else { return };
        for place in 0..self.sites.len() {
            let site = &mut self.sites[place];
            if !fault.hits(site.service, site.place) {
                continue;
            }
            site.condition = Condition::of(&self.fleet.faults, site.service, site.place, now);
            let service = &self.fleet.services[site.service as usize];
            if let Work::Queue { workers, .. } = service.host.work {
                site.server.resize(now, site.condition.workers.unwrap_or(workers));
            }
            match fault.trouble() {
                Trouble::Pause if now == fault.from() => {
                    let longer = site.paused_until.max(now).until(fault.until());
                    site.paused += u64::try_from(longer.as_nanos()).unwrap_or(u64::MAX);
                    site.paused_until = site.paused_until.max(fault.until());
                }
                Trouble::Restart if now == fault.from() => self.close_all(engine, place),
                Trouble::Hold if !site.condition.holds => {
                    for slot in std::mem::take(&mut site.held_back) {
                        self.request(engine, slot);
                    }
                }
                Trouble::Reset { share } if now == fault.from() => {
                    self.reset(place, |world, id| world.is_hit(id, number.into(), share));
                }
                Trouble::Capacity(_) => {
                    self.go_on(engine, place);
                }
                _ => {}
            }
        }
    }

    /// A server dies of what is inside.
    pub(super) fn die(&mut self, engine: &mut Engine, place: usize) {
        let site = &mut self.sites[place];
        let service = site.service;
        let Some(dies) = self.fleet.services[service as usize].dies else { return };
        site.dead_until = engine.now().after(dies.restarts_in);
        self.ledger.died(service);
        self.close_all(engine, place);
    }

    /// Until when a client stands still, if it does.
    pub(super) fn stands_still(&self, client: u32, now: Timestamp) -> Option<Timestamp> {
        if client >= self.fleet.clients {
            return None;
        }
        let faults = self.fleet.faults.iter().zip(0..).filter(|(fault, _)| fault.is_on(now));
        let stalls = faults.filter_map(|(fault, number)| match fault.trouble() {
            Trouble::Stall { share } if self.is_hit(client, number, share) => Some(fault.until()),
            _ => None,
        });
        stalls.max()
    }

    /// What happens to a client that stands still happens when it goes on.
    pub(super) fn put_off(
        &mut self,
        engine: &mut Engine,
        event: Event,
        what: What,
        slot: u32,
        until: Timestamp,
    ) {
        let (client, now) = (event.entity, engine.now());
        let is_plain = self.fleet.baseline.is_some();
        let due = match what {
            What::Tick | What::Leave if is_plain => {
                self.plain.get_mut(slot).map(|call| match what {
                    What::Tick => &mut call.tick_at,
                    _ => &mut call.leaves_at,
                })
            }
            What::Tick => self.calls.get_mut(slot).map(|call| &mut call.tick_at),
            What::Leave => self.calls.get_mut(slot).map(|call| &mut call.leaves_at),
            What::Timer => self.flights.get_mut(slot).map(|flight| &mut flight.timer_at),
            _ => None,
        };
        match due {
            // One that is not due now is stale, and stays so.
            Some(due) if *due != now => return,
            Some(due) => *due = until,
            None => {}
        }
        self.schedule(engine, until, client, event.what);
    }

    /// How many seconds a client's clock is ahead.
    pub(super) fn skew(&self, client: u32, now: Timestamp) -> i64 {
        let clocks = self.fleet.faults.iter().zip(0..).filter(|(fault, _)| fault.is_on(now));
        let ahead = clocks.filter_map(|(fault, number)| match fault.trouble() {
            Trouble::Clock { share, ahead } if self.is_hit(client, number, share) => Some(ahead),
            _ => None,
        });
        ahead.sum()
    }

    /// Whether nothing passes between a client and a server.
    pub(super) fn is_cut(&self, made: Made, place: usize, now: Timestamp) -> bool {
        let site = &self.sites[place];
        site.condition.is_parted
            && self.fleet.faults.iter().zip(0..).any(|(fault, number)| {
                let is_on = fault.is_on(now) && fault.hits(site.service, site.place);
                matches!(fault.trouble(), Trouble::Partition { share }
                    if is_on && self.is_hit(made.link.caller, number, share))
            })
    }

    /// Whether a client is among this share that the fault of this number hits.
    pub(super) fn is_hit(&self, client: u32, number: u64, share: f64) -> bool {
        let mut draw = self.draws.stream(client, Purpose::Fault).at(u64::MAX - number);
        draw.happens(share)
    }
}
