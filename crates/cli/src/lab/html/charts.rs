//! The plots of a report: what was asked of the servers and what came of it, and how long it took.

use seawall_lab::{Course, Heat, Over, Second};
use seawall_policy::Timestamp;

use crate::lab::svg::{Anchor, Svg, count, number, ticks};

/// What the plots of one case have in common, so that its arms can be compared at a glance.
pub(super) struct Scale {
    /// Seconds.
    length: f64,
    /// Calls or attempts a second.
    most: Vec<f64>,
    /// Steps of time in which anything was answered.
    steps: std::ops::RangeInclusive<usize>,
    /// The most answers of a cell of the heat map.
    warmest: u64,
    /// Seconds that are drawn as one.
    bin: usize,
}

/// A line of the plot of traffic: its class, its name, and which number it is.
type Line = (&'static str, &'static str, fn(&Second) -> u64);

/// In the order they are drawn in, the last on top.
pub(super) const LINES: [Line; 4] = [
    ("good", "goodput", |second| second.good),
    ("attempts", "attempts", |second| second.attempts),
    ("arriving", "arriving", |second| second.arrived),
    ("offered", "offered", |second| second.offered),
];

impl Scale {
    pub(super) fn of(courses: &[&Course]) -> Self {
        let length = courses.iter().map(|course| course.seconds.len()).max().unwrap_or(0);
        let bin = length.div_ceil(MOST_COLUMNS).max(1);
        let seconds = courses.iter().flat_map(|course| bins(&course.seconds, course.runs, bin));
        let tops = seconds.flat_map(|bin| LINES.map(|(.., of)| of(&bin.most) as f64 / bin.seconds));
        let most = tops.fold(0.0, f64::max);
        let cells = courses.iter().map(|course| cells(&course.heat, bin));
        let (mut low, mut high, mut warmest) = (Heat::STEPS, 0, 0);
        for column in cells.flatten() {
            for (step, count) in column.iter().enumerate().filter(|(_, count)| **count > 0) {
                (low, high, warmest) = (low.min(step), high.max(step), warmest.max(*count));
            }
        }
        Self { length: length as f64, most: ticks(most, 4), steps: low..=high, warmest, bin }
    }

    /// Whether there is anything to plot.
    pub(super) fn has_seconds(&self) -> bool {
        self.length > 0.0
    }

    /// Whether anything was answered.
    pub(super) fn has_answers(&self) -> bool {
        self.warmest > 0
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + (second / self.length).clamp(0.0, 1.0) * WIDTH
    }
}

/// Seconds that are drawn as one.
struct Bin {
    from: usize,
    seconds: f64,
    /// Means over the runs, and the least and the most of any run; sums of the bin's seconds.
    mean: [f64; 4],
    least: Second,
    most: Second,
}

fn bins(seconds: &[Over], runs: u64, bin: usize) -> impl Iterator<Item = Bin> {
    seconds.chunks(bin).enumerate().map(move |(place, chunk)| {
        let sum = |of: fn(&Over) -> Second| {
            chunk.iter().map(of).fold(Second::default(), |a, b| a.with(b, |a, b| a + b))
        };
        let all = sum(|over| over.sum);
        Bin {
            from: place * bin,
            seconds: chunk.len() as f64,
            mean: LINES.map(|(.., of)| of(&all) as f64 / runs.max(1) as f64),
            least: sum(|over| over.least),
            most: sum(|over| over.most),
        }
    })
}

/// The heat by the same bins.
fn cells(heat: &Heat, bin: usize) -> Vec<[u64; Heat::STEPS]> {
    let sum = |chunk: &[[u32; Heat::STEPS]]| {
        let mut sum = [0; Heat::STEPS];
        for second in chunk {
            sum.iter_mut().zip(second).for_each(|(sum, count)| *sum += u64::from(*count));
        }
        sum
    };
    heat.seconds().chunks(bin).map(sum).collect()
}

