//! Which endpoints a call has tried.

use crate::stack::dependency::Avoid;

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

/// The wish for an endpoint that was not tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    pub(super) tried: Tried,
    /// A redispatch: what was tried never took the call, and will not now.
    pub(super) at_any_price: bool,
}

impl Avoid for Others {
    fn avoids(&self, endpoint: usize) -> bool {
        self.tried.contains(endpoint)
    }

    fn at_any_price(&self) -> bool {
        self.at_any_price
    }
}
