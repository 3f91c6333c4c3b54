//! Who goes on when, what a token is worth, and what is kept of those that never come.

use super::*;
use crate::rng::{Rng, SplitMix64};
use proptest::prelude::*;
use std::borrow::ToOwned as _;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec::Vec;

const KEY: SealKey = SealKey::new([7, 11]);
const FOR_EVER: Timestamp = Timestamp::MAX;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// 500 a second.
fn params() -> SlotsParams {
    SlotsParams::new(SlotsOptions::new(500, Duration::from_secs(1))).unwrap()
}

/// A schedule at ten a second whose first slot was given out at 0, for 100 ms.
fn slow() -> (Slots, SlotsParams, Slot) {
    let params = SlotsParams::new(SlotsOptions::new(10, Duration::from_secs(1))).unwrap();
    let mut slots = Slots::new(KEY);
    let slot = slots.turned_away(at(0), &params, millis(100), FOR_EVER).unwrap();
    (slots, params, slot)
}

fn show(slots: &mut Slots, now: u64, params: &SlotsParams, slot: &Slot) -> Entry {
    slots.enter(at(now), params, Some(slot.token.to_string().as_bytes()), FOR_EVER)
}

#[test]
fn while_no_slot_lies_ahead_everybody_goes_on_and_nothing_is_kept() {
    let mut slots = Slots::new(KEY);
    for now in 0..100 {
        let entry = slots.enter(at(now), &params(), None, FOR_EVER);
        assert_eq!(entry, Entry::Open(Came::Free));
    }
    assert_eq!((slots.tenths(), slots.counts()), (0, SlotCounts::default()));
}

#[test]
fn from_the_first_refusal_on_each_gets_the_next_slot_at_the_rate() {
    let mut slots = Slots::new(KEY);
    let first = slots.turned_away(at(1_000), &params(), millis(200), FOR_EVER).unwrap();
    assert_eq!(first.at, at(1_200));
    for n in 1..=3 {
        let Entry::At(slot) = slots.enter(at(1_050), &params(), None, FOR_EVER) else { panic!() };
        assert_eq!(slot.at, at(1_200 + 2 * n));
    }
    let again = slots.turned_away(at(1_050), &params(), millis(200), FOR_EVER).unwrap();
    assert_eq!(again.at, at(1_250), "never sooner than the server can take up one more");
    assert_eq!(slots.ahead(at(1_050)), millis(202));
    assert_eq!(slots.enter(at(1_252), &params(), None, FOR_EVER), Entry::Open(Came::Free));
}

#[test]
fn a_herd_is_back_at_the_rate_and_each_asks_twice() {
    let (mut slots, mut refused) = (Slots::new(KEY), Vec::new());
    refused.push(slots.turned_away(at(0), &params(), millis(100), FOR_EVER).unwrap());
    for _ in 1..2_000 {
        let Entry::At(slot) = slots.enter(at(0), &params(), None, FOR_EVER) else { panic!() };
        refused.push(slot);
    }
    for slot in &refused {
        // A network of up to 20 ms, each way.
        let entry = show(&mut slots, slot.at.as_nanos() / 1_000_000 + 20, &params(), slot);
        assert_eq!(entry, Entry::Open(Came::InTime));
    }
    assert_eq!(refused[1_999].at, at(100 + 2 * 1_999), "n / rate after the first");
    let counts = slots.counts();
    assert_eq!((counts.given, counts.kept, counts.missed), (2_000, 2_000, 0));
}

#[test]
fn who_comes_too_early_is_told_the_same_slot_and_loses_nothing() {
    let (mut slots, params, _) = slow();
    let Entry::At(slot) = slots.enter(at(0), &params, None, FOR_EVER) else { panic!() };
    assert_eq!(slot.at, at(200));
    assert_eq!(show(&mut slots, 99, &params, &slot), Entry::At(slot));
    assert_eq!(show(&mut slots, 100, &params, &slot), Entry::Open(Came::InTime));
    assert_eq!((slots.counts().early, slots.counts().kept), (1, 1));
}

#[test]
fn who_comes_too_late_is_a_newcomer_and_its_slot_has_been_given_on() {
    // The slot at 100 ms is in the tenth to 200 ms, which is held until 1,200 ms.
    let (mut slots, params, slot) = slow();
    assert_eq!(show(&mut slots, 1_199, &params, &slot), Entry::Open(Came::InTime));
    let (mut slots, params, slot) = slow();
    (0..20).for_each(|_| {
        let _ = slots.enter(at(0), &params, None, FOR_EVER);
    });
    assert_eq!(slots.enter(at(1_200), &params, None, FOR_EVER), Entry::Open(Came::InPlace));
    let entry = show(&mut slots, 1_200, &params, &slot);
    assert!(matches!(entry, Entry::At(slot) if slot.at == at(2_200)), "{entry:?}");
    let counts = slots.counts();
    assert_eq!((counts.late, counts.missed, counts.taken), (1, 1, 1));
}