/// Offered, attempts, arriving and goodput, a second, under the bands of the faults.
pub(super) fn traffic(course: &Course, scale: &Scale) -> String {
    const HEIGHT: f64 = 132.0;
    let said = format!("Calls and attempts a second, {}", course.arm);
    let mut svg = Svg::new(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, &said);
    let top = scale.most.last().copied().unwrap_or(1.0);
    let y = |value: f64| TOP + HEIGHT - (value / top).clamp(0.0, 1.0) * HEIGHT;
    bands(&mut svg, course, scale, HEIGHT);
    for tick in &scale.most {
        svg.line("grid", [(LEFT, y(*tick)), (LEFT + WIDTH, y(*tick))]);
        svg.text("axis", (LEFT - 6.0, y(*tick) + 3.5), Anchor::End, &count(*tick));
    }
    let bins: Vec<_> = bins(&course.seconds, course.runs, scale.bin).collect();
    // Each value from the begin to the end of its bin: steps, as they were counted.
    let steps = |of: &dyn Fn(&Bin) -> f64| -> Vec<(f64, f64)> {
        let point = |bin: &Bin| {
            let (from, value) = (bin.from as f64, y(of(bin) / bin.seconds));
            [(scale.x(from), value), (scale.x(from + bin.seconds), value)]
        };
        bins.iter().flat_map(point).collect()
    };
    if course.runs > 1 {
        for (class, _, of) in LINES {
            let mut around = steps(&|bin| of(&bin.most) as f64);
            around.extend(steps(&|bin| of(&bin.least) as f64).into_iter().rev());
            svg.line(&format!("{class} range"), around);
        }
    }
    for (place, (class, ..)) in LINES.iter().enumerate() {
        svg.line(&format!("{class} line"), steps(&|bin| bin.mean[place]));
    }
    seconds(&mut svg, scale, HEIGHT);
    svg.done()
}

/// How many answers took how long, second by second.
pub(super) fn heat(course: &Course, scale: &Scale) -> String {
    const ROW: f64 = 7.0;
    let (low, high) = (*scale.steps.start(), *scale.steps.end());
    // A doubling at least, so that there is a scale to read.
    let high = high.max(low + 7);
    let height = (high - low + 1) as f64 * ROW;
    let said = format!("How long answers took, second by second, {}", course.arm);
    let mut svg = Svg::new(LEFT + WIDTH + RIGHT, TOP + height + BOTTOM, &said);
    bands(&mut svg, course, scale, height);
    let y = |step: usize| TOP + height - (step - low) as f64 * ROW;
    let sparse = if high - low > 15 { 3 } else { 1 };
    for (micros, text) in TIMES.iter().step_by(sparse) {
        let Some(at) = place_of(*micros, low, high) else { continue };
        let at = TOP + height - at * ROW;
        svg.line("grid", [(LEFT, at), (LEFT + WIDTH, at)]);
        svg.text("axis", (LEFT - 6.0, at + 3.5), Anchor::End, text);
    }
    let cells = cells(&course.heat, scale.bin);
    let mut levels = vec![String::new(); LEVELS];
    for (column, cell) in cells.iter().enumerate() {
        let from = scale.x((column * scale.bin) as f64);
        let width = scale.x(((column + 1) * scale.bin) as f64) - from;
        for (step, count) in cell.iter().enumerate().take(high + 1).skip(low) {
            if let Some(level) = level(*count, scale.warmest) {
                levels[level].push_str(&format!(
                    "M{} {}h{}v-{}h-{}z",
                    number(from),
                    number(y(step)),
                    number(width),
                    number(ROW),
                    number(width),
                ));
            }
        }
    }
    for (level, d) in levels.iter().enumerate() {
        svg.path(&format!("heat h{level}"), d);
    }
    seconds(&mut svg, scale, height);
    svg.done()
}

