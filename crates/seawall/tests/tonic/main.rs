//! What a stack makes of the calls of a tonic client, against a tonic server on the loopback.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

mod server;

use std::time::Duration;

use bytes::Bytes;
use seawall::{
    BackoffOptions, BreakerOptions, CallOptions, Cause, Class, Classify as _, GrpcClassify,
    GrpcCode, Jitter, Outcome, Ratio, Report, Safety, Stack, StackConfig, StopReason,
    classify_tonic, tonic_outcome, tonic_request,
};
use seawall_policy::parse_grpc_timeout;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use server::{Arrived, Reply, Server};

type Reported = Report<Response<Bytes>, Status>;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn unavailable() -> Status {
    Status::unavailable("not now")
}

fn with(code: Code, name: &'static str, value: &'static str) -> Status {
    let mut fields = MetadataMap::new();
    fields.insert(name, value.parse().unwrap());
    Status::with_metadata(code, "not now", fields)
}

/// Two attempts with a second between them, in 10 s at most.
fn slow_to_retry() -> StackConfig {
    let mut config = StackConfig { total: Some(ms(10_000)), ..StackConfig::standard() };
    config.retry.as_mut().unwrap().backoff =
        BackoffOptions { base: ms(1_000), jitter: Jitter::None, ..BackoffOptions::default() };
    config
}

/// Two attempts right after each other.
fn quick_to_retry() -> StackConfig {
    let mut config = slow_to_retry();
    let backoff = &mut config.retry.as_mut().unwrap().backoff;
    (backoff.base, backoff.cap) = (ms(1), ms(1));
    config
}

/// One attempt, and a breaker that opens at the first failure.
fn touchy() -> StackConfig {
    let breaker = BreakerOptions {
        min_calls: 1,
        failure_ratio: Ratio::from_percent(1),
        consecutive_failures: 0,
        ..BreakerOptions::default()
    };
    StackConfig { retry: None, breaker: Some(breaker), ..slow_to_retry() }
}

async fn call(server: &Server, config: &StackConfig, safety: Safety) -> Reported {
    call_through(&Stack::new("test", config).unwrap(), server, safety).await
}

async fn call_through(stack: &Stack, server: &Server, safety: Safety) -> Reported {
    let options = CallOptions { safety, ..CallOptions::default() };
    let called = stack.call(options, classify_tonic, |attempt| {
        server.unary(tonic_request(&attempt, Bytes::from_static(b"?")))
    });
    tokio::time::timeout(ms(20_000), called).await.unwrap()
}

fn gap(arrived: &[Arrived]) -> Duration {
    let [first, second] = arrived else { panic!("two attempts: {arrived:?}") };
    second.at.since(first.at)
}

#[tokio::test]
async fn a_pushback_says_when_the_second_attempt_comes() {
    let pushback = with(Code::Unavailable, "grpc-retry-pushback-ms", "120");
    let server = Server::start([Reply::Refuse(pushback)]).await;
    let report = call(&server, &slow_to_retry(), Safety::Idempotent).await;
    assert_eq!((report.stop, report.attempts), (StopReason::Answered, 2));
    assert_eq!(report.result.unwrap().into_inner(), "?");
    let gap = gap(&server.arrived());
    assert!(gap >= ms(120) && gap < ms(1_000), "{gap:?}");
}

#[tokio::test]
async fn a_negative_pushback_ends_the_call() {
    let never = with(Code::Unavailable, "grpc-retry-pushback-ms", "-1");
    let server = Server::start([Reply::Refuse(never)]).await;
    let report = call(&server, &quick_to_retry(), Safety::Idempotent).await;
    assert_eq!((report.stop, report.attempts), (StopReason::ToldToStop, 1));
    assert_eq!(server.arrived().len(), 1);
}

#[tokio::test]
async fn a_code_is_tried_again_only_where_that_is_harmless() {
    for (code, safety, attempts) in [
        (Code::Unavailable, Safety::Unsafe, 1),
        (Code::Unavailable, Safety::Keyed, 2),
        (Code::Unavailable, Safety::Idempotent, 2),
        (Code::ResourceExhausted, Safety::Unsafe, 1),
        (Code::ResourceExhausted, Safety::Idempotent, 2),
        (Code::DeadlineExceeded, Safety::Unsafe, 1),
        (Code::DeadlineExceeded, Safety::Idempotent, 2),
        (Code::Aborted, Safety::Idempotent, 1),
        (Code::Internal, Safety::Idempotent, 1),
    ] {
        for trailers in [false, true] {
            let status = Status::new(code, "no");
            let reply = if trailers { Reply::Trail(status) } else { Reply::Refuse(status) };
            let server = Server::start([reply]).await;
            let report = call(&server, &quick_to_retry(), safety).await;
            let arrived = server.arrived().len();
            assert_eq!((report.attempts, arrived), (attempts, attempts as usize), "{code:?}");
        }
    }
}

