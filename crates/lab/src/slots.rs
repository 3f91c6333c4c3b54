//! Places for things that come and go, used again.
//!
//! The place freed last is used first, so the same events give the same places.

/// Things by place.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// A place for it.
    ///
    /// # Panics
    /// With 2²⁸ things at once, which would take tens of gigabytes.
    pub(crate) fn put(&mut self, thing: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(thing);
            return place;
        }
        let place = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        assert!(place < 1 << 28, "at most 2²⁸ calls and attempts at once");
        self.places.push(Some(thing));
        place
    }

    pub(crate) fn take(&mut self, place: u32) -> Option<T> {
        let thing = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(thing)
    }

    /// Frees a place, where what is there is of no use.
    pub(crate) fn free(&mut self, place: u32) {
        if let Some(thing) = self.places.get_mut(place as usize).filter(|thing| thing.is_some()) {
            *thing = None;
            self.free.push(place);
        }
    }

    pub(crate) fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_an_empty_one_holds_nothing() {
        let mut slots = Slots::default();
        assert_eq!([slots.put('a'), slots.put('b'), slots.put('c')], [0, 1, 2]);
        assert_eq!((slots.take(1), slots.take(1), slots.take(9)), (Some('b'), None, None));
        assert_eq!((slots.get(1), slots.get(2)), (None, Some(&'c')));
        assert_eq!(slots.put('d'), 1);
        slots.free(2);
        slots.free(2);
        assert_eq!(slots.get(2), None);
        assert_eq!([slots.put('f'), slots.put('g')], [2, 3]);
        *slots.get_mut(0).unwrap() = 'e';
        assert_eq!(slots.iter().collect::<String>(), "edfg");
    }
}
