//! The breaker again, slowly: it keeps every sample. Compared with the real one on random scripts.

use super::*;
use std::collections::BTreeSet;

/// Mirrors a [`BreakerPermit`].
#[derive(Clone, Copy, Debug)]
struct Slip {
    generation: u64,
    probe: bool,
    slow_counted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Closed,
    Open { until: Timestamp },
    HalfOpen { issued: Timestamp },
}

/// Keeps every sample as (second, is a call, is a failure, is slow).
struct Naive {
    options: BreakerOptions,
    phase: Phase,
    samples: Vec<(u64, bool, bool, bool)>,
    run: Vec<Timestamp>,
    generation: u64,
    trips: u32,
    out: u32,
    succeeded: u32,
    rng: SplitMix64,
}

impl Naive {
    fn counts(&self, now: Timestamp) -> (u64, u64, u64) {
        let second = now.as_nanos() / 1_000_000_000;
        let recent = self.samples.iter().filter(|sample| sample.0 + 10 > second);
        recent.fold((0, 0, 0), |sum, sample| {
            (sum.0 + u64::from(sample.1), sum.1 + u64::from(sample.2), sum.2 + u64::from(sample.3))
        })
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.generation += 1;
        (self.out, self.succeeded) = (0, 0);
    }

    fn open(&mut self, now: Timestamp) {
        self.trips += 1;
        let mut longest = self.options.open_base;
        for _ in 1..self.trips {
            longest = (longest * 2).min(self.options.open_cap);
        }
        let span = self.rng.duration_between(longest / 10 * 7, longest);
        self.enter(Phase::Open { until: now.after(span) });
    }

    fn tick(&mut self, now: Timestamp) {
        let full = self.out > 0 && self.out + self.succeeded >= self.options.probes;
        let due = match self.phase {
            Phase::Closed => false,
            Phase::Open { until } => now >= until,
            Phase::HalfOpen { issued } => full && now >= issued.after(self.options.probe_lease),
        };
        if due {
            self.enter(Phase::HalfOpen { issued: now });
        }
    }

    fn acquire(&mut self, now: Timestamp) -> Option<Slip> {
        self.tick(now);
        let normal = self.options.mode == BreakerMode::Normal;
        let full = self.out + self.succeeded >= self.options.probes;
        let probe = match self.phase {
            Phase::Closed => false,
            Phase::Open { .. } if normal => return None,
            Phase::HalfOpen { .. } if normal && full => return None,
            Phase::Open { .. } => false,
            Phase::HalfOpen { .. } => {
                self.out += 1;
                self.phase = Phase::HalfOpen { issued: now };
                true
            }
        };
        Some(Slip { generation: self.generation, probe, slow_counted: false })
    }

    fn judge(&mut self, now: Timestamp) {
        let (calls, failures, slow) = self.counts(now);
        let long_run = self.run.len() >= self.options.consecutive_failures as usize
            && self.run.last().copied().unwrap_or_default().since(self.run[0])
                >= self.options.consecutive_span;
        let enough = calls >= u64::from(self.options.min_calls);
        if enough && (failures * 2 >= calls || slow * 2 >= calls) || long_run {
            self.open(now);
        }
    }

    fn end(&mut self, now: Timestamp, slip: Slip, failed: bool, elapsed: Duration) {
        if slip.generation != self.generation {
            return;
        }
        let slow = elapsed >= self.options.slow.unwrap();
        let second = now.as_nanos() / 1_000_000_000;
        let new = !slip.slow_counted;
        self.samples.push((second, new, failed, new && slow));
        if failed {
            self.run.push(now);
        } else {
            self.run.clear();
        }
        match self.phase {
            Phase::Closed => self.judge(now),
            Phase::HalfOpen { .. } if slip.probe && (failed || slow) => self.open(now),
            Phase::HalfOpen { .. } if slip.probe => {
                self.out -= 1;
                self.succeeded += 1;
                if self.succeeded == self.options.probes {
                    self.enter(Phase::Closed);
                    self.trips = 0;
                    self.samples.clear();
                    self.run.clear();
                }
            }
            _ => {}
        }
    }

