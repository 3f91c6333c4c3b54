//! Switches retries off in a running process, for a while, with a line for the record.
//!
//! When a storm has begun, retries are what keeps it going, and the person who sees it needs one
//! handle that works at once and does not have to be remembered: every *off* ends by itself.
//!
//! - **Who may speak.** [`KillSwitch::set`] (a handle) and [`KillSwitch::watch_file`] (a file).
//!   Each is a voice of its own; retries are off for a stack while any voice says so for it. A
//!   file's *on*, an empty file, none, or [`KillSwitch::forget_file`] lifts only what that file has
//!   said; [`Change::On`] through the handle lifts what every voice has said for its scope, and for
//!   all scopes if it says [`Scope::All`].
//! - **What it changes.** Retries that are not sent yet: a call ends with the stop reason *retries
//!   off* after its attempt in flight, or, if it backs off or waits for a slot, when its retry's
//!   turn has come, which gets its payment back. First attempts and redispatches of unsent requests
//!   are not touched.
//! - **The record.** Every change, every end of an *off* by time, and every line of the file that
//!   cannot be read gives exactly one [`AuditLine`]. Ends by time are noticed by
//!   [`KillSwitch::watch`] or [`KillSwitch::watch_file`], or else at the next use; the retries
//!   themselves are on again at that time in any case.
//!
//! | limit | value | source |
//! |---|---|---|
//! | longest *off* | 24 h | seawall-design |
//! | stacks attached and alive | 4,096 | seawall-design |
//! | `who`, `reason` | cut to 256 characters | seawall-design |

mod audit;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use seawall_policy::{ConfigError, Timestamp};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::clock::Clock;
use crate::stack::{Stack, WeakStack};

pub use audit::{AuditEvent, AuditLine};

/// Which stacks a change is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every stack attached, now and later.
    All,
    /// The stacks of this name.
    Named(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Named(name) => write!(f, "{}", name.escape_debug()),
        }
    }
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Retries off, for this long: more than zero, at most 24 h. There is no *off* without an end.
    Off {
        /// How long.
        ttl: Duration,
    },
    /// Retries on.
    On,
}

/// One *off* in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchedOff {
    /// For which stacks.
    pub scope: Scope,
    /// Who said so.
    pub who: String,
    /// Why.
    pub reason: String,
    /// How long it still lasts.
    pub left: Duration,
}

/// The handle. Clones share one state.
///
/// ```
/// # use std::time::Duration;
/// # use seawall::{Change, KillSwitch, Scope, Stack, StackConfig};
/// let orders = Stack::new("orders", &StackConfig::http())?;
/// let switch = KillSwitch::new(|line| println!("{line}"));
/// switch.attach(&orders)?;
/// let off = Change::Off { ttl: Duration::from_secs(600) };
/// switch.set(Scope::All, off, "kim", "storm on the order book")?;
/// assert_eq!(switch.list().len(), 1);
/// assert!(switch.set(Scope::All, Change::Off { ttl: Duration::MAX }, "kim", "").is_err());
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct KillSwitch {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    audit: Box<dyn Fn(&AuditLine) + Send + Sync>,
    state: Mutex<State>,
    /// Something was switched off: there may be an earlier end to wait for.
    changed: Notify,
}

#[derive(Default)]
struct State {
    attached: Vec<(String, WeakStack)>,
    /// Bounded: a scope is all or an attached name, a voice the handle or a watched file.
    offs: BTreeMap<(Scope, Voice), Off>,
}

/// Who speaks; each file is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Voice {
    Handle,
    File(String),
}

#[derive(Clone, Debug)]
struct Off {
    until: Timestamp,
    who: String,
    reason: String,
}

