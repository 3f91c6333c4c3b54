//! How the demo looks: one table that redraws itself on a terminal, plain lines in a pipe.

use std::io::{self, Write};

use super::Plan;
use super::verdict::{ACTS, ActFigures, SideFigures, Verdict, seconds};
use crate::terminal::Size;

/// One second of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Second {
    /// Good answers that came.
    pub(super) good: u64,
    /// Attempts that arrived at the upstream.
    pub(super) attempts: u64,
}

/// Where the demo is shown. Shows the cursor again when dropped.
pub(super) struct Screen<W: Write> {
    out: W,
    plan: Plan,
    live: bool,
    paint: Paint,
    /// Lines of the table that stands there.
    drawn: usize,
    /// The terminal's size when they were drawn.
    size: Option<Size>,
}

impl<W: Write> Screen<W> {
    /// `live`: the output is a terminal; `colour`: it may be coloured.
    pub(super) fn new(out: W, plan: Plan, live: bool, colour: bool) -> Self {
        Self { out, plan, live, paint: Paint(colour), drawn: 0, size: None }
    }

    /// Says what is about to happen.
    pub(super) fn open(&mut self) -> io::Result<()> {
        self.introduce()?;
        if self.live {
            write!(self.out, "{HIDE_CURSOR}")?;
        } else {
            writeln!(self.out, "{:27}{:>25}{:>25}", "", SIDES[0], SIDES[1])?;
            let columns = format!("{:>11}{:>14}", "good/s", "attempts/s");
            writeln!(self.out, "  {:>4}  {:<19}{columns}{columns}", "s", "act")?;
        }
        self.out.flush()
    }

    fn introduce(&mut self) -> io::Result<()> {
        let Plan { rate, capacity, service, retry, .. } = self.plan;
        let per_second = capacity.slots as f64 / service.as_secs_f64();
        let title = self.paint.bold("seawall demo: one storm, met in two ways at the same time");
        writeln!(self.out, "\n{title}\n")?;
        writeln!(
            self.out,
            "  {rate} GET/s to each side. Each has an upstream of its own that serves \
             {per_second:.0}/s"
        )?;
        writeln!(
            self.out,
            "  ({} at once, {} ms each, a 503 costs as much), queues {}, and cannot tell",
            capacity.slots,
            service.as_millis(),
            capacity.queue
        )?;
        writeln!(
            self.out,
            "  when a caller has left. Plain client: {} attempts of {} s, {} ms apart.\n",
            retry.max_attempts,
            retry.timeout.as_secs(),
            retry.delay.as_millis()
        )
    }

    /// Shows one more second; `history` holds all of both sides: plain, protected. `size` is the
    /// terminal's now, if there is one.
    pub(super) fn second(&mut self, history: &[[Second; 2]], size: Option<Size>) -> io::Result<()> {
        if self.live {
            self.redraw(history, size)?;
        } else if let Some(sides) = history.last() {
            let second = history.len();
            let act = ACTS[self.plan.act_of(second - 1)];
            write!(self.out, "  {second:>4}  {act:<19}")?;
            for side in sides {
                write!(self.out, "{:>11}{:>14}", side.good, side.attempts)?;
            }
            writeln!(self.out)?;
        }
        self.out.flush()
    }

    /// Draws over the table. Where the size has changed the terminal may have broken its lines
    /// anew, so that nobody knows where it begins: everything is drawn again.
    fn redraw(&mut self, history: &[[Second; 2]], size: Option<Size>) -> io::Result<()> {
        if self.drawn > 0 && self.size != size {
            write!(self.out, "{CLEAR_SCREEN}")?;
            self.introduce()?;
        } else if self.drawn > 0 {
            write!(self.out, "\x1b[{}A\r", self.drawn)?;
        }
        let lines = self.table(history);
        self.drawn = lines.len();
        self.size = size;
        // The last column stays free: a full line ends in different places on different terminals.
        let room = size.map_or(usize::MAX, |size| usize::from(size.columns).saturating_sub(1));
        for line in lines {
            writeln!(self.out, "{}{CLEAR_TO_END}", cut(&line, room))?;
        }
        Ok(())
    }

