//! What is known by formula, to hold the simulator against.
//!
//! Times are in seconds, rates per second. Every function is exact for the model it names; where a
//! model has no steady state (a queue whose load is 1 or more) the answer is infinite.

mod sharding;

pub use sharding::{hand_within_hands, union_of_hands};

use crate::span::Span;

/// The mean wait for the one worker of a queue with random (Poisson) arrivals and any service
/// time: λE\[S²\] / 2(1 − ρ). Source: pollaczek-khinchine.
#[must_use]
pub fn wait_for_one_worker(per_second: f64, service: &Span) -> f64 {
    let load = per_second * service.mean();
    if load >= 1.0 {
        return f64::INFINITY;
    }
    per_second * service.second_moment() / (2.0 * (1.0 - load))
}

/// The probability that a job waits for one of `workers` workers with random arrivals and
/// exponential service, `load` being the mean number of busy workers: Erlang's C, by the recursion
/// of his B. Source: erlang.
#[must_use]
pub fn waits_for_workers(workers: u32, load: f64) -> f64 {
    if load >= f64::from(workers) {
        return 1.0;
    }
    let lost = (1..=workers).map(f64::from).fold(1.0, |lost, n| load * lost / (n + load * lost));
    let share = load / f64::from(workers);
    lost / (1.0 - share * (1.0 - lost))
}

/// The mean wait for one of `workers` workers with random arrivals and exponential service.
#[must_use]
pub fn wait_for_workers(workers: u32, per_second: f64, mean_service: f64) -> f64 {
    let load = per_second * mean_service;
    let spare = f64::from(workers) - load;
    if spare <= 0.0 {
        return f64::INFINITY;
    }
    waits_for_workers(workers, load) * mean_service / spare
}

/// The share of jobs refused by one worker with room for `room` jobs in all, itself included, with
/// random arrivals and exponential service: (1 − ρ)ρᴷ / (1 − ρᴷ⁺¹).
#[must_use]
pub fn refused_by_one_worker(load: f64, room: u32) -> f64 {
    // Summed, so that a load of 1 is no exception.
    let states = (0..=room).map(|n| libm::pow(load, f64::from(n)));
    libm::pow(load, f64::from(room)) / states.sum::<f64>()
}

/// The share of jobs that one worker never takes up, with random arrivals, exponential service and
/// nobody waiting longer than `patience` mean services: (1 − ρ)ρe / (1 − ρ²e), e = e^−(1 − ρ)τ.
/// Source: barrer.
#[must_use]
pub fn lost_by_patience(load: f64, patience: f64) -> f64 {
    if (load - 1.0).abs() < 1e-9 {
        return 1.0 / (2.0 + patience);
    }
    let left = libm::exp(-(1.0 - load) * patience);
    (1.0 - load) * load * left / (1.0 - load * load * left)
}

/// Jobs a second, and the mean time from asking to the answer, of `clients` that think for a mean
/// time and then wait for one worker with exponential service: the machine-repair model, by mean
/// value analysis. Source: mean-value-analysis.
#[must_use]
pub fn machine_repair(clients: u32, think: f64, service: f64) -> (f64, f64) {
    let (mut per_second, mut response, mut inside) = (0.0, 0.0, 0.0);
    for n in 1..=clients {
        response = service * (1.0 + inside);
        per_second = f64::from(n) / (think + response);
        inside = per_second * response;
    }
    (per_second, response)
}

/// Attempts a call, with up to `most` attempts that each fail with this probability:
/// (1 − fᵐ) / (1 − f).
#[must_use]
pub fn attempts_per_call(fails: f64, most: u32) -> f64 {
    (0..most).map(|n| libm::pow(fails, f64::from(n))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, exact: f64) {
        assert!((value - exact).abs() < 1e-9, "{value}, not {exact}");
    }

    #[test]
    fn the_formulas_agree_where_their_models_do() {
        let second = std::time::Duration::from_secs(1);
        let (fixed, random) = (Span::fixed(second), Span::exponential(second));
        near(wait_for_one_worker(0.8, &random), 4.0);
        near(wait_for_one_worker(0.8, &fixed), 2.0);
        near(wait_for_workers(1, 0.8, 1.0), 4.0);
        near(waits_for_workers(1, 0.8), 0.8);
        // Two workers have a closed form of their own: ρ² / (1 − ρ²) services.
        near(wait_for_workers(2, 1.6, 1.0), 0.64 / 0.36);
        assert!(wait_for_one_worker(1.0, &random).is_infinite());
        assert!(wait_for_workers(3, 3.0, 1.0).is_infinite());
        near(waits_for_workers(3, 3.0), 1.0);
    }

    #[test]
    fn bounds_and_limits_are_met() {
        near(refused_by_one_worker(1.0, 9), 0.1);
        near(refused_by_one_worker(0.5, 1), 0.5 / 1.5);
        near(refused_by_one_worker(2.0, 40), 0.5);
        // Nobody waits at all, and everybody does.
        near(lost_by_patience(0.5, 0.0), refused_by_one_worker(0.5, 1));
        near(lost_by_patience(2.0, 50.0), 0.5);
        near(lost_by_patience(0.5, 100.0), 0.0);
        assert!((lost_by_patience(1.0, 3.0) - lost_by_patience(1.000_01, 3.0)).abs() < 1e-4);
        let (per_second, response) = machine_repair(1, 3.0, 1.0);
        near(per_second, 0.25);
        near(response, 1.0);
        // Many clients keep the worker busy all the time.
        let (per_second, response) = machine_repair(1_000, 3.0, 1.0);
        near(per_second, 1.0);
        near(response, 997.0);
        near(attempts_per_call(0.0, 3), 1.0);
        near(attempts_per_call(1.0, 3), 3.0);
        near(attempts_per_call(0.5, 3), 1.75);
    }
}
