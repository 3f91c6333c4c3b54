//! Requests that break the grammar or contradict themselves. The claim is always the same: it is
//! refused, or exactly one request came of it, and the connection was closed.

use super::*;

/// What follows a malformed request, and must not be taken for one of its own.
const NEXT: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// The statuses answered and the paths a handler saw, after `bytes` were sent and the server
/// closed.
async fn outcome(bytes: &[u8]) -> (Vec<u16>, Vec<String>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let running = start(ServerOptions::default(), unhurried(), noting(Arc::clone(&seen)));
    let mut socket = running.connect().await;
    let (mut from, mut to) = socket.split();
    let mut read = Vec::new();
    // Our side stays open: only the server can end this.
    let (_, ended) = tokio::join!(to.write_all(bytes), within(from.read_to_end(&mut read)));
    drop(ended);
    let text = String::from_utf8_lossy(&read);
    let statuses = text.split("HTTP/1.1 ").skip(1).map(|rest| rest[..3].parse().unwrap()).collect();
    let seen = seen.lock().unwrap().clone();
    (statuses, seen)
}

/// What counts a head that hyper refuses: it reaches no handler.
#[tokio::test]
async fn a_head_that_cannot_be_parsed_is_counted_by_its_connection() {
    for head in [
        "GET /one HTTP/1.1\r\nHost: a\r\nX: 1\u{0}2\r\n\r\n".to_owned(),
        "POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\nx".to_owned(),
        format!("GET /one HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(101)),
        format!("GET /one HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(70_000)),
        "banana\r\n\r\n".to_owned(),
    ] {
        let running = start(ServerOptions::default(), unhurried(), hello);
        let mut socket = running.connect().await;
        socket.write_all(head.as_bytes()).await.unwrap();
        let answer = read_to_end(&mut socket).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        running.closed(CloseReason::Malformed, 1).await;
    }
}

/// The first beyond the limit is the handler's to refuse.
#[tokio::test]
async fn a_head_with_one_field_too_many_reaches_the_handler() {
    let running = start(ServerOptions::default(), unhurried(), hello);
    let mut socket = running.connect().await;
    let fields = "X: 1\r\n".repeat(99);
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    assert!(read_to_end(&mut socket).await.ends_with("hello"));
    running.closed(CloseReason::Ended, 1).await;
}

async fn check(name: &str, request: &str, refused_with: Option<u16>) {
    let bytes = [request, NEXT].concat();
    let (statuses, seen) = outcome(bytes.as_bytes()).await;
    match refused_with {
        Some(status) => {
            assert_eq!(statuses, [status], "{name}");
            assert!(seen.is_empty(), "{name}: {seen:?}");
        }
        None => {
            assert_eq!(statuses.len(), 1, "{name}: {statuses:?}");
            assert_eq!(seen, ["/one"], "{name}");
        }
    }
}

#[tokio::test]
async fn lengths_that_contradict_each_other_smuggle_nothing() {
    let post = |fields: &str, body: &str| {
        format!("POST /one HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
    };
    for (name, fields, body, refused_with) in [
        (
            "both, length first",
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
            None,
        ),
        (
            "both, coding first",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "0\r\n\r\n",
            None,
        ),
        (
            "both, length of garbage",
            "Transfer-Encoding: chunked\r\nContent-Length: x",
            "0\r\n\r\n",
            None,
        ),
        ("two lengths", "Content-Length: 1\r\nContent-Length: 2", "x", Some(400)),
        ("two lengths in a list", "Content-Length: 1, 2", "x", Some(400)),
        ("one length twice in a list", "Content-Length: 1, 1", "x", Some(400)),
        ("negative length", "Content-Length: -1", "x", Some(400)),
        ("signed length", "Content-Length: +1", "x", Some(400)),
        ("hexadecimal length", "Content-Length: 0x1", "x", Some(400)),
        ("length of 2^64", "Content-Length: 18446744073709551616", "x", Some(400)),
        ("empty length", "Content-Length: ", "x", Some(400)),
        ("space before the colon", "Content-Length : 1", "x", Some(400)),
        ("chunked twice", "Transfer-Encoding: chunked, chunked", "0\r\n\r\n", Some(400)),
        (
            "chunked on two lines",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
            Some(400),
        ),
        ("identity", "Transfer-Encoding: identity", "", Some(400)),
        ("xchunked", "Transfer-Encoding: xchunked", "0\r\n\r\n", Some(400)),
        ("chunked before gzip", "Transfer-Encoding: chunked, gzip", "0\r\n\r\n", Some(400)),
        ("gzip before chunked", "Transfer-Encoding: gzip, chunked", "0\r\n\r\n", Some(501)),
        (
            "identity before chunked",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            "0\r\n\r\n",
            Some(400),
        ),
        ("quoted chunked", "Transfer-Encoding: \"chunked\"", "0\r\n\r\n", Some(400)),
        ("vertical tab before chunked", "Transfer-Encoding: \u{b}chunked", "0\r\n\r\n", Some(400)),
        ("unknown expectation", "Expect: 200-ok\r\nContent-Length: 1", "x", Some(417)),
    ] {
        check(name, &post(fields, body), refused_with).await;
    }
    check(
        "coding on HTTP/1.0",
        "POST /one HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Some(400),
    )
    .await;
}

#[tokio::test]
async fn chunks_that_break_the_grammar_end_the_connection() {
    let post = |body: &str| {
        format!("POST /one HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
    };
    for (name, body) in [
        ("size of garbage", "xyz\r\n"),
        ("signed size", "+1\r\nx\r\n0\r\n\r\n"),
        ("prefixed size", "0x1\r\nx\r\n0\r\n\r\n"),
        ("size beyond 64 bits", "fffffffffffffffff\r\nx\r\n0\r\n\r\n"),
        ("data longer than its size", "1\r\nxy\r\n0\r\n\r\n"),
        ("lone LF in an extension", "1;a\nx\r\n0\r\n\r\n"),
        ("lone LF after a size", "1\nx\r\n0\r\n\r\n"),
        ("lone LF after data", "1\r\nx\n0\r\n\r\n"),
    ] {
        let (statuses, seen) = outcome([&post(body), NEXT].concat().as_bytes()).await;
        assert!(statuses.len() <= 1, "{name}: {statuses:?}");
        assert_eq!(seen, ["/one"], "{name}");
    }
}

#[tokio::test]
async fn heads_that_break_the_grammar_are_refused() {
    for (name, request) in [
        ("folded line", "GET /one HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n"),
        ("folded first line", "GET /one HTTP/1.1\r\n Host: a\r\n\r\n"),
        ("NUL in a value", "GET /one HTTP/1.1\r\nHost: a\r\nX: 1\u{0}2\r\n\r\n"),
        ("lone CR in a value", "GET /one HTTP/1.1\r\nHost: a\r\nX: 1\r2\r\n\r\n"),
        ("NUL in a name", "GET /one HTTP/1.1\r\nHost: a\r\nX\u{0}: 1\r\n\r\n"),
        ("space in a name", "GET /one HTTP/1.1\r\nHost: a\r\nX Y: 1\r\n\r\n"),
        ("no colon", "GET /one HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"),
        ("space in the target", "GET /one /two HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("HTTP/1.2", "GET /one HTTP/1.2\r\nHost: a\r\n\r\n"),
        ("HTTP/0.9", "GET /one\r\n\r\n"),
        ("no host", "GET /one HTTP/1.1\r\n\r\n"),
        ("two hosts", "GET /one HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        ("two hosts in a list", "GET /one HTTP/1.1\r\nHost: a, b\r\n\r\n"),
        ("host with a user", "GET /one HTTP/1.1\r\nHost: u@a\r\n\r\n"),
        ("target of a user", "GET http://u@a/one HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("target without a slash", "GET one HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        check(name, request, Some(400)).await;
    }
    check("CONNECT", "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", Some(405)).await;
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let fields = |count: usize| "X: 1\r\n".repeat(count);
    let get = |fields: &str| format!("GET /one HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    check("101 fields", &get(&fields(100)), Some(431)).await;
    check("10,000 fields", &get(&fields(10_000)), Some(431)).await;
    check("70 KiB in a value", &get(&format!("X: {}\r\n", "x".repeat(70_000))), Some(431)).await;
    let endless = format!("GET /one HTTP/1.1\r\nX: {}", "x".repeat(1 << 20));
    let (statuses, seen) = outcome(endless.as_bytes()).await;
    // The answer may be lost to the reset that follows unread bytes.
    assert!(statuses.is_empty() || statuses == [431], "{statuses:?}");
    assert!(seen.is_empty());
}

#[tokio::test]
async fn a_hundred_fields_and_a_head_of_60_kib_are_served() {
    let fields = "X: 1\r\n".repeat(97);
    let value = "x".repeat(60_000);
    let head =
        format!("GET /one HTTP/1.1\r\nHost: a\r\n{fields}Y: {value}\r\nConnection: close\r\n\r\n");
    assert_eq!(outcome(head.as_bytes()).await, (vec![200], vec!["/one".to_owned()]));
}

/// A lone LF ends a line, as RFC 9112 section 2.2 allows. It is one reading: fields behind it
/// count, and a body ends where they say.
#[tokio::test]
async fn a_lone_lf_is_read_as_the_end_of_a_line_everywhere_in_a_head() {
    let request = "POST /one HTTP/1.1\nHost: a\nContent-Length: 35\nConnection: close\n\n";
    assert_eq!(NEXT.len(), 35);
    let (statuses, seen) = outcome([request, NEXT, NEXT].concat().as_bytes()).await;
    assert_eq!(statuses, [200]);
    assert_eq!(seen, ["/one"]);
    let hidden = "POST /one HTTP/1.1\r\nHost: a\r\nX: y\nTransfer-Encoding: chunked\r\n\
                  Content-Length: 5\r\n\r\n0\r\n\r\n";
    check("coding hidden behind a lone LF", hidden, None).await;
}
