//! `seawall demo`: the same storm met by a plain client and by a gateway, side by side.
//!
//! Two loads of the same schedule run at the same time, each against an upstream of its own. One
//! goes through `seawall run` with nothing configured but the upstream's address; the other is a
//! client as most are written: three attempts, a fixed delay, a timeout. For twelve seconds both
//! upstreams answer 503 to everything. Everything is measured where it cannot be embellished: at
//! the upstreams, and from the moment each call was due.
//!
//! The upstreams are chosen so that retries cost something, as they do where it matters: an
//! attempt takes a slot for 40 ms whether it ends in 200 or in 503 (what fails lies below it), and
//! work goes on for callers that have left. 16 slots serve 400/s, a third more than the load. If a
//! 503 cost nothing, three attempts would cost nothing either, and the plain client would be back
//! the moment the storm ends.
//!
//! | | value |
//! |---|---|
//! | load | 300 GET/s, evenly spaced, patience 3.5 s |
//! | acts | 8 s healthy, 12 s of 503, 14 s healthy |
//! | upstream | 16 slots of 40 ms, queue 1,200 (3 s) |
//! | plain client | 3 attempts of at most 1 s, 100 ms apart |

mod gateway;
mod load;
mod screen;
mod upstream;
mod verdict;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

pub use gateway::GatewayProcess;
pub use load::{
    Answer, Call, Client, Failure, Figures, Ledger, Load, LoadOptions, PlainRetry, Protocol,
    Spacing, get,
};
pub use upstream::{
    Arrival, Attempts, Behaviour, BodySeen, Capacity, Ending, Journal, Latency, Upstream,
};
pub use verdict::{ActFigures, Bar, SideFigures, Verdict};

use crate::terminal::{self, wants_colour};

use screen::{Screen, Second};