impl KillSwitch {
    /// A switch that says on. `audit` is called once for each line, outside all locks.
    #[must_use]
    pub fn new(audit: impl Fn(&AuditLine) + Send + Sync + 'static) -> Self {
        let inner = Inner {
            clock: Clock::new(),
            audit: Box::new(audit),
            state: Mutex::default(),
            changed: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Puts a stack under the switch, with what is said for it now. Does not keep it alive.
    ///
    /// # Errors
    /// 4,096 stacks are attached and alive.
    pub fn attach(&self, stack: &Stack) -> Result<(), ConfigError> {
        let now = self.inner.clock.now();
        let mut state = self.inner.state.lock();
        state.attached.retain(|(_, stack)| stack.is_alive());
        if state.attached.len() >= MOST_ATTACHED {
            let allowed = "at most 4096 stacks to one switch";
            return Err(ConfigError::new("attach", stack.name(), allowed));
        }
        state.attached.push((stack.name().to_owned(), stack.downgrade()));
        state.apply_to(now, stack.name(), stack);
        Ok(())
    }

    /// Changes what the handle says for `scope`. `who` and `reason` go to the record; control
    /// characters in them are escaped there.
    ///
    /// # Errors
    /// A `ttl` of zero or above 24 h, an empty `who`, or a name that no attached stack has.
    pub fn set(
        &self,
        scope: Scope,
        change: Change,
        who: &str,
        reason: &str,
    ) -> Result<(), ConfigError> {
        if who.trim().is_empty() {
            return Err(ConfigError::new("who", "\"\"", "the name of who is asking"));
        }
        if let Change::Off { ttl } = change {
            check_ttl(ttl)?;
        }
        let now = self.expire_at_now();
        let line = {
            let mut state = self.inner.state.lock();
            state.check_scope(&scope)?;
            match change {
                Change::Off { ttl } => {
                    let until = now.after(ttl);
                    let off = Off { until, who: who.to_owned(), reason: reason.to_owned() };
                    state.offs.insert((scope.clone(), Voice::Handle), off);
                }
                Change::On => {
                    state.offs.retain(|(said_for, _), _| scope != Scope::All && *said_for != scope)
                }
            }
            state.apply(now);
            let event = match change {
                Change::Off { ttl } => AuditEvent::Off { ttl },
                Change::On => AuditEvent::On,
            };
            self.line(event, scope, who, reason)
        };
        self.emit(&[line]);
        self.inner.changed.notify_waiters();
        Ok(())
    }

    /// Every *off* in force, by scope.
    #[must_use]
    pub fn list(&self) -> Vec<SwitchedOff> {
        let now = self.expire_at_now();
        let state = self.inner.state.lock();
        let offs = state.offs.iter().map(|((scope, _), off)| SwitchedOff {
            scope: scope.clone(),
            who: off.who.clone(),
            reason: off.reason.clone(),
            left: now.until(off.until),
        });
        offs.collect()
    }

    /// Writes the line of every *off* that ends by time, when it ends. Never returns; spawn it, or
    /// [`KillSwitch::watch_file`], which does the same.
    pub async fn watch(&self) {
        loop {
            let changed = self.inner.changed.notified();
            self.expire_at_now();
            let next = self.inner.state.lock().offs.values().map(|off| off.until).min();
            let next = self.inner.clock.instant(next.unwrap_or(Timestamp::MAX));
            tokio::select! {
                () = changed => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Ends what is over, with a line for each; the time it was.
    fn expire_at_now(&self) -> Timestamp {
        let now = self.inner.clock.now();
        let mut lines = Vec::new();
        {
            let mut state = self.inner.state.lock();
            state.offs.retain(|(scope, _), off| {
                let lasts = now < off.until;
                if !lasts {
                    let event = AuditEvent::Expired;
                    lines.push(self.line(event, scope.clone(), &off.who, &off.reason));
                }
                lasts
            });
        }
        self.emit(&lines);
        now
    }

    fn line(&self, event: AuditEvent, scope: Scope, who: &str, reason: &str) -> AuditLine {
        AuditLine::new(self.inner.clock.unix_millis(), event, scope, who, reason)
    }

    fn emit(&self, lines: &[AuditLine]) {
        lines.iter().for_each(|line| (self.inner.audit)(line));
    }
}

impl State {
    /// Tells every attached stack until when its retries are off.
    fn apply(&self, now: Timestamp) {
        for (name, stack) in &self.attached {
            if let Some(stack) = stack.upgrade() {
                self.apply_to(now, name, &stack);
            }
        }
    }

    fn apply_to(&self, now: Timestamp, name: &str, stack: &Stack) {
        let said = self.offs.iter().filter(|((scope, _), _)| match scope {
            Scope::All => true,
            Scope::Named(other) => other == name,
        });
        // Each stack has a clock of its own.
        let left = said.map(|(_, off)| now.until(off.until)).max();
        let until = left.map_or(Timestamp::ZERO, |left| stack.clock().now().after(left));
        stack.with(|dependency, _, _| dependency.switch_retries_off(until));
    }

    fn check_scope(&self, scope: &Scope) -> Result<(), ConfigError> {
        let Scope::Named(name) = scope else { return Ok(()) };
        if self.attached.iter().any(|(known, stack)| known == name && stack.is_alive()) {
            return Ok(());
        }
        let known: Vec<_> = self.attached.iter().map(|(known, _)| known.as_str()).collect();
        let allowed = format!("all, or one of: {}", known.join(", "));
        Err(ConfigError::new("scope", name.escape_debug(), allowed))
    }
}

impl fmt::Debug for KillSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KillSwitch").field("off", &self.list()).finish_non_exhaustive()
    }
}

/// Refuses an *off* that has no end, or none in sight.
fn check_ttl(ttl: Duration) -> Result<(), ConfigError> {
    if ttl.is_zero() || ttl > TTL_MAX {
        let allowed = "more than zero and at most 24h; every off ends by itself";
        return Err(ConfigError::new("ttl", format!("{ttl:?}"), allowed));
    }
    Ok(())
}

/// Source: seawall-design.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Source: seawall-design.
const MOST_ATTACHED: usize = 4_096;
