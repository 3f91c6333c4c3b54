//! Decides which outcomes are tried again at all, where somebody listed them.
//!
//! Without a list, an outcome's class decides alone. A list narrows that to the classes and
//! statuses in it, and a status in it is tried again although its class is final: a `500` of a
//! service that is known to answer it in passing. What the list cannot do is make a second
//! execution harmless: a status is added only for calls that may be repeated.
//!
//! | the list | not processed | overloaded | unknown | a status of another class |
//! |---|---|---|---|---|
//! | none | by the class | by the class | by the class | no |
//! | names the class | by the class | by the class | by the class | – |
//! | names the status | – | by the class | by the class | idempotent or keyed |
//! | does not name it | no | no | no | no |

use alloc::vec::Vec;

use crate::error::ConfigError;
use crate::outcome::{Cause, Class, Outcome};

/// Which outcomes may be tried again. Default: what their class says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryOn {
    only: Option<Only>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Only {
    not_processed: bool,
    overloaded: bool,
    unknown: bool,
    /// Zeros at the end.
    statuses: [u16; MOST_STATUSES],
}

/// What a list says of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Its class decides.
    ByClass,
    /// Its status is named.
    ByStatus,
    /// Not at all.
    No,
}

impl RetryOn {
    /// Only these classes and statuses.
    ///
    /// # Errors
    /// A class that is never tried again, a status outside 400..=599, more than eight statuses, or
    /// nothing at all.
    pub fn only(classes: &[Class], statuses: &[u16]) -> Result<Self, ConfigError> {
        let names = |class| classes.contains(&class);
        let retried = [Class::NotProcessed, Class::Overloaded, Class::Unknown];
        if let Some(class) = classes.iter().find(|class| !retried.contains(class)) {
            let allowed = "not_processed, overloaded or unknown";
            return Err(ConfigError::new("on", class.as_str(), allowed));
        }
        if let Some(status) = statuses.iter().find(|status| !(400..=599).contains(*status)) {
            return Err(ConfigError::new("on", status, "a status from 400 to 599"));
        }
        if classes.is_empty() && statuses.is_empty() {
            return Err(ConfigError::new("on", "nothing", "a class or a status"));
        }
        let mut only = Only {
            not_processed: names(Class::NotProcessed),
            overloaded: names(Class::Overloaded),
            unknown: names(Class::Unknown),
            statuses: [0; MOST_STATUSES],
        };
        if statuses.len() > MOST_STATUSES {
            let allowed = alloc::format!("at most {MOST_STATUSES} statuses");
            return Err(ConfigError::new("on", statuses.len(), allowed));
        }
        only.statuses[..statuses.len()].copy_from_slice(statuses);
        Ok(Self { only: Some(only) })
    }

    /// The classes and statuses that are listed, if any are.
    #[must_use]
    pub fn listed(&self) -> Option<(Vec<Class>, Vec<u16>)> {
        let only = self.only.as_ref()?;
        let classes = [
            (Class::NotProcessed, only.not_processed),
            (Class::Overloaded, only.overloaded),
            (Class::Unknown, only.unknown),
        ];
        let classes = classes.into_iter().filter(|(_, is_listed)| *is_listed);
        let statuses = only.statuses.into_iter().filter(|status| *status != 0);
        Some((classes.map(|(class, _)| class).collect(), statuses.collect()))
    }

    pub(crate) fn says(&self, outcome: &Outcome) -> Listed {
        let Some(only) = &self.only else { return Listed::ByClass };
        if let Cause::Status(status) = outcome.cause()
            && only.statuses.contains(&status)
        {
            return Listed::ByStatus;
        }
        let named = match outcome.class() {
            Class::NotProcessed => only.not_processed,
            Class::Overloaded => only.overloaded,
            Class::Unknown => only.unknown,
            _ => false,
        };
        if named { Listed::ByClass } else { Listed::No }
    }
}

/// More are a class. Source: seawall-design.
const MOST_STATUSES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::AnswerSignals;

    #[test]
    fn a_list_names_classes_and_statuses_and_leaves_the_rest_out() {
        let status = |status| Outcome::of_status(status, AnswerSignals::default());
        let refused = Outcome::of(Cause::ConnectRefused);
        let closed = Outcome::of(Cause::Closed);
        let any = RetryOn::default();
        for outcome in [status(500), status(503), refused, closed] {
            assert_eq!(any.says(&outcome), Listed::ByClass);
        }
        let some = RetryOn::only(&[Class::NotProcessed], &[500, 503]).unwrap();
        assert_eq!(some.says(&refused), Listed::ByClass);
        assert_eq!(some.says(&status(500)), Listed::ByStatus);
        assert_eq!(some.says(&status(503)), Listed::ByStatus);
        assert_eq!(some.says(&status(429)), Listed::No);
        assert_eq!(some.says(&closed), Listed::No);
    }

    #[test]
    fn what_cannot_be_listed_is_refused() {
        for (classes, statuses) in [
            (&[Class::Rejected][..], &[][..]),
            (&[Class::RefusedHere], &[]),
            (&[], &[200]),
            (&[], &[600]),
            (&[], &[500; 9]),
            (&[], &[]),
        ] {
            let refused = RetryOn::only(classes, statuses).unwrap_err();
            assert_eq!(refused.field(), "on", "{classes:?} {statuses:?}");
        }
        assert!(RetryOn::only(&[], &[500; 8]).is_ok());
    }
}