#[tokio::test]
async fn a_declared_code_is_tried_again_whatever_the_call_is() {
    let rules = GrpcClassify::new().retry_on([GrpcCode::Unavailable]);
    for reply in [Reply::Refuse(unavailable()), Reply::Break] {
        let server = Server::start([reply]).await;
        let stack = Stack::new("test", &quick_to_retry()).unwrap();
        let classify = |result: &Result<_, _>| rules.classify(result.as_ref());
        let report = stack
            .call(CallOptions::unsafe_to_repeat(), classify, |_attempt| {
                server.unary(Request::new(Bytes::new()))
            })
            .await;
        assert_eq!((report.stop, report.attempts), (StopReason::Answered, 2));
    }
}

#[tokio::test]
async fn the_server_sees_the_time_that_is_left_and_the_earlier_attempts() {
    let pushback = with(Code::Unavailable, "grpc-retry-pushback-ms", "150");
    let server = Server::start([Reply::Refuse(pushback)]).await;
    let report = call(&server, &slow_to_retry(), Safety::Idempotent).await;
    assert_eq!(report.attempts, 2);
    let arrived = server.arrived();
    let told = |arrived: &Arrived| {
        parse_grpc_timeout(arrived.field("grpc-timeout").unwrap().as_bytes()).unwrap()
    };
    let [first, second] = arrived.as_slice() else { panic!("{arrived:?}") };
    assert!(told(first) < ms(10_000), "less the way back");
    assert!(told(second) + ms(150) <= told(first), "{arrived:?}");
    assert_eq!(first.field("grpc-previous-rpc-attempts"), None);
    assert_eq!(second.field("grpc-previous-rpc-attempts"), Some("1"));
}

#[tokio::test]
async fn a_shorter_time_of_the_requests_own_stays_and_a_stack_without_times_states_none() {
    let server = Server::start([]).await;
    for (total, own, expected) in [
        (Some(ms(5_000)), Some(ms(700)), Some(ms(700))),
        (Some(ms(5_000)), Some(ms(9_000)), Some(ms(4_995))),
        (None, Some(ms(700)), Some(ms(700))),
        (None, None, None),
    ] {
        let config = StackConfig { total, attempt_timeout: None, ..slow_to_retry() };
        let stack = Stack::new("test", &config).unwrap();
        let report = stack
            .call(CallOptions::unsafe_to_repeat(), classify_tonic, |attempt| {
                let mut request = Request::new(Bytes::new());
                if let Some(own) = own {
                    request.set_timeout(own);
                }
                server.unary(tonic_request(&attempt, request))
            })
            .await;
        assert_eq!(report.stop, StopReason::Answered);
        let arrived = server.arrived();
        let told = arrived.last().unwrap().field("grpc-timeout");
        assert_eq!(told.map(|told| parse_grpc_timeout(told.as_bytes()).unwrap()), expected);
    }
}

#[tokio::test]
async fn a_dead_server_opens_the_breaker_and_is_not_processed() {
    let mut server = Server::start([]).await;
    let stack = Stack::new("test", &touchy()).unwrap();
    assert_eq!(call_through(&stack, &server, Safety::Unsafe).await.stop, StopReason::Answered);
    server.kill().await;
    let mut causes = Vec::new();
    for _ in 0..3 {
        let report = call_through(&stack, &server, Safety::Unsafe).await;
        causes.push(report.outcome.cause());
        if report.stop == StopReason::BreakerOpen {
            break;
        }
    }
    // The first may still find the connection that was lost.
    let ends = causes.as_slice();
    assert!(ends.ends_with(&[Cause::ConnectRefused, Cause::BreakerOpen]), "{ends:?}");
    let unsent = call(&server, &quick_to_retry(), Safety::Unsafe).await;
    assert_eq!((unsent.attempts, unsent.outcome.class()), (2, Class::NotProcessed));
}

