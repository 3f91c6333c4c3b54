//! Hedging: rare slow answers of two endpoints, a busy pair of them, and what may not be sent
//! twice. Judged by what arrived at each.

use std::time::Duration;

use seawall_cli::demo::{
    Arrival, Behaviour, Capacity, Figures, Latency, LoadOptions, Protocol, Spacing, Upstream,
};
use seawall_policy::Timestamp;

use crate::harness::{EVER, Gateway, PATIENCE, Stage, ms, request, show};

const USUAL: Duration = Duration::from_millis(10);
const STALLED: Duration = Duration::from_secs(1);

#[test]
fn rare_slow_answers_leave_the_tail_for_two_per_cent_more_calls() {
    show("11 · one answer in two hundred takes 1 s instead of 10 ms", async |stage| {
        let (without, _) = tail(stage, "").await;
        let (with, extra) = tail(stage, ", hedge: {delay: p99}").await;
        // The short form has four slow calls and lets a busy machine hold up two of the others.
        let far = stage.pick(0.9975, 0.999);
        let all = [0.5, 0.99, far].map(|share| [&without, &with].map(|it| it.quantile(share)));
        for (name, [without, with]) in
            ["p50", "p99", stage.pick("p99.75", "p99.9")].into_iter().zip(all)
        {
            stage.tell(name, format!("{} without, {} with hedges", ms(without), ms(with)));
        }
        stage.tell("extra calls", format!("{:.2} % (at most 2 % allowed)", extra * 100.0));
        let [_, _, [before, after]] = all;
        assert!(before >= STALLED, "{}", ms(before));
        assert!(after <= before / 2, "{}", ms(after));
        assert!(extra > 0.0 && extra <= 0.02, "{extra}");
    });
}

#[test]
fn above_eighty_per_cent_of_its_capacity_nothing_is_hedged() {
    show("11 · two endpoints that serve four calls at once, and queue the others", async |stage| {
        // 8 places of 30 ms are 266 calls a second, enough that a load of 90 % is one for as long
        // as the estimate looks back.
        let (half, most) = tokio::join!(busy(stage, 50), busy(stage, 90));
        // In the short form too few calls are due at 50 % to be sure of one.
        assert!(half.hedges > 0.0 || stage.pick(true, false), "there is room at 50 %");
        // A lull of a few seconds is no load above 80 %, and weighs more in the short form.
        let due = most.hedges + most.refused;
        assert!(most.hedges < stage.pick(due / 3.0, 1.0), "none above 80 %");
        assert!(most.refused > 0.0, "although some were due");
    });
}

#[test]
fn a_post_is_sent_once_and_one_with_a_key_may_be_hedged() {
    show("11 · slow POSTs, with a key and without", async |stage| {
        let ends = stalling(stage).await;
        let gateway = gateway(stage, &ends, ", hedge: {delay: 50ms}").await;
        let client = gateway.client(Protocol::Http1);
        let options = LoadOptions::new(150, PATIENCE);
        let plain = stage.load_of(&client, options, |number| {
            request("POST", &format!("/plain?call={number}"), "{}", &[])
        });
        let keyed = stage.load_of(&client, options, |number| {
            let key = format!("\"{number}\"");
            request("POST", &format!("/keyed?call={number}"), "{}", &[("idempotency-key", &key)])
        });
        stage.pass(stage.seconds(2.5, 30.0)).await;
        let (plain, keyed) = (plain.stop().await.all(), keyed.stop().await.all());
        let arrivals: Vec<Arrival> = ends.iter().flat_map(|end| end.journal().since(0)).collect();
        let of = |path: &str| arrivals.iter().filter(|it| it.path.starts_with(path)).count() as u64;
        let (once, again) = (of("/plain") - plain.sent, of("/keyed") - keyed.sent);
        stage.tell("without a key", format!("{} calls, {once} sent twice", plain.sent));
        stage.tell("with a key", format!("{} calls, {again} sent twice", keyed.sent));
        assert_eq!(once, 0);
        assert!(again > 0);
        for hedge in arrivals.iter().filter(|it| it.attempt == Some(2)) {
            let first = arrivals.iter().find(|it| it.path == hedge.path && it.attempt == Some(1));
            let first = first.unwrap();
            assert!(first.key.is_some() && first.key == hedge.key);
            assert!(first.body == hedge.body || first.body.is_none());
        }
    });
}

