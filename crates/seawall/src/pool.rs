//! Tells what is doubtful about a pool: a wait that has no end, or ends after everything else.
//!
//! A pool without a finite wait turns a slow dependency into a queue of everything: callers pile up
//! behind connections that do not come back, and nothing says so. A pool whose connects have no end
//! hides a dead server: it looks like a pool that is empty, which is nobody's illness.

use std::time::Duration;

use crate::stack::Stack;

/// The time limits of a pool, or of a connection that is shared like one.
///
/// | pool | wait by default | here |
/// |---|---|---|
/// | deadpool 0.13 | without end | `PoolTimes::from(&pool)`, feature `postgres` |
/// | bb8 0.9, r2d2 0.8, sqlx 0.9 | 30 s, the connect in it | both 30 s |
/// | redis 1, `ConnectionManager` | 1 s for the connect | `PoolTimes::from(&config)` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolTimes {
    /// How long a caller waits for a connection; `None`: without end.
    pub wait: Option<Duration>,
    /// How long making a connection may take; `None`: without end.
    pub connect: Option<Duration>,
    /// How long an answer on a connection may take before the client itself gives it up; `None`:
    /// without end. Of a pool that leaves this to its callers: [`Duration::ZERO`].
    pub answer: Option<Duration>,
}

impl Stack {
    /// What is doubtful about a pool that is used behind this stack, as sentences for a person.
    /// Ask once, where both are made, and log what it says.
    ///
    /// ```
    /// use std::time::Duration;
    /// use seawall::{PoolTimes, Stack, StackConfig};
    ///
    /// let stack = Stack::new("orders", &StackConfig { checkout: None, ..StackConfig::postgres() })?;
    /// let endless = PoolTimes { wait: None, connect: None, answer: Some(Duration::ZERO) };
    /// assert_eq!(stack.pool_warnings(endless).len(), 2);
    /// # Ok::<(), seawall::ConfigError>(())
    /// ```
    #[must_use]
    pub fn pool_warnings(&self, pool: impl Into<PoolTimes>) -> Vec<String> {
        let PoolTimes { wait, connect, answer } = pool.into();
        let params = self.params();
        let name = self.name();
        let checkout = params.checkout();
        let around = params.attempt_timeout().or(params.total());
        // What ends a wait for this pool, short of what is around it.
        let limit = shorter(checkout, wait);
        let mut warnings = Vec::new();
        match (limit, around) {
            (None, None) => warnings.push(format!(
                "{name}: nothing ends a wait for the pool; give it a wait, or the stack a checkout"
            )),
            (None, Some(around)) => warnings.push(format!(
                "{name}: only the {around:?} of a whole attempt end a wait for the pool, so an \
                 empty pool looks like a slow dependency; give it a wait, or the stack a checkout"
            )),
            (Some(limit), Some(around)) if limit >= around => warnings.push(format!(
                "{name}: a wait of {limit:?} for the pool outlasts an attempt of {around:?}, so an \
                 empty pool looks like a slow dependency; give it a shorter wait, or the stack a \
                 checkout"
            )),
            _ => {}
        }
        // A wait in which the connection is made hides a connect that lasts longer.
        let hiding = limit.or(around);
        match (connect, hiding) {
            (None, _) => warnings.push(format!(
                "{name}: a connect of the pool has no end, so a server that does not answer looks \
                 like an empty pool; give it a time below the wait"
            )),
            (Some(connect), Some(hiding)) if connect > hiding => warnings.push(format!(
                "{name}: a connect of {connect:?} outlasts the wait of {hiding:?} it is made in, \
                 so a server that does not answer looks like an empty pool"
            )),
            _ => {}
        }
        if answer.is_none() {
            warnings.push(format!(
                "{name}: an answer has no end, so a connection that died in silence is never given \
                 up; give the client a time for answers"
            ));
        }
        warnings
    }
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(feature = "postgres")]
impl From<&deadpool_postgres::Timeouts> for PoolTimes {
    fn from(timeouts: &deadpool_postgres::Timeouts) -> Self {
        Self { wait: timeouts.wait, connect: timeouts.create, answer: Some(Duration::ZERO) }
    }
}

