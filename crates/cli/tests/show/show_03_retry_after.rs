//! Every way a server writes Retry-After, and when the second attempt came.

use std::time::Duration;

use seawall_cli::demo::{Arrival, Behaviour, Client, Protocol, get};

use crate::harness::{PATIENCE, Stage, ms, show, upstream_of};

/// When the second attempt has to come, if at all.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Ordinary backoff, at least half its base of 100 ms.
    Backoff,
    /// Not before so many seconds, and at most 1 s (and a tenth) later.
    After(u64),
    /// A date three seconds after the rows were made, and so two or three after the answer, whose
    /// own Date may have moved on by one; at most 1 s later.
    Date,
    /// Never; the answer goes up at once, its wait at least so many seconds.
    Stop(u64),
}

#[test]
fn retry_after_is_never_undercut_never_immediate_and_never_waited_for_in_vain() {
    show("3 · Retry-After", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok()).await;
        let now = stage.clock.wall().as_unix_seconds();
        let rows = rows(now);
        let fields: Vec<Vec<String>> = rows.iter().map(|(_, fields, _)| fields.clone()).collect();
        upstream.script(move |arrival| first_503(arrival, &fields));
        let gateway = stage
            .configured(&format!(
                "upstreams: {{only: {{endpoints: [\"{}\"], retry_budget: off, breaker: off}}}}\n",
                upstream.url()
            ))
            .await;
        let client = gateway.client(Protocol::Http1);
        let asks = rows.iter().enumerate().map(|(row, _)| ask(stage, &client, row));
        let answers = futures_all(asks).await;
        for (row, ((name, _, expected), (took, answer))) in rows.iter().zip(answers).enumerate() {
            let seen = upstream.journal().of_path(&path(row));
            let gap = seen.get(1).map(|second| second.at.since(seen[0].at));
            judge(name, *expected, gap, took, &answer);
            let told = gap.map_or_else(
                || format!("1 attempt; 503 after {}, Retry-After {}", ms(took), answer.1),
                |gap| format!("second attempt after {}", ms(gap)),
            );
            stage.tell(name.clone(), told);
        }
    });
}

fn judge(
    name: &str,
    expected: Expected,
    gap: Option<Duration>,
    took: Duration,
    answer: &(u16, String),
) {
    let millis = gap.map(|gap| gap.as_millis());
    match expected {
        Expected::Backoff => {
            let gap = millis.unwrap_or_else(|| panic!("{name}: no second attempt"));
            assert!((49..500).contains(&gap), "{name}: {gap} ms");
            assert_eq!(answer.0, 200, "{name}");
        }
        Expected::After(_) | Expected::Date => {
            let gap = millis.unwrap_or_else(|| panic!("{name}: no second attempt"));
            let (least, most) = match expected {
                Expected::After(seconds) => (seconds * 1000, seconds * 1000 + 1500),
                _ => (2000, 4500),
            };
            let range = u128::from(least)..u128::from(most);
            assert!(range.contains(&gap), "{name}: {gap} ms");
            assert_eq!(answer.0, 200, "{name}");
        }
        Expected::Stop(seconds) => {
            assert_eq!((millis, answer.0), (None, 503), "{name}");
            assert!(took < Duration::from_millis(500), "{name}: {took:?}");
            let passed: u64 = answer.1.parse().unwrap_or_else(|_| panic!("{name}: {answer:?}"));
            let most = seconds + (seconds / 10).max(1) + 1;
            assert!((seconds..=most).contains(&passed), "{name}: {passed}");
        }
    }
}

fn rows(now: i64) -> Vec<(String, Vec<String>, Expected)> {
    // The answers carry a Date of the moment they are made, at most a second after `now`; a wait
    // told by a date is a whole number of seconds from there.
    let in_three = now + 3;
    let row = |name: &str, fields: &[&str], expected| {
        (name.to_owned(), fields.iter().map(|field| (*field).to_owned()).collect(), expected)
    };
    let dates = [imf_fixdate(in_three), rfc_850(in_three), asctime(in_three)];
    let mut rows = vec![
        row("1", &["1"], Expected::After(1)),
        row("30 (more than is left)", &["30"], Expected::Stop(30)),
        row("999999", &["999999"], Expected::Stop(999_999)),
        row("1 and 0", &["1", "0"], Expected::After(1)),
        row("1 and 30", &["1", "30"], Expected::Stop(30)),
        row("a date in the past", &[&imf_fixdate(now - 60)], Expected::Backoff),
        row("a date far ahead", &[&imf_fixdate(now + 3600)], Expected::Stop(3598)),
    ];
    for date in dates {
        rows.push(row(&date, &[&date], Expected::Date));
    }
    for value in ["-5", "0", "", "banana", "1.5"] {
        rows.push(row(&format!("{value:?}"), &[value], Expected::Backoff));
    }
    rows
}

fn path(row: usize) -> String {
    format!("/row/{row}")
}

fn first_503(arrival: &Arrival, fields: &[Vec<String>]) -> Behaviour {
    let row = arrival.path.rsplit('/').next().and_then(|row| row.parse::<usize>().ok());
    let Some(fields) = row.and_then(|row| fields.get(row)).filter(|_| arrival.nth == 1) else {
        return Behaviour::ok();
    };
    fields.iter().fold(Behaviour::status(503), |answer, field| answer.field("retry-after", field))
}

/// How long the call took, its status, and the Retry-After it came with.
async fn ask(stage: &Stage, client: &Client, row: usize) -> (Duration, (u16, String)) {
    let begin = stage.clock.now();
    let answer = client.send(get(&path(row)), PATIENCE).await.unwrap();
    let wait = answer.field("retry-after").unwrap_or_default().to_owned();
    (stage.clock.now().since(begin), (answer.status.as_u16(), wait))
}

/// All of them at once, in order.
async fn futures_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut all_done = true;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(done) => *output = Some(done),
                    std::task::Poll::Pending => all_done = false,
                }
            }
        }
        if all_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}

const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

struct Civil {
    year: i64,
    month: usize,
    day: i64,
    weekday: &'static str,
    time: String,
}

/// The calendar of a Unix time, counted year by year and month by month.
fn civil(seconds: i64) -> Civil {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let (mut year, mut day) = (1970, days);
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let weekday = DAYS[usize::try_from(days.rem_euclid(7)).unwrap()];
    let time = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    Civil { year, month, day: day + 1, weekday, time }
}

fn imf_fixdate(seconds: i64) -> String {
    let Civil { year, month, day, weekday, time } = civil(seconds);
    format!("{}, {day:02} {} {year} {time} GMT", &weekday[..3], MONTHS[month])
}

fn rfc_850(seconds: i64) -> String {
    let Civil { year, month, day, weekday, time } = civil(seconds);
    format!("{weekday}, {day:02}-{}-{:02} {time} GMT", MONTHS[month], year % 100)
}

fn asctime(seconds: i64) -> String {
    let Civil { year, month, day, weekday, time } = civil(seconds);
    format!("{} {} {day:2} {time} {year}", &weekday[..3], MONTHS[month])
}

#[test]
fn the_dates_of_this_table_are_dates() {
    assert_eq!(imf_fixdate(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(rfc_850(784_111_777), "Sunday, 06-Nov-94 08:49:37 GMT");
    assert_eq!(asctime(784_111_777), "Sun Nov  6 08:49:37 1994");
    assert_eq!(imf_fixdate(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
}
