//! Why a request was answered here without anything being sent.

/// Why a request was answered here instead of being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No route matches.
    NoRoute,
    /// The request is not one we forward (framing, target, host).
    BadRequest,
    /// Its body is larger than the route takes.
    BodyTooLarge,
    /// Its head is larger than we keep.
    HeadTooLarge,
    /// The breaker of every endpoint is open.
    BreakerOpen,
    /// The bulkhead is full.
    BulkheadFull,
    /// The limit on long-lived streams is reached.
    StreamsFull,
    /// No connection was to be had in time.
    CheckoutTimeout,
    /// The deadline had passed, or could not be met.
    DeadlinePassed,
    /// It came when the drain had no time left for it.
    Draining,
}

impl Refusal {
    /// In declaration order.
    pub(in crate::metrics) const LABELS: &'static [&'static str] = &[
        "no_route",
        "bad_request",
        "body_too_large",
        "head_too_large",
        "breaker_open",
        "bulkhead_full",
        "streams_full",
        "checkout_timeout",
        "deadline_passed",
        "draining",
    ];

    /// The label used in metrics and logs.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        Self::LABELS[self as usize]
    }
}
