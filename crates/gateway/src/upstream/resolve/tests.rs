use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PATIENCE: Duration = Duration::from_secs(2);

/// A resolver that answers what the test says, when it says so.
struct Scripted {
    resolver: Resolver,
    answers: mpsc::Sender<io::Result<Vec<IpAddr>>>,
    lookups: Arc<AtomicUsize>,
    clock: Clock,
}

fn scripted(max_in_flight: usize) -> Scripted {
    let (answers, script) = mpsc::channel();
    let script = Mutex::new(script);
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let clock = Clock::new();
    let ttl = Duration::from_secs(5);
    let resolver = Resolver::with_lookup(max_in_flight, ttl, clock, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        script.lock().recv().unwrap_or_else(|_| Err(io::Error::other("the test is over")))
    });
    Scripted { resolver, answers, lookups, clock }
}

impl Scripted {
    fn answers(&self, addresses: &[IpAddr]) {
        self.answers.send(Ok(addresses.to_vec())).unwrap();
    }

    fn fails(&self) {
        self.answers.send(Err(io::Error::other("no such host"))).unwrap();
    }

    async fn resolve(&self) -> Result<Arc<[IpAddr]>, ResolveError> {
        self.resolver.resolve("name.test", PATIENCE).await
    }

    fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

/// Polls once; whether it goes on.
async fn pends<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// Time moves only by this: the clock stands still while a lookup runs on its thread.
async fn passes(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn literal_addresses_need_no_lookup() {
    let script = scripted(1);
    let four = script.resolver.resolve("192.0.2.1", Duration::ZERO).await.unwrap();
    assert_eq!(*four, [ADDRESS]);
    let six = script.resolver.resolve("2001:db8::1", Duration::ZERO).await.unwrap();
    assert_eq!(six.len(), 1);
    assert_eq!(script.lookups(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_good_answer_serves_for_five_seconds_and_no_longer() {
    let script = scripted(1);
    script.answers(&[ADDRESS]);
    assert_eq!(*script.resolve().await.unwrap(), [ADDRESS]);
    passes(Duration::from_millis(4_999)).await;
    script.resolve().await.unwrap();
    assert_eq!(script.lookups(), 1);
    passes(Duration::from_millis(1)).await;
    script.answers(&[ADDRESS]);
    script.resolve().await.unwrap();
    assert_eq!(script.lookups(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_stands_for_one_second_and_no_longer() {
    let script = scripted(1);
    script.fails();
    assert_eq!(script.resolve().await.unwrap_err().to_string(), "no such host");
    passes(Duration::from_millis(999)).await;
    script.resolve().await.unwrap_err();
    assert_eq!(script.lookups(), 1);
    passes(Duration::from_millis(1)).await;
    script.answers(&[ADDRESS]);
    assert_eq!(*script.resolve().await.unwrap(), [ADDRESS]);
}

#[tokio::test(start_paused = true)]
async fn no_address_at_all_is_a_failure() {
    let script = scripted(1);
    script.answers(&[]);
    script.resolve().await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn the_last_good_answer_outlives_its_time_while_lookups_fail() {
    let script = scripted(1);
    script.answers(&[ADDRESS]);
    script.resolve().await.unwrap();
    passes(Duration::from_secs(3_600)).await;
    script.fails();
    assert_eq!(*script.resolve().await.unwrap(), [ADDRESS]);
    // The failure stands, and so does the old answer.
    assert_eq!(*script.resolve().await.unwrap(), [ADDRESS]);
    assert_eq!((script.lookups(), script.resolver.stats().stale_total), (2, 2));
}

#[tokio::test]
async fn the_last_good_answer_serves_after_half_of_the_patience() {
    let script = scripted(1);
    script.answers(&[ADDRESS]);
    script.resolve().await.unwrap();
    let patience = Duration::from_millis(40);
    tokio::time::pause();
    passes(Duration::from_secs(5)).await;
    tokio::time::resume();
    let start = script.clock.now();
    let old = script.resolver.resolve("name.test", patience).await.unwrap();
    assert_eq!(*old, [ADDRESS]);
    assert!(start.until(script.clock.now()) >= patience / 2);
    let stats = script.resolver.stats();
    assert_eq!((stats.in_flight, stats.zombies, stats.stale_total), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_fresh_before_it_is_old_and_one_that_is_not_is_left_alone() {
    let script = scripted(1);
    script.answers(&[ADDRESS]);
    script.resolve().await.unwrap();
    let answered = async |count| {
        while script.resolver.stats().answers_total < count {
            tokio::task::yield_now().await;
        }
    };
    for round in 2..=4 {
        passes(Duration::from_millis(3_999)).await;
        script.resolver.refresh(script.clock.now());
        tokio::task::yield_now().await;
        assert_eq!(script.resolver.stats().lookups_total, round - 1, "not yet");
        passes(Duration::from_millis(1)).await;
        script.answers(&[ADDRESS]);
        script.resolver.refresh(script.clock.now());
        // A second look begins no second lookup.
        script.resolver.refresh(script.clock.now());
        answered(round).await;
        assert_eq!(script.resolver.stats().lookups_total, round);
    }
    // Answers had in time are not stale, and nobody waited.
    assert_eq!(script.resolver.stats().stale_total, 0);
    passes(IN_USE).await;
    script.resolver.refresh(script.clock.now());
    tokio::task::yield_now().await;
    assert_eq!(script.resolver.stats().lookups_total, 4);
}

#[tokio::test(start_paused = true)]
async fn nobody_with_an_old_answer_waits_for_a_lookup_that_hangs() {
    let script = scripted(1);
    script.answers(&[ADDRESS]);
    script.resolve().await.unwrap();
    passes(Duration::from_secs(4)).await;
    script.resolver.refresh(script.clock.now());
    passes(Duration::from_secs(1)).await;
    let mut old = Box::pin(script.resolve());
    assert!(!pends(&mut old).await, "the lookup has been silent for a second");
    assert_eq!(script.resolver.stats().stale_total, 1);
    script.fails();
}

#[tokio::test]
async fn callers_of_one_name_share_one_lookup() {
    let script = scripted(8);
    let mut first = Box::pin(script.resolve());
    let mut second = Box::pin(script.resolve());
    assert!(pends(&mut first).await);
    assert!(pends(&mut second).await);
    script.answers(&[ADDRESS]);
    assert_eq!(*first.await.unwrap(), [ADDRESS]);
    assert_eq!(*second.await.unwrap(), [ADDRESS]);
    assert_eq!(script.lookups(), 1);
}

#[tokio::test]
async fn a_lookup_that_hangs_keeps_its_slot_until_it_ends() {
    let script = scripted(1);
    let short = Duration::from_millis(20);
    let error = script.resolver.resolve("hangs.test", short).await.unwrap_err();
    assert_eq!(error.to_string(), "the lookup timed out");
    let stats = script.resolver.stats();
    assert_eq!((stats.in_flight, stats.zombies), (1, 1));
    // Another name finds no slot and begins nothing.
    script.resolver.resolve("other.test", short).await.unwrap_err();
    assert_eq!(script.lookups(), 1);
    // The same name joins the lookup that hangs.
    let mut joins = Box::pin(script.resolver.resolve("hangs.test", PATIENCE));
    assert!(pends(&mut joins).await);
    assert_eq!(script.resolver.stats().zombies, 0);
    script.answers(&[ADDRESS]);
    assert_eq!(*joins.await.unwrap(), [ADDRESS]);
    // Now the other one has its turn.
    script.answers(&[ADDRESS]);
    script.resolver.resolve("other.test", PATIENCE).await.unwrap();
    assert_eq!(script.lookups(), 2);
}

#[test]
fn the_least_recently_asked_name_makes_room_and_a_pending_one_never() {
    let mut state = State::default();
    for number in 0..MAX_NAMES {
        let asked = Timestamp::from_millis(u64::try_from(number).unwrap() + 1);
        state.names.insert(number.to_string(), Name { asked, ..Name::default() });
    }
    let (_, pending) = watch::channel(None);
    state.names.get_mut("0").unwrap().pending = Some(pending.clone());
    state.make_room("5").unwrap();
    assert_eq!(state.names.len(), MAX_NAMES);
    state.make_room("new").unwrap();
    assert!(!state.names.contains_key("1"));
    assert!(state.names.contains_key("0"));
    state.names.insert("new".to_owned(), Name::default());
    for name in state.names.values_mut() {
        name.pending = Some(pending.clone());
    }
    state.make_room("another").unwrap_err();
}
