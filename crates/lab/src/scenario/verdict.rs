//! Runs a scenario, holds what came against its thresholds, and judges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use seawall_policy::ConfigError;

use super::course::{self, Course, Taken};
use super::model::Model;
use super::threshold::{Came, Side, Threshold, give_or_take, shown};
use super::{Cell, Role, Scenario};
use crate::fleet::{Asked, Story};
use crate::seeds::over_seeds;
use crate::stats::Interval;

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Every arm of every case is run with each of these.
    pub seeds: Vec<u64>,
    /// In place of the clients that the file says; a model that has none is as it is.
    pub clients: Option<u32>,
    /// Threads to run on; they change nothing of the outcome.
    pub threads: usize,
}

/// What a scenario came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What is under test holds every threshold, and every control misses its own.
    Pass,
    /// Something under test misses a threshold.
    Fail,
    /// A control holds what it must miss: nothing is shown by the others.
    Invalid,
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Invalid => "invalid",
        }
    }
}

/// What became of an arm at a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Under test, and it holds.
    Held,
    /// Under test, and it does not.
    Missed,
    /// A control that misses it, as it must.
    MissedRightly,
    /// A control that holds it.
    HeldWrongly,
    /// A baseline that holds it, or does not.
    Compared(bool),
}

impl Fate {
    /// In a word or two.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "pass",
            Self::Missed => "FAIL",
            Self::MissedRightly => "fails, as it must",
            Self::HeldWrongly => "INVALID: must fail",
            Self::Compared(true) => "(holds)",
            Self::Compared(false) => "(misses)",
        }
    }
}

/// An arm in a case, held against a threshold.
#[derive(Clone, Debug)]
pub struct Row {
    /// The case; empty if the scenario has only one.
    pub case: String,
    /// The arm.
    pub arm: String,
    /// What the arm is there for.
    pub role: Role,
    /// The threshold's id.
    pub threshold: String,
    /// What it asks for, in words.
    pub asks: String,
    /// What was measured, over the seeds.
    pub measured: Interval,
    /// The mean, as a person reads it.
    pub shown: String,
    /// Half of its 95 % interval likewise; empty for one seed.
    pub give_or_take: String,
    /// What it had to be; the mean over the seeds where it is another arm's.
    pub limit: f64,
    /// The same as a person reads it, with its side.
    pub limit_shown: String,
    /// Whether it must not be more than that, rather than not less.
    pub wants_less: bool,
    /// How far it is on the right side, as a share of the limit: of the seed that is worst, or of
    /// the mean if that is judged.
    pub margin: f64,
    /// That seed.
    pub seed: u64,
    /// Each seed, in the plan's order.
    pub seeds: Vec<Seeded>,
    /// Whether the mean over the seeds was judged, and not each.
    pub is_of_mean: bool,
    /// Seeds that miss it.
    pub misses: usize,
    /// What became of it.
    pub fate: Fate,
}

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct Seeded {
    /// Which.
    pub seed: u64,
    /// What was measured, as a person reads it.
    pub shown: String,
    /// How far it is on the right side, as a share of the limit; no number counts as missed.
    pub margin: f64,
}

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All of it in a word.
    pub verdict: Verdict,
    /// Case by case, arm by arm, threshold by threshold.
    pub rows: Vec<Row>,
    /// Case by case, arm by arm.
    pub courses: Vec<Course>,
    /// Runs that were made.
    pub runs: usize,
    /// Events that were simulated.
    pub events: u64,
    /// A digest of every event of every run.
    pub digest: u64,
}

impl Scenario {
    /// How many runs a plan amounts to.
    #[must_use]
    pub fn runs(&self, plan: &Plan) -> usize {
        self.cells.len() * plan.seeds.len()
    }

