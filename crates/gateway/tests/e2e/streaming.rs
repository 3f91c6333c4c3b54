//! Bodies flow frame by frame, and no faster than their reader.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::support::*;

/// The next bytes of a body; nothing at its end.
async fn bytes(body: &mut Incoming) -> Option<Bytes> {
    loop {
        let frame = within(body.frame()).await?;
        let bytes = frame.expect("the body is whole").into_data().unwrap();
        // HTTP/2 may end a stream with an empty frame.
        if !bytes.is_empty() {
            return Some(bytes);
        }
    }
}

/// Whether the body has nothing now.
async fn is_quiet(body: &mut Incoming) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx).is_pending())).await
}

fn chunked(body: Body) -> Response<Body> {
    Response::new(body)
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "abc".parse().unwrap());
    trailers
}

#[tokio::test]
async fn both_bodies_flow_frame_by_frame_at_the_same_time() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move {
            let response = caller.open(post("/", body)).await;
            (caller, response)
        });
        up.data("one").await;
        let call = upstream.next().await;
        let (mut request, reply) = call.split();
        assert_eq!(bytes(&mut request).await.unwrap(), "one");
        let (down, body) = streamed();
        reply.answer(chunked(body));
        let (_caller, response) = within(open).await.unwrap();
        let mut response = response.into_body();
        for text in ["two", "three"] {
            up.data(text).await;
            assert_eq!(bytes(&mut request).await.unwrap(), text);
            down.data(text).await;
            assert_eq!(bytes(&mut response).await.unwrap(), text);
        }
        drop(up);
        assert_eq!(bytes(&mut request).await, None);
        drop(down);
        assert_eq!(bytes(&mut response).await, None);
        let line = gateway.line().await;
        assert_eq!((line["bytes_in"].as_u64(), line["bytes_out"].as_u64()), (Some(11), Some(8)));
    }
}

#[tokio::test]
async fn a_slow_reader_stops_the_upstream_after_a_bounded_number_of_bytes() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let open = tokio::spawn(async move {
            let response = caller.open(get("/")).await;
            (caller, response)
        });
        let call = upstream.next().await;
        let (down, body) = streamed();
        call.answer(chunked(body));
        let (_caller, response) = within(open).await.unwrap();
        let sent = fill(&gateway, &down).await;
        assert!(sent < 24 * 1024 * 1024, "{from:?} {to:?}: {sent}");
        // It goes on as soon as it is read.
        let mut response = response.into_body();
        let mut read = 0;
        while read < sent {
            read += bytes(&mut response).await.unwrap().len();
        }
    }
}

/// Sends until nobody takes anything while the gateway does much else; how many bytes that was.
async fn fill(gateway: &Gateway, frames: &Frames) -> usize {
    let frame = Bytes::from(vec![7; 64 * 1024]);
    let mut sent = 0;
    let mut refused = 0;
    while refused < 30 {
        if frames.try_send(frame.clone()) {
            sent += frame.len();
            refused = 0;
        }
        let _ = gateway.metrics().await;
        refused += 1;
    }
    sent
}

#[tokio::test]
async fn an_upload_is_not_read_ahead_of_the_upstream() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move { caller.send(post("/", body)).await });
        let call = upstream.next().await;
        let sent = fill(&gateway, &up).await;
        assert!(sent < 24 * 1024 * 1024, "{from:?} {to:?}: {sent}");
        let (mut request, reply) = call.split();
        let mut read = 0;
        while read < sent {
            read += bytes(&mut request).await.unwrap().len();
        }
        drop(up);
        assert_eq!(bytes(&mut request).await, None);
        reply.answer(answer(200, ""));
        assert_eq!(within(open).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_mebibyte_arrives_byte_for_byte_both_ways_with_and_without_length() {
    let body = pattern(1 << 20);
    for (from, to) in PAIRS {
        let (upstream, arrivals) =
            Upstream::scripted(to, |_, arrival| answer(200, arrival.body.clone())).await;
        let gateway = Setup::new(upstream).speaks(to).start().await;
        let answered = gateway.send_over(from, post("/", full(body.clone()))).await;
        assert!(answered.body == body);
        assert_eq!(answered.header("content-length"), Some("1048576"));
        let (up, streaming) = streamed();
        let mut caller = gateway.caller(from).await;
        let open = tokio::spawn(async move { caller.send(post("/", streaming)).await });
        for part in body.chunks(10_000) {
            up.data(Bytes::copy_from_slice(part)).await;
        }
        drop(up);
        assert!(within(open).await.unwrap().body == body);
        let arrivals = arrivals.lock().unwrap();
        assert!(arrivals.iter().all(|arrival| arrival.body == body));
        assert_eq!(arrivals[0].header("content-length"), Some("1048576"));
        assert_eq!(arrivals[1].header("content-length"), None);
    }
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let mut request = post("/", body);
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        request.headers_mut().insert("trailer", "x-checksum".parse().unwrap());
        if from == Protocol::Http1 {
            request.headers_mut().insert("connection", "te".parse().unwrap());
        }
        let open = tokio::spawn(async move { caller.send(request).await });
        up.data("up").await;
        up.trailers(trailers()).await;
        drop(up);
        let (arrival, reply) = upstream.next().await.read().await;
        assert_eq!((&arrival.body[..], arrival.trailers), (&b"up"[..], Some(trailers())));
        let (down, body) = streamed();
        let mut response = chunked(body);
        response.headers_mut().insert("trailer", "x-checksum".parse().unwrap());
        reply.answer(response);
        down.data("down").await;
        down.trailers(trailers()).await;
        drop(down);
        let answered = within(open).await.unwrap();
        assert_eq!((answered.text().as_str(), answered.trailers), ("down", Some(trailers())));
    }
}

