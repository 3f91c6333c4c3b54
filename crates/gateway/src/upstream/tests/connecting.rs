//! Names, addresses and prefaces.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc;
use std::time::Duration;

use seawall::Clock;
use seawall_policy::Cause;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;

use super::support::*;
use crate::upstream::error::CheckoutError;
use crate::upstream::{Pool, PoolProtocol, PoolSettings, Resolver};

const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const THREE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// A pool for one endpoint whose name has these addresses.
fn named(
    port: u16,
    lookup: impl Fn() -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
) -> TestPool {
    let clock = Clock::new();
    let resolver = Resolver::with_lookup(1, Duration::ZERO, clock, move |_| lookup());
    Pool::new(http1(), vec![("name.test".to_owned(), port)], resolver, clock)
}

fn http1() -> PoolSettings {
    settings(PoolProtocol::Http1, 4)
}

/// A port on which nobody listens.
async fn free_port() -> u16 {
    Peer::bind().await.port
}

async fn connect_error(pool: &TestPool) -> (Cause, String) {
    let error = pool.lease(0, LONG).await.unwrap_err();
    assert!(matches!(error, CheckoutError::Connect(_)), "{error:?}");
    (error.cause(), error.to_string())
}

/// An address that swallows SYNs: a listener whose backlog is full.
async fn black_hole(ip: IpAddr, port: u16) -> (Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::new(ip, port).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut held = Vec::new();
    // A backlog of zero holds one connection; the second's handshake may seem done to us.
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        held.push(stream);
    }
    (socket, held)
}

#[tokio::test]
async fn a_refused_connect_is_refused_and_frees_its_place() {
    let pool = pool(http1(), &[free_port().await]);
    bounded(async {
        let (cause, text) = connect_error(&pool).await;
        assert_eq!(cause, Cause::ConnectRefused);
        assert!(text.contains("127.0.0.1"), "{text}");
        let stats = pool.stats();
        assert_eq!((stats.open, stats.connect_errors_total, stats.waiting), (0, 1, 0));
    })
    .await;
}

#[tokio::test]
async fn every_address_is_tried_and_the_good_one_first_the_next_time() {
    let peer = Peer::bind_to(THREE).await;
    let pool = named(peer.port, || Ok(vec![ONE, TWO, THREE]));
    bounded(async {
        let first = pool.lease(0, LONG).await.unwrap();
        // Another listener on the first address would now win if the order were the name's.
        let port = peer.port;
        let _decoy = tokio::net::TcpListener::bind((ONE, port)).await.unwrap();
        let second = pool.lease(0, LONG).await.unwrap();
        assert_eq!(pool.stats().connects_total, 2);
        peer.accept().await;
        peer.accept().await;
        drop((first, second));
    })
    .await;
}

#[tokio::test]
async fn refused_by_every_address_is_refused_and_otherwise_failed() {
    let port = free_port().await;
    let pool = named(port, || Ok(vec![ONE, TWO]));
    assert_eq!(bounded(connect_error(&pool)).await.0, Cause::ConnectRefused);
    // Nothing routes to a broadcast address.
    let pool = named(port, || Ok(vec![ONE, IpAddr::V4(Ipv4Addr::BROADCAST)]));
    assert_eq!(bounded(connect_error(&pool)).await.0, Cause::ConnectFailed);
}

#[tokio::test]
async fn an_address_that_swallows_syns_times_out() {
    let (hole, _held) = black_hole(TWO, 0).await;
    let port = hole.local_addr().unwrap().as_socket().unwrap().port();
    let pool = named(port, || Ok(vec![TWO]));
    tokio::time::pause();
    let clock = Clock::new();
    let start = clock.now();
    assert_eq!(connect_error(&pool).await.0, Cause::ConnectTimeout);
    assert!(is_about(start.until(clock.now()), 2_000));
}

#[tokio::test]
async fn an_address_that_swallows_syns_is_joined_by_the_next_one() {
    let peer = Peer::bind().await;
    let (_hole, _held) = black_hole(TWO, peer.port).await;
    let pool = named(peer.port, || Ok(vec![TWO, ONE]));
    tokio::time::pause();
    let clock = Clock::new();
    let start = clock.now();
    let lease = pool.lease(0, LONG).await.unwrap();
    assert!(is_about(start.until(clock.now()), 250), "the next is tried beside it");
    drop(lease);
}

#[tokio::test]
async fn a_family_that_does_not_work_costs_one_dial_its_delay() {
    let peer = Peer::bind_to(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)).await;
    let (_hole, _held) = black_hole(TWO, peer.port).await;
    let pool = named(peer.port, || Ok(vec![TWO, std::net::Ipv6Addr::LOCALHOST.into()]));
    tokio::time::pause();
    let clock = Clock::new();
    for after in [250, 0, 0] {
        let start = clock.now();
        let lease = pool.lease(0, LONG).await.unwrap();
        assert!(is_about(start.until(clock.now()), after), "{after}");
        drop(lease.into_conn());
    }
}

