//! A server that leaves, with callers who do not know it yet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use h2::client::SendRequest;
use hyper_util::rt::TokioIo;

use super::*;

const ACCEPT: Duration = Duration::from_millis(400);

fn phases(accept: Duration, in_flight: Duration, close: Duration) -> ServerOptions {
    let drain = DrainPhases { accept, in_flight, close };
    ServerOptions { drain, ..ServerOptions::default() }
}

/// What callers under load met with.
#[derive(Debug, Default)]
struct Tally {
    /// Requests a handler took.
    taken: AtomicUsize,
    answered: AtomicUsize,
    lost: AtomicUsize,
    reconnects: AtomicUsize,
    /// No new connections: the load balancer has noticed.
    noticed: AtomicBool,
}

fn counting(
    tally: &Arc<Tally>,
) -> impl Fn(
    Request<Incoming>,
    ConnInfo,
) -> futures_util::future::BoxFuture<'static, Response<Full<Bytes>>>
+ Clone
+ Send
+ 'static {
    let tally = Arc::clone(tally);
    move |_, _| {
        tally.taken.fetch_add(1, SeqCst);
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Response::new(Full::from("hello"))
        })
    }
}

async fn http1_caller(address: SocketAddr, tally: Arc<Tally>) {
    while !tally.noticed.load(SeqCst) {
        let Ok(mut socket) = TcpStream::connect(address).await else { return };
        tally.reconnects.fetch_add(1, SeqCst);
        loop {
            // A failure to write is noticed by the answer that does not come.
            let _ = socket.write_all(GET).await;
            let answer = read_answer(&mut socket).await;
            if !answer.ends_with("hello") {
                tally.lost.fetch_add(1, SeqCst);
                break;
            }
            tally.answered.fetch_add(1, SeqCst);
            if answer.contains("connection: close") {
                break;
            }
        }
    }
}

/// Speaks through h2 itself: hyper's client also reports a request as gone away that it had sent
/// just before it read GOAWAY, and that the server then answers.
async fn http2_caller(address: SocketAddr, tally: Arc<Tally>) {
    while !tally.noticed.load(SeqCst) {
        let Ok(socket) = TcpStream::connect(address).await else { return };
        tally.reconnects.fetch_add(1, SeqCst);
        let Ok((sender, connection)) = h2::client::handshake(socket).await else { return };
        let connection = tokio::spawn(connection);
        let callers: Vec<_> = (0..4)
            .map(|_| tokio::spawn(http2_stream_caller(sender.clone(), Arc::clone(&tally))))
            .collect();
        drop(sender);
        for caller in callers {
            caller.await.unwrap();
        }
        let _ = within(connection).await;
    }
}

/// Sends requests until one is not sent, or is proven not to have been processed.
async fn http2_stream_caller(mut sender: SendRequest<Bytes>, tally: Arc<Tally>) {
    loop {
        let Ok(ready) = within(sender.ready()).await else { return };
        sender = ready;
        let request = Request::get("http://a/").body(()).unwrap();
        let Ok((response, _)) = sender.send_request(request, true) else { return };
        let answer = match within(response).await {
            Err(error) if error.is_go_away() && error.is_remote() => return,
            Err(_) => None,
            Ok(response) => {
                let mut body = response.into_body();
                let mut read = Vec::new();
                while let Some(Ok(part)) = within(body.data()).await {
                    read.extend_from_slice(&part);
                }
                Some(read)
            }
        };
        if answer.as_deref() != Some(b"hello") {
            tally.lost.fetch_add(1, SeqCst);
            return;
        }
        tally.answered.fetch_add(1, SeqCst);
    }
}

