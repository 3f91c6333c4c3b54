//! Decides how busy a dependency is, from how long calls take when many are in flight.
//!
//! A limit of 1,024 calls says nothing about servers that are full at 8, and nobody tells a caller
//! how many that is. But a full server shows: calls that find many others in flight take longer
//! than calls that find few. Where they do not, there is no queue to be made longer, and nothing is
//! said. Where they do, the busiest quarter shows what the dependency can do, by Little's law,
//! and the rate of calls shows how much of that is used:
//!
//! ```text
//! each call:    N in flight when it began, itself included, and T, the time it took
//! top, low:     the quarter of the calls with the highest N, and the half with the lowest
//! queueing:     mean T of top ≥ 5/4 · mean T of low, and their N are apart
//! utilisation = 10/9 · calls per second / (mean N of top / mean T of top)
//! ```
//!
//! For one FIFO server that is exact but for the 10/9: a call that finds N − 1 others takes N
//! service times. Measured over 7.5 s at 85 % of two such servers with exponential service, one
//! estimate in twenty is below 76 %: so a tenth is added, and it errs upwards. It asks
//! nothing of the arrivals: calls that come in bursts and are served at once take as long as single
//! ones. Times are cut at the recent 98th percentile, so that a rare slow call weighs no more than
//! its rank, and so that a call that a hedge has overtaken, of which only "at least this slow" is
//! known, weighs the same as if it had been waited for.
//!
//! N is counted in steps of a quarter of an octave, 8 and below one by one. Counts are halved every
//! 5 s once they are 10 s old, and dropped at 20 s.
//!
//! Known bad cases: servers with very many workers hardly queue below 95 %, which is seen late;
//! callers that always keep the same number in flight show no difference, and nothing is said.
//! There the share of the bulkhead's limit has to do.

use core::time::Duration;

use crate::ratio::Ratio;
use crate::time::{Timestamp, nanos};

/// How busy a dependency is. 1,880 bytes, never more; a record is O(1), a question reads the
/// counts once.
#[derive(Clone, Debug)]
pub(crate) struct Utilisation {
    levels: [Level; LEVELS],
    /// When the counts began, as if their rate had always been the same.
    since: Timestamp,
}

/// Calls that found about the same number in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    calls: u64,
    in_flight: u64,
    micros: u64,
}

/// What is known of a dependency that queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// Of what it can do.
    pub(crate) utilisation: Ratio,
    /// A tenth of the calls begin with this many in flight, or more.
    pub(crate) tenth: u32,
}

impl Utilisation {
    pub(crate) const fn new(now: Timestamp) -> Self {
        Self { levels: [Level::EMPTY; LEVELS], since: now }
    }

    /// Records a call that began with `in_flight` in flight, itself included, and took `took`.
    pub(crate) fn record(&mut self, now: Timestamp, in_flight: u32, took: Duration) {
        let age = now.since(self.since);
        if age >= FORGOTTEN {
            *self = Self::new(now);
        } else if age >= OLD {
            self.levels.iter_mut().for_each(Level::halve);
            self.since = now.before(age / 2);
        }
        self.levels[level_of(in_flight)].add(in_flight, nanos(took) / 1000);
    }

    /// How busy it is; nothing where too little is known, or where nothing queues.
    pub(crate) fn busy(&self, now: Timestamp) -> Option<Busy> {
        let age = now.since(self.since);
        let all = self.levels.iter().fold(Level::EMPTY, Level::plus);
        if all.calls < CALLS_MIN || age >= FORGOTTEN {
            return None;
        }
        let (low, low_end) = gather(self.levels.iter().enumerate(), all.calls / 2);
        let (top, top_end) = gather(self.levels.iter().enumerate().rev(), all.calls / 4);
        let (_, tenth) = gather(self.levels.iter().enumerate().rev(), all.calls / 10);
        let slower = u128::from(top.micros) * u128::from(low.calls) * 4
            >= u128::from(low.micros) * u128::from(top.calls) * 5;
        if low_end >= top_end || !slower {
            return None;
        }
        let used = u128::from(all.calls) * u128::from(top.micros) * u128::from(Ratio::SCALE) * 10;
        let able = u128::from(top.in_flight) * age.as_micros() * 9;
        let millionths = u32::try_from(used / able.max(1)).unwrap_or(u32::MAX);
        Some(Busy { utilisation: Ratio::from_millionths(millionths), tenth: least_of(tenth) })
    }
}

