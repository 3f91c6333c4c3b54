//! The chains that are compared: the same small service, bare and behind what each library offers.
//!
//! Every chain gets what its library has of: total or attempt timeout, retry with a budget, breaker,
//! bulkhead. None is asked to do its work in an unusual way. The service answers at once, so what is
//! measured is the chain alone.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use failsafe::futures::CircuitBreaker as _;
use seawall::{CallOptions, Cause, Outcome, SeawallLayer, Stack, StackConfig};
use tower::retry::budget::{Budget as _, TpsBudget};
use tower::{BoxError, Layer as _, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_resilience::bulkhead::BulkheadLayer;
use tower_resilience::circuitbreaker::CircuitBreakerLayer;
use tower_resilience::retry::{RetryBudgetBuilder, RetryLayer};
use tower_resilience::timelimiter::TimeLimiterLayer;

/// One way to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The service alone.
    Bare,
    /// `seawall::Stack::call`: total, retry with budget, breaker, attempt timeout, bulkhead.
    Seawall,
    /// The same through `SeawallLayer::http`, with an `http::Request`.
    SeawallLayer,
    /// tower: timeout, retry with budget, load shed, concurrency limit. It has no breaker.
    Tower,
    /// tower-resilience: time limiter, retry with budget, breaker, bulkhead.
    TowerResilience,
    /// failsafe: a breaker and nothing else.
    Failsafe,
}

impl Subject {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Bare,
        Self::Failsafe,
        Self::Seawall,
        Self::SeawallLayer,
        Self::Tower,
        Self::TowerResilience,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Seawall => "seawall",
            Self::SeawallLayer => "seawall-layer",
            Self::Tower => "tower",
            Self::TowerResilience => "tower-resilience",
            Self::Failsafe => "failsafe",
        }
    }
}

/// What is done with a chain once it is built; the chains have different types.
pub trait Measure {
    /// What comes of it.
    type Output;

    /// Does it.
    fn run<S, Q>(self, service: S, request: fn(u64) -> Q) -> Self::Output
    where
        S: Service<Q> + Clone + Send + 'static,
        S::Error: std::fmt::Debug,
        S::Future: Send,
        Q: Send + 'static;
}

/// Builds the chain and hands it to `measure`.
///
/// # Panics
/// A library refuses its own defaults.
pub fn with<M: Measure>(subject: Subject, measure: M) -> M::Output {
    match subject {
        Subject::Bare => measure.run(service_fn(answer), number),
        Subject::Seawall => {
            let stack = Stack::new("bench", &StackConfig::http()).expect("the preset");
            let call = move |n: u64| {
                let stack = stack.clone();
                async move {
                    let attempt = async |_| answer(n).await;
                    stack.call(CallOptions::idempotent(), outcome, attempt).await.result
                }
            };
            measure.run(service_fn(call), number)
        }
        Subject::SeawallLayer => {
            let stack = Stack::new("bench", &StackConfig::http()).expect("the preset");
            measure.run(SeawallLayer::http(stack).layer(service_fn(respond)), get)
        }
        Subject::Tower => {
            let retry = TowerRetry { budget: Arc::new(TpsBudget::default()) };
            let service = ServiceBuilder::new()
                .layer(tower::retry::RetryLayer::new(retry))
                .timeout(ATTEMPT)
                .load_shed()
                .concurrency_limit(LIMIT)
                .service(service_fn(answer));
            measure.run(service, number)
        }
        Subject::TowerResilience => {
            let budget = RetryBudgetBuilder::new().token_bucket().build().expect("its defaults");
            let retry =
                RetryLayer::builder().max_attempts(2).exponential_backoff(BASE).budget(budget);
            let inner = ServiceBuilder::new()
                .layer(CircuitBreakerLayer::builder().build().expect("its defaults"))
                .layer(TimeLimiterLayer::builder().timeout_duration(ATTEMPT).build())
                .layer(
                    BulkheadLayer::builder().max_concurrent_calls(LIMIT).build().expect("a limit"),
                )
                .service(service_fn(answer));
            measure.run(retry.build().layer(inner), number)
        }
        Subject::Failsafe => {
            let breaker = failsafe::Config::new().build();
            let call = move |n: u64| {
                let breaker = breaker.clone();
                async move { breaker.call(answer(n)).await }
            };
            measure.run(service_fn(call), number)
        }
    }
}

/// Makes `calls` calls, one after the other.
///
/// # Panics
/// A call fails: then something else would be measured.
pub async fn repeat<S, Q>(mut service: S, request: fn(u64) -> Q, calls: u64)
where
    S: Service<Q>,
    S::Error: std::fmt::Debug,
{
    for n in 0..calls {
        let service = service.ready().await.expect("it is ready");
        black_box(service.call(black_box(request(n))).await.expect("it answers"));
    }
}

/// The runtime of one thread, as a program has it.
///
/// # Panics
/// The system refuses it.
#[must_use]
pub fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
}

fn number(n: u64) -> u64 {
    n
}

fn get(_: u64) -> http::Request<()> {
    http::Request::new(())
}

fn answer(n: u64) -> Ready<Result<u64, Infallible>> {
    ready(Ok(n + 1))
}

fn respond(_: http::Request<()>) -> Ready<Result<http::Response<()>, std::io::Error>> {
    ready(Ok(http::Response::new(())))
}

fn outcome(result: &Result<u64, Infallible>) -> Outcome {
    match result {
        Ok(_) => Outcome::of(Cause::Answered),
        Err(_) => Outcome::of(Cause::Closed),
    }
}

/// tower's retry as its documentation builds it: a budget, one more attempt.
#[derive(Clone, Debug)]
struct TowerRetry {
    budget: Arc<TpsBudget>,
}

impl tower::retry::Policy<u64, u64, BoxError> for TowerRetry {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut u64,
        result: &mut Result<u64, BoxError>,
    ) -> Option<Self::Future> {
        if result.is_ok() {
            self.budget.deposit();
            return None;
        }
        self.budget.withdraw().then(|| ready(()))
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}

/// As in `StackConfig::http`.
const ATTEMPT: Duration = Duration::from_millis(800);
const BASE: Duration = Duration::from_millis(100);
const LIMIT: usize = 25;
