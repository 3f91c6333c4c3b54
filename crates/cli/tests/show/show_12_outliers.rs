//! Ten endpoints of one service: one of them slow, all of them slow, one of them failing, and one
//! of ten shards failing behind one name. Judged by what arrived at each.

use std::time::Duration;

use seawall_cli::demo::{Arrival, Behaviour, Client, LoadOptions, Protocol, Upstream, get};
use seawall_policy::Timestamp;

use crate::harness::{Gateway, PATIENCE, Stage, ms, show};

const SERVICE: Duration = Duration::from_millis(10);
const SLOWER: u32 = 20;
const RATE: u32 = 200;
const TEN: usize = 10;
const SICK: usize = 3;

#[test]
fn one_of_ten_twenty_times_slower_loses_its_share_and_has_it_back_after_healing() {
    show("12 · one of ten endpoints 20 times slower, its health check green", async |stage| {
        let ends = ten(stage).await;
        let gateway = gateway(stage, &ends, "").await;
        let client = gateway.client(Protocol::Http1);
        let load = stage.load(&client, options(), "/orders");
        stage.pass(stage.seconds(0.5, 2.0)).await;
        let calm = span(stage, stage.seconds(2.0, 20.0)).await;
        let baseline = load.within(calm.0, calm.1).quantile(0.99);

        ends[SICK].script(|arrival| if is_check(arrival) { Behaviour::ok() } else { slow() });
        // The claim: within ten seconds.
        stage.pass(stage.seconds(5.0, 10.0)).await;
        let sick = span(stage, stage.seconds(2.5, 20.0)).await;
        let during = load.within(sick.0, sick.1);
        let share = share(&ends, SICK, sick);
        let direct = Client::new(ends[SICK].address(), Protocol::Http1);
        let check = direct.send(get(CHECK), PATIENCE).await.unwrap();

        ends[SICK].script(|_| healthy());
        let healed = stage.clock.now();
        stage.pass(stage.seconds(3.5, 60.0)).await;
        let after = span(stage, stage.seconds(2.0, 20.0)).await;
        let back = self::share(&ends, SICK, after);
        let figures = load.stop().await.all();
        let others = ejections(&gateway, &ends, SICK).await;

        stage.tell("its share", format!("{share:.2} % (at most 2 % allowed), 10 % before"));
        // The five probes of an endpoint that was out are a hundredth of a window this short.
        let tail = stage.pick(0.98, 0.99);
        let p99 = during.quantile(tail);
        // Below what its calls take, they are not among the worst hundredth: then the machine is
        // what slowed the others.
        let bound = (baseline * 2).max(SERVICE * SLOWER * 3 / 4);
        stage.tell(
            format!("p{:.0} of all", tail * 100.0),
            format!("{} after {} (at most {})", ms(p99), ms(baseline), ms(bound)),
        );
        let waited = after.0.since(healed).as_secs_f64();
        stage.tell("its share again", format!("{back:.1} % from {waited:.1} s after healing on"));
        stage.tell("others ejected", others);
        assert_eq!(check.status, 200, "its health check is green");
        assert!(share <= 2.0);
        assert!(p99 <= bound);
        assert!(back >= 6.0, "a tenth, or nearly");
        assert_eq!(figures.good, figures.sent, "{}", figures.describe());
    });
}

#[test]
fn all_ten_slow_lose_at_most_the_set_share_and_no_goodput() {
    show("12 · all ten endpoints 15 to 24 times slower", async |stage| {
        let mut goodput = Vec::new();
        for without in [true, false] {
            let ends = ten(stage).await;
            let off = if without { "outlier: off, " } else { "" };
            let gateway = gateway(stage, &ends, off).await;
            let client = gateway.client(Protocol::Http1);
            // Twenty times as much in flight: no more than a small machine can hold.
            let options = LoadOptions::new(RATE / 2, Duration::from_secs(2));
            let load = stage.load(&client, options, "/orders");
            stage.pass(stage.seconds(1.0, 5.0)).await;
            for (end, factor) in ends.iter().zip(15..) {
                end.set(Behaviour::ok().after(SERVICE * factor));
            }
            let begun = stage.clock.now();
            let mut least = TEN;
            let mut most_out = 0.0_f64;
            for _ in 0..stage.pick(4, 20) {
                let second = span(stage, Duration::from_secs(1)).await;
                let used = |end: &&Upstream| end.journal().attempts(second.0, second.1).all > 0;
                least = least.min(ends.iter().filter(used).count());
                if !without {
                    most_out = most_out.max(gateway.metric("seawall_ejected_ratio", &[]).await);
                }
            }
            let figures = load.stop().await;
            let figures = figures.within(begun, stage.clock.now());
            let name = if without { "without ejection" } else { "with it" };
            stage.tell(
                name,
                format!(
                    "{} of {} calls answered in time, {least} to {TEN} endpoints used each second",
                    figures.good, figures.sent
                ),
            );
            stage.tell("calls", figures.describe());
            stage.tell(format!("out, {name}"), format!("{:.0} % at most", most_out * 100.0));
            assert!(least >= TEN / 2, "at most half are out");
            assert!(most_out <= 0.5);
            goodput.push(figures.success());
        }
        assert!(goodput[1] >= goodput[0] - 1.0, "{goodput:?}");
    });
}

