//! Requests no proper client sends. Each is followed, in the same bytes, by a second request; if
//! that one arrives at the upstream although the first was refused, it was smuggled.

use std::time::Duration;

use seawall_cli::demo::{Behaviour, Protocol, Upstream, get};

use self::Fate::{Refused, RefusedAlone, RefusedOrLast, Unambiguous};
use crate::harness::{Gateway, PATIENCE, Stage, show, upstream_of};
use crate::raw::{
    CONTINUATION, END_HEADERS, END_STREAM, H2_GET, HEADERS, PING, RST_STREAM, Raw, SETTINGS,
    h2_begin, h2_frame,
};

/// What has to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// 4xx or 501 and the end of the connection; nothing reaches the upstream.
    Refused,
    /// 4xx, and nothing reaches the upstream. Where its length is beyond doubt the connection may
    /// go on, and the second request is one in its own right.
    RefusedAlone,
    /// As refused; or passed on with one meaning, and the connection ended after it.
    RefusedOrLast,
    /// As refused; or passed on with one meaning.
    Unambiguous,
}

/// Name, request line, fields, body, fate.
const TABLE: &[(&str, &str, &[&str], &str, Fate)] = &[
    (
        "both lengths",
        POST,
        &[HOST, "Content-Length: 5", "Transfer-Encoding: chunked"],
        "0\r\n\r\n",
        RefusedOrLast,
    ),
    (
        "both lengths, the other order",
        POST,
        &[HOST, "Transfer-Encoding: chunked", "Content-Length: 5"],
        "0\r\n\r\n",
        RefusedOrLast,
    ),
    (
        "two lengths that differ",
        POST,
        &[HOST, "Content-Length: 5", "Content-Length: 6"],
        "hello",
        Refused,
    ),
    ("two lengths in one field", POST, &[HOST, "Content-Length: 5, 6"], "hello", Refused),
    (
        "the same length twice",
        POST,
        &[HOST, "Content-Length: 5", "Content-Length: 5"],
        "hello",
        Unambiguous,
    ),
    ("a length with a sign", POST, &[HOST, "Content-Length: +5"], "hello", Refused),
    ("a negative length", POST, &[HOST, "Content-Length: -5"], "", Refused),
    ("a length in hexadecimal", POST, &[HOST, "Content-Length: 0x5"], "hello", Refused),
    ("a length beyond 64 bits", POST, &[HOST, "Content-Length: 99999999999999999999"], "", Refused),
    ("obs-fold", POST, &[HOST, "X-A: b", " Content-Length: 5"], "", Refused),
    ("NUL in a value", GET, &[HOST, "X-A: b\0c"], "", Refused),
    ("CR in a value", GET, &[HOST, "X-A: b\rX-B: c"], "", Refused),
    ("a space before the colon", POST, &[HOST, "Content-Length : 5"], "hello", Refused),
    ("a field without a colon", GET, &[HOST, "nonsense"], "", Refused),
    (
        "Transfer-Encoding: xchunked",
        POST,
        &[HOST, "Transfer-Encoding: xchunked"],
        "0\r\n\r\n",
        Refused,
    ),
    (
        "Transfer-Encoding: chunked, identity",
        POST,
        &[HOST, "Transfer-Encoding: chunked, identity"],
        "0\r\n\r\n",
        Refused,
    ),
    (
        "Transfer-Encoding twice, chunked not last",
        POST,
        &[HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: gzip"],
        "0\r\n\r\n",
        Refused,
    ),
    (
        "chunked in HTTP/1.0",
        "POST /a HTTP/1.0",
        &[HOST, "Transfer-Encoding: chunked"],
        "0\r\n\r\n",
        Refused,
    ),
    (
        "a chunk size beyond 64 bits",
        POST,
        &[HOST, "Transfer-Encoding: chunked"],
        "fffffffffffffffff\r\nx",
        RefusedOrLast,
    ),
    (
        "a chunk size that is none",
        POST,
        &[HOST, "Transfer-Encoding: chunked"],
        "5;\nhello\r\n0\r\n\r\n",
        RefusedOrLast,
    ),
    ("no Host", GET, &[], "", RefusedAlone),
    (
        "no Host, its body a request",
        POST,
        &["Content-Length: 38"],
        "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n ",
        RefusedAlone,
    ),
    ("two Hosts", GET, &[HOST, "Host: y"], "", RefusedAlone),
    ("a Host that is none", GET, &["Host: x/y@z"], "", RefusedAlone),
    ("no version", "GET /a", &[HOST], "", Refused),
    ("a version to come", "GET /a HTTP/7.3", &[HOST], "", Refused),
    ("CONNECT", "CONNECT x:443 HTTP/1.1", &["Host: x:443"], "", RefusedAlone),
];

const GET: &str = "GET /a HTTP/1.1";
const POST: &str = "POST /a HTTP/1.1";
const HOST: &str = "Host: x";

#[test]
fn nothing_is_smuggled_behind_a_malformed_request() {
    show("10 · malformed requests", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok()).await;
        let gateway = gateway(stage, &upstream).await;
        for (name, line, fields, body, fate) in TABLE {
            let request = format!("{line}\r\n{}\r\n\r\n{body}", fields.join("\r\n"));
            let told = one(stage, &gateway, &upstream, name, &request, *fate).await;
            stage.tell(*name, told);
        }
        let many: String = (0..500).map(|number| format!("X-{number}: y\r\n")).collect();
        let long = "y".repeat(256 << 10);
        for (name, request) in [
            ("500 fields", format!("GET /a HTTP/1.1\r\nHost: x\r\n{many}\r\n")),
            ("a field of 256 KiB", format!("GET /a HTTP/1.1\r\nHost: x\r\nX-A: {long}\r\n\r\n")),
            ("a target of 256 KiB", format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n")),
        ] {
            let told = one(stage, &gateway, &upstream, name, &request, Refused).await;
            stage.tell(name, told);
        }
        alive(&gateway).await;
    });
}

