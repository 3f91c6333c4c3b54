//! Short lines on standard error about the gateway itself, for a person.
//!
//! `2026-01-31T23:59:59.123Z WARN breaker opened upstream=bridge endpoint=127.0.0.1:9001`
//!
//! One topic may say ten lines a second; what it says beyond that is left out, and the next line
//! of that topic tells how many were. A list, a line for each of its things, counts as one. Like
//! the access log these lines never hold anything up.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::Timestamp;

use crate::lines::{self, LineWriter};

/// Where lines go. Clones write to the same place.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostics {
    writer: LineWriter,
    clock: Clock,
    coloured: bool,
    spent: Arc<Mutex<[Spent; Topic::COUNT]>>,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// As it should be.
    Info,
    /// Somebody should look.
    Warn,
    /// Something does not work.
    Error,
}

/// What a line is about; each has its own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// Starting and what is bound.
    Start,
    /// Draining and ending.
    Drain,
    /// Breakers that change.
    Breaker,
    /// Endpoints that are ejected, and those that are back.
    Endpoint,
    /// Retries switched on and off, and by whom.
    Retries,
    /// Connections that could not be accepted or served.
    Connection,
    /// Errors of upstreams.
    Upstream,
    /// Certificates: read again, or not usable.
    Tls,
    /// The configuration read again.
    Reload,
    /// Signals that ask for nothing.
    Signal,
    /// Faults of our own.
    Internal,
}

impl Topic {
    const COUNT: usize = Self::Internal as usize + 1;
}

/// What a topic said in its present second.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    since: Timestamp,
    lines: u32,
    suppressed: u64,
}

impl Spent {
    /// Whether a line may be said now, and how many before it were not.
    fn may_say(&mut self, now: Timestamp) -> Option<u64> {
        if now.since(self.since) >= SECOND {
            self.since = now;
            self.lines = 0;
        }
        if self.lines >= LINES_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Diagnostics {
    /// Lines go to standard error, coloured if that is a terminal and `NO_COLOR` is not set.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn stderr(clock: Clock) -> io::Result<Self> {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let coloured = io::stderr().is_terminal() && !plain;
        Self::to(io::stderr(), coloured, clock)
    }

    /// Lines go to `writer`, from a thread of their own.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn to(
        writer: impl Write + Send + 'static,
        coloured: bool,
        clock: Clock,
    ) -> io::Result<Self> {
        let writer = LineWriter::start("diagnostics", QUEUE, writer)?;
        Ok(Self { writer, clock, coloured, spent: Arc::default() })
    }

    /// Says that all is well.
    pub(crate) fn info(
        &self,
        topic: Topic,
        message: &str,
        pairs: &[(&str, &(dyn Display + Sync))],
    ) {
        self.say(Level::Info, topic, message, pairs);
    }

    /// Says that somebody should look.
    pub(crate) fn warn(
        &self,
        topic: Topic,
        message: &str,
        pairs: &[(&str, &(dyn Display + Sync))],
    ) {
        self.say(Level::Warn, topic, message, pairs);
    }

    /// Says that something does not work.
    pub(crate) fn error(
        &self,
        topic: Topic,
        message: &str,
        pairs: &[(&str, &(dyn Display + Sync))],
    ) {
        self.say(Level::Error, topic, message, pairs);
    }

    /// Says `message` and the values of `pairs`, which are quoted and escaped where they are not
    /// plain words, and cut at 256 bytes.
    pub(crate) fn say(
        &self,
        level: Level,
        topic: Topic,
        message: &str,
        pairs: &[(&str, &(dyn Display + Sync))],
    ) {
        if let Some(suppressed) = self.may_say(topic) {
            self.write(level, message, pairs, None, suppressed);
        }
    }

    /// Warns of each thing of a list on a line of its own: `pairs`, and the thing under its key,
    /// escaped and cut at 2 KiB. Ten at most; one line more tells how many are left.
    pub(crate) fn warn_each(
        &self,
        topic: Topic,
        message: &str,
        pairs: &[(&str, &(dyn Display + Sync))],
        (key, things): (&str, &[String]),
    ) {
        let Some(mut suppressed) = self.may_say(topic) else { return };
        let mut warn = |thing: &str| {
            let suppressed = std::mem::take(&mut suppressed);
            self.write(Level::Warn, message, pairs, Some((key, thing)), suppressed);
        };
        things.iter().take(LIST).for_each(|thing| warn(thing));
        if things.len() > LIST {
            warn(&format!("and {} more", things.len() - LIST));
        }
    }