#[cfg(feature = "postgres")]
impl From<&deadpool_postgres::Pool> for PoolTimes {
    fn from(pool: &deadpool_postgres::Pool) -> Self {
        Self::from(&pool.timeouts())
    }
}

#[cfg(feature = "redis")]
impl From<&redis::aio::ConnectionManagerConfig> for PoolTimes {
    fn from(config: &redis::aio::ConnectionManagerConfig) -> Self {
        Self {
            // Shared by all: nobody waits for it but while it connects.
            wait: config.connection_timeout(),
            connect: config.connection_timeout(),
            answer: config.response_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;
    use seawall_policy::StackConfig;

    fn warnings(config: StackConfig, pool: PoolTimes) -> Vec<String> {
        Stack::new("orders", &config).unwrap().pool_warnings(pool)
    }

    const ENDLESS: PoolTimes = PoolTimes { wait: None, connect: None, answer: None };

    #[test]
    fn a_wait_without_an_end_is_warned_of_unless_the_stack_ends_it() {
        let pool = PoolTimes { connect: Some(ms(300)), answer: Some(ms(300)), ..ENDLESS };
        let none = StackConfig { checkout: None, ..StackConfig::postgres() };
        let said = warnings(none, pool);
        assert!(said[0].contains("only the 3s of a whole attempt"), "{said:?}");
        assert_eq!(said.len(), 1);
        let said = warnings(StackConfig::standard(), pool);
        assert!(said[0].starts_with("orders: nothing ends a wait"), "{said:?}");
        assert!(warnings(StackConfig::postgres(), pool).is_empty());
        let finite = PoolTimes { wait: Some(ms(500)), ..pool };
        assert!(warnings(none, finite).is_empty());
    }

    #[test]
    fn a_wait_as_long_as_the_attempt_is_warned_of_and_a_shorter_one_is_not() {
        let none = StackConfig { checkout: None, ..StackConfig::postgres() };
        let pool = |wait| PoolTimes { wait: Some(ms(wait)), connect: Some(ms(1)), ..ENDLESS };
        assert!(warnings(none, pool(3_000))[0].contains("outlasts an attempt of 3s"));
        assert!(!warnings(none, pool(2_999))[0].contains("outlasts"));
    }

    #[test]
    fn a_connect_that_outlasts_the_wait_it_is_made_in_hides_a_dead_server() {
        let pool = |connect| PoolTimes { wait: Some(ms(400)), connect, answer: Some(ms(1)) };
        let said = |connect| warnings(StackConfig::postgres(), pool(connect));
        assert!(said(None)[0].contains("has no end"));
        assert!(said(Some(ms(401)))[0].contains("outlasts the wait of 400ms"));
        assert!(said(Some(ms(400))).is_empty());
    }

    #[test]
    fn an_answer_without_an_end_is_warned_of() {
        let pool = PoolTimes { wait: Some(ms(50)), connect: Some(ms(50)), answer: None };
        assert!(warnings(StackConfig::redis(), pool)[0].contains("an answer has no end"));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn what_deadpool_has_by_default_is_warned_of() {
        let said = Stack::new("orders", &StackConfig { checkout: None, ..StackConfig::postgres() })
            .unwrap()
            .pool_warnings(&deadpool_postgres::Timeouts::default());
        assert_eq!(said.len(), 2, "{said:?}");
    }

    #[cfg(feature = "redis")]
    #[test]
    fn of_what_redis_has_by_default_the_connect_is_warned_of() {
        let stack = Stack::new("cache", &StackConfig::redis()).unwrap();
        let config = redis::aio::ConnectionManagerConfig::new();
        // A second for a connect, in an attempt of 200 ms.
        let said = stack.pool_warnings(&config);
        assert_eq!(said.len(), 1, "{said:?}");
        let config = config.set_connection_timeout(Some(ms(100))).set_response_timeout(None);
        assert!(stack.pool_warnings(&config)[0].contains("an answer has no end"));
    }
}