/// Drains under load from eight callers and returns what they met with.
async fn drain_under_load<C>(caller: impl Fn(SocketAddr, Arc<Tally>) -> C) -> Arc<Tally>
where
    C: Future<Output = ()> + Send + 'static,
{
    let tally = Arc::new(Tally::default());
    let options = phases(ACCEPT, BOUND, Duration::from_secs(1));
    let running = start(options, unhurried(), counting(&tally));
    let callers: Vec<_> =
        (0..8).map(|_| tokio::spawn(caller(running.address, Arc::clone(&tally)))).collect();
    within(async {
        while tally.answered.load(SeqCst) < 100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let before = tally.reconnects.load(SeqCst);
    running.trigger.signal();
    tokio::time::sleep(ACCEPT * 3 / 4).await;
    tally.noticed.store(true, SeqCst);
    let report = within(running.task).await.unwrap();
    for caller in callers {
        within(caller).await.unwrap();
    }
    assert_eq!((report.connections_cut, report.requests_cut), (0, 0), "{tally:?}");
    assert!(report.took >= ACCEPT, "{report:?}");
    assert!(tally.reconnects.load(SeqCst) > before, "nobody was told in time: {tally:?}");
    assert_eq!(running.gauges.active(), 0);
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_keep_alive_load_loses_no_request() {
    let tally = drain_under_load(http1_caller).await;
    assert_eq!(tally.lost.load(SeqCst), 0, "{tally:?}");
    assert_eq!(tally.taken.load(SeqCst), tally.answered.load(SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_http_2_load_loses_no_request() {
    let tally = drain_under_load(http2_caller).await;
    assert_eq!(tally.lost.load(SeqCst), 0, "{tally:?}");
    assert_eq!(tally.taken.load(SeqCst), tally.answered.load(SeqCst));
}

#[tokio::test]
async fn an_idle_connection_may_send_one_more_request_in_flight() {
    let options = phases(Duration::ZERO, BOUND, SOON);
    let mut running = start(options, unhurried(), hello);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    assert!(!read_answer(&mut socket).await.contains("connection: close"));
    running.trigger.signal();
    running.until(DrainPhase::InFlight).await;
    tokio::time::sleep(SOON).await;
    assert!(TcpStream::connect(running.address).await.is_err());
    socket.write_all(GET).await.unwrap();
    let answer = read_to_end(&mut socket).await;
    assert!(answer.contains("connection: close") && answer.ends_with("hello"), "{answer}");
    let report = within(running.task).await.unwrap();
    assert_eq!((report.connections_cut, report.requests_cut), (0, 0));
    assert!(report.took < BOUND);
}

#[tokio::test]
async fn idle_connections_are_closed_in_the_last_phase_and_do_not_hold_the_drain() {
    let in_flight = SOON * 8;
    let options = phases(Duration::ZERO, in_flight, BOUND);
    let running = start(options, unhurried(), hello);
    let mut used = running.connect().await;
    used.write_all(GET).await.unwrap();
    read_answer(&mut used).await;
    let silent = running.connect().await;
    let mut begun = running.connect().await;
    begun.write_all(b"PRI").await.unwrap();
    running.trigger.signal();
    for mut socket in [used, silent, begun] {
        assert_eq!(read_to_end(&mut socket).await, "");
    }
    let report = within(running.task).await.unwrap();
    assert_eq!((report.connections_cut, report.requests_cut), (0, 0));
    assert!(report.took >= in_flight / 4 && report.took < in_flight, "{report:?}");
    assert_eq!(running.gauges.closed(CloseReason::Drain), 3);
}

#[tokio::test]
async fn an_idle_connection_that_its_peer_keeps_open_is_not_counted_as_cut() {
    let running = start(phases(Duration::ZERO, SOON, SOON), unhurried(), hello);
    let mut kept = running.connect().await;
    kept.write_all(GET).await.unwrap();
    read_answer(&mut kept).await;
    running.trigger.signal();
    let report = within(running.task).await.unwrap();
    assert_eq!((report.connections_cut, report.requests_cut), (0, 0));
    drop(kept);
}

#[tokio::test]
async fn a_request_in_flight_is_answered_before_the_server_is_gone() {
    let handler = |_, conn: ConnInfo| async move {
        conn.state.drain.clone().wait_for(|view| view.phase == DrainPhase::InFlight).await.unwrap();
        tokio::time::sleep(SOON).await;
        assert!(conn.drain().in_flight_until < Timestamp::MAX);
        Response::new(Full::<Bytes>::from("hello"))
    };
    let running = start(phases(SOON, BOUND, SOON), unhurried(), handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    running.trigger.signal();
    assert!(read_to_end(&mut socket).await.ends_with("hello"));
    let report = within(running.task).await.unwrap();
    assert_eq!((report.connections_cut, report.requests_cut), (0, 0));
}

#[tokio::test]
async fn a_second_signal_goes_on_to_the_last_phase_and_what_hangs_is_cut() {
    let handler = |_, _| std::future::pending::<Response<Full<Bytes>>>();
    let mut running = start(phases(NEVER, NEVER, SOON), unhurried(), handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    within(async {
        while running.gauges.requests() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    running.trigger.signal();
    running.until(DrainPhase::Accept).await;
    running.trigger.signal();
    let report = within(running.task).await.unwrap();
    assert_eq!((report.connections_cut, report.requests_cut), (1, 1));
    assert!(report.took >= SOON);
    assert_eq!(read_to_end(&mut socket).await, "");
    assert_eq!(running.gauges.closed(CloseReason::Drain), 1);
}

#[tokio::test]
async fn a_third_signal_ends_the_last_phase() {
    let handler = |_, _| std::future::pending::<Response<Full<Bytes>>>();
    let mut running = start(phases(NEVER, NEVER, NEVER), unhurried(), handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    for phase in [DrainPhase::Accept, DrainPhase::Close, DrainPhase::Over] {
        running.trigger.signal();
        running.until(phase).await;
    }
    assert_eq!(within(running.task).await.unwrap().connections_cut, 1);
}

/// The runtime has one thread, so nothing is accepted between these connects and the signal.
#[tokio::test]
async fn connections_the_kernel_had_taken_are_served_before_the_listener_closes() {
    let running = start(phases(Duration::ZERO, BOUND, BOUND), unhurried(), hello);
    tokio::task::yield_now().await;
    let sockets: Vec<_> = (0..20)
        .map(|_| {
            let mut socket = std::net::TcpStream::connect(running.address).unwrap();
            std::io::Write::write_all(&mut socket, GET).unwrap();
            socket
        })
        .collect();
    running.trigger.signal();
    for socket in sockets {
        socket.set_nonblocking(true).unwrap();
        let mut socket = TcpStream::from_std(socket).unwrap();
        assert!(read_to_end(&mut socket).await.ends_with("hello"));
    }
    assert_eq!(within(running.task).await.unwrap().connections_cut, 0);
    assert_eq!(running.gauges.accepted_total(), 20);
}

#[tokio::test]
async fn those_who_upgraded_learn_when_to_end() {
    let handler = |mut request: Request<Incoming>, conn: ConnInfo| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut socket = TokioIo::new(upgrade.await.unwrap());
            conn.closing().await;
            socket.write_all(b"bye").await.unwrap();
        });
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response
    };
    let running = start(phases(Duration::ZERO, SOON, BOUND), unhurried(), handler);
    let mut socket = running.connect().await;
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    within(socket.read_exact(&mut [0; 12])).await.unwrap();
    running.trigger.signal();
    assert!(read_to_end(&mut socket).await.ends_with("bye"));
    let report = within(running.task).await.unwrap();
    assert_eq!((report.connections_cut, report.requests_cut), (1, 0));
}
