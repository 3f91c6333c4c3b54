//! Which endpoints a call has tried.

/// The endpoints tried last, up to eight: a call that has tried more may come back to the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    endpoints: [usize; 8],
    next: usize,
}

impl Default for Tried {
    fn default() -> Self {
        Self { endpoints: [usize::MAX; 8], next: 0 }
    }
}

impl Tried {
    pub(super) fn add(&mut self, endpoint: usize) {
        self.endpoints[self.next % self.endpoints.len()] = endpoint;
        self.next += 1;
    }

    pub(super) fn contains(&self, endpoint: usize) -> bool {
        self.endpoints.contains(&endpoint)
    }
}
