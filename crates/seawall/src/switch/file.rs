//! A file as a switch: one line that says `on`, or `off 10m` and why.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::audit::{AuditEvent, AuditLine};
use super::{KillSwitch, Off, Scope, TTL_MAX, Voice};
use crate::file_watch::{FileContent, FileWatch};

impl KillSwitch {
    /// Follows a file for as long as it is polled; spawn it. Looks ten times a second; what the
    /// file says counts once two looks agree.
    ///
    /// The file holds one line:
    /// - `off 10m storm on the order book`: retries of every stack off for ten minutes *from the
    ///   modification of the file*, at most `24h`; the rest is the reason. Units are `h`, `m`, `s`
    ///   and `ms`, larger first: `1h30m`.
    /// - `on`, nothing, or no file: lifts what this file has said, and nothing else.
    ///
    /// Anything else, and a file that cannot be read, changes nothing and leaves a line that says
    /// what is allowed. What the file says when it is first seen counts; an *off* whose time was
    /// over by then is none.
    pub async fn watch_file(&self, path: impl Into<PathBuf>) {
        let path = path.into();
        let voice = Voice::of_file(&path);
        let mut watch = FileWatch::new(LOOK_EVERY, MOST_BYTES).at_once();
        let follow = async {
            loop {
                if let [found] = &*watch.changed(|| vec![path.clone()]).await {
                    self.hear(&voice, &Seen::of(found));
                }
            }
        };
        // Neither ends.
        tokio::select! {
            () = self.watch() => {}
            () = follow => {}
        }
    }

    /// Lifts what a file has said that nobody follows any more; to be called once its watch has
    /// ended.
    pub fn forget_file(&self, path: impl AsRef<Path>) {
        let voice = Voice::of_file(path.as_ref());
        let Voice::File(who) = &voice else { return };
        let line = self.lift(&voice, who);
        self.emit(line.as_slice());
    }

    /// Takes in what the file says now.
    fn hear(&self, voice: &Voice, seen: &Seen<'_>) {
        let now = self.expire_at_now();
        let Voice::File(who) = voice else { return };
        let slot = (Scope::All, voice.clone());
        let line = match seen.said() {
            Said::Off { ttl, reason } => {
                let left = ttl.saturating_sub(seen.age(self.inner.clock.unix_millis()));
                if left.is_zero() {
                    self.lift(voice, who)
                } else {
                    let mut state = self.inner.state.lock();
                    let off =
                        Off { until: now.after(left), who: who.clone(), reason: reason.to_owned() };
                    state.offs.insert(slot, off);
                    state.apply(now);
                    Some(self.line(AuditEvent::Off { ttl: left }, Scope::All, who, reason))
                }
            }
            Said::On => self.lift(voice, who),
            Said::Garbage(said) => {
                let event = AuditEvent::Refused { allowed: ALLOWED };
                Some(self.line(event, Scope::All, who, said))
            }
        };
        self.emit(line.as_slice());
        self.inner.changed.notify_waiters();
    }

    /// Lifts what one voice has said; a line only if it had said something.
    fn lift(&self, voice: &Voice, who: &str) -> Option<AuditLine> {
        let now = self.inner.clock.now();
        let mut state = self.inner.state.lock();
        state.offs.remove(&(Scope::All, voice.clone()))?;
        state.apply(now);
        Some(self.line(AuditEvent::On, Scope::All, who, ""))
    }
}

impl Voice {
    fn of_file(path: &Path) -> Self {
        Self::File(format!("file {}", path.display()))
    }
}

/// What was found there.
#[derive(Debug)]
struct Seen<'a> {
    /// Milliseconds since the Unix epoch.
    modified: u64,
    /// Nothing where there is no file.
    content: Result<&'a [u8], Option<io::ErrorKind>>,
}

impl<'a> Seen<'a> {
    fn of(found: &'a FileContent) -> Self {
        let kind =
            |error: &io::Error| Some(error.kind()).filter(|kind| *kind != io::ErrorKind::NotFound);
        Self {
            modified: found.modified.map_or(0, unix_millis),
            content: found.content.as_deref().map_err(kind),
        }
    }

    /// How long ago it was modified; a time ahead of us is now, so that it lengthens nothing.
    fn age(&self, now_unix_ms: u64) -> Duration {
        Duration::from_millis(now_unix_ms.saturating_sub(self.modified))
    }

    fn said(&self) -> Said<'a> {
        let content = match self.content {
            Ok(content) => content,
            Err(None) => return Said::On,
            Err(Some(_)) => return Said::Garbage("the file cannot be read"),
        };
        match std::str::from_utf8(content) {
            Ok(_) if content.len() as u64 > MOST_BYTES => Said::Garbage("more than 4096 bytes"),
            Ok(text) => parse(text),
            Err(_) => Said::Garbage("not UTF-8"),
        }
    }
}

/// What the line means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    On,
    Off { ttl: Duration, reason: &'a str },
    Garbage(&'a str),
}

/// Reads the line.
pub(super) fn parse(text: &str) -> Said<'_> {
    let line = text.trim();
    if line.contains('\n') {
        return Said::Garbage(line);
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "on" | "" if rest.is_empty() => Said::On,
        "off" => {
            let rest = rest.trim_start();
            let (ttl, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            match parse_duration(ttl).filter(|ttl| !ttl.is_zero() && *ttl <= TTL_MAX) {
                Some(ttl) => Said::Off { ttl, reason: reason.trim() },
                None => Said::Garbage(line),
            }
        }
        _ => Said::Garbage(line),
    }
}

/// `1h30m`: whole numbers with units, larger first, each at most once.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0)?;
        let number: u32 = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let word = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        // The iterator moves past each unit, so an earlier or repeated one is not found.
        let (_, unit) = units.find(|(name, _)| *name == &after[..word])?;
        sum = sum.saturating_add(unit.saturating_mul(number));
        rest = &after[word..];
    }
    (!text.is_empty()).then_some(sum)
}

fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

const UNITS: [(&str, Duration); 4] = [
    ("h", Duration::from_secs(3600)),
    ("m", Duration::from_secs(60)),
    ("s", Duration::from_secs(1)),
    ("ms", Duration::from_millis(1)),
];
const ALLOWED: &str = "one line: `on`, or `off <time up to 24h, like 90s or 1h30m> [reason]`";
/// Source: seawall-design.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A line is far shorter. Source: seawall-design.
const MOST_BYTES: u64 = 4_096;
