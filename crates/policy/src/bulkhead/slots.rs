//! Places for things that come and go, reused, under ids that are not.

use alloc::vec::Vec;

/// Things under ids. An id is the place (low bits) and a running number (high bits), so that
/// larger is later and the id of a thing that left finds nothing. The number wraps after
/// 8 · 10¹² things; memory is that of the most things at once, and is kept.
#[derive(Debug)]
pub(super) struct Slots<T> {
    pub(super) places: Vec<Option<(u64, T)>>,
    vacant: Vec<usize>,
    /// The running number of the next id; starts at 1, so 0 is never an id.
    next: u64,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), vacant: Vec::new(), next: 1 }
    }

    /// How many are in.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    pub(super) fn insert(&mut self, value: T) -> u64 {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        debug_assert!((place as u64) < 1 << PLACE_BITS, "knobs bound the number of places");
        let id = (self.next << PLACE_BITS) | place as u64;
        self.next = self.next.wrapping_add(1);
        self.places[place] = Some((id, value));
        id
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        let (owner, value) = self.places.get(place_of(id))?.as_ref()?;
        (*owner == id).then_some(value)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let (owner, value) = self.places.get_mut(place_of(id))?.as_mut()?;
        (*owner == id).then_some(value)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        self.get(id)?;
        let (_, value) = self.places[place_of(id)].take()?;
        self.vacant.push(place_of(id));
        Some(value)
    }
}

/// The place of an id: small, and reused after its thing has left.
pub(super) fn place_of(id: u64) -> usize {
    usize::try_from(id & ((1 << PLACE_BITS) - 1)).unwrap_or(usize::MAX)
}

/// Room for the largest limit plus twice the largest queue (1,131,072).
const PLACE_BITS: u32 = 21;
