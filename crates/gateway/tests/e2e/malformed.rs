//! Upstreams that do not keep to the protocol, and what becomes of their answers.

use crate::support::*;

/// Asks once, lets the upstream play, and gives the answer and the upstream's connection.
async fn play(gateway: &Gateway, upstream: &RawUpstream, answer: &[u8]) -> (Answer, RawConn) {
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(post("/", full("x"))).await });
    let mut served = upstream.accept().await;
    served.head().await;
    served.read_exact(1).await;
    served.write(answer).await;
    (within(open).await.unwrap(), served)
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_502_and_its_connection_closed() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).upstream("breaker: off").start().await;
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(200));
    for answer in [
        "banana\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        huge.as_str(),
        many.as_str(),
    ] {
        let (answered, mut served) = play(&gateway, &upstream, answer.as_bytes()).await;
        let what = &answer[..answer.len().min(60)];
        assert_eq!(answered.status, 502, "{what}");
        assert_eq!(answered.header("seawall-retry"), Some("no"), "maybe executed: {what}");
        served.rest().await;
        let line = gateway.line().await;
        assert_eq!(line["cause"], "malformed", "{what}");
        assert!(line["response_flags"].as_str().unwrap().contains("UPE"), "{what}");
    }
}

#[tokio::test]
async fn a_connection_that_closes_before_the_head_is_told_502() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    for partial in ["", "HTTP/1.1 200 OK\r\nContent"] {
        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { caller.send(post("/", full("x"))).await });
        let mut served = upstream.accept().await;
        served.head().await;
        served.read_exact(1).await;
        served.write(partial).await;
        drop(served);
        assert_eq!(within(open).await.unwrap().status, 502);
        assert_eq!(gateway.line().await["cause"], "closed");
    }
}

#[tokio::test]
async fn an_answer_before_the_request_was_read_is_an_answer() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let request = post("/", full(vec![1; 32 << 20]));
    let open = tokio::spawn(async move {
        let response = caller.open(request).await;
        (Answer::read(response).await, caller)
    });
    let mut served = upstream.accept().await;
    served.head().await;
    served
        .write("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        .await;
    let (answered, _caller) = within(open).await.unwrap();
    assert_eq!((answered.status, answered.text().as_str()), (413, "big"));
    assert_eq!(gateway.line().await["status"], 413);
}

#[tokio::test]
async fn one_that_neither_reads_on_nor_closes_keeps_its_place_in_the_pool_no_longer_than_idle() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address)
        .upstream("max_connections: 1, timeouts: {idle: 100ms}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let request = post("/", full(vec![1; 32 << 20]));
    let open = tokio::spawn(async move {
        let response = caller.open(request).await;
        (Answer::read(response).await, caller)
    });
    let mut stuck = upstream.accept().await;
    stuck.head().await;
    stuck.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(within(open).await.unwrap().0.status, 200);
    let (answered, _served) =
        play(&gateway, &upstream, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(answered.text(), "ok");
}

#[tokio::test]
async fn informational_answers_are_not_the_answer() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let play = play(
        &gateway,
        &upstream,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let (answered, _served) = play.await;
    assert_eq!((answered.status, answered.text().as_str()), (200, "ok"));
    assert_eq!(answered.header("link"), None);
}

#[tokio::test]
async fn a_body_that_ends_with_its_connection_is_whole() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(get("/")).await });
    let mut served = upstream.accept().await;
    served.head().await;
    served.write("HTTP/1.0 200 OK\r\n\r\nuntil the end").await;
    drop(served);
    let answered = within(open).await.unwrap();
    assert_eq!(answered.text(), "until the end");
    assert!(answered.header("via").unwrap().starts_with("1.0 seawall-"));
}

#[tokio::test]
async fn an_answer_with_length_and_coding_is_read_by_its_coding_alone() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let (answered, _served) = play(
        &gateway,
        &upstream,
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
          5\r\nhello\r\n0\r\n\r\n",
    )
    .await;
    assert_eq!(answered.text(), "hello");
    assert_eq!(answered.header("content-length"), None);
}

#[tokio::test]
async fn what_comes_after_an_answer_is_nobodys_answer() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let (first, mut served) = play(
        &gateway,
        &upstream,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1\
          HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2",
    )
    .await;
    assert_eq!(first.text(), "1");
    served.rest().await;
    let third = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3";
    let (next, _served) = play(&gateway, &upstream, third).await;
    assert_eq!(next.text(), "3");
}

#[tokio::test]
async fn an_upstream_that_speaks_no_http_2_is_told_503() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).speaks(Protocol::H2c).start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(post("/", full("x"))).await });
    for _ in 0..2 {
        let mut served = upstream.accept().await;
        served.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        drop(served);
    }
    let answered = within(open).await.unwrap();
    assert_eq!(answered.status, 503);
    assert_eq!(answered.header("seawall-attempts"), Some("2"), "nothing was processed");
}

#[tokio::test]
async fn a_slow_body_of_a_caller_that_then_breaks_is_not_the_upstreams_fault() {
    for to in BOTH {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.raw().await;
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
        caller.write(head).await;
        let call = upstream.next().await;
        caller.write("banana\r\n").await;
        let answered = caller.head().await;
        assert!(answered.starts_with("HTTP/1.1 400 "), "{answered}");
        assert!(answered.to_lowercase().contains("seawall-problem: upload-failed\r\n"));
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_outcomes_total", &[("class", "cancelled")]), 1);
        assert_eq!(gateway.line().await["cause"], "upload_failed");
        drop(call);
    }
}
