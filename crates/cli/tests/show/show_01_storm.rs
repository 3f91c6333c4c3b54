//! 503 to everything at 300 requests/s: with the budget alone the upstream sees at most 1.15
//! attempts per call, with the breaker far fewer calls at all; and it is over when it is over.

use std::time::Duration;

use seawall_cli::demo::{Attempts, Behaviour, LoadOptions, Protocol, Upstream};

use crate::harness::{Gateway, Stage, show};

const RATE: u32 = 300;

#[test]
fn a_storm_of_503_is_not_amplified_and_ends_within_12_seconds() {
    show("1 · 503 to everything at 300 requests/s", async |stage| {
        let (budget, breaker) = (stage.upstream().await, stage.upstream().await);
        let without = stage
            .configured(&format!(
                "upstreams: {{only: {{endpoints: [\"{}\"], breaker: off}}}}\n",
                budget.url()
            ))
            .await;
        let with = stage.gateway(&breaker.url()).await;
        // Both storms rage at the same time, each over its own gateway and upstream.
        let (without, with) =
            tokio::join!(storm(stage, &without, &budget), storm(stage, &with, &breaker));
        without.tell(stage, "budget alone");
        with.tell(stage, "and breaker");

        assert!(without.storm.all * 100 <= without.storm.first * 115, "{:?}", without.storm);
        assert!(without.storm.first >= without.due * 99 / 100, "the storm did not arrive");
        // The breaker opens about a second into the storm; what comes later are probes.
        assert!(with.storm.all <= u64::from(RATE) * 2 + 60, "{:?}", with.storm);
        for after in [&without, &with] {
            let recovered = after.recovered.expect("99 % success never came back");
            assert!(recovered <= Duration::from_secs(12), "{recovered:?}");
            assert!(after.calm.first > 0 && after.calm.all * 1000 <= after.calm.first * 1005);
        }
    });
}

struct Outcome {
    due: u64,
    storm: Attempts,
    calm: Attempts,
    recovered: Option<Duration>,
}

impl Outcome {
    fn tell(&self, stage: &Stage, name: &str) {
        let storm = format!(
            "{} calls due, {} reached the upstream in {} attempts ({:.3} each)",
            self.due,
            self.storm.first,
            self.storm.all,
            self.storm.amplification()
        );
        stage.tell(format!("{name}: storm"), storm);
        let recovered =
            self.recovered.map_or("never".into(), |after| format!("{:.1} s", after.as_secs_f64()));
        let after = format!(
            "99 % success {recovered} after it, then {:.3} attempts per call",
            self.calm.amplification()
        );
        stage.tell(format!("{name}: after"), after);
    }
}

async fn storm(stage: &Stage, gateway: &Gateway, upstream: &Upstream) -> Outcome {
    let begin = stage.clock.now();
    let storm_from = begin.after(stage.seconds(3.0, 8.0));
    let storm_to = storm_from.after(stage.seconds(6.0, 20.0));
    let end = storm_to.after(stage.seconds(13.5, 15.0));
    upstream.script(move |arrival| {
        let raging = (storm_from..storm_to).contains(&arrival.at);
        Behaviour::status(if raging { 503 } else { 200 })
    });
    let options = LoadOptions::new(RATE, Duration::from_secs(5));
    let load = stage.load(&gateway.client(Protocol::Http1), options, "/quotes");
    tokio::time::sleep_until(stage.clock.instant(end)).await;
    let ledger = load.stop().await;
    let before = ledger.within(begin, storm_from.before(Duration::from_millis(50)));
    assert_eq!(before.good, before.sent, "before the storm: {}", before.describe());
    let recovered = ledger.recovered(storm_to, end);
    let calm_from = storm_to.after(recovered.unwrap_or_default() + Duration::from_secs(1));
    Outcome {
        due: ledger.within(storm_from, storm_to).sent,
        storm: upstream.journal().attempts(storm_from, storm_to),
        calm: upstream.journal().attempts(calm_from, end),
        recovered,
    }
}