#[test]
fn one_of_ten_that_fails_harms_no_call_to_the_other_nine() {
    show("12 · one of ten endpoints answers 503", async |stage| {
        let ends = ten(stage).await;
        let gateway = gateway(stage, &ends, "retry_budget: {ratio: 20%}, ").await;
        let client = gateway.client(Protocol::Http1);
        let load = stage.load(&client, options(), "/orders");
        stage.pass(stage.seconds(1.0, 5.0)).await;
        ends[SICK].set(Behaviour::status(503));
        stage.pass(stage.seconds(3.0, 10.0)).await;
        let late = span(stage, stage.seconds(3.0, 30.0)).await;
        let figures = load.stop().await.all();
        let share = share(&ends, SICK, late);
        let label = format!("endpoint=\"{}\"", ends[SICK].address());
        let own = ["to=\"open\"", label.as_str()];
        let own = gateway.metric("seawall_breaker_transitions_total", &own).await;
        let others = gateway.openings().await - own;
        let refused = gateway.metric("seawall_refused_total", &["breaker_open"]).await;
        stage.tell("calls", figures.describe());
        stage.tell("its share in the end", format!("{share:.2} %"));
        stage.tell("breakers", format!("its own opened {own} times, those of the others {others}"));
        assert_eq!(figures.good, figures.sent, "{}", figures.describe());
        assert!(share <= 2.0);
        assert!(others < 1.0 && refused < 1.0);
        for (index, end) in ends.iter().enumerate().filter(|(index, _)| *index != SICK) {
            assert!(!end.journal().is_empty(), "endpoint {index} is used");
        }
    });
}

#[test]
fn one_of_ten_shards_behind_one_name_harms_none_of_the_other_nine() {
    show("12 · one of ten shards fails behind one endpoint", async |stage| {
        let end = stage.upstream().await;
        end.script(|arrival| match arrival.path.strip_suffix('0') {
            Some(_) => Behaviour::status(503),
            None => healthy(),
        });
        let gateway = gateway(stage, std::slice::from_ref(&end), "").await;
        let client = gateway.client(Protocol::Http1);
        let length = stage.seconds(4.0, 30.0);
        let ledger = stage.load_for(length, &client, options(), "/orders").await;
        let figures = ledger.all();
        let sick = figures.sent.div_ceil(10);
        let openings = gateway.openings().await;
        stage.tell("calls", figures.describe());
        stage.tell("of the other nine", format!("{} of {}", figures.good, figures.sent - sick));
        stage.tell("breakers opened", openings);
        assert_eq!(figures.good, figures.sent - sick, "{}", figures.describe());
        assert_eq!(figures.status(503), sick);
        assert!(openings < 1.0);
    });
}

fn healthy() -> Behaviour {
    Behaviour::ok().after(SERVICE)
}

fn slow() -> Behaviour {
    Behaviour::ok().after(SERVICE * SLOWER)
}

fn is_check(arrival: &Arrival) -> bool {
    arrival.path == CHECK
}

fn options() -> LoadOptions {
    // No caller leaves because the machine is busy.
    LoadOptions::new(RATE, Duration::from_secs(10))
}

async fn ten(stage: &Stage) -> Vec<Upstream> {
    let mut ends = Vec::new();
    for _ in 0..TEN {
        let end = stage.upstream().await;
        end.set(healthy());
        ends.push(end);
    }
    ends
}

/// A gateway in front of all of them, with ejection at its defaults, or hastened for the short
/// form, and these keys before.
async fn gateway(stage: &Stage, ends: &[Upstream], keys: &str) -> Gateway {
    let urls: Vec<_> = ends.iter().map(|end| format!("\"{}\"", end.url())).collect();
    let ejecting = stage.pick(
        "outlier: {interval: 400ms, ejection: {base: 2s, cap: 2s}}, slow_start: {window: 500ms}",
        "outlier: {}, slow_start: {window: 10s}",
    );
    let ejecting = if keys.contains("outlier") { "slow_start: off" } else { ejecting };
    let endpoints = urls.join(", ");
    let upstreams = format!("upstreams: {{u: {{{keys}endpoints: [{endpoints}], {ejecting}}}}}\n");
    stage.configured(&upstreams).await
}

/// Lets time pass, and says which.
async fn span(stage: &Stage, time: Duration) -> (Timestamp, Timestamp) {
    let from = stage.clock.now();
    stage.pass(time).await;
    (from, stage.clock.now())
}

/// The share of one endpoint of what arrived in `span`, in percent.
fn share(ends: &[Upstream], index: usize, (from, to): (Timestamp, Timestamp)) -> f64 {
    let arrived = |end: &Upstream| end.journal().attempts(from, to).all;
    let all: u64 = ends.iter().map(arrived).sum();
    arrived(&ends[index]) as f64 * 100.0 / all.max(1) as f64
}

/// How many endpoints but this one are not in good standing.
async fn ejections(gateway: &Gateway, ends: &[Upstream], but: usize) -> usize {
    let mut out = 0;
    for (index, end) in ends.iter().enumerate() {
        let label = format!("endpoint=\"{}\"", end.address());
        let standing = gateway.metric("seawall_endpoint_standing", &[&label]).await;
        out += usize::from(index != but && standing > 0.0);
    }
    out
}

const CHECK: &str = "/health";
