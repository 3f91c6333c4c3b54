//! Places for things that come and go, reused, under tickets that are not.
//!
//! A ticket is the place (low bits) and a running number (high bits), so that larger is later and
//! the ticket of a thing that left finds nothing. The number wraps after 8 · 10¹² tickets.

use alloc::vec::Vec;

/// A place in a bulkhead's queue; later ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

impl Ticket {
    /// The running number and the place, which has to be below two million.
    pub(crate) const fn new(number: u64, place: u64) -> Self {
        Self((number << PLACE_BITS) | place)
    }

    /// The place: small, and reused after its thing has left.
    pub(crate) fn place(self) -> usize {
        usize::try_from(self.0 & ((1 << PLACE_BITS) - 1)).unwrap_or(usize::MAX)
    }
}

/// Things under tickets; memory is that of the most things at once, and is kept.
#[derive(Debug)]
pub(super) struct Slots<T> {
    pub(super) places: Vec<Option<(Ticket, T)>>,
    vacant: Vec<usize>,
    /// The running number of the next ticket.
    next: u64,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), vacant: Vec::new(), next: 0 }
    }

    pub(super) fn insert(&mut self, value: T) -> Ticket {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        debug_assert!((place as u64) < 1 << PLACE_BITS, "knobs bound the number of places");
        let ticket = Ticket::new(self.next, place as u64);
        self.next = self.next.wrapping_add(1);
        self.places[place] = Some((ticket, value));
        ticket
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&T> {
        let (owner, value) = self.places.get(ticket.place())?.as_ref()?;
        (*owner == ticket).then_some(value)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        let (owner, value) = self.places.get_mut(ticket.place())?.as_mut()?;
        (*owner == ticket).then_some(value)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.get(ticket)?;
        let (_, value) = self.places[ticket.place()].take()?;
        self.vacant.push(ticket.place());
        Some(value)
    }
}

/// Room for the largest limit plus twice the largest queue (1,131,072).
const PLACE_BITS: u32 = 21;