    /// Runs it. Now and then `on_part` is told how many runs there have been, with the parts of
    /// those under way.
    ///
    /// # Errors
    /// No seeds, or a number of clients that the file's fleet cannot have.
    pub fn run(&self, plan: &Plan, on_part: impl Fn(f64) + Sync) -> Result<Outcome, ConfigError> {
        if plan.seeds.is_empty() {
            return Err(ConfigError::new("seeds", 0, "at least 1"));
        }
        let models = self.cells.iter().map(|cell| model(cell, plan));
        let models = models.collect::<Result<Vec<_>, _>>()?;
        let taken: Vec<_> = models.iter().map(|_| Mutex::new(Taken::default())).collect();
        let parts = AtomicU64::new(0);
        let places: Vec<u64> = (0..).take(self.runs(plan)).collect();
        let runs = over_seeds(&places, plan.threads, |place| {
            let place = usize::try_from(place).unwrap_or(0);
            let (cell, seed) = (place / plan.seeds.len(), plan.seeds[place % plan.seeds.len()]);
            let on_part = |more: u64| {
                let all = parts.fetch_add(more, Ordering::Relaxed) + more;
                on_part(all as f64 / f64::from(PARTS));
            };
            let came = match &models[cell] {
                Model::Fleet(fleet) => {
                    let report = fleet.watched(seed, PARTS, || on_part(1))?;
                    Came::Fleet(Box::new(report))
                }
                Model::Setup(_, setup) => {
                    let numbers = setup.run(seed);
                    on_part(PARTS.into());
                    Came::Numbers(numbers)
                }
            };
            taken[cell].lock().unwrap_or_else(PoisonError::into_inner).take(&came);
            Ok(Run::of(&came, &self.thresholds))
        });
        let runs = runs.into_iter().collect::<Result<Vec<_>, ConfigError>>()?;
        let taken = taken.into_iter().map(|it| it.into_inner().unwrap_or_default()).collect();
        Ok(self.judge(plan, &runs, taken, &models))
    }

    /// What happened in the one run that is left of it (see [`only`](Self::only)) with the first
    /// of the plan's seeds, so many lines at most.
    ///
    /// # Errors
    /// More than one case or arm, no seed, a model of which nothing can be told, or as
    /// [`run`](Self::run).
    pub fn tell(&self, plan: &Plan, asked: Asked, most: usize) -> Result<Story, ConfigError> {
        let mut cells = self.cells.iter().filter(|cell| cell.is_asked);
        let (Some(cell), [seed]) = (cells.next(), &plan.seeds[..]) else {
            return Err(ConfigError::new("seeds", plan.seeds.len(), "one, as a run is told"));
        };
        if let Some(other) = cells.next() {
            let (field, name) = match other.case == cell.case {
                true => ("arm", "several"),
                false => ("case", "several"),
            };
            return Err(ConfigError::new(field, name, "one, as a run is told"));
        }
        match model(cell, plan)? {
            Model::Fleet(fleet) => fleet.tell(*seed, asked, most),
            Model::Setup(kind, _) => {
                Err(ConfigError::new("scenario", kind.section, "a fleet, whose calls can be told"))
            }
        }
    }

    fn judge(&self, plan: &Plan, runs: &[Run], taken: Vec<Taken>, models: &[Model]) -> Outcome {
        let of_cell = |place: usize| &runs[place * plan.seeds.len()..][..plan.seeds.len()];
        let mut rows = Vec::new();
        for (place, cell) in self.cells.iter().enumerate().filter(|(_, cell)| cell.is_asked) {
            for (number, threshold) in self.thresholds.iter().enumerate() {
                if !self.applies(threshold, cell) {
                    continue;
                }
                let is_other = |other: &Cell| {
                    let name = &self.arms[other.arm].name;
                    other.case == cell.case && Some(name) == threshold.of.as_ref()
                };
                let of = |place: usize| -> Vec<f64> {
                    of_cell(place).iter().map(|run| run.numbers[number]).collect()
                };
                let other = self.cells.iter().position(is_other).map(of);
                rows.push(self.row(cell, threshold, &of(place), other, &plan.seeds));
            }
        }
        let any = |fate| rows.iter().any(|row: &Row| row.fate == fate);
        let verdict = match (any(Fate::HeldWrongly), any(Fate::Missed)) {
            (true, _) => Verdict::Invalid,
            (false, true) => Verdict::Fail,
            (false, false) => Verdict::Pass,
        };
        let courses = taken.into_iter().zip(&self.cells).enumerate().map(|(place, (it, cell))| {
            let arm = &self.arms[cell.arm];
            let values: Vec<_> = of_cell(place).iter().map(|run| &run.numbers[..]).collect();
            let numbers =
                course::numbers(&self.thresholds, models[place].usual(), &cell.case, &values);
            it.course((&cell.case, &arm.name, arm.role), models[place].faults(), numbers)
        });
        let courses = courses.collect();
        let (events, digest) = runs
            .iter()
            .fold((0, 0_u64), |sum, run| (sum.0 + run.events, sum.1.rotate_left(7) ^ run.digest));
        Outcome { verdict, rows, courses, runs: runs.len(), events, digest }
    }

