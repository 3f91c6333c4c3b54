//! Chains of layers: what one call at the top costs at the bottom.

use alloc::vec::Vec;

use super::retrying;
use super::sim::at;
use crate::outcome::{AnswerSignals, Outcome, Safety};
use crate::retry::RetryOptions;
use crate::rng::SplitMix64;
use crate::stack::{
    Call, Dependency, Event, Hop, Operation, StackConfig, StackParams, Step, worst_case_attempts,
};
use crate::time::Timestamp;

/// Serves one request by the layers in `hops`; whether the answer, always a 503, says stop.
fn serve(hops: &[Hop], now: &mut Timestamp, arrived: &mut u64) -> bool {
    let Some((hop, below)) = hops.split_first() else {
        *arrived += 1;
        return false;
    };
    let base = retrying(hop.max_attempts);
    let retry = RetryOptions { honour_stop: hop.honours_stop, ..base.retry.unwrap() };
    let params = StackParams::new(&StackConfig { retry: Some(retry), ..base }).unwrap();
    let mut dependency = Dependency::new(1, 1);
    let mut rng = SplitMix64::new(1);
    let call = Call {
        lane: 0,
        safety: Safety::Idempotent,
        owner: hop.owns_retries,
        deadline: None,
        total: None,
        rate_key: None,
        attempt_timeout: None,
        retry: None,
        refresh: None,
    };
    let (mut operation, mut step) =
        Operation::begin(*now, &mut dependency, &params, call, &mut rng);
    loop {
        match step {
            Step::Send(mut attempt) => {
                attempt.permit.mark_sent();
                let stop = serve(below, now, arrived);
                let outcome = Outcome::of_status(503, AnswerSignals { stop, ..Default::default() });
                let permit = &mut attempt.permit;
                let event = Event::Ended { permit, outcome, replayable: true };
                step = operation.on_event(*now, &mut dependency, &params, event, &mut rng);
                dependency.release(*now, &params, attempt.permit);
            }
            Step::WaitUntil(until) => {
                *now = until;
                step = operation.on_event(*now, &mut dependency, &params, Event::Tick, &mut rng);
            }
            Step::Fly | Step::Refresh(_) => panic!("one attempt at a time, and no credential"),
            Step::Done(done) => {
                let gave_up = hop.owns_retries && done.stop.says_stop(&done.outcome);
                return gave_up || done.outcome.says_stop();
            }
        }
    }
}

fn arrivals(hops: &[Hop]) -> u64 {
    let mut arrived = 0;
    serve(hops, &mut at(0), &mut arrived);
    arrived
}

#[test]
fn worst_case_attempts_is_what_real_operations_send_for_every_chain_of_three() {
    let mut kinds = Vec::new();
    for max_attempts in [1, 2, 3] {
        for owns_retries in [false, true] {
            for honours_stop in [false, true] {
                kinds.push(Hop { max_attempts, owns_retries, honours_stop, ..Hop::PASSES });
            }
        }
    }
    for top in &kinds {
        for middle in &kinds {
            for bottom in &kinds {
                let hops = [*top, *middle, *bottom];
                assert_eq!(arrivals(&hops), worst_case_attempts(&hops), "{hops:?}");
            }
        }
    }
}

#[test]
fn one_owner_of_three_makes_three_all_owners_three_and_deaf_owners_twenty_seven() {
    let owner = Hop { max_attempts: 3, owns_retries: true, ..Hop::PASSES };
    let passes = Hop { owns_retries: false, ..owner };
    let deaf = Hop { honours_stop: false, ..owner };
    for one in [[passes, passes, owner], [passes, owner, passes], [owner, passes, passes]] {
        assert_eq!(arrivals(&one), 3);
    }
    assert_eq!(arrivals(&[owner; 3]), 3);
    assert_eq!(arrivals(&[deaf; 3]), 27);
}
