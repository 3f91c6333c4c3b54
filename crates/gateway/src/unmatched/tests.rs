use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::rt::{Read, ReadBufCursor, Write};
use seawall::Clock;

use super::*;
use crate::lines::tests::Page;

/// A connection that takes one write and then fails to read.
struct Broken {
    error: Option<io::Error>,
    written: bool,
    reader: Option<Waker>,
}

impl Read for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.written {
            return Poll::Ready(self.error.take().map_or(Ok(()), Err));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Write for Broken {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What hyper makes of an exchange whose connection fails like this.
pub(crate) async fn hyper_error(error: io::Error) -> hyper::Error {
    let io = Broken { error: Some(error), written: false, reader: None };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(http::Request::new(Empty::<Bytes>::new())).await.unwrap_err()
}

fn upstreams() -> Vec<UpstreamLabels> {
    ["orders", "prices"]
        .map(|name| UpstreamLabels {
            upstream: name.to_owned(),
            endpoints: vec!["a:1".to_owned(), "b:2".to_owned()],
        })
        .to_vec()
}

fn unmatched(page: &Page) -> Unmatched {
    let diagnostics = Diagnostics::to(page.clone(), false, Clock::new()).unwrap();
    Unmatched::new(upstreams(), diagnostics)
}

#[tokio::test]
async fn each_kind_is_told_of_once_and_counted_by_upstream() {
    let page = Page::default();
    let unmatched = unmatched(&page);
    for (upstream, kind, text) in [
        (0, io::ErrorKind::Other, "strange\nERROR"),
        (1, io::ErrorKind::Other, "again"),
        (0, io::ErrorKind::Other, "and again"),
        (0, io::ErrorKind::HostUnreachable, "gone"),
    ] {
        let error = hyper_error(io::Error::new(kind, text)).await;
        unmatched.record(upstream, 1, &error);
    }
    assert!(unmatched.diagnostics.close().await);
    let text = page.text();
    let lines: Vec<_> = text.lines().map(|line| line.split_once(" upstream=").unwrap()).collect();
    assert!(lines[0].0.contains("Z WARN error of a new kind, taken for one after which"));
    assert_eq!(
        lines.iter().map(|(_, pairs)| *pairs).collect::<Vec<_>>(),
        [
            "orders endpoint=b:2 kind=io_other_error error=\"connection error: strange\\nERROR\"",
            "orders endpoint=b:2 kind=io_host_unreachable error=\"connection error: gone\"",
        ]
    );
    let count = |kind: &str, count| (kind.to_owned(), count);
    let orders = [count("io_other_error", 2), count("io_host_unreachable", 1), count("other", 0)];
    assert_eq!(unmatched.counts(0), orders);
    assert_eq!(unmatched.counts(1), [count("io_other_error", 1), count("other", 0)]);
}

#[tokio::test]
async fn sixty_four_kinds_are_told_apart_and_the_rest_are_other() {
    #[derive(Debug, thiserror::Error)]
    #[error("kind {0}")]
    struct Numbered(usize);
    let page = Page::default();
    let unmatched = unmatched(&page);
    for round in 0..2 {
        for number in 0..66 {
            unmatched.record(0, 0, &Numbered(number));
        }
        let counts = unmatched.counts(0);
        assert_eq!(counts.len(), 65);
        assert_eq!(counts[63], ("kind_63".to_owned(), round + 1));
        assert_eq!(counts[64], ("other".to_owned(), 2 * (round + 1)));
    }
    assert_eq!(unmatched.counts(1), [("other".to_owned(), 0)]);
    assert!(unmatched.diagnostics.close().await);
    // As of every topic, ten lines a second.
    assert_eq!(page.text().lines().count(), 10);
}

#[test]
fn a_kind_is_made_of_what_is_constant_in_an_error() {
    let h2 = h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM);
    assert_eq!(kind_of(&h2), "h2_enhance_your_calm");
    assert_eq!(kind_of(&io::Error::other("text of a peer")), "io_other_error");
    assert_eq!(words("", "Invalid (Thing) ".repeat(9)).len(), 64, "cut");
}

#[test]
fn an_error_that_is_its_own_source_is_told_in_bounds() {
    #[derive(Debug)]
    struct Loop;
    impl fmt::Display for Loop {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("round")
        }
    }
    impl Error for Loop {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }
    assert_eq!(chain(&Loop).matches("round").count(), 16);
}
