use std::path::Path;
use std::time::SystemTime;

use seawall_policy::{Cause, Outcome, StopReason};

use super::file::{Said, parse};
use super::*;
use crate::client::CallOptions;
use crate::testing::{config, ms, stack};

type Lines = Arc<Mutex<Vec<AuditLine>>>;

fn switch() -> (KillSwitch, Lines) {
    let lines = Lines::default();
    let kept = Arc::clone(&lines);
    (KillSwitch::new(move |line| kept.lock().push(line.clone())), lines)
}

/// How often a call on a failing dependency was tried, and why it stopped.
async fn tried(stack: &Stack) -> (u32, StopReason) {
    let fails = |_: &Result<(), ()>| Outcome::of(Cause::Closed);
    let report = stack.call(CallOptions::idempotent(), fails, async |_| Err(())).await;
    (report.attempts, report.stop)
}

const OFF: Change = Change::Off { ttl: ms(60_000) };

fn events(lines: &Lines) -> Vec<AuditEvent> {
    lines.lock().iter().map(|line| line.event.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn off_ends_calls_after_one_attempt_until_its_time_is_over() {
    let stack = stack(&config());
    let (switch, lines) = switch();
    switch.attach(&stack).unwrap();
    assert_eq!(tried(&stack).await.0, 3);
    switch.set(Scope::All, OFF, "kim", "storm").unwrap();
    assert_eq!(tried(&stack).await, (1, StopReason::RetriesOff));
    tokio::time::sleep(ms(59_000)).await;
    assert_eq!(tried(&stack).await, (1, StopReason::RetriesOff));
    assert_eq!(switch.list()[0].left, ms(1_000));
    tokio::time::sleep(ms(1_000)).await;
    assert_ne!(tried(&stack).await.1, StopReason::RetriesOff);
    assert_eq!(switch.list(), []);
    assert_eq!(switch.list(), []);
    assert_eq!(events(&lines), [AuditEvent::Off { ttl: ms(60_000) }, AuditEvent::Expired]);
    let lines = lines.lock();
    assert_eq!((lines[0].who.as_str(), lines[0].reason.as_str()), ("kim", "storm"));
    assert_eq!(lines[0].until_unix_ms(), Some(lines[0].at_unix_ms + 60_000));
}

#[tokio::test(start_paused = true)]
async fn a_name_switches_its_own_stack_and_an_unknown_one_is_refused() {
    let (orders, stock) =
        (Stack::new("orders", &config()).unwrap(), Stack::new("stock", &config()).unwrap());
    let (switch, lines) = switch();
    switch.attach(&orders).unwrap();
    switch.attach(&stock).unwrap();
    switch.set(Scope::Named("orders".into()), OFF, "kim", "").unwrap();
    assert_eq!(tried(&orders).await.1, StopReason::RetriesOff);
    assert_ne!(tried(&stock).await.1, StopReason::RetriesOff);
    let error = switch.set(Scope::Named("order".into()), OFF, "kim", "").unwrap_err();
    assert_eq!(error.allowed(), "all, or one of: orders, stock");
    assert_eq!(lines.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn off_for_all_outlasts_on_for_a_name_and_on_for_all_lifts_everything() {
    let stack = Stack::new("orders", &config()).unwrap();
    let (switch, lines) = switch();
    switch.attach(&stack).unwrap();
    let orders = || Scope::Named("orders".into());
    switch.set(Scope::All, OFF, "kim", "").unwrap();
    switch.set(orders(), OFF, "kim", "").unwrap();
    switch.set(orders(), Change::On, "kim", "").unwrap();
    assert_eq!(tried(&stack).await.1, StopReason::RetriesOff);
    switch.set(orders(), OFF, "kim", "").unwrap();
    switch.set(Scope::All, Change::On, "kim", "").unwrap();
    assert_ne!(tried(&stack).await.1, StopReason::RetriesOff);
    assert_eq!((switch.list().len(), lines.lock().len()), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn a_stack_attached_later_is_off_for_what_is_left() {
    let (switch, _) = switch();
    switch.set(Scope::All, OFF, "kim", "").unwrap();
    tokio::time::sleep(ms(50_000)).await;
    let stack = stack(&config());
    switch.attach(&stack).unwrap();
    assert_eq!(tried(&stack).await.1, StopReason::RetriesOff);
    tokio::time::sleep(ms(10_000)).await;
    assert_ne!(tried(&stack).await.1, StopReason::RetriesOff);
}

#[test]
fn an_off_without_an_end_in_sight_or_a_name_is_refused() {
    let (switch, lines) = switch();
    let day = Duration::from_secs(24 * 3600);
    for ttl in [Duration::ZERO, day + ms(1), Duration::MAX] {
        let error = switch.set(Scope::All, Change::Off { ttl }, "kim", "").unwrap_err();
        assert_eq!(error.field(), "ttl");
        assert!(error.to_string().contains("at most 24h"), "{error}");
    }
    assert!(switch.set(Scope::All, Change::Off { ttl: day }, "kim", "").is_ok());
    assert_eq!(switch.set(Scope::All, OFF, " ", "").unwrap_err().field(), "who");
    assert_eq!(lines.lock().len(), 1);
}

#[test]
fn attached_stacks_are_bounded_and_not_kept_alive() {
    let (switch, _) = switch();
    let stacks: Vec<_> = (0..MOST_ATTACHED).map(|_| stack(&config())).collect();
    stacks.iter().for_each(|stack| switch.attach(stack).unwrap());
    let one_more = stack(&config());
    assert!(switch.attach(&one_more).is_err());
    drop(stacks);
    assert!(switch.attach(&one_more).is_ok());
    assert_eq!(switch.inner.state.lock().attached.len(), 1);
}

#[test]
fn who_and_reason_cannot_forge_a_line() {
    let (switch, lines) = switch();
    switch.set(Scope::All, OFF, "kim\nat_unix_ms=0", "\"x\" \u{1b}[2J").unwrap();
    let line = lines.lock()[0].to_string();
    assert_eq!(line.lines().count(), 1);
    assert!(!line.contains('\u{1b}'));
    assert!(line.contains(r#"who="kim\nat_unix_ms=0""#), "{line}");
    switch.set(Scope::All, OFF, &"k".repeat(300), "").unwrap();
    assert_eq!(lines.lock()[1].who.len(), 256);
}

#[tokio::test(start_paused = true)]
async fn the_watch_writes_the_line_of_an_end_by_itself() {
    let (switch, lines) = switch();
    let watched = switch.clone();
    let watch = tokio::spawn(async move { watched.watch().await });
    tokio::task::yield_now().await;
    switch.set(Scope::All, OFF, "kim", "").unwrap();
    tokio::time::sleep(ms(60_001)).await;
    assert_eq!(events(&lines), [AuditEvent::Off { ttl: ms(60_000) }, AuditEvent::Expired]);
    watch.abort();
}

#[test]
fn the_line_of_the_file_is_read_strictly() {
    let off = |ttl, reason| Said::Off { ttl, reason };
    for (text, said) in [
        ("on\n", Said::On),
        ("", Said::On),
        (" \n", Said::On),
        ("off 10m", off(ms(600_000), "")),
        ("off 1h30m  storm on the book \n", off(ms(5_400_000), "storm on the book")),
        ("off 90s", off(ms(90_000), "")),
        ("off 1500ms", off(ms(1_500), "")),
        ("off 24h", off(ms(86_400_000), "")),
    ] {
        assert_eq!(parse(text), said, "{text:?}");
    }
    for text in [
        "off",
        "off 10",
        "off 0s",
        "off 25h",
        "off 10m5m",
        "off 5m1h",
        "off m",
        "off 1.5h",
        "off -5m",
        "off 99999999999h",
        "on please",
        "OFF 10m",
        "stop",
        "on\noff 10m",
    ] {
        assert_eq!(parse(text), Said::Garbage(text), "{text:?}");
    }
}

/// A watched file in a directory of its own.
struct Watched {
    switch: KillSwitch,
    lines: Lines,
    path: std::path::PathBuf,
    watch: tokio::task::JoinHandle<()>,
}

impl Watched {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("seawall-switch-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join(name);
        let _ = std::fs::remove_file(&path);
        let (switch, lines) = switch();
        let (watched, place) = (switch.clone(), path.clone());
        let watch = tokio::spawn(async move { watched.watch_file(place).await });
        Self { switch, lines, path, watch }
    }

    /// Writes the file as of `age` ago, and gives the watch two looks at it.
    async fn write(&self, text: &str, age: Duration) {
        write_at(&self.path, text, age);
        tokio::time::sleep(ms(450)).await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

#[expect(clippy::disallowed_methods, reason = "a file's time is the calendar's")]
fn write_at(path: &Path, text: &str, age: Duration) {
    std::fs::write(path, text).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_file_switches_off_from_its_modification_and_on_again() {
    let watched = Watched::new("off-and-on");
    let stack = stack(&config());
    watched.switch.attach(&stack).unwrap();
    watched.write("off 10m storm\n", Duration::from_secs(240)).await;
    assert_eq!(tried(&stack).await.1, StopReason::RetriesOff);
    let off = &watched.switch.list()[0];
    assert_eq!(off.reason, "storm");
    assert!(off.left > Duration::from_secs(355) && off.left <= Duration::from_secs(360));
    watched.write("on\n", Duration::ZERO).await;
    assert_ne!(tried(&stack).await.1, StopReason::RetriesOff);
    let events = events(&watched.lines);
    assert!(matches!(events[..], [AuditEvent::Off { .. }, AuditEvent::On]), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_gone_lifts_only_what_it_said() {
    let watched = Watched::new("gone");
    watched.switch.set(Scope::All, OFF, "kim", "").unwrap();
    watched.write("off 10m", Duration::ZERO).await;
    assert_eq!(watched.switch.list().len(), 2);
    std::fs::remove_file(&watched.path).unwrap();
    tokio::time::sleep(ms(450)).await;
    let left = watched.switch.list();
    assert_eq!((left.len(), left[0].who.as_str()), (1, "kim"));
    assert_eq!(events(&watched.lines).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn garbage_changes_nothing_and_is_told_once() {
    let watched = Watched::new("garbage");
    watched.write("off 10m", Duration::ZERO).await;
    watched.write("off ten minutes", Duration::ZERO).await;
    tokio::time::sleep(ms(2_000)).await;
    assert_eq!(watched.switch.list().len(), 1);
    let lines = watched.lines.lock().clone();
    assert_eq!(lines.len(), 2);
    assert!(matches!(lines[1].event, AuditEvent::Refused { .. }));
    assert!(lines[1].to_string().contains("off <time up to 24h"), "{}", lines[1]);
    assert_eq!(lines[1].reason, "off ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_off_of_the_file_expires_once_and_a_stale_one_says_nothing() {
    let watched = Watched::new("stale");
    watched.write("off 10m", Duration::from_secs(601)).await;
    assert_eq!((watched.switch.list().len(), watched.lines.lock().len()), (0, 0));
    watched.write("off 2s", Duration::ZERO).await;
    tokio::time::sleep(ms(4_000)).await;
    let events = events(&watched.lines);
    assert!(matches!(events[..], [AuditEvent::Off { .. }, AuditEvent::Expired]), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn touching_the_file_starts_its_time_again() {
    let watched = Watched::new("touched");
    watched.write("off 10m", Duration::from_secs(300)).await;
    watched.write("off 10m", Duration::from_secs(60)).await;
    assert!(watched.switch.list()[0].left > Duration::from_secs(530));
    assert_eq!(events(&watched.lines).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_nobody_follows_any_more_has_said_nothing() {
    let watched = Watched::new("forgotten");
    let stack = stack(&config());
    watched.switch.attach(&stack).unwrap();
    watched.switch.set(Scope::Named(stack.name().to_owned()), OFF, "kim", "").unwrap();
    watched.write("off 10m", Duration::ZERO).await;
    watched.watch.abort();
    watched.switch.forget_file(watched.path.with_extension("other"));
    assert_eq!(watched.switch.list().len(), 2);
    for _ in 0..2 {
        watched.switch.forget_file(&watched.path);
        assert_eq!(watched.switch.list().len(), 1, "what the handle said stays");
    }
    watched.switch.set(Scope::All, Change::On, "kim", "").unwrap();
    assert_ne!(tried(&stack).await.1, StopReason::RetriesOff);
    let events = events(&watched.lines);
    assert!(matches!(events[1..], [AuditEvent::Off { .. }, AuditEvent::On, AuditEvent::On]));
}