impl Level {
    const EMPTY: Self = Self { calls: 0, in_flight: 0, micros: 0 };

    const fn add(&mut self, in_flight: u32, micros: u64) {
        self.calls += 1;
        self.in_flight += in_flight as u64;
        self.micros = self.micros.saturating_add(micros);
    }

    const fn plus(self, other: &Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            in_flight: self.in_flight + other.in_flight,
            micros: self.micros.saturating_add(other.micros),
        }
    }

    const fn halve(&mut self) {
        self.calls /= 2;
        self.in_flight /= 2;
        self.micros /= 2;
    }
}

/// Adds levels up until at least `share` calls are in the sum; the sum and the last level in it.
fn gather<'a>(levels: impl Iterator<Item = (usize, &'a Level)>, share: u64) -> (Level, usize) {
    let (mut sum, mut last) = (Level::EMPTY, 0);
    for (index, level) in levels {
        (sum, last) = (sum.plus(level), index);
        if sum.calls >= share.max(1) {
            break;
        }
    }
    (sum, last)
}

/// The level of `in_flight`: up to 8 its own, then four an octave, the last without an upper end.
fn level_of(in_flight: u32) -> usize {
    let in_flight = in_flight.max(1);
    if in_flight <= SINGLE {
        return (in_flight - 1) as usize;
    }
    let octave = in_flight.ilog2();
    let quarter = (in_flight >> (octave - 2)) & 3;
    let level = SINGLE + (octave - 3) * 4 + quarter;
    (level as usize - 1).min(LEVELS - 1)
}

/// The least `in_flight` of a level.
fn least_of(level: usize) -> u32 {
    let level = u32::try_from(level).unwrap_or(u32::MAX - 1) + 1;
    if level <= SINGLE {
        return level;
    }
    let above = level - SINGLE;
    (4 + above % 4) << (above / 4 + 1)
}

