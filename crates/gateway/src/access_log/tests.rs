use std::collections::BTreeSet;

use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};

use super::*;
use crate::lines::tests::Page;

const LINE: AccessLine<'static> = AccessLine {
    time_unix_ms: 1_767_225_600_020,
    request_id: b"r-1",
    correlation_id: None,
    trace_id: None,
    span_id: None,
    peer: Peer::Unix,
    client: None,
    method: b"GET",
    host: None,
    path: b"/",
    protocol: "HTTP/1.1",
    status: 200,
    grpc_status: None,
    route: None,
    upstream: None,
    endpoint: None,
    attempts: 1,
    redispatches: 0,
    hedges: 0,
    caller_attempt: None,
    stop_reason: Some(StopReason::Answered),
    cause: Some(Cause::Status(200)),
    refusal: None,
    queue_wait: Duration::ZERO,
    execution: Duration::ZERO,
    total: Duration::ZERO,
    configured_timeout: None,
    remaining_budget: None,
    completion: Completion::Complete,
    degraded: false,
    bytes_in: 0,
    bytes_out: 0,
};

/// The fields of an object in their order, none lost.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

fn written(line: &AccessLine<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    line.write_json(&mut out);
    out
}

fn fields(line: &AccessLine<'_>) -> Vec<(String, Value)> {
    let Fields(fields) = serde_json::from_slice(&written(line)).unwrap();
    fields
}

fn field(line: &AccessLine<'_>, name: &str) -> Value {
    fields(line).into_iter().find(|(key, _)| key == name).unwrap().1
}

#[test]
fn a_full_line_reads_as_it_was_filled() {
    let line = AccessLine {
        correlation_id: Some(b"c-1"),
        trace_id: Some(b"4bf92f3577b34da6a3ce929d0e0e4736"),
        span_id: Some(b"00f067aa0ba902b7"),
        peer: Peer::Tcp("[::1]:4711".parse().unwrap()),
        client: Some("2001:db8::7".parse().unwrap()),
        method: b"POST",
        host: Some(b"orders.test"),
        path: b"/v1/orders?token=secret#part",
        status: 503,
        route: Some("orders"),
        upstream: Some("bridge"),
        endpoint: Some("127.0.0.1:9001"),
        attempts: 2,
        redispatches: 1,
        caller_attempt: Some(3),
        stop_reason: Some(StopReason::Exhausted),
        cause: Some(Cause::ConnectRefused),
        queue_wait: Duration::from_micros(1_005),
        execution: Duration::from_millis(20),
        total: Duration::from_micros(25_999),
        configured_timeout: Some(Duration::from_secs(25)),
        remaining_budget: Some(Duration::ZERO),
        degraded: true,
        bytes_in: 12,
        bytes_out: u64::MAX,
        ..LINE
    };
    let read: Value = serde_json::from_slice(&written(&line)).unwrap();
    assert_eq!(
        read,
        json!({
            "time": "2026-01-01T00:00:00.020Z",
            "request_id": "r-1",
            "correlation_id": "c-1",
            "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
            "span_id": "00f067aa0ba902b7",
            "peer": "[::1]:4711",
            "client": "2001:db8::7",
            "method": "POST",
            "host": "orders.test",
            "path": "/v1/orders",
            "protocol": "HTTP/1.1",
            "status": 503,
            "grpc_status": null,
            "route": "orders",
            "upstream": "bridge",
            "endpoint": "127.0.0.1:9001",
            "attempts": 2,
            "redispatches": 1,
            "hedges": 0,
            "caller_attempt": 3,
            "stop_reason": "exhausted",
            "cause": "connect_refused",
            "queue_wait_ms": 1.005,
            "execution_ms": 20.0,
            "total_ms": 25.999,
            "configured_timeout_ms": 25_000.0,
            "remaining_budget_ms": 0.0,
            "completion_reason": "complete",
            "degraded": true,
            "bytes_in": 12,
            "bytes_out": u64::MAX,
            "response_flags": "UF,URX,FB",
        })
    );
}

#[test]
fn what_is_not_known_is_null_and_never_left_out() {
    let names = |line: &AccessLine<'_>| -> Vec<_> {
        fields(line).into_iter().map(|(name, _)| name).collect()
    };
    let refused = AccessLine { refusal: Some(Refusal::NoRoute), status: 404, ..LINE };
    assert_eq!(names(&LINE), names(&refused));
    for name in ["correlation_id", "host", "route", "caller_attempt", "remaining_budget_ms"] {
        assert_eq!(field(&LINE, name), Value::Null, "{name}");
    }
    assert_eq!(field(&AccessLine { status: 0, ..LINE }, "status"), Value::Null);
    assert_eq!(field(&LINE, "grpc_status"), Value::Null);
    assert_eq!(field(&AccessLine { grpc_status: Some(14), ..LINE }, "grpc_status"), 14);
    assert_eq!(field(&refused, "cause"), "no_route");
}