#[tokio::test]
async fn dials_take_the_addresses_of_a_name_in_turn() {
    let one = Peer::bind_to(ONE).await;
    let two = tokio::net::TcpListener::bind((TWO, one.port)).await.unwrap();
    let pool = named(one.port, || Ok(vec![ONE, TWO]));
    bounded(async {
        let leases = [pool.lease(0, LONG).await.unwrap(), pool.lease(0, LONG).await.unwrap()];
        one.accept().await;
        two.accept().await.unwrap();
        assert!(!one.has_another().await);
        drop(leases);
    })
    .await;
}

#[tokio::test]
async fn a_socket_of_this_host_is_spoken_to_and_a_missing_one_refuses() {
    let path = std::env::temp_dir().join(format!("seawall-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let clock = Clock::new();
    let places = vec![crate::upstream::Place::Unix(path.clone())];
    let pool: TestPool = Pool::with_tls(http1(), places, None, resolver(), clock);
    let (cause, text) = bounded(connect_error(&pool)).await;
    assert_eq!(cause, Cause::ConnectRefused, "{text}");
    assert!(text.starts_with("connect to unix:/"), "{text}");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    bounded(async {
        let (lease, accepted) = tokio::join!(pool.lease(0, LONG), listener.accept());
        let mut socket = accepted.unwrap().0;
        let served = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(tokio::io::AsyncReadExt::read_u8(&mut socket).await.unwrap());
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            tokio::io::AsyncWriteExt::write_all(&mut socket, answer).await.unwrap();
        };
        let (answer, ()) = tokio::join!(lease.unwrap().send(get(empty())), served);
        assert_eq!(super::support::text(answer.unwrap()).await, "ok");
    })
    .await;
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn the_checkout_time_ends_waiting_and_not_the_dial() {
    let (hole, _held) = black_hole(TWO, 0).await;
    let port = hole.local_addr().unwrap().as_socket().unwrap().port();
    let pool = named(port, || Ok(vec![TWO]));
    tokio::time::pause();
    let error = pool.lease(0, Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(error.cause(), Cause::ConnectTimeout);
}

#[tokio::test]
async fn a_name_without_an_address_is_a_dns_failure() {
    let pool = named(1, || Err(io::Error::other("no such host")));
    let (cause, text) = bounded(connect_error(&pool)).await;
    assert_eq!(cause, Cause::Dns);
    assert_eq!(text, "resolve name.test: no such host");
}

#[tokio::test]
async fn a_resolver_that_never_answers_ends_with_the_connect_timeout() {
    let (release, held) = mpsc::channel::<()>();
    let held = parking_lot::Mutex::new(held);
    let pool = {
        let clock = Clock::new();
        let resolver = Resolver::with_lookup(1, Duration::ZERO, clock, move |_| {
            let _ = held.lock().recv();
            Err(io::Error::other("released"))
        });
        let settings = PoolSettings { connect_timeout: Duration::from_millis(50), ..http1() };
        Pool::new(settings, vec![("name.test".to_owned(), 1)], resolver, clock)
    };
    let (cause, text): (Cause, String) = bounded(connect_error(&pool)).await;
    assert_eq!(cause, Cause::Dns);
    assert!(text.contains("timed out"), "{text}");
    drop(release);
}

#[tokio::test]
async fn a_peer_that_accepts_and_sends_no_settings_times_out() {
    let peer = Peer::bind().await;
    let pool = pool(settings(PoolProtocol::H2c, 4), &[peer.port]);
    let accepted = tokio::spawn(async move { (peer.accept().await, peer) });
    tokio::time::pause();
    let (cause, _) = connect_error(&pool).await;
    assert_eq!(cause, Cause::ConnectTimeout);
    let (mut conn, _peer) = accepted.await.unwrap();
    conn.ended().await;
    assert_eq!(pool.stats().open, 0);
}

#[tokio::test]
async fn a_peer_that_speaks_http1_fails_an_h2_dial() {
    let peer = Peer::bind().await;
    let pool = pool(settings(PoolProtocol::H2c, 4), &[peer.port]);
    bounded(async {
        let (failed, ()) = tokio::join!(connect_error(&pool), async {
            let mut conn = peer.accept().await;
            conn.head().await.unwrap();
            conn.send(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        });
        assert_eq!(failed.0, Cause::ConnectFailed);
    })
    .await;
}

#[tokio::test]
async fn a_failed_h2_dial_tells_everyone_it_was_for() {
    let peer = Peer::bind().await;
    let pool = pool(settings(PoolProtocol::H2c, 1), &[peer.port]);
    bounded(async {
        let checkouts = (0..3).map(|_| pool.lease(0, LONG));
        let (failed, ()) = tokio::join!(futures_util::future::join_all(checkouts), async {
            drop(peer.accept().await);
        });
        for error in failed {
            assert_eq!(error.unwrap_err().cause(), Cause::ConnectFailed);
        }
        assert_eq!((pool.stats().connect_errors_total, pool.stats().open), (1, 0));
    })
    .await;
}
