//! A user who waits for the slowest of a hundred calls: what a second attempt beside a slow one
//! takes off the tail, and what it costs.
//!
//! How long a call takes does not depend on the others, so they are made one after the other; what
//! is decided about each is the policy's, through its [`Operation`], with what it knows of the
//! calls before. The second attempt goes to another of two endpoints, and takes a time of its own,
//! or now and then that of the first: slowness that both have in common. Source: tail-at-scale.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{
    Attempt, Cause, ConfigError, Dependency, Event, Operation, Outcome, StackParams, Step,
    Timestamp,
};

use super::{Digest, Kind, Numbers, Setup};
use crate::draw::{Draw, Draws, Purpose};
use crate::fleet::CALL;
use crate::scenario::{Read, Section, Unit, params, span};
use crate::span::Span;
use crate::stats::Times;

pub(super) const KIND: Kind = Kind {
    section: "fanout",
    beside: &["policy"],
    numbers: &[
        ("p50", Unit::Time),
        ("p99", Unit::Time),
        ("p999", Unit::Time),
        ("p999_of_calls", Unit::Time),
        ("extra", Unit::Share),
    ],
    read,
};

/// Users that each wait for the slowest of some calls.
#[derive(Clone, Debug)]
struct Fanout {
    users: u32,
    /// Calls for each user.
    calls: u32,
    takes: Span,
    /// How often the second attempt takes as long as the first.
    alike: f64,
    policy: StackParams,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let section = whole.need("fanout", &["users", "calls", "takes", "alike"])?;
    let takes = section.node("takes").ok_or_else(|| section.missing("takes"))?;
    Ok(Arc::new(Fanout {
        users: section.needed("users", section.count("users", 1..=MOST_USERS)?)?,
        calls: section.needed("calls", section.count("calls", 1..=MOST_CALLS)?)?,
        takes: span(takes, &section.path("takes"))?,
        alike: section.share("alike")?.unwrap_or(0.0),
        policy: params(whole)?,
    }))
}

impl Setup for Fanout {
    fn run(&self, seed: u64) -> Numbers {
        let mut run = self.begin(seed);
        let (of_calls, of_users) = run.play();
        let [half, most, nearly_all] =
            [0.5, 0.99, 0.999].map(|share| of_users.quantile(share).as_secs_f64());
        let of_call = of_calls.quantile(0.999).as_secs_f64();
        let values = vec![half, most, nearly_all, of_call, run.extra()];
        Numbers { values, events: run.events, digest: run.digest.sum() }
    }

    fn with_clients(&self, clients: u32) -> Result<Option<Arc<dyn Setup>>, ConfigError> {
        if !(1..=MOST_USERS).contains(&clients) {
            let allowed = format!("1 to {MOST_USERS} users that wait");
            return Err(ConfigError::new("clients", clients, allowed));
        }
        Ok(Some(Arc::new(Self { users: clients, ..self.clone() })))
    }
}

struct Run<'a> {
    fanout: &'a Fanout,
    dependency: Dependency,
    times: Draw,
    policies: Draw,
    digest: Digest,
    events: u64,
}

