use std::sync::Mutex;

use http::Response;

use super::*;
use crate::classify::HttpClassify;
use crate::testing::{Count, config, holding, ms, stack};

fn order() -> Request<Bytes> {
    Request::post("http://orders/v1").body(Bytes::from_static(b"{\"id\":7}")).unwrap()
}

/// Sends the order; the transport answers 503 until the last of `answers`.
async fn check(
    stack: &Stack,
    answers: &[u16],
    build: impl FnMut(&AttemptContext, &FrozenRequest) -> Request<Bytes>,
) -> (Report<Response<()>, std::io::Error>, Vec<Request<Bytes>>) {
    let operation = stack.operation("order-7", order()).unwrap();
    let arrived = Mutex::new(Vec::new());
    let transport = |_: AttemptContext, request: Request<Bytes>| {
        let mut arrived = arrived.lock().unwrap();
        let status = answers[arrived.len()];
        arrived.push(request);
        std::future::ready(Ok(Response::builder().status(status).body(()).unwrap()))
    };
    let report = operation.send(HttpClassify::new(), build, transport).await;
    (report, arrived.into_inner().unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_attempt_carries_the_same_key_and_the_same_bytes() {
    let (report, arrived) = check(&stack(&config()), &[503, 503, 201], |attempt, frozen| {
        let mut request = frozen.to_request();
        request.headers_mut().insert("x-attempt", attempt.number().into());
        request
    })
    .await;
    assert_eq!(report.result.unwrap().status(), 201);
    assert_eq!((report.attempts, report.stop), (3, StopReason::Answered));
    let seen: Vec<_> = arrived
        .iter()
        .map(|request| {
            let headers = request.headers();
            (headers["x-attempt"].clone(), headers[IDEMPOTENCY_KEY].clone(), request.body().clone())
        })
        .collect();
    for (number, (attempt, key, body)) in (1..).zip(&seen) {
        assert_eq!(*attempt, HeaderValue::from(number));
        assert_eq!(key, "order-7");
        assert_eq!(body, "{\"id\":7}");
    }
    assert_eq!(seen.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_key_in_the_builder_is_refused_before_anything_is_sent() {
    let stack = stack(&config());
    let (report, arrived) = check(&stack, &[], |_, frozen| {
        let mut request = frozen.to_request();
        let fresh = uuid::Uuid::new_v4().to_string();
        request.headers_mut().insert(IDEMPOTENCY_KEY, fresh.parse().unwrap());
        request
    })
    .await;
    assert_eq!(report.result.unwrap_err().to_string(), {
        "the attempt changed the operation's idempotency key"
    });
    assert_eq!((report.attempts, report.stop), (0, StopReason::NotRetryable));
    assert!(arrived.is_empty());
    let rest = holding(&stack);
    assert_eq!((rest.in_flight, rest.held, rest.millitokens), (0, 0, 2_000));
}

#[tokio::test(start_paused = true)]
async fn a_change_in_the_second_attempt_gives_its_payment_back() {
    let bodies: [&'static [u8]; 2] = [b"{\"id\":7}", b"{\"id\":8}"];
    let stack = stack(&config());
    let mut build = 0;
    let (report, arrived) = check(&stack, &[503], |_, frozen| {
        let mut request = frozen.to_request();
        *request.body_mut() = Bytes::from_static(bodies[build]);
        build += 1;
        request
    })
    .await;
    assert!(matches!(report.result, Err(Error::Changed(Changed::Body))));
    assert_eq!((report.attempts, arrived.len(), build), (1, 1, 2));
    let rest = holding(&stack);
    assert_eq!((rest.in_flight, rest.held, rest.millitokens), (0, 0, 2_000));
}

#[tokio::test(start_paused = true)]
async fn each_part_that_must_stay_is_compared() {
    type Change = fn(&mut Request<Bytes>);
    let changes: [(Change, Changed); 5] = [
        (|request| *request.method_mut() = Method::PUT, Changed::Method),
        (|request| *request.uri_mut() = Uri::from_static("http://orders/v2"), Changed::Uri),
        (|request| *request.body_mut() = Bytes::new(), Changed::Body),
        (|request| _ = request.headers_mut().remove(IDEMPOTENCY_KEY), Changed::Key),
        (
            |request| {
                let same = HeaderValue::from_static("order-7");
                request.headers_mut().append(IDEMPOTENCY_KEY, same);
            },
            Changed::Key,
        ),
    ];
    for (change, expected) in changes {
        let (report, arrived) = check(&stack(&config()), &[], |_, frozen| {
            let mut request = frozen.to_request();
            change(&mut request);
            request
        })
        .await;
        let Err(Error::Changed(found)) = report.result else { panic!("{expected:?} passed") };
        assert_eq!(found, expected);
        assert!(arrived.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_retried_with_the_key_and_has_one_effect() {
    let stack = stack(&config());
    let operation = stack.operation("order-7", order()).unwrap();
    let (arrivals, effects) = (Count::default(), Mutex::new(std::collections::BTreeSet::new()));
    let transport = |_: AttemptContext, request: Request<Bytes>| {
        let key = request.headers()[IDEMPOTENCY_KEY].as_bytes().to_vec();
        effects.lock().unwrap().insert(key);
        let lost = arrivals.add() == 1;
        async move {
            if lost {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            }
            Ok(Response::new(()))
        }
    };
    let build = |_: &AttemptContext, frozen: &FrozenRequest| frozen.to_request();
    let report = operation.send(HttpClassify::new(), build, transport).await;
    assert!(report.result.is_ok());
    assert_eq!((report.attempts, arrivals.get()), (2, 2));
    assert_eq!(effects.lock().unwrap().len(), 1);
}

#[test]
fn a_key_that_would_not_arrive_as_it_is_cannot_be_opened() {
    let stack = stack(&config());
    for key in ["", " ", " a", "a\t", "a\nb", "a\0"] {
        let error = stack.operation(key, order()).unwrap_err();
        assert_eq!(error.field(), "idempotency_key", "{key:?}");
    }
    let mut keyed = order();
    keyed.headers_mut().insert(IDEMPOTENCY_KEY, HeaderValue::from_static("order-8"));
    assert!(stack.operation("order-7", keyed.clone()).is_err());
    assert!(stack.operation("order-8", keyed).is_ok());
}

#[test]
fn safety_follows_from_method_and_key() {
    let stack = stack(&config());
    let safety = |method| {
        let mut request = order();
        *request.method_mut() = method;
        stack.operation("k", request).unwrap().safety()
    };
    assert_eq!(safety(Method::POST), Safety::Keyed);
    assert_eq!(safety(Method::PATCH), Safety::Keyed);
    assert_eq!(safety(Method::PUT), Safety::Idempotent);
}

#[tokio::test(start_paused = true)]
async fn deadline_and_ownership_are_the_openers_to_state() {
    let stack = stack(&config());
    let deadline = stack.clock().now().after(ms(50));
    let operation = stack.operation("k", order()).unwrap().with_deadline(deadline);
    let build = |_: &AttemptContext, frozen: &FrozenRequest| frozen.to_request();
    let hangs =
        |_: AttemptContext, _| std::future::pending::<Result<Response<()>, std::io::Error>>();
    let report = operation.send(HttpClassify::new(), build, hangs).await;
    assert!(matches!(report.result, Err(Error::Elapsed)));
    assert_eq!(stack.clock().now(), deadline);
    let refuses = |_: AttemptContext, _| async {
        Response::builder().status(503).body(()).map_err(std::io::Error::other)
    };
    let operation = stack.operation("k", order()).unwrap().owned_by_caller();
    let report = operation.send(HttpClassify::new(), build, refuses).await;
    assert_eq!((report.attempts, report.stop), (1, StopReason::NotOwner));
}