    fn row(
        &self,
        cell: &Cell,
        threshold: &Threshold,
        numbers: &[f64],
        other: Option<Vec<f64>>,
        seeds: &[u64],
    ) -> Row {
        let limits: Vec<_> = match other {
            None => vec![threshold.limit; numbers.len()],
            Some(other) => other.iter().map(|number| threshold.limit * number).collect(),
        };
        let measured = Interval::of(numbers.iter().copied());
        let limit = Interval::of(limits.iter().copied()).mean;
        let margins = numbers.iter().zip(&limits).map(|(n, limit)| threshold.margin(*n, *limit));
        let margins: Vec<_> = margins.collect();
        // One of no number at all, such as infinite less infinite, counts as missed.
        let misses = margins.iter().filter(|margin| margin.is_nan() || **margin < 0.0).count();
        let worst = margins.iter().zip(seeds).min_by(|a, b| a.0.total_cmp(b.0));
        let (worst, seed) = worst.map_or((0.0, 0), |(margin, seed)| (*margin, *seed));
        let margin = match threshold.is_of_mean {
            true => threshold.margin(measured.mean, limit),
            false => worst,
        };
        let holds = margin >= 0.0;
        // One unlucky seed does not make a control fail.
        let misses_mostly = match threshold.is_of_mean {
            true => !holds,
            false => misses * 2 > numbers.len(),
        };
        let arm = &self.arms[cell.arm];
        let fate = match (arm.role, holds) {
            (Role::Test, true) => Fate::Held,
            (Role::Test, false) => Fate::Missed,
            (Role::Control, _) if misses_mostly => Fate::MissedRightly,
            (Role::Control, _) => Fate::HeldWrongly,
            (Role::Baseline, holds) => Fate::Compared(holds),
        };
        let unit = threshold.metric.unit();
        Row {
            case: cell.case.clone(),
            arm: arm.name.clone(),
            role: arm.role,
            threshold: threshold.id.clone(),
            asks: threshold.said(),
            measured,
            shown: shown(measured.mean, unit),
            give_or_take: give_or_take(measured, unit),
            limit,
            wants_less: threshold.side == Side::AtMost,
            limit_shown: format!("{} {}", threshold.side.sign(), shown(limit, unit)),
            margin,
            seed,
            seeds: numbers
                .iter()
                .zip(&margins)
                .zip(seeds)
                .map(|((number, margin), seed)| Seeded {
                    seed: *seed,
                    shown: shown(*number, unit),
                    margin: *margin,
                })
                .collect(),
            is_of_mean: threshold.is_of_mean,
            misses,
            fate,
        }
    }
}

/// What is kept of one run.
struct Run {
    /// One for each threshold, and then the usual ones.
    numbers: Vec<f64>,
    events: u64,
    digest: u64,
}

impl Run {
    fn of(came: &Came, thresholds: &[Threshold]) -> Self {
        let numbers = thresholds.iter().map(|threshold| threshold.measure(came));
        let numbers = numbers.chain(course::usual(came)).collect();
        let (events, digest) = match came {
            Came::Fleet(report) => (report.events, report.digest),
            Came::Numbers(numbers) => (numbers.events, numbers.digest),
        };
        Self { numbers, events, digest }
    }
}

fn model(cell: &Cell, plan: &Plan) -> Result<Model, ConfigError> {
    plan.clients.map_or_else(|| Ok(cell.model.clone()), |clients| cell.model.with_clients(clients))
}

/// Parts of a run, of equal virtual time. Source: own choice (a lone run of a minute tells how far
/// it is four times a second).
const PARTS: u32 = 256;
