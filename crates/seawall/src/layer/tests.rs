use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use seawall_policy::{BulkheadOptions, StackConfig, StopReason};
use tokio::time::{Sleep, sleep};

use super::*;
use crate::seal::{Changed, SealLayer};
use crate::testing::{Count, config, holding, ms, stack};

/// Answers with one status after the other, then with the last for ever. Not ready for `warm_up`
/// after it was made or cloned, and panics if it is called before.
struct Upstream {
    statuses: &'static [u16],
    warm_up: std::time::Duration,
    arrivals: Count,
    seen: std::sync::Arc<parking_lot::Mutex<Vec<Request<Bytes>>>>,
    warming: Option<Pin<Box<Sleep>>>,
    ready: bool,
}

impl Upstream {
    fn new(statuses: &'static [u16]) -> Self {
        Self {
            statuses,
            warm_up: ms(0),
            arrivals: Count::default(),
            seen: std::sync::Arc::default(),
            warming: None,
            ready: false,
        }
    }
}

impl Clone for Upstream {
    fn clone(&self) -> Self {
        let (arrivals, seen) = (self.arrivals.clone(), self.seen.clone());
        Self { arrivals, seen, warm_up: self.warm_up, ..Self::new(self.statuses) }
    }
}

impl Service<Request<Bytes>> for Upstream {
    type Response = Response<()>;
    type Error = io::Error;
    type Future = Ready<Result<Response<()>, io::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let warm_up = self.warm_up;
        let warming = self.warming.get_or_insert_with(|| Box::pin(sleep(warm_up)));
        std::task::ready!(warming.as_mut().poll(cx));
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        self.seen.lock().push(request);
        let number = self.arrivals.add() as usize;
        let status = self.statuses[number.min(self.statuses.len()) - 1];
        ready(match status {
            0 => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            status => Ok(Response::builder().status(status).body(()).unwrap()),
        })
    }
}

fn get() -> Request<Bytes> {
    Request::get("/stock").body(Bytes::new()).unwrap()
}

fn post(key: &str) -> Request<Bytes> {
    let request = Request::post("/orders").header("idempotency-key", key);
    request.body(Bytes::from_static(b"7")).unwrap()
}

async fn oneshot<S: Service<Req>, Req>(
    mut service: S,
    request: Req,
) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