#[test]
fn a_token_is_worth_coming_once() {
    let (mut slots, params, slot) = slow();
    (0..5).for_each(|_| {
        let _ = slots.enter(at(0), &params, None, FOR_EVER);
    });
    assert_eq!(show(&mut slots, 100, &params, &slot), Entry::Open(Came::InTime));
    for _ in 0..3 {
        assert!(matches!(show(&mut slots, 110, &params, &slot), Entry::At(new) if new != slot));
    }
    assert_eq!((slots.counts().kept, slots.counts().replayed), (1, 3));
}

#[test]
fn a_token_of_another_schedule_is_worth_nothing() {
    let (_, params, slot) = slow();
    let mut other = Slots::new(SealKey::new([7, 12]));
    let _ = other.turned_away(at(0), &params, millis(100), FOR_EVER);
    assert!(matches!(show(&mut other, 100, &params, &slot), Entry::At(new) if new != slot));
    assert_eq!((other.counts().foreign, other.counts().kept), (1, 0));
}

#[test]
fn missed_slots_go_on_to_newcomers_but_no_pause_ends_in_a_burst() {
    let mut slots = Slots::new(KEY);
    let _ = slots.turned_away(at(0), &params(), millis(100), FOR_EVER);
    (0..4_999).for_each(|_| {
        let _ = slots.enter(at(0), &params(), None, FOR_EVER);
    });
    let mut come = |now| {
        let mut entry = |_: &u32| slots.enter(at(now), &params(), None, FOR_EVER);
        (0..1_000).take_while(|n| entry(n) == Entry::Open(Came::InPlace)).count()
    };
    assert_eq!(come(1_199), 0, "all can be kept still");
    assert_eq!(come(1_200), 50, "a tenth of a second at 500/s");
    assert_eq!(come(1_299), 0);
    assert_eq!(come(1_300), 50);
    assert_eq!(come(3_000), 50, "1,700 ms of them were missed; no more at once");
    assert_eq!(slots.counts().missed, 950);
}

#[test]
fn a_slot_that_would_be_of_no_use_is_not_given_out() {
    let options = SlotsOptions { window: Duration::from_secs(1), ..params().options() };
    let params = SlotsParams::new(options).unwrap();
    let mut slots = Slots::new(KEY);
    let _ = slots.turned_away(at(0), &params, millis(998), FOR_EVER);
    assert_eq!(slots.enter(at(0), &params, None, at(1_000)), Entry::Full, "at its deadline");
    assert!(matches!(slots.enter(at(0), &params, None, at(1_001)), Entry::At(_)));
    assert_eq!(slots.enter(at(0), &params, None, FOR_EVER), Entry::Full, "the window ends at 1 s");
    assert!(matches!(slots.enter(at(2), &params, None, FOR_EVER), Entry::At(_)));
    assert_eq!((slots.counts().given, slots.counts().none), (3, 2));
}

#[test]
fn another_rate_keeps_the_slots_that_were_given_out() {
    let (mut slots, params, slot) = slow();
    let faster = SlotsParams::new(SlotsOptions::new(1_000, Duration::from_secs(1))).unwrap();
    let next = |slots: &mut Slots, params| match slots.enter(at(0), params, None, FOR_EVER) {
        Entry::At(slot) => slot.at,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(&mut slots, &params), at(200));
    assert_eq!(next(&mut slots, &faster), at(300), "the one before was for the rate of then");
    assert_eq!(next(&mut slots, &faster), at(301));
    assert_eq!(show(&mut slots, 100, &faster, &slot), Entry::Open(Came::InTime));
}

#[test]
fn a_clock_that_steps_back_is_the_latest_time_seen() {
    let (mut slots, params, slot) = slow();
    let _ = slots.enter(at(5_000), &params, None, FOR_EVER);
    let entry = show(&mut slots, 0, &params, &slot);
    assert_eq!(entry, Entry::Open(Came::Free), "too late, but nobody waits");
    assert_eq!(slots.counts().late, 1);
    let again = slots.turned_away(at(0), &params, Duration::ZERO, FOR_EVER).unwrap();
    assert!(again.at > at(5_000));
}

