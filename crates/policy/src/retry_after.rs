//! Decides how long a server's Retry-After asks to wait, and how it is passed on.

use core::time::Duration;

/// What a server said about asking again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryAfter {
    /// It said nothing.
    #[default]
    Absent,
    /// It said something that means no usable wait: zero, negative, past, empty or garbage.
    Unusable,
    /// Wait at least this long; never zero.
    Wait(Duration),
    /// A reserved slot (`Seawall-Slot-Ms`): wait exactly this long.
    Slot(Duration),
}
