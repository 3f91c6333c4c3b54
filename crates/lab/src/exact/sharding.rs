//! How likely it is that one client's queues are all shared with heavy ones: shuffle sharding.
//!
//! Each client is dealt a hand of a few of the queues and uses the shortest of them. A light client
//! is squeezed out when every queue in its hand is in the hand of some heavy one.

/// For `hands` independent hands of `hand` cards from a deck of `deck`: the probability of each
/// number of different cards among them, by number. Empty if the hand is larger than the deck.
#[must_use]
pub fn union_of_hands(deck: u32, hand: u32, hands: u32) -> Vec<f64> {
    if hand > deck {
        return Vec::new();
    }
    let mut union = vec![0.0; deck as usize + 1];
    union[0] = 1.0;
    for _ in 0..hands {
        let mut next = vec![0.0; deck as usize + 1];
        for (before, share) in (0..).zip(&union).filter(|(_, share)| **share > 0.0) {
            for new in 0..=hand.min(deck - before) {
                let chosen = |from, some| log_choose(from, some);
                let ways = chosen(deck - before, new) + chosen(before, hand - new);
                next[(before + new) as usize] += share * libm::exp(ways - chosen(deck, hand));
            }
        }
        union = next;
    }
    union
}

/// The probability that one more hand lies within the union of `hands` others.
#[must_use]
pub fn hand_within_hands(deck: u32, hand: u32, hands: u32) -> f64 {
    let whole = log_choose(deck, hand);
    let within = |size| libm::exp(log_choose(size, hand) - whole);
    let union = union_of_hands(deck, hand, hands);
    (0..).zip(union).map(|(size, share)| share * within(size)).sum()
}

/// The logarithm of the number of ways to choose `some` out of `from`; of none, minus infinity.
fn log_choose(from: u32, some: u32) -> f64 {
    if some > from {
        return f64::NEG_INFINITY;
    }
    let factors = (1..=some).map(|n| f64::from(from - some + n) / f64::from(n));
    factors.map(libm::log).sum()
}

#[cfg(test)]
mod tests {
    use seawall_policy::Rng;

    use super::*;
    use crate::draw::{Draws, Purpose};

    /// Hand, deck, and the probabilities with 1, 4 and 16 heavy clients, as published.
    /// Source: kubernetes-apf.
    const PUBLISHED: [(u32, u32, [f64; 3]); 11] = [
        (12, 32, [4.428_838_398_950_118e-9, 0.114_313_488_300_991_44, 0.993_508_960_765_602_4]),
        (10, 32, [1.550_093_439_632_541e-8, 0.062_647_984_022_354_5, 0.975_310_151_902_755_4]),
        (
            10,
            64,
            [6.601_827_268_370_426e-12, 0.000_455_713_209_903_707_76, 0.499_999_291_500_893_45],
        ),
        (
            9,
            64,
            [3.631_004_997_603_734_5e-11, 0.000_455_012_123_041_122_73, 0.428_231_487_645_485_8],
        ),
        (8, 64, [2.259_291_998_508_99e-10, 0.000_488_669_705_304_044_6, 0.359_351_146_811_230_76]),
        (8, 128, [6.994_461_389_026_097e-13, 3.405_579_016_162_086_3e-6, 0.027_461_731_371_550_63]),
        (7, 128, [1.057_912_285_090_197_2e-11, 6.960_839_379_258_192e-6, 0.024_061_573_863_401_47]),
        (
            7,
            256,
            [7.597_695_465_552_631e-14, 6.728_547_142_019_406e-8, 0.000_670_966_154_253_368_2],
        ),
        (
            6,
            256,
            [2.713_462_666_268_796_8e-12, 2.951_646_401_847_643_6e-7, 0.000_889_565_464_200_034_8],
        ),
        (6, 512, [4.116_062_922_897_309e-14, 4.982_983_350_480_894e-9, 2.260_257_643_434_13e-5]),
        (6, 1024, [6.337_324_016_514_285e-16, 8.090_601_643_129_57e-11, 4.517_408_062_903_668e-7]),
    ];

    #[test]
    fn the_published_table_is_met_to_nine_digits() {
        for (hand, deck, row) in PUBLISHED {
            for (heavy, published) in [1, 4, 16].into_iter().zip(row) {
                let exact = hand_within_hands(deck, hand, heavy);
                let off = (exact / published - 1.0).abs();
                assert!(off < 1e-9, "{hand} of {deck}, {heavy}: {exact}, not {published}");
            }
        }
    }

    #[test]
    fn hands_that_are_really_dealt_lie_within_others_as_often() {
        for (hand, deck, heavy) in [(12, 32, 4), (8, 64, 16), (8, 128, 16), (3, 10, 2)] {
            let exact = hand_within_hands(deck, hand, heavy);
            let deals = 10_000_u32;
            let within = (0..deals).filter(|trial| {
                let mut draw = Draws::new(1).stream(*trial, Purpose::Choice);
                let mut covered = vec![false; deck as usize];
                for _ in 0..heavy {
                    deal(deck, hand, &mut draw).into_iter().for_each(|card| covered[card] = true);
                }
                deal(deck, hand, &mut draw).into_iter().all(|card| covered[card])
            });
            let share = within.count() as f64 / f64::from(deals);
            // Five standard errors of a share.
            let error = 5.0 * (exact * (1.0 - exact) / f64::from(deals)).sqrt();
            assert!((share - exact).abs() < error, "{hand} of {deck}: {share}, not {exact}");
        }
    }

    /// A hand of different cards.
    fn deal(deck: u32, hand: u32, draw: &mut impl Rng) -> Vec<usize> {
        let mut cards: Vec<_> = (0..deck as usize).collect();
        let mut place = |left| usize::try_from(draw.below(left)).unwrap();
        (0..hand).map(|_| cards.swap_remove(place(cards.len() as u64))).collect()
    }

    #[test]
    fn the_ends_are_certain() {
        assert!((hand_within_hands(8, 8, 1) - 1.0).abs() < 1e-12);
        assert!(hand_within_hands(8, 3, 0) < 1e-12);
        assert_eq!(union_of_hands(3, 4, 1), Vec::<f64>::new());
        let sum: f64 = union_of_hands(64, 8, 16).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
