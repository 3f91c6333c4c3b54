//! Clients that want to change one row at once, each by reading its version and writing if it is
//! still that: what backoff and jitter are for.
//!
//! The server is never busy; all that costs is a write that comes too late. Whoever fails reads
//! again after the wait that the policy's [`Backoff`] says. Source: aws-backoff.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{Backoff, ConfigError, Timestamp};

use super::{Kind, Numbers, Setup};
use crate::draw::{Draws, Purpose};
use crate::engine::{Engine, Entity, Event, Model};
use crate::scenario::{Read, Section, Unit, span, waits};
use crate::span::Span;

pub(super) const KIND: Kind = Kind {
    section: "contention",
    beside: &["policy"],
    numbers: &[("writes", Unit::Count), ("ended", Unit::Time)],
    read,
};

/// Clients that contend for one row.
#[derive(Clone, Debug)]
pub struct Contention {
    /// How many, all of which begin at time zero and stop when they have succeeded.
    pub clients: u32,
    /// How long a message travels.
    pub delay: Span,
    /// How long to wait before reading again; `None`: not at all.
    pub wait: Option<Backoff>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contended {
    /// Writes the server has seen.
    pub writes: u64,
    /// When the last client learned of its success.
    pub ended: Timestamp,
    /// Events that were simulated.
    pub events: u64,
    /// A digest of everything that happened.
    pub digest: u64,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let section = whole.need("contention", &["clients", "delay"])?;
    let clients = section.count("clients", 1..=MOST)?;
    let delay = section.node("delay").ok_or_else(|| section.missing("delay"))?;
    let policy = whole.node("policy").ok_or_else(|| whole.missing("policy"))?;
    Ok(Arc::new(Contention {
        clients: clients.ok_or_else(|| section.missing("clients"))?,
        delay: span(delay, &section.path("delay"))?,
        wait: waits(policy, "policy")?,
    }))
}

impl Setup for Contention {
    fn run(&self, seed: u64) -> Numbers {
        let Contended { writes, ended, events, digest } = Self::run(self, seed);
        let ended = ended.since(Timestamp::ZERO).as_secs_f64();
        Numbers { values: vec![writes as f64, ended], events, digest }
    }

    fn with_clients(&self, clients: u32) -> Result<Option<Arc<dyn Setup>>, ConfigError> {
        if !(1..=MOST).contains(&clients) {
            let allowed = format!("1 to {MOST} that contend for a row");
            return Err(ConfigError::new("clients", clients, allowed));
        }
        Ok(Some(Arc::new(Self { clients, ..self.clone() })))
    }
}

impl Contention {
    /// Simulates it until everybody has succeeded.
    #[must_use]
    pub fn run(&self, seed: u64) -> Contended {
        let client = |id| Client { entity: Entity::new(id), ..Client::default() };
        let mut run = Run {
            contention: self,
            draws: Draws::new(seed),
            clients: (0..self.clients).map(client).collect(),
            version: 0,
            writes: 0,
            ended: Timestamp::ZERO,
        };
        let mut engine = Engine::new();
        (0..self.clients).for_each(|id| run.send(&mut engine, id, Message::Read));
        engine.run_until(Timestamp::MAX, &mut run);
        let (events, digest) = (engine.handled(), engine.digest());
        Contended { writes: run.writes, ended: run.ended, events, digest }
    }
}

struct Run<'a> {
    contention: &'a Contention,
    draws: Draws,
    clients: Vec<Client>,
    version: u64,
    writes: u64,
    ended: Timestamp,
}

struct Client {
    entity: Entity,
    /// The version it has read.
    seen: u64,
    failures: u32,
    waited: Duration,
    /// Messages it has sent or been sent, and draws it has made for its waits.
    messages: u64,
    drawn: u64,
}

impl Default for Client {
    fn default() -> Self {
        let (entity, waited) = (Entity::new(0), Duration::ZERO);
        Self { entity, seen: 0, failures: 0, waited, messages: 0, drawn: 0 }
    }
}

/// What arrives, or, for the last, what is due.
#[derive(Clone, Copy)]
enum Message {
    /// At the server.
    Read,
    /// At the client; the version is what the client has seen from then on.
    Version,
    /// At the server.
    Write,
    /// At the client.
    Success,
    /// At the client.
    Failure,
    /// The client's wait is over.
    Again,
}

impl Message {
    const ALL: [Self; 6] =
        [Self::Read, Self::Version, Self::Write, Self::Success, Self::Failure, Self::Again];
}

impl Run<'_> {
    fn send(&mut self, engine: &mut Engine, id: u32, message: Message) {
        let client = &mut self.clients[id as usize];
        let mut draw = self.draws.stream(id, Purpose::Network).at(2 * client.messages);
        client.messages += 1;
        let at = engine.now().after(self.contention.delay.draw(&mut draw));
        engine.schedule(at, &mut client.entity, message as u32);
    }

    fn failed(&mut self, engine: &mut Engine, id: u32) {
        let client = &mut self.clients[id as usize];
        let waits = self.contention.wait.map_or(Duration::ZERO, |wait| {
            let mut rng = self.draws.stream(id, Purpose::Policy).at(client.drawn);
            let waits = wait.delay(client.failures, client.waited, &mut rng);
            client.drawn = rng.drawn();
            waits
        });
        client.failures += 1;
        client.waited = waits;
        engine.schedule(engine.now().after(waits), &mut client.entity, Message::Again as u32);
    }
}

impl Model for Run<'_> {
    fn on(&mut self, engine: &mut Engine, event: Event) {
        let id = event.entity;
        let Some(message) = Message::ALL.get(event.what as usize) else { return };
        match message {
            Message::Read => {
                self.clients[id as usize].seen = self.version;
                self.send(engine, id, Message::Version);
            }
            Message::Version => self.send(engine, id, Message::Write),
            Message::Write => {
                self.writes += 1;
                let is_current = self.clients[id as usize].seen == self.version;
                self.version += u64::from(is_current);
                let answer = if is_current { Message::Success } else { Message::Failure };
                self.send(engine, id, answer);
            }
            Message::Success => self.ended = engine.now(),
            Message::Failure => self.failed(engine, id),
            Message::Again => self.send(engine, id, Message::Read),
        }
    }
}

/// Clients of one row: each round costs one event for each of them. Source: own choice.
const MOST: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_succeeds_at_once_and_many_in_step_fail_but_one_a_round() {
        let contention = |clients| Contention {
            clients,
            delay: Span::fixed(Duration::from_millis(10)),
            wait: None,
        };
        let alone = contention(1).run(1);
        assert_eq!((alone.writes, alone.ended), (1, Timestamp::from_millis(40)));
        // Each round has one winner, and one loser fewer: n + (n − 1) + … + 1 writes.
        let many = contention(20).run(1);
        assert_eq!((many.writes, many.ended), (210, Timestamp::from_millis(800)));
    }
}
