//! What is told of a run is what happened, and telling changes nothing of it.

use super::*;

fn lines(story: &Story) -> Vec<String> {
    story.told.iter().map(ToString::to_string).collect()
}

/// One server down from 1 s to 3 s.
fn failing() -> Fleet {
    Fleet { faults: vec![fault(1, 3, Trouble::Down)], ..fleet(&retrying(3)) }
}

#[test]
fn a_run_is_the_same_whether_it_is_told_or_not() {
    let fleet = failing();
    let silent = fleet.run(7).unwrap();
    for (asked, most) in [(Asked::All, 1_000_000), (Asked::All, 3), (Asked::All, 0)] {
        let (report, story) = fleet.told(7, Some(Story::new(asked, most)), (1, || ())).unwrap();
        assert_eq!(report.to_string(), silent.to_string());
        let story = story.unwrap();
        assert!(story.told.len() <= most);
        assert_eq!((story.left_out > 0, story.told.len() < most), (most < 10, most > 10));
    }
}

#[test]
fn every_call_begins_and_ends_and_every_attempt_is_told() {
    let fleet = failing();
    let report = fleet.run(7).unwrap();
    let story = fleet.tell(7, Asked::All, 1_000_000).unwrap();
    let count = |part: &str| story.told.iter().filter(|told| told.said.contains(part)).count();
    let counts = report.counts;
    assert_eq!(count("begins: a call to only") as u64, counts.calls);
    assert_eq!(count("ends after") as u64, counts.good + counts.failed);
    assert_eq!(count(" is sent") as u64, counts.attempts);
    assert_eq!(count(" arrives: ") as u64, report.between(0, 40).arrived);
    assert!(story.told.is_sorted_by_key(|told| told.at), "in the order of time");
}

#[test]
fn one_call_is_followed_from_its_begin_to_its_end() {
    let fleet = failing();
    let all = fleet.tell(7, Asked::All, 1_000_000).unwrap();
    let again = |told: &&Told| told.said.starts_with("attempt 2 at only is answered: status 200");
    let Told { client, number, .. } = *all.told.iter().find(again).unwrap();
    let story = fleet.tell(7, Asked::Call { client, number }, 100).unwrap();
    let told: Vec<_> = story.told.iter().map(|told| told.said.as_str()).collect();
    assert_eq!(
        [&told[..4], &told[5..6], &told[told.len() - 2..]].concat(),
        [
            "begins: a call to only",
            "attempt 1 at only is sent",
            "attempt 1 at only is answered: connect refused",
            "waits 100.00 ms before it is tried again",
            "attempt 2 at only arrives: 4 inside, 0 of them wait",
            "attempt 2 at only is answered: status 200",
            "ends after 114.00 ms, 2 attempts: status 200",
        ]
    );
    let own = |told: &&Told| (told.client, told.number) == (client, number);
    let own: Vec<_> = all.told.iter().filter(own).map(ToString::to_string).collect();
    assert_eq!(lines(&story), own, "and is the same among all");
    let none = fleet.tell(7, Asked::Call { client: 100, number: 0 }, 100).unwrap();
    assert!(none.told.is_empty());
}

#[test]
fn a_baselines_calls_are_told_as_well() {
    let baseline = Baseline::new(2, millis(200), &[], Gate::Free).unwrap();
    let fleet = Fleet { baseline: Some(baseline), ..failing() };
    let (report, story) =
        fleet.told(7, Some(Story::new(Asked::All, 1_000_000)), (1, || ())).unwrap();
    let story = story.unwrap();
    let count = |part: &str| story.told.iter().filter(|told| told.said.contains(part)).count();
    assert_eq!(count("begins: ") as u64, report.counts.calls);
    assert_eq!(count(" is sent") as u64, report.counts.attempts);
    assert!(count("2 attempts: connect refused; not tried again: exhausted") > 0);
}