#[tokio::test]
async fn a_status_among_the_trailers_counts() {
    for (reply, opens) in [
        (Reply::Trail(unavailable()), true),
        (Reply::Trail(Status::not_found("no")), false),
        (Reply::Trail(Status::resource_exhausted("no")), false),
        (Reply::Break, true),
    ] {
        let server = Server::start([reply.clone()]).await;
        let stack = Stack::new("test", &touchy()).unwrap();
        let _failed = call_through(&stack, &server, Safety::Unsafe).await;
        let next = call_through(&stack, &server, Safety::Unsafe).await;
        assert_eq!(next.stop == StopReason::BreakerOpen, opens, "{reply:?}: {next:?}");
    }
}

#[tokio::test]
async fn a_time_that_was_the_callers_is_no_illness_and_an_attempts_own_is() {
    for reply in [Reply::Silence, Reply::Refuse(Status::deadline_exceeded("late"))] {
        for (total, attempt_timeout, opens) in
            [(ms(80), None, false), (ms(10_000), Some(ms(80)), true)]
        {
            let server = Server::start([reply.clone()]).await;
            let config = StackConfig { total: Some(total), attempt_timeout, ..touchy() };
            let stack = Stack::new("test", &config).unwrap();
            let late = call_through(&stack, &server, Safety::Unsafe).await;
            assert!(late.result.is_err(), "{late:?}");
            let next = call_through(&stack, &server, Safety::Unsafe).await;
            assert_eq!(next.stop == StopReason::BreakerOpen, opens, "{reply:?}: {late:?} {next:?}");
        }
    }
}

async fn outcome_of(reply: Reply) -> Outcome {
    let server = Server::start([reply]).await;
    let status = server.unary(Request::new(Bytes::new())).await.unwrap_err();
    tonic_outcome(&status)
}

#[tokio::test]
async fn what_no_server_said_is_told_by_what_became_of_the_transport() {
    for (reason, cause) in [
        (h2::Reason::REFUSED_STREAM, Cause::RefusedStream),
        (h2::Reason::INTERNAL_ERROR, Cause::Reset),
    ] {
        assert_eq!(outcome_of(Reply::Reset(reason)).await, Outcome::of(cause), "{reason:?}");
    }
    assert_eq!(outcome_of(Reply::Break).await, Outcome::of(Cause::Closed));

    let server = Server::start([Reply::Silence]).await;
    let killed = async {
        server.arrival().await;
        server.abort();
    };
    let (lost, ()) = tokio::join!(server.unary(Request::new(Bytes::new())), killed);
    let lost = tonic_outcome(&lost.unwrap_err());
    assert_eq!(lost.class(), Class::Unknown, "{lost:?}");
    assert_ne!(lost.cause(), Cause::Unmatched);

    let server = Server::start([Reply::Silence]).await;
    let mut request = Request::new(Bytes::new());
    request.set_timeout(ms(30));
    let status = server.unary(request).await.unwrap_err();
    assert_eq!(tonic_outcome(&status), Outcome::of(Cause::AttemptTimeout));
}

#[tokio::test]
async fn a_name_that_does_not_resolve_and_a_connect_that_is_not_answered_are_not_processed() {
    // No name is that long: nobody is asked.
    let nowhere = server::channel(&format!("http://{}:1", "a".repeat(64)));
    // Its queue is full, so the next connect is not answered.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    let _first = tokio::net::TcpStream::connect(address).await.unwrap();
    let silent = server::channel(&format!("http://{address}"));
    for (channel, cause) in [(nowhere, Cause::Dns), (silent, Cause::ConnectTimeout)] {
        let status = server::unary(channel, Request::new(Bytes::new())).await.unwrap_err();
        assert_eq!(tonic_outcome(&status), Outcome::of(cause), "{status:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_grpc_is_classified_by_its_http_status() {
    const HTML: (&str, &str) = ("content-type", "text/html");
    for (status, class) in [
        (503, Class::Overloaded),
        (429, Class::Overloaded),
        (504, Class::Unknown),
        (404, Class::Rejected),
    ] {
        let outcome = outcome_of(Reply::Http(status, &[HTML, ("retry-after", "3")])).await;
        assert_eq!((outcome.cause(), outcome.class()), (Cause::Status(status), class));
        assert_eq!(outcome.retry_after(), seawall::RetryAfter::Wait(ms(3_000)));
    }
    assert_eq!(outcome_of(Reply::Http(200, &[HTML])).await, Outcome::of(Cause::Malformed));
    // A server that hands on what it got from another one said it itself.
    let relayed = "grpc-status header missing, mapped from HTTP status code 429";
    let relayed = outcome_of(Reply::Refuse(Status::unavailable(relayed))).await;
    assert_eq!(relayed.cause(), Cause::Grpc(GrpcCode::Unavailable));
}