    fn slow(&mut self, now: Timestamp, slip: &mut Slip) {
        if slip.generation != self.generation || slip.slow_counted {
            return;
        }
        slip.slow_counted = true;
        self.samples.push((now.as_nanos() / 1_000_000_000, true, false, true));
        match self.phase {
            Phase::Closed => self.judge(now),
            Phase::HalfOpen { .. } if slip.probe => self.open(now),
            _ => {}
        }
    }

    fn ignore(&mut self, slip: Slip) {
        if slip.generation == self.generation && slip.probe {
            self.out -= 1;
        }
    }

    fn unreachable(&mut self, now: Timestamp) {
        self.tick(now);
        match self.phase {
            Phase::Open { .. } => {}
            Phase::HalfOpen { .. } => self.open(now),
            Phase::Closed => {
                self.samples.push((now.as_nanos() / 1_000_000_000, true, true, false));
                self.run.push(now);
                self.judge(now);
            }
        }
    }
}

/// One step; an index picks among the permits that are out.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Acquire,
    Success(usize, u64),
    Failure(usize, u64),
    Ignore(usize),
    Lose(usize),
    Slow(usize),
    Unreachable,
    Timeout,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..1_500_u64).prop_map(Step::Wait),
        1 => (2_000..15_000_u64).prop_map(Step::Wait),
        20 => Just(Step::Acquire),
        8 => (any::<usize>(), 0..150_u64).prop_map(|(pick, ms)| Step::Success(pick, ms)),
        6 => (any::<usize>(), 0..150_u64).prop_map(|(pick, ms)| Step::Failure(pick, ms)),
        2 => any::<usize>().prop_map(Step::Ignore),
        1 => any::<usize>().prop_map(Step::Lose),
        2 => any::<usize>().prop_map(Step::Slow),
        1 => Just(Step::Unreachable),
        1 => Just(Step::Timeout),
    ]
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..250)
}

/// Small thresholds, so that short scripts reach every state.
fn options(mode: BreakerMode) -> BreakerOptions {
    BreakerOptions {
        min_calls: 6,
        consecutive_failures: 4,
        slow: Some(Duration::from_millis(100)),
        probes: 3,
        probe_lease: Duration::from_secs(3),
        mode,
        ..defaults()
    }
}

fn pick<T>(permits: &mut Vec<T>, index: usize) -> Option<T> {
    (!permits.is_empty()).then(|| permits.swap_remove(index % permits.len()))
}

/// The real one and the model, with the permits that are out in both.
struct Both {
    rig: Rig,
    naive: Naive,
    permits: Vec<(BreakerPermit, Slip)>,
    ms: u64,
}

impl Both {
    fn new(mode: BreakerMode) -> Self {
        let naive = Naive {
            options: options(mode),
            phase: Phase::Closed,
            samples: Vec::new(),
            run: Vec::new(),
            generation: 0,
            trips: 0,
            out: 0,
            succeeded: 0,
            rng: SplitMix64::new(1),
        };
        Self { rig: Rig::new(options(mode)), naive, permits: Vec::new(), ms: 0 }
    }

    fn apply(&mut self, step: &Step) -> Option<Transition> {
        let now = at(self.ms);
        match *step {
            Step::Wait(more) => self.ms += more,
            Step::Acquire => {
                let (real, slip) = (self.rig.acquire(self.ms).ok(), self.naive.acquire(now));
                assert_eq!(real.is_some(), slip.is_some(), "admission at {} ms", self.ms);
                self.permits.extend(real.zip(slip));
            }
            Step::Success(index, elapsed) => return self.end(index, false, elapsed),
            Step::Failure(index, elapsed) => return self.end(index, true, elapsed),
            Step::Ignore(index) => {
                let (permit, slip) = pick(&mut self.permits, index)?;
                self.rig.ignore(self.ms, permit);
                self.naive.ignore(slip);
            }
            Step::Lose(index) => drop(pick(&mut self.permits, index)),
            Step::Slow(index) => {
                let count = self.permits.len().max(1);
                let (permit, slip) = self.permits.get_mut(index % count)?;
                self.naive.slow(now, slip);
                return self.rig.slow(self.ms, permit);
            }
            Step::Unreachable => {
                self.naive.unreachable(now);
                return self.rig.unreachable(self.ms);
            }
            Step::Timeout => {
                self.naive.tick(now);
                return self.rig.timeout(self.ms);
            }
        }
        None
    }

