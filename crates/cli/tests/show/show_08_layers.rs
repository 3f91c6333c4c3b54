//! Three gateways in a row over a bottom that answers 503: what one request at the top costs.

use std::time::Duration;

use seawall_cli::demo::{Behaviour, Protocol, get};
use seawall_policy::{Hop, worst_case_attempts};

use crate::harness::{PATIENCE, Stage, show, upstream_of};

#[test]
fn retries_multiply_through_layers_unless_one_owns_them_or_the_others_hear_the_stop() {
    show("8 · three gateways in a row over 503", async |stage| {
        let owner = Hop { max_attempts: 3, owns_retries: true, ..Hop::PASSES };
        let passes = Hop { owns_retries: false, ..owner };
        let deaf = Hop { honours_stop: false, ..owner };
        for (name, hops, expected) in [
            ("one owner, the lowest", [passes, passes, owner], 3),
            ("every layer an owner, stop signals honoured", [owner, owner, owner], 3),
            ("every layer an owner, stop signals ignored", [deaf, deaf, deaf], 27),
        ] {
            assert_eq!(worst_case_attempts(&hops), expected);
            let arrived = attempts_at_the_bottom(stage, hops).await;
            stage.tell(name, format!("{arrived} attempts for one request ({expected} computed)"));
            assert_eq!(arrived, expected, "{name}");
        }
    });
}

/// `hops` from top to bottom; each gateway trusts the one before it, budgets and breakers are off.
async fn attempts_at_the_bottom(stage: &Stage, hops: [Hop; 3]) -> u64 {
    let bottom = upstream_of(stage, Behaviour::status(503)).await;
    let mut below = bottom.url();
    let mut gateways = Vec::new();
    for hop in hops.into_iter().rev() {
        let owner = if hop.owns_retries { "self" } else { "caller" };
        let gateway = stage
            .configured(&format!(
                "upstreams: {{below: {{endpoints: [\"{below}\"], breaker: off, \
                 retry_budget: off, retry: {{max_attempts: {}, honour_stop: {}, \
                 backoff: {{base: 1ms, cap: 2ms}}}}}}}}\n\
                 routes: [{{path_prefix: /, upstream: below, retry_owner: {owner}}}]\n",
                hop.max_attempts, hop.honours_stop
            ))
            .await;
        below = gateway.url();
        gateways.push(gateway);
    }
    let client = gateways.last().unwrap().client(Protocol::Http1);
    let answer = client.send(get("/one"), PATIENCE).await.unwrap();
    assert_eq!(answer.status, 503);
    stage.pass(Duration::from_millis(100)).await;
    bottom.journal().len() as u64
}