/// How many steps above the first one a time lies, if it is on the scale.
fn place_of(micros: f64, low: usize, high: usize) -> Option<f64> {
    let bound = |step| Heat::least(step).as_secs_f64() * 1e6;
    (low..=high).find_map(|step| {
        let (from, to) = (bound(step), bound(step + 1));
        let is_within = (from..to).contains(&micros);
        is_within.then(|| (step - low) as f64 + (micros - from) / (to - from))
    })
}

/// The colour of a cell: by the logarithm of its count, as few answers matter as well.
fn level(count: u64, warmest: u64) -> Option<usize> {
    let bits = |count: u64| (count + 1).ilog2() as usize;
    (count > 0).then(|| ((bits(count) - 1) * LEVELS / bits(warmest).max(1)).min(LEVELS - 1))
}

/// What goes wrong, as bands behind the plot with their names above.
fn bands(svg: &mut Svg, course: &Course, scale: &Scale, height: f64) {
    let second = |at: Timestamp| at.since(Timestamp::ZERO).as_secs_f64();
    let mut named: Vec<(f64, f64, String)> = Vec::new();
    for fault in &course.faults {
        let what = course.said(fault);
        let (from, until) = (scale.x(second(fault.from())), scale.x(second(fault.until())));
        match named.iter_mut().find(|(a, b, _)| (*a - from).abs() + (*b - until).abs() < 0.5) {
            Some((.., said)) if said.contains(&what) => {}
            Some((.., said)) => *said = format!("{said}, {what}"),
            None => named.push((from, until, what)),
        }
    }
    let mut free = LEFT;
    for (from, until, said) in named {
        svg.rect("band", [from, TOP, (until - from).max(1.0), height]);
        let width = said.chars().count() as f64 * LETTER;
        let at = from.min(LEFT + WIDTH - width).max(LEFT);
        // Where there is no room for a name, the band is there without.
        if at >= free && width <= WIDTH {
            svg.text("fault", (at, TOP - 5.0), Anchor::Start, &said);
            free = at + width + LETTER;
        }
    }
}

/// The axis of time.
fn seconds(svg: &mut Svg, scale: &Scale, height: f64) {
    let y = TOP + height + 14.0;
    let (unit, each) = if scale.length >= 600.0 { ("min", 60.0) } else { ("s", 1.0) };
    for tick in ticks(scale.length / each, 6) {
        let x = scale.x(tick * each);
        if tick * each < scale.length * 0.93 {
            svg.text("axis", (x, y), Anchor::Middle, &count(tick));
            svg.line("grid", [(x, TOP + height), (x, TOP + height + 3.0)]);
        }
    }
    svg.line("base", [(LEFT, TOP + height), (LEFT + WIDTH, TOP + height)]);
    svg.text("axis", (LEFT + WIDTH, y), Anchor::End, unit);
}

/// Microseconds, and how they are written beside the heat map.
const TIMES: [(f64, &str); 18] = [
    (1e2, "0.1 ms"),
    (2e2, "0.2 ms"),
    (5e2, "0.5 ms"),
    (1e3, "1 ms"),
    (2e3, "2 ms"),
    (5e3, "5 ms"),
    (1e4, "10 ms"),
    (2e4, "20 ms"),
    (5e4, "50 ms"),
    (1e5, "0.1 s"),
    (2e5, "0.2 s"),
    (5e5, "0.5 s"),
    (1e6, "1 s"),
    (2e6, "2 s"),
    (5e6, "5 s"),
    (1e7, "10 s"),
    (2e7, "20 s"),
    (5e7, "50 s"),
];
/// In the units of the pictures, of which one is about a pixel.
const LEFT: f64 = 44.0;
const WIDTH: f64 = 308.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 20.0;
/// About a letter of a band's name.
const LETTER: f64 = 6.0;
/// Columns of a plot. Source: own choice (two units each).
const MOST_COLUMNS: usize = 154;
/// Colours of the heat map.
pub(super) const LEVELS: usize = 6;
