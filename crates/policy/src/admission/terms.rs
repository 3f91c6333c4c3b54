//! What is asked of an admission queue, and what it answers.

use core::time::Duration;

use crate::bulkhead::Ticket;
use crate::rate::RateKey;
use crate::time::Timestamp;

/// How much a request matters beside others. The lower ones are shed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others, and not shed because a queue stands.
    Critical,
    /// What nothing was said about.
    #[default]
    Default,
    /// May be refused in a rush.
    Sheddable,
    /// Whenever there is room.
    Background,
}

impl Priority {
    /// The most important first.
    pub const ALL: [Self; 4] = [Self::Critical, Self::Default, Self::Sheddable, Self::Background];

    /// 0 for the most important.
    pub(super) const fn class(self) -> usize {
        self as usize
    }
}

/// Who a request is of: a number that stands for a name from the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub(super) u64);

impl Tenant {
    /// All requests that name nobody: together one tenant, so leaving the name out gains nothing.
    pub const NOBODY: Self = Self(0);

    /// The tenant of a hash, keyed with a secret of the process: whoever sends names could
    /// otherwise pick them to share a bucket.
    #[must_use]
    pub const fn from_hash(hash: u64) -> Self {
        Self(hash)
    }

    /// The number it was made of.
    #[must_use]
    pub const fn hash(self) -> u64 {
        self.0
    }

    pub(super) const fn rate_key(self) -> RateKey {
        RateKey::from_hash(self.0)
    }
}

/// One request that would be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How much it matters.
    pub priority: Priority,
    /// Whose it is.
    pub tenant: Tenant,
    /// The tenant's part beside other tenants of the same priority; 1 to 100, and what is outside
    /// counts as the nearest of those. While it has something waiting, the last one counts.
    pub weight: u32,
    /// What it costs beside others; 1 to 1,000, and what is outside counts as the nearest.
    pub cost: u32,
    /// Where it stands among those of its priority, over a whole chain of calls: see
    /// [`tenant_rank`](super::tenant_rank). 0: nowhere, and no level refuses it; above 1,023 counts
    /// as that.
    pub rank: u16,
    /// From when on starting it is of no use. [`Timestamp::MAX`]: not known.
    pub until: Timestamp,
}

impl Ask {
    /// A plain request with this deadline: default priority, nobody's, weight and cost 1.
    #[must_use]
    pub const fn new(until: Timestamp) -> Self {
        Self {
            priority: Priority::Default,
            tenant: Tenant::NOBODY,
            weight: 1,
            cost: 1,
            rank: 0,
            until,
        }
    }

    pub(super) fn within_bounds(self) -> Self {
        Self {
            weight: self.weight.clamp(1, WEIGHT_MAX),
            cost: self.cost.clamp(1, COST_MAX),
            ..self
        }
    }
}

/// The answer to one who would enter.
#[must_use = "an admitted request holds a slot, a queued one a place"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// Go, at once.
    Admitted,
    /// Wait to be woken, at the latest until this time.
    Queued(Ticket, Timestamp),
    /// Neither.
    Rejected(Shed),
}

/// What became of a ticket.
#[must_use = "an admitted turn holds a slot"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Go. The ticket is used up.
    Admitted,
    /// Not decided yet, at the latest at this time.
    Waiting(Timestamp),
    /// It will not be started; the ticket is used up. So is one that was claimed or cancelled
    /// before, which counts as expired.
    Rejected(Shed),
}

/// Why a request is not started, and from when on asking again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// Why.
    pub reason: ShedReason,
    /// When it would be admitted, if nothing else were; `None`: nothing is known, or never.
    pub retry_after: Option<Duration>,
}

impl Shed {
    pub(super) const fn of(reason: ShedReason) -> Self {
        Self { reason, retry_after: None }
    }
}

/// Why a request is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShedReason {
    /// At entry: its tenant's rate would be exceeded. A quota: 429.
    OverRate,
    /// At entry: something that matters more waits in a standing queue.
    Closed,
    /// At entry: too much comes of its priority, and its rank is one of those that are refused.
    Rank,
    /// At entry: by the rate at which the queue is served, it cannot start in time.
    TooLate,
    /// At entry: the queue is full, and it is of the largest consumer of the lowest priority.
    Full,
    /// After waiting: its time is up. A deadline: 504. At entry: there was no time left.
    Expired,
    /// After waiting: the queue stands, and it has waited too long.
    Standing,
    /// After waiting: the queue was full, and it was of the largest consumer of the lowest
    /// priority.
    Evicted,
}

impl ShedReason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::OverRate,
        Self::Closed,
        Self::Rank,
        Self::TooLate,
        Self::Full,
        Self::Expired,
        Self::Standing,
        Self::Evicted,
    ];
}

/// What became of the requests of one priority since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCounters {
    /// Admitted at once.
    pub admitted: u64,
    /// Let wait.
    pub queued: u64,
    /// Started after waiting.
    pub granted: u64,
    /// Left while they waited.
    pub cancelled: u64,
    pub(super) shed: [u64; 8],
}

impl AdmissionCounters {
    /// Rejected for that reason.
    #[must_use]
    pub const fn shed(&self, reason: ShedReason) -> u64 {
        self.shed[reason as usize]
    }
}

/// Source: seawall-design.
const WEIGHT_MAX: u32 = 100;
/// Within the rounds that are kept. Source: seawall-design.
const COST_MAX: u32 = 1_000;
