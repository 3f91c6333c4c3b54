//! A binary heap whose entries can be found again, to be changed or removed.

use alloc::vec::Vec;

/// The least key of a set of small ids, each with at most one key. Every change is O(log n);
/// memory is that of the highest id ever set, and is kept.
#[derive(Debug)]
pub(super) struct KeyedHeap<K> {
    /// Heap-ordered by (key, id).
    items: Vec<(K, usize)>,
    /// Where each id is in `items`; [`ABSENT`] if it is not.
    places: Vec<usize>,
}

impl<K: Copy + Ord> KeyedHeap<K> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new(), places: Vec::new() }
    }

    /// The least key.
    pub(super) fn least(&self) -> Option<K> {
        self.items.first().map(|&(key, _)| key)
    }

    /// Gives `id` this key instead of the one it may have.
    pub(super) fn set(&mut self, id: usize, key: K) {
        if id >= self.places.len() {
            self.places.resize(id + 1, ABSENT);
        }
        let mut place = self.places[id];
        if place == ABSENT {
            place = self.items.len();
            self.items.push((key, id));
            self.places[id] = place;
        } else {
            self.items[place].0 = key;
        }
        let place = self.sift_up(place);
        self.sift_down(place);
    }

    /// Takes `id` out, if it is in.
    pub(super) fn remove(&mut self, id: usize) {
        let place = self.places.get(id).copied().unwrap_or(ABSENT);
        if place == ABSENT {
            return;
        }
        self.items.swap_remove(place);
        self.places[id] = ABSENT;
        if let Some(&(_, moved)) = self.items.get(place) {
            self.places[moved] = place;
            let place = self.sift_up(place);
            self.sift_down(place);
        }
    }

    /// Moves an entry towards the root while it is less than its parent; where it ends.
    fn sift_up(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.items[parent] <= self.items[place] {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
        place
    }

    /// Moves an entry away from the root while a child is less than it.
    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let children = left..(left + 2).min(self.items.len());
            let Some(child) = children.min_by_key(|&child| self.items[child]) else { return };
            if self.items[place] <= self.items[child] {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
        self.places[self.items[a].1] = a;
        self.places[self.items[b].1] = b;
    }
}

/// Not in the heap.
const ABSENT: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            steps in prop::collection::vec((0..12_usize, prop::option::of(0..20_u8)), 0..200),
        ) {
            let mut heap = KeyedHeap::new();
            let mut model = BTreeMap::new();
            for (id, key) in steps {
                if let Some(key) = key {
                    heap.set(id, (key, id));
                    model.insert(id, key);
                } else {
                    heap.remove(id);
                    model.remove(&id);
                }
                let least = model.iter().map(|(&id, &key)| (key, id)).min();
                prop_assert_eq!(heap.least(), least);
            }
        }
    }
}
