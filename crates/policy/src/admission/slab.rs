//! Places in chunks, and lists linked through what is in them.
//!
//! A place is found by a number. Room grows by a chunk at a time and nothing is ever moved, so no
//! insertion costs more than one small allocation, however much is there already. Lists run
//! through the things themselves: one leaves from the middle without a search, and a thing can be
//! in several lists, each with links of its own.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Nobody.
pub(super) const NONE: u32 = u32::MAX;

/// Things by number; a number is reused after its thing has left. Memory is that of the most
/// things at once, and is kept.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), vacant: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.vacant.pop() {
            self[id] = value;
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let Some(chunk) = self.chunks.last_mut() else { return NONE };
        chunk.push(value);
        u32::try_from(before + chunk.len() - 1).unwrap_or(NONE)
    }

    /// Lets the number go. What was there stays until another takes its place.
    pub(super) fn remove(&mut self, id: u32) {
        self.vacant.push(id);
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.chunks.get(id as usize / CHUNK)?.get(id as usize % CHUNK)
    }

    /// Numbers ever given out.
    pub(super) fn places(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Things that are there.
    pub(super) fn len(&self) -> usize {
        self.places() - self.vacant.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

/// Neighbours of a thing in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    pub(super) after: u32,
}

impl Links {
    pub(super) const NONE: Self = Self { before: NONE, after: NONE };
}

/// A thing that can be in the list number `L` of its kind.
pub(super) trait Linked<const L: usize> {
    fn links(&mut self) -> &mut Links;
}

/// A line of things, by their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<const L: usize> {
    first: u32,
    last: u32,
}

impl<const L: usize> List<L> {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.first == NONE
    }

    pub(super) fn push<T: Linked<L>>(&mut self, slab: &mut Slab<T>, id: u32) {
        *slab[id].links() = Links { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = id,
            last => slab[last].links().after = id,
        }
        self.last = id;
    }

    /// Takes one out that is in.
    pub(super) fn unlink<T: Linked<L>>(&mut self, slab: &mut Slab<T>, id: u32) {
        let Links { before, after } = *slab[id].links();
        match before {
            NONE => self.first = after,
            before => slab[before].links().after = after,
        }
        match after {
            NONE => self.last = before,
            after => slab[after].links().before = before,
        }
    }
}

/// Things of a chunk: with some 130 bytes each, an allocation of 32 KiB. Source: seawall-design.
const CHUNK: usize = 256;
