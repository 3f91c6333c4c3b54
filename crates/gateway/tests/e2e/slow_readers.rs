//! Callers of tunnels that do not take what is sent to them.

use std::io;
use std::time::Duration;

use seawall::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::*;

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: ";
const STALL: Duration = Duration::from_millis(300);

async fn gateway(upstream: &RawUpstream, readers: &str) -> Gateway {
    let readers = format!("slow_readers: {{stall: 300ms, send_buffer: 4KiB{readers}}}");
    Setup::new(upstream.address).listener(&readers).start().await
}

/// A tunnel whose caller has little room, and its upstream's end.
async fn open(gateway: &Gateway, upstream: &RawUpstream, to: &str) -> (RawCaller, RawConn) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut caller = RawCaller { socket: within(socket.connect(gateway.address)).await.unwrap() };
    let ask = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: ";
    caller.write(format!("{ask}{to}\r\n\r\n")).await;
    let mut served = upstream.accept().await;
    served.head().await;
    served.write(format!("{SWITCH}{to}\r\n\r\n")).await;
    caller.head().await;
    (caller, served)
}

/// Sends without end, in frames of 1,000 bytes; gives how much at the end of the tunnel.
fn flood(mut served: RawConn) -> tokio::task::JoinHandle<u64> {
    let frame = [&[0x82, 126, 0x03, 0xe8][..], &[7; 1_000]].concat();
    tokio::spawn(async move {
        let mut sent = 0;
        while served.socket.write_all(&frame).await.is_ok() {
            sent += 1;
        }
        sent
    })
}

fn ended_for_stall(metrics: &Metrics) -> u64 {
    let of_it = [("reason", "stall")];
    metrics.count("seawall_downstream_connections_closed_total", &of_it)
}

async fn read_all(socket: &mut TcpStream) -> (Vec<u8>, io::Result<usize>) {
    let mut read = Vec::new();
    let ended = within(socket.read_to_end(&mut read)).await;
    (read, ended)
}

#[tokio::test]
async fn a_websocket_that_takes_nothing_is_closed_between_two_frames_and_told_when_to_come_again() {
    let upstream = RawUpstream::bind().await;
    let gateway = gateway(&upstream, "").await;
    let (mut caller, served) = open(&gateway, &upstream, "WebSocket").await;
    assert_eq!(crate::observed::depth(&gateway, "tunnels").await, 1);
    let flood = flood(served);
    // Past its limit, and within the second that it has then.
    tokio::time::sleep(STALL + Duration::from_millis(200)).await;
    let (read, ended) = read_all(&mut caller.socket).await;
    assert!(ended.is_ok(), "ended in order: {ended:?}");
    drop(caller);
    let mut frames = &read[..];
    while let [0x82, 126, 0x03, 0xe8, rest @ ..] = frames {
        assert!(rest.iter().take(1_000).all(|byte| *byte == 7) && rest.len() > 1_000, "whole");
        frames = &rest[1_000..];
    }
    let [0x88, length, 0x03, 0xf5, reason @ ..] = frames else { panic!("{frames:?}") };
    assert_eq!(usize::from(*length), reason.len() + 2, "nothing comes behind it");
    let reason = String::from_utf8_lossy(reason);
    let seconds = reason.strip_prefix("retry after ").and_then(|rest| rest.strip_suffix(" s"));
    assert!((3..=8).contains(&seconds.unwrap().parse::<u32>().unwrap()), "{reason}");
    within(flood).await.unwrap();
    assert_eq!(gateway.line().await["completion_reason"], "timeout");
    gateway.until(|metrics| ended_for_stall(metrics) == 1).await;
    assert_eq!(crate::observed::depth(&gateway, "tunnels").await, 0);
}

#[tokio::test]
async fn another_tunnel_and_a_websocket_that_takes_nothing_even_then_are_reset() {
    for to in ["raw", "websocket"] {
        let upstream = RawUpstream::bind().await;
        let gateway = gateway(&upstream, "").await;
        let (mut caller, served) = open(&gateway, &upstream, to).await;
        let flood = flood(served);
        gateway.until(|metrics| ended_for_stall(metrics) == 1).await;
        within(flood).await.unwrap();
        let (_, ended) = read_all(&mut caller.socket).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset, "{to}");
    }
}

#[tokio::test]
async fn what_is_held_for_a_caller_that_takes_nothing_is_bounded() {
    let upstream = RawUpstream::bind().await;
    let gateway = gateway(&upstream, "").await;
    let (caller, mut served) = open(&gateway, &upstream, "websocket").await;
    // Without a bound on our side, the kernel would grow its own.
    let socket = socket2::SockRef::from(&served.socket);
    socket.set_send_buffer_size(4096).unwrap();
    let mut sent = 0;
    while tokio::time::timeout(STALL / 2, served.socket.write_all(&[7; 1_000])).await.is_ok() {
        sent += 1_000;
    }
    assert!(sent < 1 << 20, "{sent} bytes are between them");
    drop(caller);
}

#[tokio::test]
async fn a_caller_that_takes_it_in_time_stays() {
    let upstream = RawUpstream::bind().await;
    let gateway = gateway(&upstream, "").await;
    let (mut caller, mut served) = open(&gateway, &upstream, "websocket").await;
    let all = pattern(200_000);
    let sends = tokio::spawn({
        let all = all.clone();
        async move {
            served.write(&all).await;
            served
        }
    });
    let mut read = Vec::new();
    while read.len() < all.len() {
        tokio::time::sleep(STALL / 30).await;
        let mut part = vec![0; 8_192];
        let count = within(caller.socket.read(&mut part)).await.unwrap();
        assert!(count > 0, "after {} bytes", read.len());
        read.extend_from_slice(&part[..count]);
    }
    assert!(read == all);
    // And idle it is for as long as it likes: nothing waits for it.
    tokio::time::sleep(STALL * 2).await;
    let mut served = within(sends).await.unwrap();
    served.write("!").await;
    assert_eq!(caller.read_until(b"!").await, "!");
    assert_eq!(ended_for_stall(&gateway.metrics().await), 0);
}

#[tokio::test]
async fn those_that_stall_together_are_closed_one_after_the_other() {
    let upstream = RawUpstream::bind().await;
    let gateway = gateway(&upstream, ", close_rate: 10/s").await;
    let clock = Clock::new();
    let mut ends = Vec::new();
    let mut callers = Vec::new();
    for _ in 0..8 {
        let (caller, served) = open(&gateway, &upstream, "raw").await;
        callers.push(caller);
        let flood = flood(served);
        ends.push(tokio::spawn(async move {
            flood.await.unwrap();
            clock.now()
        }));
    }
    let mut at = Vec::new();
    for end in ends {
        at.push(within(end).await.unwrap());
    }
    at.sort();
    // Eight places of 100 ms; the first and the last may be anywhere in theirs.
    let took = at[7].since(at[0]);
    assert!(took >= Duration::from_millis(590), "{took:?}");
    gateway.until(|metrics| ended_for_stall(metrics) == 8).await;
}
