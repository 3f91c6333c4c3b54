//! The lines a kill switch leaves for the record.

use std::fmt;
use std::time::Duration;

use super::Scope;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// Retries were switched off.
    Off {
        /// For how long from now.
        ttl: Duration,
    },
    /// Retries were switched on.
    On,
    /// An *off* ended by time.
    Expired,
    /// A watched file said something that cannot be read; nothing changed.
    Refused {
        /// What may stand there.
        allowed: &'static str,
    },
}

/// One line for the record. Displays on one line, whatever `who` and `reason` contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// What happened.
    pub event: AuditEvent,
    /// For which stacks.
    pub scope: Scope,
    /// Who did it; for an end by time, who had switched off.
    pub who: String,
    /// Why; for a refused line, what it said.
    pub reason: String,
}

impl AuditLine {
    pub(super) fn new(
        at_unix_ms: u64,
        event: AuditEvent,
        scope: Scope,
        who: &str,
        reason: &str,
    ) -> Self {
        Self { at_unix_ms, event, scope, who: clean(who), reason: clean(reason) }
    }

    /// When an *off* ends, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn until_unix_ms(&self) -> Option<u64> {
        let AuditEvent::Off { ttl } = self.event else { return None };
        Some(self.at_unix_ms.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for AuditLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_unix_ms, event, scope, who, reason } = self;
        write!(f, "at_unix_ms={at_unix_ms} event=retries_")?;
        match event {
            AuditEvent::Off { .. } => f.write_str("off")?,
            AuditEvent::On => f.write_str("on")?,
            AuditEvent::Expired => f.write_str("off_expired")?,
            AuditEvent::Refused { .. } => f.write_str("refused")?,
        }
        write!(f, " scope={scope} who=\"{who}\"")?;
        if let Some(until) = self.until_unix_ms() {
            write!(f, " until_unix_ms={until}")?;
        }
        if let AuditEvent::Refused { allowed } = event {
            write!(f, " allowed=\"{allowed}\"")?;
        }
        write!(f, " reason=\"{reason}\"")
    }
}

/// The first characters of a text, without anything that could end or forge a line.
fn clean(text: &str) -> String {
    text.trim().chars().take(MOST_CHARS).flat_map(char::escape_debug).collect()
}

/// Source: seawall-design.
const MOST_CHARS: usize = 256;