    fn table(&self, history: &[[Second; 2]]) -> Vec<String> {
        let mut lines = vec![self.acts(history.len())];
        let rate = u64::from(self.plan.rate);
        let most = rate * u64::from(self.plan.retry.max_attempts);
        for (side, name) in SIDES.iter().enumerate() {
            let now = history.last().map_or_else(Second::default, |sides| sides[side]);
            lines.push(self.paint.bold(&format!("  {name}")));
            let good = history.iter().map(|sides| {
                let good = sides[side].good;
                self.cell(good, rate, if good * 100 >= rate * 95 { GREEN } else { RED })
            });
            lines.push(self.row("good answers/s", good.collect(), now.good));
            let attempts = history.iter().map(|sides| {
                let attempts = sides[side].attempts;
                let loud = attempts * 100 > rate * 120;
                self.cell(attempts, most, if loud { RED } else { BLUE })
            });
            lines.push(self.row("attempts/s upstream", attempts.collect(), now.attempts));
        }
        lines
    }

    /// The acts as a ruler over the seconds; the current one stands out.
    fn acts(&self, second: usize) -> String {
        let current = self.plan.act_of(second.saturating_sub(1));
        let mut ruler = format!("  {:23}", "");
        for (act, name) in ["healthy", "all 503", "healthy"].iter().enumerate() {
            let width = self.plan.act_seconds(act);
            let cell = format!("{name:<width$}");
            ruler += &if act == current { self.paint.bold(&cell) } else { self.paint.dim(&cell) };
        }
        format!("{ruler}{second:>4} s")
    }

    fn row(&self, name: &str, cells: Vec<String>, now: u64) -> String {
        let rest = self.plan.seconds().saturating_sub(cells.len());
        let cells = cells.concat();
        format!("    {name:<21}{cells}{:rest$}{now:>6}", "")
    }

    fn cell(&self, value: u64, full: u64, colour: &str) -> String {
        let cell = if value == 0 {
            '·'
        } else {
            let eighths = (value * 8).div_ceil(full.max(1)).clamp(1, 8);
            BARS[usize::try_from(eighths - 1).unwrap_or(0)]
        };
        self.paint.with(colour, &cell.to_string())
    }

    /// Shows the verdict.
    pub(super) fn close(&mut self, verdict: &Verdict) -> io::Result<()> {
        writeln!(self.out)?;
        let head: String = ACTS.iter().map(|act| format!("{act:>19}")).collect();
        writeln!(self.out, "  {:<18}{head}{:>12}", "", "recovered")?;
        for (name, side) in SIDES.iter().zip([&verdict.plain, &verdict.protected]) {
            writeln!(self.out, "  {}", self.paint.bold(name))?;
            let goodput = row(side, |act| format!("{:.1} %", act.goodput()));
            writeln!(self.out, "    {:<16}{goodput}{:>12}", "goodput", seconds(side.recovered))?;
            let amplification = row(side, |act| format!("{:.2}", act.attempts.amplification()));
            writeln!(self.out, "    {:<16}{amplification}", "attempts/call")?;
            let attempts = row(side, |act| act.attempts.all.to_string());
            writeln!(self.out, "    {:<16}{attempts}", "attempts")?;
        }
        writeln!(self.out)?;
        for bar in verdict.bars() {
            let (word, colour) = if bar.passed { ("PASS", GREEN) } else { ("FAIL", RED) };
            let word = self.paint.with(colour, word);
            writeln!(self.out, "  {word}  {:<60}{:>10}", bar.claim, bar.measured)?;
        }
        writeln!(self.out)?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        if self.live {
            let _ = write!(self.out, "{SHOW_CURSOR}");
            let _ = self.out.flush();
        }
    }
}

fn row(side: &SideFigures, cell: impl Fn(&ActFigures) -> String) -> String {
    side.acts.iter().map(|act| format!("{:>19}", cell(act))).collect()
}