#[test]
fn flags_tell_what_went_wrong_and_nothing_on_success() {
    let check = |line: AccessLine<'_>| field(&line, "response_flags");
    assert_eq!(check(LINE), "");
    let upstream_503 = Cause::Status(503);
    for (stop_reason, flag) in [
        (StopReason::Exhausted, "URX"),
        (StopReason::Budget, "RB"),
        (StopReason::RetriesOff, "RO"),
        (StopReason::NotRetryable, ""),
    ] {
        let line = AccessLine { cause: Some(upstream_503), stop_reason: Some(stop_reason), ..LINE };
        assert_eq!(check(line), flag, "{stop_reason:?}");
    }
    for (cause, flag) in [
        (Cause::Dns, "DF"),
        (Cause::ConnectTimeout, "UF"),
        (Cause::AttemptTimeout, "UT"),
        (Cause::Closed, "UC"),
        (Cause::Reset, "UR"),
        (Cause::Malformed, "UPE"),
        (Cause::BulkheadFull, "UO"),
        (Cause::RateLimited, "RL"),
        (Cause::QuotaExceeded, "RL"),
        (Cause::BreakerOpen, "UH"),
        (Cause::DeadlinePassed, "DL"),
    ] {
        assert_eq!(check(AccessLine { cause: Some(cause), ..LINE }), flag, "{cause:?}");
    }
    let left =
        AccessLine { completion: Completion::CallerLeft, cause: Some(Cause::CallerLeft), ..LINE };
    assert_eq!(check(left), "DC", "told once");
    let torn = AccessLine { completion: Completion::UpstreamBroke, ..LINE };
    assert_eq!(check(torn), "UC", "in the middle of an answer");
    let drained = AccessLine { completion: Completion::Drained, ..LINE };
    assert_eq!(check(drained), "DR");
}

#[tokio::test]
async fn a_log_that_closes_has_written_every_line() {
    let page = Page::default();
    let log = AccessLog::to(page.clone()).unwrap();
    for _ in 0..100 {
        log.log(&LINE);
    }
    assert!(log.close().await);
    assert_eq!(page.text().lines().count(), 100);
    assert!(page.text().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert_eq!(log.dropped(), 0);
    assert_eq!(log.depth(), Some((0, QUEUE)));
}

#[tokio::test]
async fn a_log_that_is_off_writes_nothing_and_closes_at_once() {
    let log = AccessLog::off();
    log.log(&LINE);
    assert!(log.close().await);
    assert_eq!((log.dropped(), log.depth()), (0, None));
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..5000),
        "[\\PC\"\\\\\n\r\u{2028}\u{1b}{}]{0,3000}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_bytes_stay_inside_their_field_of_one_bounded_line(
        request_id in bytes(),
        other_id in bytes(),
        method in bytes(),
        host in bytes(),
        path in bytes(),
    ) {
        let line = AccessLine {
            request_id: &request_id,
            correlation_id: Some(&other_id),
            trace_id: Some(&other_id),
            span_id: Some(&other_id),
            method: &method,
            host: Some(&host),
            path: &path,
            ..LINE
        };
        let out = written(&line);
        prop_assert!(out.len() < 5 * 1024);
        prop_assert!(!out.iter().any(|byte| *byte < 0x20 || *byte == 0x7f), "controls are escaped");
        let Fields(read) = serde_json::from_slice(&out).unwrap();
        let expected: Vec<_> = fields(&LINE).into_iter().map(|(name, _)| name).collect();
        let names: Vec<_> = read.iter().map(|(name, _)| name.clone()).collect();
        prop_assert_eq!(names, expected);
        let path_read = read.iter().find(|(name, _)| name == "path").unwrap().1.as_str().unwrap();
        prop_assert!(!path_read.contains(['?', '#']));
        let short = path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap();
        if short.len() < 300 {
            prop_assert_eq!(path_read, String::from_utf8_lossy(short));
        }
    }
}

/// First columns of the table under `heading` of the page.
fn listed(heading: &str) -> Vec<String> {
    let page = include_str!("../../../../docs/access-log.md");
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned))
        .collect()
}

#[test]
fn the_page_lists_exactly_the_fields_in_their_order() {
    let names: Vec<_> = fields(&LINE).into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed("Fields"), names);
}

#[test]
fn the_page_lists_exactly_the_completions_and_flags() {
    assert_eq!(listed("Completion"), Completion::ALL.map(Completion::as_str));
    let causes = [
        Cause::Dns,
        Cause::ConnectFailed,
        Cause::DeadlineCut,
        Cause::HandedBack,
        Cause::GoAway,
        Cause::Malformed,
        Cause::UploadFailed,
        Cause::BreakerOpen,
        Cause::RateLimited,
        Cause::StreamsFull,
        Cause::DeadlinePassed,
    ];
    let refusals =
        [Refusal::NoRoute, Refusal::BadRequest, Refusal::BodyTooLarge, Refusal::Draining];
    let flags: BTreeSet<_> = causes
        .into_iter()
        .filter_map(cause_flag)
        .chain(refusals.into_iter().filter_map(refusal_flag))
        .chain(StopReason::ALL.into_iter().filter_map(stop_flag))
        .chain(["FB"])
        .collect();
    let listed: BTreeSet<_> = listed("Response flags").into_iter().collect();
    assert_eq!(listed, flags.into_iter().map(str::to_owned).collect());
}