/// Calls without which nothing is said. Source: seawall-defaults.
const CALLS_MIN: u64 = 200;
/// Age at which counts are halved. Source: seawall-defaults.
const OLD: Duration = Duration::from_secs(10);
/// Age at which they are dropped. Source: seawall-defaults.
const FORGOTTEN: Duration = Duration::from_secs(20);
/// Numbers in flight that have a level of their own.
const SINGLE: u32 = 8;
/// Up to a million in flight.
const LEVELS: usize = SINGLE as usize + 17 * 4;

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use super::*;
    use crate::rng::{Rng, SplitMix64};

    fn exponential(rng: &mut SplitMix64, mean: f64) -> f64 {
        let unit = (rng.below(1 << 53) as f64 + 1.0) / (1_u64 << 53) as f64;
        -mean * unit.ln()
    }

    /// Plays Poisson arrivals at `load` of `servers` behind one queue, with exponential service of
    /// 10 ms (1 % of the calls another 500 ms outside of the servers), for 60 s or 20,000 calls.
    fn play(servers: usize, load: f64, seed: u64) -> Option<Busy> {
        let mut rng = SplitMix64::new(seed);
        let gap = 10.0 / (load * servers as f64);
        let mut free: Vec<f64> = (0..servers).map(|_| 0.0).collect();
        let mut ends: Vec<f64> = Vec::new();
        let mut records: Vec<(f64, u32, f64)> = Vec::new();
        let mut now = 0.0;
        while now < 60_000.0 && records.len() < 20_000 {
            now += exponential(&mut rng, gap);
            ends.retain(|end| *end > now);
            let first = (0..servers).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
            let served = free[first].max(now) + exponential(&mut rng, 10.0);
            free[first] = served;
            let stalls = if rng.below(100) == 0 { 500.0 } else { 0.0 };
            let end = served + stalls;
            ends.push(end);
            records.push((end, u32::try_from(ends.len()).unwrap(), end - now));
        }
        let mut times: Vec<f64> = records.iter().map(|record| record.2).collect();
        times.sort_by(f64::total_cmp);
        let cut = times[times.len() * 98 / 100];
        records.sort_by(|a, b| a.0.total_cmp(&b.0));
        let at = |millis: f64| Timestamp::ZERO.after(Duration::from_secs_f64(millis / 1e3));
        let mut utilisation = Utilisation::new(Timestamp::ZERO);
        for (end, in_flight, took) in records.iter().filter(|record| record.0 < now) {
            utilisation.record(
                at(*end),
                *in_flight,
                Duration::from_secs_f64(took.min(cut) / 1000.0),
            );
        }
        utilisation.busy(at(now))
    }

    #[test]
    fn what_queues_shows_how_busy_it_is() {
        for servers in [1, 2, 4] {
            for load in [0.6, 0.8, 0.9] {
                let busy = play(servers, load, 5).unwrap();
                let measured = f64::from(busy.utilisation.millionths()) / 1e6;
                let expected = (load - 0.08)..(load * 10.0 / 9.0 + 0.1);
                assert!(expected.contains(&measured), "{servers} at {load}: {measured}");
            }
        }
    }

    #[test]
    fn what_does_not_queue_says_nothing_however_many_are_in_flight() {
        for (servers, load) in [(64, 0.1), (64, 0.5), (1000, 0.3)] {
            let busy = play(servers, load, 9);
            let harmless = |busy: Busy| busy.utilisation < Ratio::from_percent(80);
            assert!(busy.is_none_or(harmless), "{servers} at {load}: {busy:?}");
        }
    }

    #[test]
    fn bursts_that_are_served_at_once_are_no_queue() {
        let mut utilisation = Utilisation::new(Timestamp::ZERO);
        for burst in 0..200 {
            for place in 1..=20 {
                let now = Timestamp::from_millis(burst * 20 + 5);
                utilisation.record(now, place, Duration::from_millis(5));
            }
        }
        assert_eq!(utilisation.busy(Timestamp::from_millis(4_000)), None);
    }

    #[test]
    fn too_few_calls_and_old_ones_say_nothing() {
        let mut utilisation = Utilisation::new(Timestamp::ZERO);
        let mut line = VecDeque::from([1_u32, 2, 3, 4, 5, 6, 7, 8]);
        let mut record = |calls: u64, utilisation: &mut Utilisation| {
            for _ in 0..calls {
                line.rotate_left(1);
                let took = Duration::from_millis(u64::from(line[0]) * 10);
                utilisation.record(Timestamp::from_millis(1_000), line[0], took);
            }
        };
        record(199, &mut utilisation);
        assert_eq!(utilisation.busy(Timestamp::from_millis(2_000)), None);
        record(1, &mut utilisation);
        let busy = utilisation.busy(Timestamp::from_millis(2_000)).unwrap();
        // 100 calls a second through a server that takes 10 ms each.
        assert_eq!(busy.utilisation, Ratio::from_millionths(1_111_111));
        assert_eq!(busy.tenth, 8);
        assert_eq!(utilisation.busy(Timestamp::from_millis(20_000)), None);
    }

    #[test]
    fn a_level_knows_its_least_and_levels_rise() {
        let mut last = 0;
        for in_flight in 1..100_000 {
            let level = level_of(in_flight);
            assert!(level == last || level == last + 1, "{in_flight}");
            assert!(least_of(level) <= in_flight && level_of(least_of(level)) == level);
            last = level;
        }
        assert_eq!(level_of(u32::MAX), LEVELS - 1);
    }
}