impl Run<'_> {
    /// Makes the calls of all users: the times of each call, and of each user's slowest.
    fn play(&mut self) -> (Times, Times) {
        let (mut of_calls, mut of_users) = (Times::new(), Times::new());
        let mut now = Timestamp::ZERO;
        for user in 0..u64::from(self.fanout.users) {
            let mut slowest = Duration::ZERO;
            for call in 0..u64::from(self.fanout.calls) {
                let took = self.call(now, user * u64::from(self.fanout.calls) + call);
                now = now.after(took);
                of_calls.record(took);
                slowest = slowest.max(took);
            }
            of_users.record(slowest);
        }
        (of_calls, of_users)
    }

    /// Second attempts for each first one.
    fn extra(&self) -> f64 {
        let counters = self.dependency.counters();
        counters.hedges as f64 / counters.first_attempts as f64
    }

    /// Makes one call to its end, and says how long it took.
    fn call(&mut self, begun: Timestamp, number: u64) -> Duration {
        let params = &self.fanout.policy;
        let mut under_way = UnderWay { out: Vec::with_capacity(2), tick: None };
        let (mut now, mut sent) = (begun, 0);
        let (dependency, rng) = (&mut self.dependency, &mut self.policies);
        let (mut operation, mut step) = Operation::begin(now, dependency, params, CALL, rng);
        loop {
            match step {
                Step::Send(attempt) => {
                    let first = under_way.out.first().map(|first| first.takes);
                    let draws = self.times.at(number * OF_CALL + sent * OF_ATTEMPT);
                    under_way.out.push(self.fanout.send(now, attempt, draws, first));
                    sent += 1;
                }
                Step::WaitUntil(at) | Step::Refresh(at) => under_way.tick = Some(at),
                Step::Fly => {}
                Step::Done(_) => break,
            }
            let Some((at, next)) = under_way.next() else { break };
            now = at;
            self.events += 1;
            let (dependency, rng) = (&mut self.dependency, &mut self.policies);
            step = match next {
                Next::Ended(place) => {
                    let mut out = under_way.out.swap_remove(place);
                    let permit = &mut out.attempt.permit;
                    let outcome = Outcome::of(out.cause);
                    let event = Event::Ended { permit, outcome, replayable: true };
                    let step = operation.on_event(now, dependency, params, event, rng);
                    dependency.release(now, params, out.attempt.permit);
                    step
                }
                Next::Due => {
                    let event = Event::HedgeDue { replayable: true };
                    operation.on_event(now, dependency, params, event, rng)
                }
                Next::Tick => operation.on_event(now, dependency, params, Event::Tick, rng),
            };
        }
        under_way.out.into_iter().for_each(|lost| self.give_up(now, lost));
        self.digest.add(now.as_nanos());
        now.since(begun)
    }

    /// What is still out when the call is over has lost, and ends there.
    fn give_up(&mut self, now: Timestamp, lost: Out) {
        let params = &self.fanout.policy;
        let (dependency, rng) = (&mut self.dependency, &mut self.policies);
        if let Some(held) = dependency.abandon(now, params, lost.attempt.permit, rng) {
            dependency.end_held(now, params, held);
        }
    }
}

impl Fanout {
    fn begin(&self, seed: u64) -> Run<'_> {
        Run {
            fanout: self,
            dependency: Dependency::new(ENDPOINTS, 1),
            times: Draws::new(seed).stream(0, Purpose::Service),
            policies: Draws::new(seed).stream(0, Purpose::Policy),
            digest: Digest::default(),
            events: 0,
        }
    }

    fn send(
        &self,
        now: Timestamp,
        mut attempt: Attempt,
        mut draw: Draw,
        first: Option<Duration>,
    ) -> Out {
        let is_alike = draw.happens(self.alike);
        let own = self.takes.draw(&mut draw);
        let takes = first.filter(|_| is_alike).unwrap_or(own);
        attempt.permit.mark_sent();
        let answered = now.after(takes);
        let (ends, cause) = match answered < attempt.deadline {
            true => (answered, Cause::Answered),
            false => (attempt.deadline, Cause::AttemptTimeout),
        };
        Out { attempt, takes, ends, cause }
    }
}

/// An attempt that is out.
struct Out {
    attempt: Attempt,
    takes: Duration,
    ends: Timestamp,
    cause: Cause,
}

/// What a call waits for.
struct UnderWay {
    out: Vec<Out>,
    tick: Option<Timestamp>,
}

enum Next {
    /// The attempt at this place.
    Ended(usize),
    /// The first has taken as long as it is given alone.
    Due,
    Tick,
}

impl UnderWay {
    /// What comes first, and when.
    fn next(&mut self) -> Option<(Timestamp, Next)> {
        let ends = (0..self.out.len()).min_by_key(|place| self.out[*place].ends);
        let ends = ends.map(|place| (self.out[place].ends, place));
        let due = self.out.iter().filter_map(|out| out.attempt.hedge_at).min();
        let ended_by = |other: Option<Timestamp>| {
            ends.filter(|(at, _)| other.is_none_or(|other| *at <= other))
        };
        let timer = due.into_iter().chain(self.tick).min();
        if let Some((at, place)) = ended_by(timer) {
            return Some((at, Next::Ended(place)));
        }
        let at = timer?;
        if due == Some(at) {
            self.out.iter_mut().for_each(|out| out.attempt.hedge_at = None);
            return Some((at, Next::Due));
        }
        self.tick = None;
        Some((at, Next::Tick))
    }
}

