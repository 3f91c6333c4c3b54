//! A checkout that waits.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::Timestamp;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::{Shared, Wanted};
use crate::upstream::connect::ConnectError;
use crate::upstream::error::CheckoutError;
use crate::upstream::state::{Answer, Expiry};
use crate::upstream::upload::RequestBody;

/// A place in the queue; leaves it when dropped. An answer that has arrived meanwhile is a lease
/// whose own drop passes it on.
pub(super) struct Waiting<'a, B: RequestBody> {
    pub(super) pool: &'a Arc<Shared<B>>,
    pub(super) endpoint: usize,
    pub(super) ticket: u64,
    pub(super) answer: oneshot::Receiver<Answer<B>>,
}

impl<B: RequestBody> Waiting<'_, B> {
    /// Waits for the answer, as long as is wanted.
    pub(super) async fn answer(mut self, wanted: Wanted) -> Answer<B> {
        let Self { pool, endpoint, ticket, .. } = self;
        let mut deadline = wanted.now.after(wanted.wait).min(wanted.until);
        loop {
            let elapsed = match timeout_at(pool.clock.instant(deadline), &mut self.answer).await {
                Ok(answer) => return answer.unwrap_or(Err(CheckoutError::Timeout)),
                Err(elapsed) => elapsed,
            };
            let _: tokio::time::error::Elapsed = elapsed;
            match pool.with(|state, _| state.expire(endpoint, ticket)) {
                Expiry::Covered if deadline >= wanted.until => {
                    let error = ConnectError::out_of_time(&pool.target(endpoint));
                    return Err(CheckoutError::Connect(Arc::new(error)));
                }
                Expiry::Covered => deadline = pool.clock.now().after(RECHECK).min(wanted.until),
                Expiry::Removed => return Err(CheckoutError::Timeout),
                // The answer was sent under the lock, so it is there.
                Expiry::Answered => deadline = Timestamp::MAX,
            }
        }
    }
}

impl<B: RequestBody> Drop for Waiting<'_, B> {
    fn drop(&mut self) {
        self.pool.with(|state, _| state.forget(self.endpoint, self.ticket));
    }
}

/// Time between two looks of an overdue checkout at whether its dial still runs; the end of the
/// dial itself wakes it.
const RECHECK: Duration = Duration::from_millis(50);
