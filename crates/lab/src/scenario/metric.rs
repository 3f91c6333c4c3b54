//! What can be measured of a run, and in which unit.

use crate::models::Kind;

/// A number that is drawn from a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// Attempts for each call of which any was sent.
    Amplification,
    /// Calls that were answered, of those that ended.
    Success,
    /// In a window, calls that were answered, of those that began.
    Goodput,
    /// In a window, attempts for each call that began.
    Attempts,
    /// In a window, work that nobody waited for any more, of all work.
    Wasted,
    /// In a window, work that nobody waited for any more, for each call that clients began.
    InVain,
    /// From a point, until ten seconds follow whose goodput is 95 % of what is offered.
    Recovery,
    /// The time that half, 99 % or 99.9 % of the answered calls do not exceed.
    P50,
    P99,
    P999,
    /// The longest that any call took to its end, or had taken when the run ended.
    Longest,
    /// In a window, attempts a second.
    Load,
    /// In a window, requests that reached servers, for each call that clients began.
    Arriving,
    /// Times a breaker opened.
    Opened,
    /// Times a server was left out.
    Ejected,
    /// Times a server died of its load.
    Died,
    /// The most slots of one bulkhead taken at once.
    InUse,
    /// The time that 99.9 % of the waits for a slot do not exceed.
    Waited,
    /// In a window, the part of the attempts that came to one server.
    Share,
    /// In a window, the largest part of the attempts that came within 10 ms.
    Herd,
    /// Times the work of a call was done that had been done before.
    Duplicates,
    /// Of what nobody waited for any more when its turn came, what was dropped and not begun.
    Unstarted,
    /// Until half, or 99 %, of all clients have been answered once; infinite if never.
    ReadyP50,
    ReadyP99,
    /// Attempts a client until then, and what 99 % of them do not exceed.
    Tries,
    TriesP99,
    /// Attempts dropped out of a queue although somebody waited, of all.
    FalseDrops,
    /// The number at a place of those that a model gives which is no fleet.
    Of {
        place: usize,
        name: &'static str,
        unit: Unit,
    },
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Of the whole; written in per cent.
    Share,
    /// Times; written with an x.
    Times,
    /// Seconds; written as durations.
    Time,
    Count,
}

impl Metric {
    const ALL: &[(&'static str, Self, Unit)] = &[
        ("amplification", Self::Amplification, Unit::Times),
        ("success", Self::Success, Unit::Share),
        ("goodput", Self::Goodput, Unit::Share),
        ("attempts", Self::Attempts, Unit::Times),
        ("wasted", Self::Wasted, Unit::Share),
        ("in_vain", Self::InVain, Unit::Share),
        ("recovery", Self::Recovery, Unit::Time),
        ("p50", Self::P50, Unit::Time),
        ("p99", Self::P99, Unit::Time),
        ("p999", Self::P999, Unit::Time),
        ("longest", Self::Longest, Unit::Time),
        ("load", Self::Load, Unit::Count),
        ("arriving", Self::Arriving, Unit::Times),
        ("opened", Self::Opened, Unit::Count),
        ("ejected", Self::Ejected, Unit::Count),
        ("died", Self::Died, Unit::Count),
        ("in_use", Self::InUse, Unit::Count),
        ("waited", Self::Waited, Unit::Time),
        ("share", Self::Share, Unit::Share),
        ("herd", Self::Herd, Unit::Share),
        ("duplicates", Self::Duplicates, Unit::Count),
        ("unstarted", Self::Unstarted, Unit::Share),
        ("ready_p50", Self::ReadyP50, Unit::Time),
        ("ready_p99", Self::ReadyP99, Unit::Time),
        ("tries", Self::Tries, Unit::Times),
        ("tries_p99", Self::TriesP99, Unit::Count),
        ("false_drops", Self::FalseDrops, Unit::Share),
    ];

    pub(super) fn name(self) -> &'static str {
        self.row().0
    }

    pub(super) fn unit(self) -> Unit {
        self.row().1
    }

    fn row(self) -> (&'static str, Unit) {
        if let Self::Of { name, unit, .. } = self {
            return (name, unit);
        }
        let row = Self::ALL.iter().find(|(_, metric, _)| *metric == self);
        row.map_or(("", Unit::Count), |(name, _, unit)| (name, *unit))
    }

    /// Those there are, by name.
    pub(super) fn of(kind: Option<&Kind>) -> Vec<(&'static str, Self)> {
        match kind {
            None => Self::ALL.iter().map(|(name, metric, _)| (*name, *metric)).collect(),
            Some(kind) => {
                let of = |(place, &(name, unit))| (name, Self::Of { place, name, unit });
                kind.numbers.iter().enumerate().map(of).collect()
            }
        }
    }

    pub(super) const fn has_window(self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::Attempts
                | Self::Load
                | Self::Arriving
                | Self::Wasted
                | Self::InVain
                | Self::Share
                | Self::Herd
        )
    }

    /// Whether it is known of each service for itself.
    pub(super) const fn is_of_service(self) -> bool {
        !matches!(
            self,
            Self::Longest
                | Self::Ejected
                | Self::Share
                | Self::Herd
                | Self::Duplicates
                | Self::ReadyP50
                | Self::ReadyP99
                | Self::Tries
                | Self::TriesP99
        )
    }
}
