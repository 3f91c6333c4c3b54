//! One upstream, or one route, hangs; its neighbour must not notice.

use std::sync::Arc;
use std::time::Duration;

use seawall_cli::demo::{Behaviour, Client, Ending, Figures, LoadOptions, Protocol, Upstream};

use crate::harness::{Gateway, Stage, ms, show, upstream_of};

const RATE: u32 = 300;
const SERVICE: Duration = Duration::from_millis(5);
const ROUNDS: usize = 3;

#[test]
fn an_upstream_that_hangs_leaves_the_other_alone() {
    show("7 · two upstreams, one accepts and never answers", async |stage| {
        let (sick, well) = (healthy(stage).await, healthy(stage).await);
        let gateway = stage
            .configured(&format!(
                "upstreams: {{sick: {{endpoints: [\"{}\"]}}, well: {{endpoints: [\"{}\"]}}}}\n\
                 routes:\n- {{path_prefix: /sick, upstream: sick}}\n\
                 - {{path_prefix: /well, upstream: well}}\n",
                sick.url(),
                well.url()
            ))
            .await;
        compare(stage, &gateway, ["/sick", "/well"], &|hangs| {
            sick.set(if hangs { hanging() } else { answering() });
        })
        .await;
    });
}

#[test]
fn a_route_that_hangs_leaves_the_other_route_of_its_upstream_alone() {
    show("7 · /reports hangs, /orders of the same upstream", async |stage| {
        let upstream = healthy(stage).await;
        let gateway = stage
            .configured(&format!(
                "upstreams: {{only: {{endpoints: [\"{}\"]}}}}\n\
                 routes:\n- {{path_prefix: /reports, upstream: only}}\n\
                 - {{path_prefix: /orders, upstream: only}}\n",
                upstream.url()
            ))
            .await;
        compare(stage, &gateway, ["/reports", "/orders"], &|hangs| {
            upstream.script(move |arrival| {
                if hangs && arrival.path.starts_with("/reports") { hanging() } else { answering() }
            });
        })
        .await;
    });
}

async fn healthy(stage: &Stage) -> Upstream {
    upstream_of(stage, answering()).await
}

fn answering() -> Behaviour {
    Behaviour::ok().after(SERVICE)
}

fn hanging() -> Behaviour {
    Behaviour::ok().ending(Ending::Hang)
}

/// Rounds with and without the hang in turn; the neighbour's success and 99th percentile are
/// compared over all rounds of each kind.
async fn compare(stage: &Stage, gateway: &Gateway, [sick, well]: [&str; 2], hang: &dyn Fn(bool)) {
    let clients = [gateway.client(Protocol::Http1), gateway.client(Protocol::Http1)];
    round(stage, &clients, [sick, well], Duration::from_secs(1)).await;
    let length = stage.seconds(2.5, 30.0);
    let (mut calm, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        hang(false);
        calm.push(round(stage, &clients, [sick, well], length).await);
        hang(true);
        beside.push(round(stage, &clients, [sick, well], length).await);
        hang(false);
        // The hanging calls have left; give the breaker its time to close again.
        stage.pass(stage.seconds(2.5, 12.0)).await;
    }
    let p99 = |rounds: &[Figures]| {
        let mut all = rounds[0].latency.clone();
        for figures in &rounds[1..] {
            all.add(&figures.latency).unwrap();
        }
        Duration::from_micros(all.value_at_quantile(0.99))
    };
    let (before, after) = (p99(&calm), p99(&beside));
    let bound = (before * 6 / 5).max(before + Duration::from_millis(20));
    stage.tell(format!("{well} alone"), format!("p99 {} in {ROUNDS} rounds", ms(before)));
    stage.tell(
        format!("{well} beside a hanging {sick}"),
        format!("p99 {} (at most {} allowed)", ms(after), ms(bound)),
    );
    for figures in calm.iter().chain(&beside) {
        assert_eq!(figures.good, figures.sent, "{well}: {}", figures.describe());
    }
    assert!(after <= bound);
}

/// Both paths under load; returns the figures of the second. Callers of the first leave after 2 s.
async fn round(
    stage: &Stage,
    clients: &[Arc<Client>; 2],
    [sick, well]: [&str; 2],
    length: Duration,
) -> Figures {
    let options = LoadOptions::new(RATE, Duration::from_secs(2));
    let first = stage.load(&clients[0], options, sick);
    let second = stage.load(&clients[1], options, well);
    stage.pass(length).await;
    let (_, second) = tokio::join!(first.stop(), second.stop());
    second.all()
}