/// Draws that are an attempt's own.
const OF_ATTEMPT: u64 = 4;
/// Those of a call: of ten attempts and as many redispatches.
const OF_CALL: u64 = 128;
/// A first attempt, and one beside it that goes elsewhere.
const ENDPOINTS: usize = 2;
/// Source: own choice.
const MOST_USERS: u32 = 10_000_000;
/// Source: own choice.
const MOST_CALLS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use seawall_policy::{HedgeDelay, HedgeOptions, Ratio, RetryOptions, StackConfig};

    use super::*;

    const POINTS: [(f64, f64); 5] =
        [(1.0, 1.0), (4.0, 0.5), (10.0, 0.02), (69.0, 0.003_248_42), (1_800.0, 1.000_5e-5)];

    fn millis(millis: f64) -> Duration {
        Duration::from_secs_f64(millis / 1e3)
    }

    /// The share of calls that take longer.
    fn survival(time: f64) -> f64 {
        if time <= 1.0 {
            return 1.0;
        }
        let piece = POINTS.windows(2).find(|piece| time <= piece[1].0).unwrap();
        let exponent = (piece[1].1 / piece[0].1).ln() / (piece[1].0 / piece[0].0).ln();
        piece[0].1 * (time / piece[0].0).powf(exponent)
    }

    /// A hundred users, and a second attempt after that time whatever it costs.
    fn fanout(delay: f64, alike: f64) -> Fanout {
        let delay = HedgeDelay::Fixed(millis(delay));
        let (max_extra, max_load) = (Ratio::ONE, Ratio::ONE);
        let hedge = HedgeOptions { delay, max_extra, max_load, ..HedgeOptions::default() };
        let retry = RetryOptions { max_attempts: 2, ..RetryOptions::default() };
        let config =
            StackConfig { retry: Some(retry), hedge: Some(hedge), ..StackConfig::default() };
        Fanout {
            users: 200,
            calls: 100,
            takes: Span::survival(&POINTS.map(|(time, share)| (millis(time), share))).unwrap(),
            alike,
            policy: StackParams::new(&config).unwrap(),
        }
    }

    /// Whether the share that takes longer than some times is S(t) · S(t − d), and of the slowest
    /// of a hundred 1 − (1 − that)¹⁰⁰; a part of the second attempts takes as long as the first.
    fn follows(delay: f64, alike: f64) {
        let fanout = fanout(delay, alike);
        let mut run = fanout.begin(5);
        let mut now = Timestamp::ZERO;
        let mut call = |number| {
            let took = run.call(now, number);
            now = now.after(took);
            took
        };
        let of_calls: Vec<_> = (0..20_000).map(&mut call).collect();
        let slowest = |hundred: &[Duration]| hundred.iter().copied().max().unwrap();
        let of_users: Vec<_> = of_calls.chunks(100).map(slowest).collect();
        let extra = run.extra();
        assert!((extra - survival(delay)).abs() < 0.01, "{delay}: {extra}");
        let check = |times: &[Duration], time: f64, expected: f64| {
            let n = times.len() as f64;
            let noise = 4.0 * (expected * (1.0 - expected) / n).sqrt() + 4.0 / n;
            let above = times.iter().filter(|took| **took > millis(time)).count();
            let measured = above as f64 / n;
            assert!((measured - expected).abs() < noise, "{delay} {time}: {measured} {expected}");
        };
        for time in [25.0, 45.0, 60.0, 90.0, 150.0].into_iter().filter(|time| *time > delay) {
            // If alike, the first is always before the second.
            let second = (1.0 - alike) * survival(time - delay) + alike;
            let leaf = survival(time) * second;
            check(&of_calls, time, leaf);
            check(&of_users, time, 1.0 - (1.0 - leaf).powi(100));
        }
    }

    #[test]
    fn the_slowest_of_a_hundred_follows_the_closed_form() {
        [4.0, 6.0, 10.0, 20.0, 40.0].into_iter().for_each(|delay| follows(delay, 0.0));
        follows(10.0, 0.1);
    }

    #[test]
    fn an_attempt_out_of_time_is_one_that_failed() {
        let mut fanout = fanout(1.0, 1.0);
        fanout.takes = Span::fixed(Duration::from_secs(3));
        let timeout = Some(Duration::from_millis(500));
        let config = StackConfig { attempt_timeout: timeout, ..StackConfig::default() };
        fanout.policy = StackParams::new(&config).unwrap();
        fanout.users = 1;
        let (of_calls, _) = fanout.begin(1).play();
        assert!(of_calls.longest() < Duration::from_millis(501), "{:?}", of_calls.longest());
    }
}