#[test]
fn options_that_can_never_take_effect_are_refused() {
    let refused = |options| SlotsParams::new(options).unwrap_err().field().to_owned();
    let second = Duration::from_secs(1);
    let usual = SlotsOptions::new(10, second);
    assert_eq!(refused(SlotsOptions::new(0, second)), "rate");
    assert_eq!(refused(SlotsOptions::new(100_001, second)), "rate");
    assert_eq!(refused(SlotsOptions::new(1, Duration::from_secs(3_601))), "rate");
    assert_eq!(refused(SlotsOptions::new(1, Duration::ZERO)), "rate");
    assert_eq!(refused(SlotsOptions { window: millis(999), ..usual }), "window");
    assert_eq!(refused(SlotsOptions { window: second * 3_601, ..usual }), "window");
    assert_eq!(refused(SlotsOptions { early: millis(10_001), ..usual }), "early");
    assert_eq!(refused(SlotsOptions { late: millis(60_001), ..usual }), "late");
    assert!(SlotsParams::new(SlotsOptions::new(100_000, second)).is_ok());
    assert!(SlotsParams::new(SlotsOptions::new(1, second * 3_600)).is_ok());
}

/// Remembers every slot, and looks at all of them each time.
#[derive(Default)]
struct Model {
    /// When, and whether it was kept or given on.
    slots: Vec<(u64, bool)>,
    next: u64,
    missed: u64,
}

/// What a newcomer or a bearer gets, short of its token.
#[derive(Debug, PartialEq)]
enum Gets {
    Open(Came),
    At(u64),
}

impl Model {
    const STEP: u64 = 2_000_000;

    fn settle(&mut self, now: u64) {
        let end = now.saturating_sub(1_000_000_000) / TENTH;
        for (at, over) in self.slots.iter_mut().filter(|(at, over)| !over && at / TENTH < end) {
            let _ = at;
            *over = true;
            self.missed = 50.min(self.missed + 1);
        }
    }

    fn give_out(&mut self, now: u64, lead: u64) -> u64 {
        let at = self.next.max(now + lead).max(now + 10_000);
        self.next = at + Self::STEP;
        self.slots.push((at, false));
        at
    }

    fn enter(&mut self, now: u64, shown: Option<usize>) -> Gets {
        self.settle(now);
        if let Some((at, over)) = shown.and_then(|shown| self.slots.get_mut(shown)) {
            if *at > now + 100_000_000 {
                return Gets::At(*at);
            }
            if !*over {
                *over = true;
                return Gets::Open(Came::InTime);
            }
        }
        if self.next <= now {
            self.missed = 0;
            return Gets::Open(Came::Free);
        }
        if self.missed > 0 {
            self.missed -= 1;
            return Gets::Open(Came::InPlace);
        }
        Gets::At(self.give_out(now, 0))
    }
}

/// One of what callers do: a pause before it in ms, and who comes.
#[derive(Clone, Debug)]
enum Does {
    Comes,
    IsTurnedAway(u64),
    Shows(prop::sample::Index),
}

fn does() -> impl Strategy<Value = (u64, Does)> {
    let does = prop_oneof![
        3 => Just(Does::Comes),
        1 => (0..400_u64).prop_map(Does::IsTurnedAway),
        3 => any::<prop::sample::Index>().prop_map(Does::Shows),
    ];
    (prop_oneof![4 => 0..5_u64, 1 => 0..700_u64], does)
}