    /// Whether the topic may say something now, and how many lines before it were left out.
    fn may_say(&self, topic: Topic) -> Option<u64> {
        self.spent.lock()[topic as usize].may_say(self.clock.now())
    }

    fn write(
        &self,
        level: Level,
        message: &str,
        pairs: &[(&str, &(dyn Display + Sync))],
        long: Option<(&str, &str)>,
        suppressed: u64,
    ) {
        let time = self.clock.unix_millis();
        self.writer.line(|out| {
            lines::utc(out, time);
            let (name, colour) = match level {
                Level::Info => ("INFO", "\x1b[32m"),
                Level::Warn => ("WARN", "\x1b[33m"),
                Level::Error => ("ERROR", "\x1b[31m"),
            };
            let (on, off) = if self.coloured { (colour, "\x1b[0m") } else { ("", "") };
            // Writing to a vector cannot fail.
            let _ = write!(out, " {on}{name}{off} {message}");
            for (key, value) in pairs {
                let _ = write!(out, " {key}={}", Quoted(&value.to_string(), VALUE));
            }
            if let Some((key, value)) = long {
                let _ = write!(out, " {key}={}", Quoted(value, LONG));
            }
            if suppressed > 0 {
                let _ = write!(out, " suppressed={suppressed}");
            }
        });
    }

    /// Lines waiting, and as many as may wait.
    pub(crate) fn depth(&self) -> (usize, usize) {
        self.writer.depth()
    }

    /// Waits until every line said before is written, at most a second; false if some are not.
    pub(crate) async fn close(&self) -> bool {
        self.writer.flush(SECOND).await
    }
}

/// A value of a pair, and how many bytes it may have.
struct Quoted<'a>(&'a str, usize);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'=' | b'\\');
        if !self.0.is_empty() && self.0.len() <= self.1 && self.0.bytes().all(plain) {
            return f.write_str(self.0);
        }
        let mut escaped = Vec::new();
        lines::json_text(&mut escaped, self.0.as_bytes(), self.1);
        write!(f, "\"{}\"", String::from_utf8_lossy(&escaped))
    }
}