/// The first `room` characters of `line`, with all of its colours.
fn cut(line: &str, room: usize) -> String {
    let (mut seen, mut in_escape) = (0, false);
    line.chars()
        .filter(|&c| {
            let escape = in_escape || c == '\x1b';
            // A sequence of ours ends with its first letter.
            in_escape = escape && !c.is_ascii_alphabetic();
            seen += usize::from(!escape);
            escape || seen <= room
        })
        .collect()
}

/// Adds colours, or does not.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.with("2", text)
    }
}

const SIDES: [&str; 2] = ["plain client", "behind seawall"];
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const GREEN: &str = "32";
const RED: &str = "31";
const BLUE: &str = "34";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_TO_END: &str = "\x1b[K";
const CLEAR_SCREEN: &str = "\x1b[2J\x1b[H";

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(live: bool, colour: bool, seconds: usize) -> String {
        shown_in(live, colour, seconds, |_| None)
    }

    fn shown_in(
        live: bool,
        colour: bool,
        seconds: usize,
        size: impl Fn(usize) -> Option<Size>,
    ) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, Plan::STANDARD, live, colour);
        let mut history = Vec::new();
        for second in 0..seconds {
            let good = if second < 8 { 300 } else { 0 };
            history.push([Second { good, attempts: 900 }, Second { good, attempts: good }]);
            screen.second(&history, size(second)).unwrap();
        }
        drop(screen);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_pipe_gets_one_plain_line_a_second() {
        let lines = shown(false, false, 9);
        let expected =
            "     9  503 to everything            0           900          0             0";
        assert_eq!(lines.lines().count(), 9);
        assert_eq!(lines.lines().last(), Some(expected));
        assert!(!lines.contains('\x1b'));
    }

    #[test]
    fn a_terminal_gets_one_table_that_goes_back_to_its_own_first_line() {
        let drawn = shown(true, false, 9);
        let last = drawn.rsplit("\x1b[7A\r").next().unwrap();
        assert_eq!(drawn.matches("\x1b[7A\r").count(), 8);
        let mut lines = last.lines().map(|line| line.trim_end_matches(CLEAR_TO_END));
        assert_eq!(
            lines.next().unwrap(),
            format!("{:25}healthy all 503     healthy{:7}   9 s", "", "")
        );
        assert_eq!(lines.next(), Some("  plain client"));
        assert_eq!(
            lines.next().unwrap(),
            format!("    good answers/s       ████████·{:25}     0", "")
        );
        assert_eq!(
            lines.next().unwrap(),
            format!("    attempts/s upstream  █████████{:25}   900", "")
        );
        assert!(last.ends_with(SHOW_CURSOR));
    }

    #[test]
    fn a_table_is_cut_to_the_terminal_and_drawn_anew_when_its_size_changed() {
        let narrow = Size { columns: 30, rows: 24 };
        let wide = Size { columns: 100, rows: 24 };
        let size = |second| Some(if (2..4).contains(&second) { narrow } else { wide });
        let drawn = shown_in(true, true, 6, size);
        let parts: Vec<_> = drawn.split(CLEAR_SCREEN).collect();
        assert_eq!(parts.len(), 3, "once when it shrank, once when it widened");
        for part in &parts {
            assert_eq!(part.matches("\x1b[7A\r").count(), 1, "two seconds each: {part:?}");
        }
        for part in &parts[1..] {
            assert!(part.contains("seawall demo"), "{part:?}");
        }
        let table = parts[1].rsplit("\x1b[7A\r").next().unwrap();
        for line in table.lines() {
            let mut plain = line.to_owned();
            for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[34m"] {
                plain = plain.replace(code, "");
            }
            let plain = plain.trim_end_matches(CLEAR_TO_END);
            assert!(plain.chars().count() <= 29, "{plain:?}");
        }
        assert!(table.contains("\x1b[32m█\x1b[0m"), "{table:?}");
    }

    #[test]
    fn colours_are_added_only_when_asked_for() {
        assert!(!shown(true, false, 9).contains("\x1b[3"));
        assert!(shown(true, true, 9).contains("\x1b[32m█\x1b[0m"));
    }
}