#[tokio::test]
async fn answers_without_a_body_keep_their_fields_and_their_connection() {
    for (from, to) in PAIRS {
        let (upstream, arrivals) = Upstream::scripted(to, |_, arrival| {
            let status = arrival.path.trim_start_matches('/').parse().unwrap_or(200);
            let mut response = answer(status, if status == 200 { "hello" } else { "" });
            response.headers_mut().insert("etag", "\"1\"".parse().unwrap());
            if arrival.method == "HEAD" {
                *response.body_mut() = full("");
                response.headers_mut().insert("content-length", "5".parse().unwrap());
            }
            response
        })
        .await;
        let gateway = Setup::new(upstream).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        for (method, path, length) in [
            ("HEAD", "/", Some("5")),
            ("GET", "/204", None),
            ("GET", "/304", None),
            ("GET", "/", Some("5")),
        ] {
            let mut request = get(path);
            *request.method_mut() = method.parse().unwrap();
            let answered = caller.send(request).await;
            assert_eq!(answered.header("etag"), Some("\"1\""));
            assert_eq!(
                answered.header("content-length"),
                length,
                "{from:?} {to:?} {method} {path}"
            );
            let is_get = method == "GET" && path == "/";
            assert_eq!(answered.body.len(), if is_get { 5 } else { 0 });
            assert_eq!(gateway.line().await["completion_reason"], "complete");
        }
        assert!(arrivals.lock().unwrap().iter().all(|arrival| arrival.connection == 0));
    }
}

#[tokio::test]
async fn a_head_that_we_answer_has_no_body_either() {
    let gateway = Setup::new(RawUpstream::refusing().await)
        .route("path_prefix: /a, fallback: {on: [failure], body: instead}")
        .start()
        .await;
    for protocol in BOTH {
        for (path, status) in [("/", 404), ("/a", 200)] {
            let mut caller = gateway.caller(protocol).await;
            let mut request = get(path);
            *request.method_mut() = http::Method::HEAD;
            let answered = caller.send(request).await;
            assert_eq!((answered.status, answered.body.len()), (status, 0));
            assert_ne!(answered.header("content-length"), Some("0"));
            assert_eq!(caller.send(get("/")).await.status, 404, "the connection still works");
        }
    }
}

#[tokio::test]
async fn the_body_of_a_get_passes() {
    for (from, to) in PAIRS {
        let (upstream, _) =
            Upstream::scripted(to, |_, arrival| answer(200, arrival.body.clone())).await;
        let gateway = Setup::new(upstream).speaks(to).start().await;
        let (up, body) = streamed();
        let mut caller = gateway.caller(from).await;
        let mut request = get("/");
        *request.body_mut() = body;
        if from == Protocol::Http1 {
            request.headers_mut().insert("transfer-encoding", "chunked".parse().unwrap());
        }
        let open = tokio::spawn(async move { caller.send(request).await });
        up.data("asked").await;
        drop(up);
        assert_eq!(within(open).await.unwrap().text(), "asked");
    }
}

#[tokio::test]
async fn an_answer_that_comes_early_passes_while_the_upload_still_flows() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move {
            let response = caller.open(post("/", body)).await;
            (caller, response)
        });
        up.data("begin").await;
        let (mut request, reply) = upstream.next().await.split();
        assert_eq!(bytes(&mut request).await.unwrap(), "begin");
        reply.answer(answer(413, "enough"));
        let (_caller, response) = within(open).await.unwrap();
        assert_eq!(Answer::read(response).await.text(), "enough");
        assert_eq!(gateway.line().await["status"], 413);
    }
}

#[tokio::test]
async fn a_body_that_the_upstream_breaks_off_is_broken_for_the_caller() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        for announced in [false, true] {
            let mut caller = gateway.caller(from).await;
            let open = tokio::spawn(async move {
                let response = caller.open(get("/")).await;
                (caller, response)
            });
            let (down, body) = streamed();
            let mut response = chunked(body);
            if announced {
                response.headers_mut().insert("content-length", "10".parse().unwrap());
            }
            upstream.next().await.answer(response);
            let (_caller, response) = within(open).await.unwrap();
            let mut body = response.into_body();
            down.data("half").await;
            assert_eq!(bytes(&mut body).await.unwrap(), "half");
            assert!(is_quiet(&mut body).await);
            down.fail().await;
            assert!(within(body.frame()).await.unwrap().is_err(), "{from:?} {to:?}");
            let line = gateway.line().await;
            assert_eq!(line["completion_reason"], "upstream_broke");
            assert_eq!((line["status"].as_u64(), line["bytes_out"].as_u64()), (Some(200), Some(4)));
        }
        let open = tokio::spawn(async move { caller.send(get("/")).await });
        upstream.next().await.answer(answer(200, "next"));
        assert_eq!(within(open).await.unwrap().text(), "next", "the gateway goes on");
    }
}