/// Lines that may wait.
const QUEUE: usize = 1024;
/// Lines of one topic in a second.
const LINES_PER_SECOND: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// Bytes of a value, escaped.
const VALUE: usize = 256;
/// Bytes of a thing of a list, escaped.
const LONG: usize = 2048;
/// Things of a list that have lines of their own.
const LIST: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::Page;

    /// The lines without their time.
    async fn check(coloured: bool, say: impl AsyncFnOnce(&Diagnostics)) -> Vec<String> {
        let page = Page::default();
        let diagnostics = Diagnostics::to(page.clone(), coloured, Clock::new()).unwrap();
        say(&diagnostics).await;
        let closed = diagnostics.writer.flush(Duration::from_secs(10)).await;
        assert!(closed);
        page.text()
            .lines()
            .map(|line| line["2026-01-31T23:59:59.123Z ".len()..].to_owned())
            .collect()
    }

    #[tokio::test]
    async fn a_line_has_its_level_its_message_and_its_pairs() {
        let lines = check(false, async |diagnostics| {
            diagnostics.info(Topic::Start, "listening", &[("address", &"127.0.0.1:8080")]);
            diagnostics.warn(Topic::Breaker, "breaker opened", &[("for_ms", &2000)]);
            diagnostics.error(Topic::Internal, "it broke", &[]);
        })
        .await;
        assert_eq!(
            lines,
            [
                "INFO listening address=127.0.0.1:8080",
                "WARN breaker opened for_ms=2000",
                "ERROR it broke",
            ]
        );
    }

    #[tokio::test]
    async fn values_can_forge_neither_a_line_nor_a_pair_nor_a_colour() {
        let lines = check(false, async |diagnostics| {
            for value in ["a b", "", "x\n2026 ERROR y", "k=v", "\x1b[31m", "a\"b"] {
                diagnostics.info(Topic::Retries, "set", &[("reason", &value)]);
            }
            diagnostics.info(Topic::Retries, "set", &[("reason", &"x".repeat(1000))]);
        })
        .await;
        assert_eq!(
            lines[..6],
            [
                "INFO set reason=\"a b\"",
                "INFO set reason=\"\"",
                "INFO set reason=\"x\\n2026 ERROR y\"",
                "INFO set reason=\"k=v\"",
                "INFO set reason=\"\\u001b[31m\"",
                "INFO set reason=\"a\\\"b\"",
            ]
        );
        assert!(lines[6].ends_with("xxx…\"") && lines[6].len() < 300);
    }

    #[tokio::test]
    async fn a_list_has_a_line_for_each_thing_ten_at_most_and_counts_as_one() {
        let why = |count: usize| (0..count).map(|at| format!("n {at}")).collect::<Vec<_>>();
        let warn = |diagnostics: &Diagnostics, why: &[String]| {
            diagnostics.warn_each(Topic::Reload, "refused", &[("by", &"x")], ("why", why));
        };
        let lines = check(false, async |diagnostics| {
            warn(diagnostics, &why(10));
            warn(diagnostics, &why(13));
            warn(diagnostics, &["x\n2026 ERROR y\x1b[31m".to_owned(), "é\"".repeat(2000)]);
            // The topic has said three things.
            for _ in 3..15 {
                warn(diagnostics, &why(1));
            }
        })
        .await;
        let (first, rest) = lines.split_at(10);
        assert_eq!(first[0], "WARN refused by=x why=\"n 0\"");
        assert_eq!(first[9], "WARN refused by=x why=\"n 9\"");
        let (second, rest) = rest.split_at(11);
        assert_eq!(second[9], first[9]);
        assert_eq!(second[10], "WARN refused by=x why=\"and 3 more\"");
        assert_eq!(rest[0], "WARN refused by=x why=\"x\\n2026 ERROR y\\u001b[31m\"");
        let prefix = "WARN refused by=x why=".len();
        assert!(rest[1].ends_with("…\"") && rest[1].len() > prefix + 2000, "{}", rest[1]);
        assert!(rest[1].len() <= prefix + 2 + 2048, "{}", rest[1].len());
        assert_eq!(rest.len(), 2 + 7, "ten times it said something");
    }

    #[tokio::test]
    async fn colours_are_for_terminals() {
        let lines =
            check(true, async |diagnostics| diagnostics.warn(Topic::Drain, "draining", &[])).await;
        assert_eq!(lines, ["\x1b[33mWARN\x1b[0m draining"]);
    }

    #[test]
    fn a_topic_says_ten_lines_a_second_and_then_tells_what_it_left_out() {
        let mut spent = Spent::default();
        let at = Timestamp::from_millis(5000);
        for line in 0..10 {
            assert_eq!(spent.may_say(at), Some(0), "{line}");
        }
        for _ in 0..7 {
            assert_eq!(spent.may_say(at.after(Duration::from_millis(999))), None);
        }
        assert_eq!(spent.may_say(at.after(Duration::from_millis(1000))), Some(7));
        assert_eq!(spent.may_say(at.after(Duration::from_millis(1000))), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn topics_do_not_silence_each_other() {
        let page = Page::default();
        let diagnostics = Diagnostics::to(page.clone(), false, Clock::new()).unwrap();
        for _ in 0..15 {
            diagnostics.info(Topic::Breaker, "changed", &[]);
        }
        diagnostics.info(Topic::Drain, "draining", &[]);
        tokio::time::advance(Duration::from_secs(1)).await;
        diagnostics.info(Topic::Breaker, "changed", &[]);
        tokio::time::resume();
        assert!(diagnostics.close().await);
        let text = page.text();
        assert_eq!(text.lines().count(), 12);
        assert!(text.lines().any(|line| line.ends_with("INFO draining")));
        assert!(text.lines().last().unwrap().ends_with("changed suppressed=5"));
    }
}
