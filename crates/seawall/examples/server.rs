//! A server of eight places and 40 ms (200 a second) that three times as many callers come to,
//! each for half a second; alone, and behind an [`AdmissionLayer`] that was told nothing of it.
//!
//! `cargo run -p seawall --example server`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use seawall::bytes::Bytes;
use seawall::http::{Request, Response, StatusCode};
use seawall::{AdmissionLayer, GateOptions};
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tower_layer::Layer as _;
use tower_service::Service;

/// What stands for a database: first come, first served.
#[derive(Clone)]
struct Slow(Arc<Semaphore>);

impl Service<Request<()>> for Slow {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let places = Arc::clone(&self.0);
        Box::pin(async move {
            let place = places.acquire().await;
            sleep(Duration::from_millis(40)).await;
            drop(place);
            Ok(Response::new(Full::new(Bytes::from_static(b"done"))))
        })
    }
}

/// 600 callers a second, for five seconds: how many were answered in time, and how many were told
/// at once that they will not be.
async fn storm<S, B>(service: S) -> (u32, u32)
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Send,
{
    let counts = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let mut ticks = interval(Duration::from_millis(5));
    for _ in 0..1_000 {
        ticks.tick().await;
        for _ in 0..3 {
            let (mut service, counts) = (service.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                let call = service.call(Request::new(()));
                let answer = timeout(Duration::from_millis(500), call).await;
                match answer.map(|answer| answer.map(|it| it.status())) {
                    Ok(Ok(StatusCode::OK)) => counts.0.fetch_add(1, Relaxed),
                    Ok(_) => counts.1.fetch_add(1, Relaxed),
                    Err(_) => 0,
                };
            });
        }
    }
    sleep(Duration::from_millis(600)).await;
    (counts.0.load(Relaxed), counts.1.load(Relaxed))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), seawall::ConfigError> {
    let slow = || Slow(Arc::new(Semaphore::new(8)));
    let (good, _) = storm(slow()).await;
    println!("alone: of 1000 that could be served, {good} were answered in time");
    let layer = AdmissionLayer::new(&GateOptions::default())?;
    let (good, refused) = storm(layer.layer(slow())).await;
    println!("behind the layer: {good}, and {refused} were refused");
    let (limit, in_flight) = layer
        .gate()
        .look(|gate, params| (gate.limit().limit(params.limit()), gate.limit().in_flight()));
    println!("the limit that it found: {limit}; in flight now: {in_flight}");
    Ok(())
}
