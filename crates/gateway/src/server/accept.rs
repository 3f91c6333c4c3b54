//! Takes connections from one listener.
//!
//! While every place is taken nothing is accepted: the kernel holds 1,024 connections, and what
//! comes beyond them waits for its SYN to be answered. A failure to accept for want of files,
//! buffers or memory pauses accepting, 5 ms doubling to 1 s, because the connection stays at the
//! head of the queue and asking again at once would spin. When the server leaves, what the kernel
//! already holds is taken before the listener closes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::bind::BACKLOG;
use super::drain::{DrainPhase, DrainView};
use super::gauges::ConnectionGauges;
use super::listener::Peer;
use crate::wire::Wire;

/// Something that connections come from.
pub(super) trait Accept: Send + 'static {
    /// Waits for the next one.
    fn accept(&self) -> impl Future<Output = io::Result<(Wire, Peer)>> + Send;

    /// Closes, after what had come already was handed to `take`.
    fn finish(self, take: impl FnMut(Wire, Peer));
}

impl Accept for TcpListener {
    async fn accept(&self) -> io::Result<(Wire, Peer)> {
        let (stream, peer) = Self::accept(self).await?;
        // Without it the socket is gone already, and the first read will say so.
        let _ = stream.set_nodelay(true);
        Ok((stream.into(), canonical(peer)))
    }

    fn finish(self, take: impl FnMut(Wire, Peer)) {
        // Asked directly: tokio knows of a connection only once its reactor has run.
        let Ok(listener) = self.into_std() else { return };
        let accept = || {
            let (socket, peer) = listener.accept()?;
            socket.set_nonblocking(true)?;
            let _ = socket.set_nodelay(true);
            Ok((TcpStream::from_std(socket)?.into(), canonical(peer)))
        };
        take_queued(accept, take);
    }
}

/// Takes what the kernel holds, and no more than it can hold: who keeps coming is not waited for.
pub(super) fn take_queued(
    accept: impl Fn() -> io::Result<(Wire, Peer)>,
    mut take: impl FnMut(Wire, Peer),
) {
    for _ in 0..=BACKLOG {
        match accept() {
            Ok((socket, peer)) => take(socket, peer),
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => return,
        }
    }
}

/// One listener's task.
pub(super) struct Acceptor<A, S> {
    pub(super) listener: A,
    /// Its place among the listeners.
    pub(super) index: usize,
    /// A permit for each connection there may still be.
    pub(super) room: Arc<Semaphore>,
    pub(super) gauges: Arc<ConnectionGauges>,
    pub(super) drain: watch::Receiver<DrainView>,
    /// Serves a connection; returns at once.
    pub(super) start: S,
}

impl<A: Accept, S: FnMut(Wire, Peer, OwnedSemaphorePermit)> Acceptor<A, S> {
    /// Accepts until the drain says to stop, then takes what is left and closes.
    pub(super) async fn run(mut self) {
        let mut drain = self.drain.clone();
        tokio::select! {
            biased;
            _ = drain.wait_for(|view| view.phase >= DrainPhase::InFlight) => {}
            () = self.accept() => {}
        }
        let Self { listener, index, room, gauges, mut start, .. } = self;
        listener.finish(|socket, peer| match Arc::clone(&room).try_acquire_owned() {
            Ok(permit) => start(socket, peer, permit),
            Err(_) => gauges.on_refuse(index),
        });
    }

    /// Accepts for ever.
    async fn accept(&mut self) {
        let mut pause = PAUSE_MIN;
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&self.room).acquire_owned().await {
            loop {
                match self.listener.accept().await {
                    Ok((socket, peer)) => {
                        pause = PAUSE_MIN;
                        (self.start)(socket, peer, permit);
                        break;
                    }
                    Err(error) => {
                        self.gauges.on_accept_error(self.index);
                        if !is_of_one_connection(&error) {
                            tokio::time::sleep(pause).await;
                            pause = (pause * 2).min(PAUSE_MAX);
                        }
                    }
                }
            }
        }
    }
}

/// An IPv4 peer of a socket for both families is an IPv4 peer.
fn canonical(peer: SocketAddr) -> Peer {
    SocketAddr::new(peer.ip().to_canonical(), peer.port()).into()
}

/// Whether an error says that the next connection may well be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use seawall::Clock;
    use tokio::sync::mpsc;

    use super::*;

    /// Fails with each of `errors` in turn, then accepts; notes when it was asked.
    struct Failing {
        errors: Mutex<Vec<i32>>,
        inner: TcpListener,
        asked: mpsc::UnboundedSender<u64>,
        clock: Clock,
        start: seawall_policy::Timestamp,
    }

    impl Accept for Failing {
        async fn accept(&self) -> io::Result<(Wire, Peer)> {
            let after = self.clock.now().since(self.start).as_millis();
            let _ = self.asked.send(u64::try_from(after).unwrap());
            let error = self.errors.lock().unwrap().pop();
            match error {
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => Accept::accept(&self.inner).await,
            }
        }

        fn finish(self, _: impl FnMut(Wire, Peer)) {}
    }

    /// When a listener that fails with `errors` is asked, in milliseconds, and how many were
    /// counted.
    async fn asked(errors: &[i32]) -> (Vec<u64>, u64) {
        let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let clock = Clock::new();
        let listener = Failing {
            errors: Mutex::new(errors.iter().copied().rev().collect()),
            inner,
            asked: sender,
            clock,
            start: clock.now(),
        };
        let gauges = Arc::new(ConnectionGauges::new(1));
        let (_drain, receiver_of_drain) = watch::channel(DrainView::SERVING);
        let acceptor = Acceptor {
            listener,
            index: 0,
            room: Arc::new(Semaphore::new(1)),
            gauges: Arc::clone(&gauges),
            drain: receiver_of_drain,
            start: |_, _, _| {},
        };
        let task = tokio::spawn(acceptor.run());
        let mut times = Vec::new();
        for _ in 0..=errors.len() {
            times.push(receiver.recv().await.unwrap());
        }
        task.abort();
        (times, gauges.accept_errors_total())
    }

    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    const ENOBUFS: i32 = 105;
    const ECONNABORTED: i32 = 103;

    #[tokio::test(start_paused = true)]
    async fn want_of_files_or_buffers_pauses_longer_each_time_and_is_counted() {
        let (times, errors) = asked(&[EMFILE, ENFILE, ENOBUFS, EMFILE]).await;
        // 5, 10, 20 and 40 ms, each rounded up to the timer's millisecond.
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (gap, wanted) in gaps.iter().zip([5, 10, 20, 40]) {
            assert!((wanted..=wanted + 1).contains(gap), "{gaps:?}");
        }
        assert_eq!(errors, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_ends_at_a_second() {
        let (times, _) = asked(&[EMFILE; 12]).await;
        let last = times[12] - times[11];
        assert!((1000..=1001).contains(&last), "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_was_gone_already_pauses_nothing() {
        let (times, errors) = asked(&[ECONNABORTED; 3]).await;
        assert_eq!(times, [0, 0, 0, 0]);
        assert_eq!(errors, 3);
    }
}
