//! What a caller says it can still wait is believed, passed on smaller, and answered in time.

use std::time::Duration;

use seawall_cli::demo::{Behaviour, LoadOptions, Protocol, get};

use crate::harness::{PATIENCE, ms, request, show, upstream_of};

#[test]
fn a_deadline_that_cannot_be_met_costs_the_upstream_one_call_a_second() {
    show("6 · X-Remaining-Ms", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok().after(Duration::from_millis(200))).await;
        let gateway = stage.gateway(&upstream.url()).await;
        let client = gateway.client(Protocol::Http1);
        let learned = LoadOptions::new(50, PATIENCE);
        let learned = stage.load_for(Duration::from_secs(1), &client, learned, "/learn").await;
        assert_eq!(learned.all().good, learned.all().sent);

        let mark = upstream.journal().len();
        let seconds = stage.pick(5, 20);
        let load = stage.load_of(&client, LoadOptions::new(50, PATIENCE), |number| {
            request("GET", &format!("/short?call={number}"), "", &[("x-remaining-ms", "50")])
        });
        stage.pass(Duration::from_secs(seconds)).await;
        let ledger = load.stop().await;
        let reached = upstream.journal().since(mark);
        let all = ledger.all();
        assert_eq!(all.status(504), all.sent, "{}", all.describe());
        let in_time =
            ledger.calls().iter().filter(|call| call.latency() < Duration::from_millis(50));
        let in_time = in_time.count() as u64;
        let slowest = ledger.calls().iter().map(|call| call.latency()).max().unwrap_or_default();
        stage.tell(
            "50 ms to an upstream of 200 ms",
            format!("{} calls in {seconds} s, {} reached it", all.sent, reached.len()),
        );
        stage.tell(
            "their 504s",
            format!(
                "{in_time} of {} before the deadline, the slowest after {}",
                all.sent,
                ms(slowest)
            ),
        );
        assert!(reached.len() as u64 <= seconds + 1, "{}", reached.len());
        assert!(in_time * 100 >= all.sent * 99);
        assert!(reached.iter().all(|arrival| arrival.remaining_ms.is_some_and(|left| left < 50)));

        let mark = upstream.journal().len();
        for _ in 0..20 {
            let none_left = request("GET", "/none", "", &[("x-remaining-ms", "0")]);
            assert_eq!(client.send(none_left, PATIENCE).await.unwrap().status, 504);
        }
        assert_eq!(upstream.journal().len(), mark);
        stage.tell("0 ms", "20 calls, none reached the upstream");

        let mut told = Vec::new();
        for stated in [300_u64, 1000, 20_000, 10_000_000] {
            let path = format!("/stated/{stated}");
            let call = request("GET", &path, "", &[("x-remaining-ms", &stated.to_string())]);
            assert_eq!(client.send(call, PATIENCE).await.unwrap().status, 200);
            let sent_on = upstream.journal().of_path(&path)[0].remaining_ms.unwrap();
            assert!(sent_on <= stated - 5 && sent_on <= 25_000, "{stated} became {sent_on}");
            told.push(format!("{stated} → {sent_on}"));
        }
        for garbage in ["-1", "soon", "5.5", ""] {
            let call = request("GET", "/garbage", "", &[("x-remaining-ms", garbage)]);
            assert_eq!(client.send(call, PATIENCE).await.unwrap().status, 200, "{garbage:?}");
        }
        assert_eq!(client.send(get("/"), PATIENCE).await.unwrap().status, 200);
        stage.tell("stated → sent on, ms", told.join(", "));
    });
}