/// Runs the demo against `seawall`, a path to this program, and shows it on standard output: in
/// place on a terminal, as plain lines elsewhere, without colours where `NO_COLOR` is set.
///
/// # Errors
/// If it could not be run to its end; a missed bar is no error but a [`Verdict`].
pub fn demo(seawall: PathBuf) -> anyhow::Result<Verdict> {
    let stdout = io::stdout();
    let live = stdout.is_terminal();
    let colour = wants_colour(&stdout);
    let screen = Screen::new(stdout, Plan::STANDARD, live, colour);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        tokio::select! {
            verdict = play(Plan::STANDARD, seawall, screen) => verdict,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

/// The figures of a demo.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Calls per second to each side.
    rate: u32,
    /// Length of each act, in whole seconds.
    acts: [Duration; 3],
    /// How long a caller waits.
    patience: Duration,
    /// What the plain client does.
    retry: PlainRetry,
    /// What each upstream can do.
    capacity: Capacity,
    /// How long it takes it.
    service: Duration,
}

impl Plan {
    const STANDARD: Self = Self {
        rate: 300,
        acts: [Duration::from_secs(8), Duration::from_secs(12), Duration::from_secs(14)],
        patience: Duration::from_millis(3500),
        retry: PlainRetry {
            max_attempts: 3,
            delay: Duration::from_millis(100),
            timeout: Duration::from_secs(1),
        },
        capacity: Capacity { slots: 16, queue: 1200 },
        service: Duration::from_millis(40),
    };

    /// Seconds of the whole.
    fn seconds(&self) -> usize {
        (0..3).map(|act| self.act_seconds(act)).sum()
    }

    /// Seconds of an act.
    fn act_seconds(&self, act: usize) -> usize {
        usize::try_from(self.acts[act].as_secs()).unwrap_or(usize::MAX)
    }

    /// The act in which the second numbered from 0 lies.
    fn act_of(&self, second: usize) -> usize {
        let first = self.act_seconds(0);
        let second_act = first + self.act_seconds(1);
        usize::from(second >= first) + usize::from(second >= second_act)
    }

    /// Where the acts begin, and where the last ends, if the first call is due at `begin`: half a
    /// gap before a call, so that no call lies on the line.
    fn lines(&self, begin: Timestamp) -> [Timestamp; 4] {
        let half_gap = Duration::from_secs(1) / self.rate / 2;
        let mut line = begin.before(half_gap);
        let mut lines = [line; 4];
        for (act, length) in self.acts.iter().enumerate() {
            line = line.after(*length);
            lines[act + 1] = line;
        }
        lines
    }
}

/// One side of the demo: a load and the upstream its calls end at.
struct Side {
    upstream: Upstream,
    load: Load,
}

impl Side {
    fn second(&self, from: Timestamp, to: Timestamp) -> Second {
        Second {
            good: self.load.good_answers(from, to),
            attempts: self.upstream.journal().attempts(from, to).all,
        }
    }

    async fn finish(self, lines: [Timestamp; 4]) -> SideFigures {
        let ledger = self.load.stop().await;
        let mut figures = SideFigures {
            acts: [ActFigures::default(); 3],
            recovered: ledger.recovered(lines[2], lines[3]),
        };
        for (act, figures) in figures.acts.iter_mut().enumerate() {
            let (from, to) = (lines[act], lines[act + 1]);
            let calls = ledger.within(from, to);
            *figures = ActFigures {
                sent: calls.sent,
                good: calls.good,
                attempts: self.upstream.journal().attempts(from, to),
            };
        }
        figures
    }
}

async fn play<W: io::Write>(
    plan: Plan,
    seawall: PathBuf,
    mut screen: Screen<W>,
) -> anyhow::Result<Verdict> {
    let clock = Clock::new();
    let behind = Upstream::start_with(clock, Some(plan.capacity)).await?;
    let bare = Upstream::start_with(clock, Some(plan.capacity)).await?;
    let mut command = Command::new(seawall);
    command.args(["run", "--upstream", &behind.url()]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut gateway = GatewayProcess::start(clock, command).await?;
    screen.open()?;

    let begin = clock.now().after(LEAD);
    let lines = plan.lines(begin);
    storm(&behind, plan, lines);
    storm(&bare, plan, lines);
    let options = LoadOptions::new(plan.rate, plan.patience);
    let protected = Client::new(gateway.address(), Protocol::Http1);
    let plain = Client::new(bare.address(), Protocol::Http1);
    let sides = [
        Side {
            load: Load::start(clock, begin, plain, options.retrying(plan.retry), quote),
            upstream: bare,
        },
        Side { load: Load::start(clock, begin, protected, options, quote), upstream: behind },
    ];
    let mut history = Vec::new();
    let mut from = lines[0];
    while from < lines[3] {
        let to = from.after(Duration::from_secs(1));
        tokio::time::sleep_until(clock.instant(to)).await;
        history.push([sides[0].second(from, to), sides[1].second(from, to)]);
        screen.second(&history, terminal::size(&io::stdout()))?;
        from = to;
    }

    let [plain, protected] = sides;
    let (plain, protected) = tokio::join!(plain.finish(lines), protected.finish(lines));
    let verdict = Verdict { plain, protected };
    screen.close(&verdict)?;
    gateway.terminate();
    // It drains in its own time; nobody is connected, so a moment is enough for most of it.
    let _ = gateway.wait(Duration::from_millis(100)).await;
    Ok(verdict)
}

/// 503 to what arrives in the second act, 200 to everything else, each after the service time.
fn storm(upstream: &Upstream, plan: Plan, lines: [Timestamp; 4]) {
    upstream.script(move |arrival| {
        let status = if (lines[1]..lines[2]).contains(&arrival.at) { 503 } else { 200 };
        Behaviour::status(status).after(plan.service)
    });
}

/// Every call has a path of its own, so that the upstream can tell attempts from calls.
fn quote(number: u64) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    get(&format!("/quotes?call={number}"))
}

/// Between the start and the first call.
const LEAD: Duration = Duration::from_millis(200);

/// Waits in a test until something holds, for a while.
#[cfg(test)]
async fn until(holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.expect("it never came to hold");
}
