//! Clients that are each dealt a hand of the queues and join the shortest: how often a light one
//! meets heavy ones in every queue it has. Exact, and dealt. Source: kubernetes-apf.

use std::sync::Arc;

use seawall_policy::Rng;

use super::{Digest, Kind, Numbers, Setup};
use crate::draw::{Draw, Draws, Purpose};
use crate::exact::hand_within_hands;
use crate::scenario::{Read, Section, Unit};

pub(super) const KIND: Kind = Kind {
    section: "sharding",
    beside: &[],
    numbers: &[("squeezed", Unit::Share), ("squeezed_dealt", Unit::Share)],
    read,
};

/// Queues, and those who use them.
#[derive(Clone, Debug)]
struct Sharding {
    queues: u32,
    /// Queues of a client.
    hand: u32,
    /// Clients that fill every queue they have.
    heavy: u32,
    /// How often the hands are dealt.
    deals: u32,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let section = whole.need("sharding", &["queues", "hand", "heavy", "deals"])?;
    let queues = section.needed("queues", section.count("queues", 1..=MOST_QUEUES)?)?;
    Ok(Arc::new(Sharding {
        queues,
        hand: section.needed("hand", section.count("hand", 1..=queues)?)?,
        heavy: section.needed("heavy", section.count("heavy", 0..=MOST_HEAVY)?)?,
        deals: section.needed("deals", section.count("deals", 1..=MOST_DEALS)?)?,
    }))
}

impl Setup for Sharding {
    fn run(&self, seed: u64) -> Numbers {
        let draws = Draws::new(seed);
        let mut digest = Digest::default();
        let (mut squeezed, mut cards) = (0_u32, Vec::new());
        for deal in 0..self.deals {
            let is_squeezed = self.deal(&mut draws.stream(deal, Purpose::Choice), &mut cards);
            squeezed += u32::from(is_squeezed);
            digest.add(u64::from(deal) << 1 | u64::from(is_squeezed));
        }
        let exact = hand_within_hands(self.queues, self.hand, self.heavy);
        let dealt = f64::from(squeezed) / f64::from(self.deals);
        Numbers { values: vec![exact, dealt], events: self.deals.into(), digest: digest.sum() }
    }
}

impl Sharding {
    /// Deals a hand to every heavy client and to a light one: whether that meets others in all its
    /// queues.
    fn deal(&self, draw: &mut Draw, cards: &mut Vec<u32>) -> bool {
        let mut is_taken = vec![false; self.queues as usize];
        for _ in 0..self.heavy {
            self.hand(draw, cards).iter().for_each(|queue| is_taken[*queue as usize] = true);
        }
        self.hand(draw, cards).iter().all(|queue| is_taken[*queue as usize])
    }

    /// A hand of different queues, at the front of all of them.
    fn hand<'a>(&self, draw: &mut Draw, cards: &'a mut Vec<u32>) -> &'a [u32] {
        if cards.is_empty() {
            cards.extend(0..self.queues);
        }
        let hand = self.hand as usize;
        for place in 0..hand {
            let other = usize::try_from(draw.below((cards.len() - place) as u64)).unwrap_or(0);
            cards.swap(place, place + other);
        }
        &cards[..hand]
    }
}

/// Source: own choice.
const MOST_QUEUES: u32 = 65_536;
/// Source: own choice.
const MOST_HEAVY: u32 = 1_024;
/// Source: own choice.
const MOST_DEALS: u32 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dealt_is_what_the_formula_says() {
        for (queues, hand, heavy) in [(32, 12, 4), (64, 8, 16), (10, 3, 2), (5, 5, 1), (5, 1, 0)] {
            let sharding = Sharding { queues, hand, heavy, deals: 10_000 };
            let [exact, dealt] = Setup::run(&sharding, 1).values[..] else { panic!("two") };
            // Five standard errors of a share.
            let error = 5.0 * (exact * (1.0 - exact) / 10_000.0).max(0.0).sqrt() + 1e-9;
            assert!((exact - dealt).abs() <= error, "{hand} of {queues}: {dealt}, not {exact}");
        }
    }
}
