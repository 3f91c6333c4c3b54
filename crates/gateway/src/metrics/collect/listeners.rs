//! The families of listeners: who came, who was let in, and how it ended.

use super::{Number, Scrape, Values};
use crate::metrics::family::Family;
use crate::metrics::labels::DOOR_REFUSALS;
use crate::metrics::snapshot::ListenerView;
use crate::server::CloseReason;

impl<'a> Scrape<'a> {
    pub(in crate::metrics) fn listeners(
        &self,
    ) -> impl Iterator<Item = (&'a str, &'a ListenerView)> {
        let names = self.metrics.shape.listeners.iter().map(String::as_str);
        names.zip(&self.snapshot.listeners).filter(|(name, _)| !name.is_empty())
    }

    pub(super) fn per_listener(&self, family: Family) -> Vec<(Values<'a>, Number)> {
        let each = |(name, listener): (&'a str, &ListenerView)| {
            let number = match family {
                Family::DownstreamConnections => listener.open,
                Family::DownstreamOpened => listener.accepted,
                Family::DownstreamAnswered => listener.answered,
                Family::AddressesEvicted => listener.evicted,
                _ => listener.accept_errors,
            };
            (vec![name], Number::Whole(number))
        };
        self.listeners().map(each).collect()
    }

    pub(super) fn closed(&self) -> Vec<(Values<'a>, Number)> {
        let each = |(name, listener): (&'a str, &'a ListenerView)| {
            let counts = CloseReason::LABELS.into_iter().zip(listener.closed);
            counts.map(move |(reason, count)| (vec![name, reason], Number::Whole(count)))
        };
        self.listeners().flat_map(each).collect()
    }

    pub(super) fn refused(&self) -> Vec<(Values<'a>, Number)> {
        let each = |(name, listener): (&'a str, &'a ListenerView)| {
            let counts = DOOR_REFUSALS.into_iter().zip(listener.refused);
            counts.map(move |(reason, count)| (vec![name, reason], Number::Whole(count)))
        };
        self.listeners().flat_map(each).collect()
    }

    pub(super) fn backlogs(&self) -> Vec<(Values<'a>, Number)> {
        let each = |(name, listener): (&'a str, &ListenerView)| {
            Some((vec![name], Number::Whole(listener.backlog?)))
        };
        self.listeners().filter_map(each).collect()
    }
}
