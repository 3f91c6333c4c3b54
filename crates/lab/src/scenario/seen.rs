//! What of a report a number is drawn from: of the clients' calls, or of those to a service.

use crate::fleet::{Counts, Report, Second, Turned};
use crate::stats::Times;

pub(super) struct Seen<'a> {
    pub(super) counts: &'a Counts,
    pub(super) turned: &'a Turned,
    pub(super) seconds: &'a [Second],
    pub(super) times: &'a Times,
    pub(super) waits: &'a Times,
    pub(super) opened: u64,
    pub(super) in_use: u32,
    pub(super) died: u64,
}

impl<'a> Seen<'a> {
    /// The only service of a fleet is not counted for itself: it is all there is.
    pub(super) fn of(report: &'a Report, service: Option<&str>) -> Self {
        let named = |name: &str| report.services.iter().find(|it| it.name == name);
        match service.and_then(named) {
            Some(of) => Self {
                counts: &of.counts,
                turned: &of.turned,
                seconds: &of.seconds,
                times: &of.times,
                waits: &of.waits,
                opened: of.opened,
                in_use: of.in_use,
                died: of.died,
            },
            None => Self {
                counts: &report.counts,
                turned: &report.turned,
                seconds: &report.seconds,
                times: &report.times,
                waits: &report.waits,
                opened: report.opened,
                in_use: report.in_use,
                died: report.died,
            },
        }
    }

    pub(super) fn between(&self, from: usize, until: usize) -> Second {
        Second::sum(self.seconds, from, until)
    }
}