proptest! {
    #[test]
    fn it_agrees_with_a_model_that_remembers_every_slot(
        script in prop::collection::vec(does(), 0..400),
    ) {
        let (mut slots, mut model) = (Slots::new(KEY), Model::default());
        let mut tokens: Vec<(u64, String)> = Vec::new();
        let mut now = 0_u64;
        for (pause, does) in script {
            now += pause;
            let nanos = now * 1_000_000;
            let shown = match &does {
                Does::Shows(index) if !tokens.is_empty() => Some(index.index(tokens.len())),
                _ => None,
            };
            let entry = match does {
                Does::IsTurnedAway(lead) => {
                    model.settle(nanos);
                    let expected = model.give_out(nanos, lead * 1_000_000);
                    let slot = slots.turned_away(at(now), &params(), millis(lead), FOR_EVER);
                    let slot = slot.unwrap();
                    prop_assert_eq!(slot.at.as_nanos(), expected);
                    Entry::At(slot)
                }
                _ => {
                    let token = shown.map(|shown| tokens[shown].1.as_bytes());
                    let entry = slots.enter(at(now), &params(), token, FOR_EVER);
                    let told = match entry {
                        Entry::Open(came) => Gets::Open(came),
                        Entry::At(slot) => Gets::At(slot.at.as_nanos()),
                        Entry::Full => unreachable!("the window is five minutes"),
                    };
                    prop_assert_eq!(told, model.enter(nanos, shown));
                    entry
                }
            };
            if let Entry::At(slot) = entry
                && tokens.last().is_none_or(|(last, _)| *last < slot.at.as_nanos())
            {
                tokens.push((slot.at.as_nanos(), slot.token.to_string()));
            }
            let SlotCounts { given, kept, missed, taken, .. } = slots.counts();
            prop_assert!(kept + missed <= given && taken <= missed);
            let span = slots.ahead(at(now)).as_millis() + 1_000;
            prop_assert!(slots.tenths() as u128 <= span / 100 + 3, "{}", slots.tenths());
        }
        // No two at one time, and never faster than the rate.
        prop_assert!(tokens.windows(2).all(|pair| pair[1].0 - pair[0].0 >= Model::STEP));
    }

    #[test]
    fn a_token_that_was_changed_is_no_token(
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut slots, params, slot) = slow();
        let mut text = slot.token.to_string().into_bytes();
        let (cut, place) = (cut.index(text.len()), place.index(text.len()));
        let entry = slots.enter(at(100), &params, Some(&text[..cut]), FOR_EVER);
        prop_assert!(matches!(entry, Entry::At(_)));
        prop_assume!(text[place] != byte);
        text[place] = byte;
        let entry = slots.enter(at(100), &params, Some(&text), FOR_EVER);
        prop_assert!(matches!(entry, Entry::At(_)));
        prop_assert_eq!((slots.counts().foreign, slots.counts().kept), (2, 0));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let (mut slots, params, _) = slow();
        let _ = slots.enter(at(100), &params, Some(&bytes), FOR_EVER);
        prop_assert_eq!(slots.counts().foreign, 1);
    }
}

#[test]
fn every_token_differs_and_a_guess_is_not_right_by_chance() {
    let mut slots = Slots::new(KEY);
    let _ = slots.turned_away(at(0), &params(), Duration::ZERO, FOR_EVER);
    let tokens = (0..10_000).filter_map(|_| match slots.enter(at(0), &params(), None, FOR_EVER) {
        Entry::At(slot) => Some(slot.token.to_string()),
        _ => None,
    });
    assert_eq!(tokens.collect::<BTreeSet<_>>().len(), 10_000);
    let mut rng = SplitMix64::new(3);
    for n in 0..10_000_u64 {
        let guess = std::format!("{:016x}-{:08x}-{:016x}", n * 2_000_000, 0, rng.next_u64());
        let entry = slots.enter(at(1), &params(), Some(guess.as_bytes()), FOR_EVER);
        assert!(!matches!(entry, Entry::Open(_)), "{guess}");
    }
    assert_eq!(slots.counts().foreign, 10_000);
}

/// A herd of which some never come, each with a network of its own, beside a stream of newcomers.
#[test]
fn what_the_absent_leave_is_used_by_those_that_come() {
    let (mut slots, mut rng) = (Slots::new(KEY), SplitMix64::new(1));
    let mut due: Vec<(u64, Slot)> = Vec::new();
    due.push((0, slots.turned_away(at(0), &params(), millis(100), FOR_EVER).unwrap()));
    for _ in 1..10_000 {
        let Entry::At(slot) = slots.enter(at(0), &params(), None, FOR_EVER) else { panic!() };
        due.push((0, slot));
    }
    // Three in ten stay away.
    due.retain(|_| rng.below(10) >= 3);
    for (comes, slot) in &mut due {
        *comes = slot.at.as_nanos() / 1_000_000 + rng.below(40);
    }
    due.sort_by_key(|(comes, _)| *comes);
    let (mut in_time, mut in_place, mut next) = (0, 0, 0);
    // A newcomer every 4 ms, half the rate, until the last slot.
    for now in 0..20_200 {
        while let Some((_, slot)) = due.get(next).filter(|(comes, _)| *comes <= now) {
            in_time +=
                usize::from(show(&mut slots, now, &params(), slot) == Entry::Open(Came::InTime));
            next += 1;
        }
        let comes = now % 4 == 0 && now < 20_000;
        in_place += usize::from(
            comes && slots.enter(at(now), &params(), None, FOR_EVER) == Entry::Open(Came::InPlace),
        );
    }
    assert_eq!(in_time, due.len(), "nobody took a slot from those that came");
    // What is missed in the last second is free only after the last slot.
    assert!((9_700..=10_000).contains(&(in_time + in_place)), "{in_time} and {in_place}");
}