async fn one(
    stage: &Stage,
    gateway: &Gateway,
    upstream: &Upstream,
    name: &str,
    bytes: &str,
    fate: Fate,
) -> String {
    let mark = upstream.journal().len();
    let mut raw = Raw::connect(stage.clock, gateway.process.address()).await;
    raw.send(format!("{bytes}GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    let came = raw.rest(Duration::from_secs(1)).await;
    let seen = upstream.journal().since(mark);
    let passed = seen.iter().filter(|arrival| arrival.path == "/a").count();
    let second = seen.iter().filter(|arrival| arrival.path == "/smuggled").count();
    let status = came.status();
    let refused = status.is_none_or(|status| (400..500).contains(&status) || status == 501);
    let fits = match fate {
        Refused => refused && came.closed && passed == 0 && second == 0,
        RefusedAlone => refused && passed == 0 && second <= 1,
        RefusedOrLast => came.closed && passed <= 1 && second == 0,
        // The second is a request in its own right where the first ended where it says.
        Unambiguous => passed <= 1 && second <= 1 && (second == 0 || status.is_some()),
    };
    let told = format!(
        "{}{}{}",
        status.map_or_else(|| "no answer".to_owned(), |status| status.to_string()),
        if came.closed { ", closed" } else { ", open" },
        if passed == 0 { "" } else { ", passed on once" },
    );
    assert!(fits, "{name}: {told}, {second} of the second request; {came:?}");
    told
}

#[test]
fn floods_of_http2_frames_end_their_connection_and_cost_no_memory() {
    show("10 · HTTP/2 floods", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok().after(Duration::from_millis(50))).await;
        let gateway = gateway(stage, &upstream).await;
        alive(&gateway).await;
        let baseline = gateway.memory_kib("VmHWM");
        let field = [0x40, 0x01, b'x', 0x7f, 0x81, 0x7f].to_vec();
        let block = [field, vec![b'y'; 16_000]].concat();
        for (name, frame) in [
            ("rapid reset", None),
            ("CONTINUATION", Some(h2_frame(CONTINUATION, 0, 1, &block[..16_000]))),
            ("PING", Some(h2_frame(PING, 0, 0, &[0; 8]))),
            ("SETTINGS", Some(h2_frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]))),
        ] {
            let mark = upstream.journal().len();
            let sent = flood(stage, &gateway, frame).await;
            let reached = upstream.journal().len() - mark;
            stage.tell(
                name,
                format!("ended within {sent} frames, {reached} calls reached the upstream"),
            );
            assert!(sent < FLOOD, "{name}: not ended after {sent} frames");
            assert!(reached <= 1100, "{name}: {reached}");
        }
        let grown = gateway.memory_kib("VmHWM").saturating_sub(baseline);
        stage.tell("memory", format!("peak {grown} KiB above {baseline} KiB (32768 allowed)"));
        assert!(grown <= 32 * 1024, "{grown} KiB");
        alive(&gateway).await;
    });
}

/// More frames than any connection may send in vain.
const FLOOD: u32 = 200_000;

/// Sends frames without reading until the peer has had enough; returns how many it took. `None`:
/// a request and its reset, over and over.
async fn flood(stage: &Stage, gateway: &Gateway, frame: Option<Vec<u8>>) -> u32 {
    let mut raw = Raw::connect(stage.clock, gateway.process.address()).await;
    let mut opening = h2_begin();
    if frame.as_ref().is_some_and(|frame| frame[3] == CONTINUATION) {
        opening.extend(h2_frame(HEADERS, END_STREAM, 1, H2_GET));
    }
    raw.send(opening).await;
    for number in 0..FLOOD / BATCH {
        let mut batch = Vec::new();
        for place in 0..BATCH {
            let stream = (number * BATCH + place) * 2 + 1;
            match &frame {
                Some(frame) => batch.extend(frame),
                None => {
                    batch.extend(h2_frame(HEADERS, END_HEADERS | END_STREAM, stream, H2_GET));
                    batch.extend(h2_frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
                }
            }
        }
        let sending = tokio::time::timeout(PATIENCE, raw.send(batch));
        // A peer that neither reads nor closes for so long would have to be told apart: fail.
        match sending.await {
            Ok(true) => stage.pass(Duration::from_millis(1)).await,
            Ok(false) => return (number + 1) * BATCH,
            Err(_) => return FLOOD,
        }
    }
    FLOOD
}

const BATCH: u32 = 50;

async fn gateway(stage: &Stage, upstream: &Upstream) -> Gateway {
    stage
        .configured(&format!(
            "upstreams: {{only: {{endpoints: [\"{}\"], breaker: off}}}}\n",
            upstream.url()
        ))
        .await
}

async fn alive(gateway: &Gateway) {
    for protocol in [Protocol::Http1, Protocol::H2c] {
        let answer = gateway.client(protocol).send(get("/"), PATIENCE).await.unwrap();
        assert_eq!(answer.status, 200);
    }
}