#[tokio::test(start_paused = true)]
async fn each_attempt_carries_the_credential_in_force_in_place_of_any_other() {
    let upstream = Upstream::new(&[401, 200]);
    let source = || async { Ok::<_, Infallible>(crate::Credential::new("Bearer two")) };
    let credentials = crate::Credentials::new(crate::Credential::new("Bearer one"), source);
    let stack = stack(&config()).with_credentials(credentials);
    let mut service = SeawallLayer::http(stack).layer(upstream.clone());
    let request = Request::post("http://inventory/").header("authorization", "Basic b2xk");
    let response = service.call(request.body(Bytes::new()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let seen = upstream.seen.lock();
    let carried: Vec<_> = seen.iter().map(|request| &request.headers()["authorization"]).collect();
    assert_eq!(carried, ["Bearer one", "Bearer two"]);
    assert!(
        seen.iter().all(|request| request.headers().get_all("authorization").iter().count() == 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_get_is_retried_and_says_how_it_came_about() {
    let upstream = Upstream::new(&[503, 200]);
    let service = SeawallLayer::http(stack(&config())).layer(upstream.clone());
    let response = oneshot(service, get()).await.unwrap();
    assert_eq!(response.status(), 200);
    let summary = response.extensions().get::<Summary>().unwrap();
    assert_eq!((summary.attempts, summary.stop), (2, StopReason::Answered));
    let seen = upstream.seen.lock();
    let headers = |index: usize, name| seen[index].headers()[name].to_str().unwrap().to_owned();
    assert_eq!((headers(0, "x-retry-attempt"), headers(1, "x-retry-attempt")), {
        ("1".into(), "2".into())
    });
    assert_eq!(headers(0, "x-remaining-ms"), "395");
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_is_handed_up_and_an_inner_error_stays_itself() {
    let service = SeawallLayer::http(stack(&config())).layer(Upstream::new(&[503]));
    assert_eq!(oneshot(service, get()).await.unwrap().status(), 503);
    let service = SeawallLayer::http(stack(&config())).layer(Upstream::new(&[0]));
    let Err(Error::Inner(error)) = oneshot(service, post("")).await else { panic!("answered") };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn a_post_is_retried_only_with_a_key() {
    for (key, attempts) in [("", 1), ("k1", 3)] {
        let upstream = Upstream::new(&[503]);
        let service = SeawallLayer::http(stack(&config())).layer(upstream.clone());
        assert_eq!(oneshot(service, post(key)).await.unwrap().status(), 503);
        assert_eq!(upstream.arrivals.get(), attempts, "{key:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_always_ready_and_waits_for_the_inner_service_inside_each_attempt() {
    let upstream = Upstream { warm_up: ms(30), ..Upstream::new(&[503, 200]) };
    let stack = stack(&config());
    let mut service = SeawallLayer::http(stack.clone()).layer(upstream);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    for _ in 0..3 {
        let ready = Service::<Request<Bytes>>::poll_ready(&mut service, &mut cx);
        assert!(matches!(ready, Poll::Ready(Ok(()))));
    }
    let begun = stack.clock().now();
    // Called twice after one readiness, and on a clone that never was ready.
    let (first, second) = (service.call(get()), service.clone().call(get()));
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(stack.clock().now().since(begun), ms(30 + 100 + 30));
    assert_eq!(second.await.unwrap().status(), 200);
    assert_eq!(stack.checkouts().total(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_is_never_ready_is_a_checkout_timeout_and_no_illness() {
    let upstream = Upstream { warm_up: ms(1_000), ..Upstream::new(&[200]) };
    let stack = stack(&StackConfig { checkout: Some(ms(50)), ..config() });
    let service = SeawallLayer::http(stack.clone()).layer(upstream.clone());
    let begun = stack.clock().now();
    let result = oneshot(service, get()).await;
    let Err(Error::Rejected { reason, .. }) = result else { panic!("{result:?}") };
    assert_eq!(reason, StopReason::CheckoutTimeout);
    assert_eq!(stack.clock().now().since(begun), ms(50));
    assert_eq!((upstream.arrivals.get(), stack.checkouts().timeouts()), (0, 1));
    assert_eq!(holding(&stack).in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_to_become_ready_has_been_sent_nothing() {
    #[derive(Clone)]
    struct Broken;
    impl Service<Request<Bytes>> for Broken {
        type Response = Response<()>;
        type Error = io::Error;
        type Future = Ready<Result<Response<()>, io::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionReset)))
        }
        fn call(&mut self, _: Request<Bytes>) -> Self::Future {
            unreachable!("never ready")
        }
    }
    let stack = stack(&config());
    let classified = Count::default();
    let counts = classified.clone();
    let classify = move |_: Result<&Response<()>, &io::Error>| {
        counts.add();
        Outcome::of(Cause::Unmatched)
    };
    let layer = SeawallLayer::new(stack, classify, HttpDescribe::new());
    let result = oneshot(layer.layer(Broken), post("")).await;
    assert!(matches!(result, Err(Error::Inner(_))));
    // An unkeyed POST was tried three times: nothing of it ever left.
    assert_eq!(classified.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn clones_and_layers_share_one_bulkhead() {
    let config = StackConfig {
        bulkhead: Some(BulkheadOptions { queue: 0, ..BulkheadOptions::with_limit(1) }),
        ..config()
    };
    let stack = stack(&config);
    let layer = SeawallLayer::http(stack.clone());
    let slow = Upstream { warm_up: ms(20), ..Upstream::new(&[200]) };
    let mut first = layer.layer(slow.clone());
    let second = layer.layer(slow);
    let call = first.call(get());
    let (first, second) = futures_util::future::join(call, oneshot(second, get())).await;
    assert!(first.is_ok());
    let Err(Error::Rejected { reason, .. }) = second else { panic!("two in flight") };
    assert_eq!(reason, StopReason::BulkheadFull);
}

#[tokio::test(start_paused = true)]
async fn closures_classify_and_describe_any_request() {
    #[derive(Clone)]
    struct Doubling(Count);
    impl Service<u32> for Doubling {
        type Response = u32;
        type Error = Infallible;
        type Future = Ready<Result<u32, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: u32) -> Self::Future {
            self.0.add();
            ready(Ok(request * 2))
        }
    }
    let arrivals = Count::default();
    let layer = SeawallLayer::new(
        stack(&config()),
        |result: Result<&u32, &Infallible>| match result {
            Ok(14) => Outcome::of(Cause::BusinessError),
            _ => Outcome::of(Cause::Answered),
        },
        |_: &u32| crate::CallOptions::idempotent(),
    );
    let service = layer.layer(Doubling(arrivals.clone()));
    assert_eq!(oneshot(service, 7).await.unwrap(), 14);
    assert_eq!(arrivals.get(), 1);
}

type Meddle = fn(&mut Request<Bytes>);

/// A layer that breaks what makes a retry safe.
#[derive(Clone)]
struct Meddling<S> {
    inner: S,
    meddle: Meddle,
}

impl<S: Service<Request<Bytes>>> Service<Request<Bytes>> for Meddling<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Bytes>) -> S::Future {
        (self.meddle)(&mut request);
        self.inner.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_stamps_a_fresh_key_is_refused_on_the_second_attempt() {
    let meddlers: [(Meddle, Changed); 2] = [
        (
            |request| {
                let key = uuid::Uuid::new_v4().to_string();
                request.headers_mut().insert("idempotency-key", key.parse().unwrap());
            },
            Changed::Key,
        ),
        (|request| *request.body_mut() = uuid::Uuid::new_v4().to_string().into(), Changed::Body),
    ];
    for (meddle, expected) in meddlers {
        let upstream = Upstream::new(&[503, 200]);
        let stack = stack(&config());
        let inner = Meddling { inner: SealLayer.layer(upstream.clone()), meddle };
        let service = SeawallLayer::http(stack.clone()).layer(inner);
        let result = oneshot(service, post("k1")).await;
        let Err(Error::Changed(changed)) = result else { panic!("{result:?}") };
        assert_eq!(changed, expected);
        assert_eq!(upstream.arrivals.get(), 1, "the second attempt was not sent");
        let rest = holding(&stack);
        assert_eq!((rest.in_flight, rest.held, rest.millitokens), (0, 0, 2_000));
    }
}

#[tokio::test(start_paused = true)]
async fn the_seal_lets_equal_attempts_and_strangers_pass() {
    let upstream = Upstream::new(&[503, 200]);
    let sealed = SealLayer.layer(upstream.clone());
    let service = SeawallLayer::http(stack(&config())).layer(sealed.clone());
    assert_eq!(oneshot(service, post("k1")).await.unwrap().status(), 200);
    assert_eq!(upstream.arrivals.get(), 2);
    assert!(oneshot(sealed.clone(), post("k1")).await.is_ok());
    assert!(oneshot(sealed, post("k2")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_handed_to_the_inner_service_holds_its_slot_when_its_caller_leaves() {
    #[derive(Clone)]
    struct Hanging;
    impl Service<u32> for Hanging {
        type Response = u32;
        type Error = Infallible;
        type Future = std::future::Pending<Result<u32, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: u32) -> Self::Future {
            std::future::pending()
        }
    }
    let stack = stack(&config());
    let classify = |_: Result<&u32, &Infallible>| Outcome::of(Cause::Answered);
    let describe = |_: &u32| crate::CallOptions::idempotent();
    let mut service = SeawallLayer::new(stack.clone(), classify, describe).layer(Hanging);
    assert!(tokio::time::timeout(ms(20), service.call(7)).await.is_err());
    assert_eq!(holding(&stack).held, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_is_the_caller_leaving() {
    let upstream = Upstream { warm_up: ms(500), ..Upstream::new(&[200]) };
    let stack = stack(&config());
    let mut service = SeawallLayer::http(stack.clone()).layer(upstream.clone());
    let call = service.call(get());
    assert!(tokio::time::timeout(ms(20), call).await.is_err());
    assert_eq!((holding(&stack).in_flight, holding(&stack).held), (0, 0));
    assert_eq!(upstream.arrivals.get(), 0);
}