    fn end(&mut self, index: usize, failed: bool, elapsed: u64) -> Option<Transition> {
        let (now, elapsed) = (at(self.ms), Duration::from_millis(elapsed));
        let (permit, slip) = pick(&mut self.permits, index)?;
        self.naive.end(now, slip, failed, elapsed);
        let Rig { breaker, params, rng } = &mut self.rig;
        if failed {
            breaker.on_failure(now, params, permit, elapsed, rng)
        } else {
            breaker.on_success(now, params, permit, elapsed, rng)
        }
    }

    /// Compares all that can be seen.
    fn compare(&self) -> Result<(), TestCaseError> {
        let (rig, naive) = (&self.rig, &self.naive);
        prop_assert_eq!(rig.counts(self.ms), naive.counts(at(self.ms)));
        prop_assert_eq!(rig.breaker.generation(), naive.generation);
        prop_assert_eq!(rig.breaker.trips(), naive.trips);
        match naive.phase {
            Phase::Closed => prop_assert_eq!(rig.state(), BreakerState::Closed),
            Phase::HalfOpen { .. } => prop_assert_eq!(rig.state(), BreakerState::HalfOpen),
            Phase::Open { until } => {
                prop_assert_eq!(rig.state(), BreakerState::Open);
                prop_assert_eq!(rig.breaker.next_deadline(&rig.params), Some(until));
            }
        }
        Ok(())
    }
}

/// Runs both, compares them after every step, and returns the event log.
fn run_both(script: &[Step], mode: BreakerMode) -> Result<String, TestCaseError> {
    let mut both = Both::new(mode);
    let mut log = String::new();
    for step in script {
        if let Some(seen) = both.apply(step) {
            log.push_str(&format!("{} {seen:?}\n", both.ms));
        }
        both.compare()?;
    }
    Ok(log)
}

/// The modes that follow the results; the others have tests of their own.
fn mode() -> impl Strategy<Value = BreakerMode> {
    prop_oneof![
        3 => Just(BreakerMode::Normal),
        1 => Just(BreakerMode::MetricsOnly),
        1 => Just(BreakerMode::RetriesOff),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_model_that_keeps_every_sample(script in script(), mode in mode()) {
        let log = run_both(&script, mode)?;
        prop_assert_eq!(log, run_both(&script, mode)?, "equal scripts, equal event logs");
    }

    /// Counted from outside: permits of the latest probing generation that are out or succeeded.
    #[test]
    fn admitted_probes_never_exceed_the_limit(script in script()) {
        let mut rig = Rig::new(options(BreakerMode::Normal));
        rig.calls(0, 3, 3);
        let mut permits = Vec::new();
        let mut slots = BTreeSet::new();
        let (mut ms, mut generation) = (3_000, 0);
        for (id, step) in script.into_iter().enumerate() {
            match step {
                Step::Wait(more) => ms += more,
                Step::Acquire => {
                    if let Ok(permit) = rig.acquire(ms) {
                        if permit.is_probe() {
                            if permit.generation != generation {
                                slots.clear();
                                generation = permit.generation;
                            }
                            slots.insert(id);
                            prop_assert!(slots.len() <= 3, "{} probes", slots.len());
                        }
                        permits.push((id, permit));
                    }
                }
                Step::Success(index, _) => {
                    if let Some((_, permit)) = pick(&mut permits, index) {
                        rig.success(ms, permit, FAST);
                    }
                }
                Step::Failure(index, _) => {
                    if let Some((_, permit)) = pick(&mut permits, index) {
                        rig.failure(ms, permit);
                    }
                }
                Step::Ignore(index) => {
                    if let Some((id, permit)) = pick(&mut permits, index) {
                        rig.ignore(ms, permit);
                        slots.remove(&id);
                    }
                }
                Step::Lose(index) => drop(pick(&mut permits, index)),
                Step::Slow(index) => {
                    let count = permits.len().max(1);
                    if let Some((_, permit)) = permits.get_mut(index % count) {
                        rig.slow(ms, permit);
                    }
                }
                Step::Unreachable => drop(rig.unreachable(ms)),
                Step::Timeout => drop(rig.timeout(ms)),
            }
        }
    }
}
