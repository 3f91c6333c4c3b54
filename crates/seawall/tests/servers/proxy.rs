//! A way through the loopback that can swallow everything, like a cable that was pulled.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes bytes both ways until it is told to swallow them; connections stay open.
pub(crate) struct Proxy {
    port: u16,
    swallows: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let swallows = Arc::new(AtomicBool::new(false));
        let hole = Arc::clone(&swallows);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else {
                    continue;
                };
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                tokio::spawn(pass(near_in, far_out, Arc::clone(&hole)));
                tokio::spawn(pass(far_in, near_out, Arc::clone(&hole)));
            }
        });
        Self { port, swallows, task }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn swallow(&self, swallows: bool) {
        self.swallows.store(swallows, Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is swallowed once is gone; an end is only passed on while nothing is swallowed.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    swallows: Arc<AtomicBool>,
) {
    let mut bytes = [0; 4096];
    while let Ok(read) = from.read(&mut bytes).await {
        if swallows.load(Relaxed) {
            if read == 0 {
                return std::future::pending().await;
            }
            continue;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