/// Hedges that were sent, and those that were refused for the load.
struct Hedged {
    hedges: f64,
    refused: f64,
}

/// A load of this many per cent of what two endpoints can serve, with real queues before them, once
/// that can be known.
async fn busy(stage: &Stage, percent: u32) -> Hedged {
    let capacity = Capacity { slots: 4, queue: 10_000 };
    let mut ends = Vec::new();
    for _ in 0..2 {
        let end = Upstream::start_with(stage.clock, Some(capacity)).await.unwrap();
        let latency = Latency::Exponential(Duration::from_millis(30));
        end.set(Behaviour { latency, ..Behaviour::ok() });
        ends.push(end);
    }
    let gateway = gateway(stage, &ends, ", hedge: {}").await;
    let client = gateway.client(Protocol::Http1);
    let spacing = Spacing::Poisson { seed: 7 };
    let options = LoadOptions { spacing, ..LoadOptions::new(percent * 266 / 100, PATIENCE) };
    let load = stage.load(&client, options, "/busy");
    stage.pass(stage.seconds(5.0, 15.0)).await;
    let learned = hedges(&gateway).await;
    stage.pass(stage.seconds(4.0, 60.0)).await;
    let hedges = hedges(&gateway).await - learned;
    let refused = gateway.metric("seawall_hedges_refused_total", &["reason=\"load\""]).await;
    let figures = load.stop().await.all();
    stage.tell(
        format!("{percent} % used"),
        format!("{hedges} hedges, {refused} refused for the load, {} calls", figures.sent),
    );
    Hedged { hedges, refused }
}

/// Two endpoints that are late with one first attempt in two hundred, and with one in twenty of the
/// hedges that follow.
async fn stalling(stage: &Stage) -> Vec<Upstream> {
    let mut ends = Vec::new();
    for _ in 0..2 {
        let upstream = stage.upstream().await;
        upstream.script(|arrival| {
            let call = arrival.path.rsplit('=').next().and_then(|call| call.parse::<u64>().ok());
            let one_in = if arrival.attempt == Some(1) { 200 } else { 4_000 };
            let stalls = call.is_some_and(|call| call % one_in == 77);
            Behaviour::ok().after(if stalls { STALLED } else { USUAL })
        });
        ends.push(upstream);
    }
    ends
}

async fn gateway(stage: &Stage, ends: &[Upstream], keys: &str) -> Gateway {
    let urls: Vec<_> = ends.iter().map(|end| format!("\"{}\"", end.url())).collect();
    let urls = urls.join(", ");
    stage.configured(&format!("upstreams: {{only: {{endpoints: [{urls}]{keys}}}}}\n")).await
}

async fn hedges(gateway: &Gateway) -> f64 {
    gateway.metric("seawall_hedges_total", &[]).await
}

/// The figures of a load over such endpoints once what is usual is known, and the share of calls
/// that reached them beside the first of each.
async fn tail(stage: &Stage, keys: &str) -> (Figures, f64) {
    let ends = stalling(stage).await;
    let gateway = gateway(stage, &ends, keys).await;
    let client = gateway.client(Protocol::Http1);
    let load = stage.load(&client, LoadOptions::new(200, PATIENCE), "/calls");
    stage.pass(stage.seconds(1.0, 5.0)).await;
    let from = stage.clock.now();
    stage.pass(stage.seconds(4.0, 60.0)).await;
    if !keys.is_empty() {
        let mut refused = Vec::new();
        for reason in seawall_policy::HedgeRefusal::ALL {
            let label = format!("reason=\"{}\"", reason.as_str());
            let count = gateway.metric("seawall_hedges_refused_total", &[&label]).await;
            if count > 0.0 {
                refused.push(format!("{count} {}", reason.as_str()));
            }
        }
        stage.tell("hedges not sent", refused.join(", "));
    }
    let ledger = load.stop().await;
    let all = ledger.all();
    assert_eq!(all.good, all.sent, "{}", all.describe());
    let arrived: u64 = ends.iter().map(|end| end.journal().attempts(EVER.0, EVER.1).all).sum();
    let extra = (arrived - all.sent) as f64 / all.sent as f64;
    (ledger.within(from, Timestamp::MAX), extra)
}
