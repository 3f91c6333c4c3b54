use super::*;
use crate::models::KINDS;

/// A file that is right.
const RIGHT: &str = r#"schema = 1
name = "small"
title = "A small one"
shows = "What it shows."
matters = "Why it matters."
change = "What to change."

[run]
calls_until = "4s"

[calls]
rate = "50/s"

[fleet]
clients = 10

[server]
workers = 1
service = "5ms"

[[fault]]
from = "1s"
for = "1s"
do = "errors"
share = "100%"

[[arm]]
name = "ours"
role = "test"
policy = { retry = { max_attempts = 3 } }

[[arm]]
name = "naive"
role = "control"
misses = ["bounded"]
policy = { retry = { max_attempts = 3 }, retry_budget = "off", breaker = "off" }

[[threshold]]
id = "bounded"
metric = "attempts"
from = "1s"
until = "2s"
at_most = "2x"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("small.toml", text)
}

/// The one thing that is told of the file with one thing said otherwise.
fn told(from: &str, to: &str) -> FileMistake {
    told_of(RIGHT, from, to)
}

fn told_of(right: &str, from: &str, to: &str) -> FileMistake {
    assert!(right.contains(from), "{from}");
    let Err(error) = parse(&right.replacen(from, to, 1)) else { panic!("{to} is taken") };
    let [mistake] = error.mistakes() else { panic!("{to}\n{error}") };
    mistake.clone()
}

#[test]
fn a_file_that_is_right_is_read_and_judged() {
    let scenario = parse(RIGHT).unwrap();
    let plan = Plan { seeds: vec![0, 1], clients: None, threads: 1 };
    let outcome = scenario.run(&plan, |_| ()).unwrap();
    assert_eq!((outcome.verdict, outcome.runs), (Verdict::Pass, 4));
    let fates: Vec<_> = outcome.rows.iter().map(|row| row.fate).collect();
    assert_eq!(fates, [Fate::Held, Fate::MissedRightly]);
    let many = Plan { clients: Some(0), ..plan };
    assert_eq!(scenario.run(&many, |_| ()).unwrap_err().field(), "clients");
}

#[test]
fn a_lone_run_tells_how_far_it_is() {
    let scenario = parse(RIGHT).unwrap().only(None, Some("ours")).unwrap();
    let plan = Plan { seeds: vec![0], clients: None, threads: 1 };
    let told = std::sync::Mutex::new(Vec::new());
    scenario.run(&plan, |done| told.lock().unwrap().push(done)).unwrap();
    let told = told.into_inner().unwrap();
    assert!(told.len() > 100 && told.is_sorted(), "{told:?}");
    assert_eq!(told.last(), Some(&1.0));
}

#[test]
fn a_course_is_the_sum_of_its_runs_whatever_the_number_of_threads() {
    let scenario = parse(RIGHT).unwrap();
    let run = |seeds: &[u64], threads| {
        let plan = Plan { seeds: seeds.to_vec(), clients: None, threads };
        scenario.run(&plan, |_| ()).unwrap()
    };
    let one_by_one: Vec<_> = (0..3).map(|seed| run(&[seed], 1).courses).collect();
    let all = run(&[0, 1, 2], 3);
    for (place, course) in all.courses.iter().enumerate() {
        let parts: Vec<_> = one_by_one.iter().map(|courses| &courses[place]).collect();
        assert_eq!((course.runs, course.seconds.len()), (3, 5), "4 s, and what ends at its end");
        for (second, over) in course.seconds.iter().enumerate() {
            let offered = parts.iter().map(|part| part.seconds[second].sum.offered);
            assert_eq!(over.sum.offered, offered.clone().sum::<u64>());
            assert_eq!(Some(over.least.offered), offered.clone().min());
            assert_eq!(Some(over.most.offered), offered.max());
        }
        let answers = |course: &Course| course.heat.seconds().iter().flatten().sum::<u32>();
        assert_eq!(answers(course), parts.iter().map(|part| answers(part)).sum::<u32>());
        assert!(course.stops.iter().sum::<u64>() > 400, "50 calls a second, 4 s, 3 seeds");
        assert_eq!(course.faults.len(), 1);
        let names: Vec<_> = course.numbers.iter().map(|number| number.name.as_str()).collect();
        assert_eq!(names, ["attempts in 1..2 s", "amplification", "success", "p50", "p99"]);
    }
    let seeds: Vec<_> = all.rows[1].seeds.iter().map(|it| (it.seed, it.margin < 0.0)).collect();
    assert_eq!(seeds, [(0, true), (1, true), (2, true)], "the control misses with each");
}

#[test]
fn of_a_scenario_only_what_is_asked_for_is_run() {
    let compared = format!(
        "{RIGHT}\n[[threshold]]\nid = \"less\"\nmetric = \"success\"\nat_least = \"0.1x\"\n\
         of = \"naive\"\n"
    );
    let plan = Plan { seeds: vec![0], clients: None, threads: 1 };
    for (text, runs) in [(RIGHT, 1), (&*compared, 2)] {
        let only = parse(text).unwrap().only(None, Some("ours")).unwrap();
        let outcome = only.run(&plan, |_| ()).unwrap();
        assert!(outcome.rows.iter().all(|row| row.arm == "ours"));
        assert_eq!(outcome.runs, runs, "and what it is compared with");
    }
    let refused = |case, arm| parse(RIGHT).unwrap().only(case, arm).unwrap_err();
    assert_eq!(refused(None, Some("our")).field(), "arm");
    assert!(refused(None, Some("our")).to_string().contains("“ours”, “naive”"));
    assert_eq!(refused(Some("x"), None).field(), "case");
}

/// What is said otherwise, and the line, the column and the field of what is told.
const MISTAKES: &[(&str, &str, usize, usize, &str, &str)] = &[
    ("schema = 1\n", "", 1, 1, "schema", "is missing"),
    (
        "schema = 1",
        "schema = 2",
        1,
        10,
        "schema",
        "`2` is not allowed; give a whole number from 1 to 1",
    ),
    ("workers = 1", "worker = 1", 18, 1, "server.worker", "did you mean `workers`?"),
    ("workers = 1", "workers = 1 1", 18, 11, "", "not TOML"),
    ("workers = 1", "workers = -1", 18, 11, "server.workers", "a whole number from 1"),
    ("\"5ms\"", "5", 19, 11, "server.service", "`5` is not allowed; give a unit with the number"),
    ("\"5ms\"", "\"5 ms\"", 19, 11, "server.service", "`5 ms` is not allowed"),
    (
        "\"5ms\"",
        "{ exponentiel = \"5ms\" }",
        19,
        13,
        "server.service.exponentiel",
        "did you mean `exponential`?",
    ),
    (
        "\"5ms\"",
        "{ uniform = [\"9ms\", \"5ms\"] }",
        19,
        23,
        "server.service.uniform",
        "at least least",
    ),
    (
        "service = \"5ms\"",
        "service = \"5ms\"\nqueue = { room = 5, drop = \"codl\" }",
        20,
        28,
        "server.queue.drop",
        "did you mean `codel`?",
    ),
    (
        "service = \"5ms\"",
        "service = \"5ms\"\nqueue = { target = \"5ms\" }",
        20,
        11,
        "server.queue.target",
        "there are room, full, order, drop",
    ),
    (
        "service = \"5ms\"",
        "service = \"5ms\"\nqueue = { full = \"displace\" }",
        20,
        9,
        "server.queue.room",
        "is missing",
    ),
    (
        "service = \"5ms\"",
        "service = \"5ms\"\nqueue = { policy = { lane_limit = 2 } }",
        20,
        35,
        "server.queue.policy.lane_limit",
        "a whole number from 1 to 1",
    ),
    (
        "service = \"5ms\"",
        "service = \"5ms\"\nrefusal = { retry_after = { form = \"date\" } }",
        20,
        27,
        "server.refusal.retry_after",
        "needs one of wait and backlog",
    ),
    (
        "service = \"5ms\"",
        "service = \"5ms\"\nrefusal = { retry_after = { wait = \"1s\", form = \"slots\" } }",
        20,
        49,
        "server.refusal.retry_after.form",
        "slots only with backlog",
    ),
    (
        "do = \"errors\"\nshare = \"100%\"",
        "do = \"clock\"\nahead = \"5s\"\nbehind = \"5s\"",
        25,
        9,
        "fault[0].ahead",
        "give one of ahead and behind",
    ),
    ("rate = \"50/s\"", "again = \"1s\"", 11, 1, "calls.once", "is missing"),
    (
        "rate = \"50/s\"",
        "times = [\"5s\", \"4s\"]",
        12,
        16,
        "calls.times[1]",
        "`4s` is not allowed; give times in their order",
    ),
    ("rate = \"50/s\"", "counts = [3, \"x\"]", 12, 14, "calls.counts[1]", "a whole number up to"),
    ("\"50/s\"", "50", 12, 8, "calls.rate", "`50` is not allowed; give a period"),
    ("clients = 10", "clients = 99_000_000", 15, 11, "fleet.clients", "from 1 to 16000000"),
    ("calls_until = \"4s\"", "calls_until = \"2h\"", 9, 15, "run.calls_until", "0s to 1h"),
    ("do = \"errors\"", "do = \"error\"", 24, 6, "fault[0].do", "did you mean `errors`?"),
    ("share = \"100%\"", "share = \"101%\"", 25, 9, "fault[0].share", "0% to 100%"),
    (
        "rate = \"50/s\"",
        "rate = \"50/s\"\nsafety = \"save\"",
        13,
        10,
        "calls.safety",
        "one of idempotent, unsafe",
    ),
    (
        "[server]",
        "[policy]\non_abandon = \"keep\"\n[server]",
        18,
        14,
        "policy.on_abandon",
        "one of finish, cancel",
    ),
    (
        "[server]",
        "[policy]\noutlier = { slow_factor = 1 }\n[server]",
        18,
        27,
        "policy.outlier.slow_factor",
        "from 2 to 1000",
    ),
    (
        "[server]",
        "[policy]\nslow_start = { least = \"0%\" }\n[server]",
        18,
        24,
        "policy.slow_start.least",
        "0",
    ),
    ("metric = \"attempts\"", "metric = \"share\"", 38, 1, "threshold[0].server", "is missing"),
    (
        "metric = \"attempts\"\nfrom = \"1s\"\nuntil = \"2s\"\nat_most = \"2x\"",
        "metric = \"share\"\nserver = 1\nfrom = \"1s\"\nuntil = \"2s\"\nat_most = \"2%\"",
        38,
        1,
        "threshold[0]",
        "there is no server 1: there are 1",
    ),
    (
        "metric = \"attempts\"",
        "metric = \"attempts\"\nserver = 0",
        41,
        10,
        "threshold[0].server",
        "no effect",
    ),
    (
        "metric = \"attempts\"\nfrom = \"1s\"\nuntil = \"2s\"\nat_most = \"2x\"",
        "metric = \"tries_p99\"\nat_most = 3",
        38,
        1,
        "threshold[0]",
        "needs calls.once",
    ),
    (
        "metric = \"attempts\"\nfrom = \"1s\"\nuntil = \"2s\"\nat_most = \"2x\"",
        "metric = \"duplicates\"\nat_most = 0",
        38,
        1,
        "threshold[0]",
        "needs calls.safety",
    ),
    ("share = \"100%\"", "times = 2", 25, 1, "fault[0].times", "there is no such key"),
    ("role = \"test\"", "role = \"tset\"", 29, 8, "arm[0].role", "did you mean `test`?"),
    (
        "max_attempts = 3 }",
        "max_attempts = 11 }",
        30,
        37,
        "policy.retry.max_attempts",
        "from 1 to 10",
    ),
    (
        "misses = [\"bounded\"]",
        "misses = [\"bound\"]",
        35,
        11,
        "arm[1].misses[0]",
        "the id of a threshold",
    ),
    ("misses = [\"bounded\"]", "misses = []", 35, 10, "arm[1].misses", "controls nothing"),
    ("at_most = \"2x\"", "at_most = \"2x\"\narms = [\"naive\"]", 27, 1, "arm[0]", "no threshold"),
    ("until = \"2s\"", "until = \"5s\"", 42, 9, "threshold[0].until", "up to 4s, the run's end"),
    (
        "from = \"1s\"\nuntil = \"2s\"",
        "from = \"4s\"\nuntil = \"5s\"",
        41,
        8,
        "threshold[0].from",
        "before which calls begin",
    ),
    (
        "metric = \"attempts\"\nfrom = \"1s\"\nuntil = \"2s\"\nat_most = \"2x\"",
        "metric = \"recovery\"\nfrom = \"4s\"\nat_most = \"2s\"",
        41,
        8,
        "threshold[0].from",
        "before the run's end",
    ),
    ("misses = [\"bounded\"]\n", "", 32, 1, "arm[1].misses", "belongs to a control"),
    (
        "role = \"control\"\nmisses = [\"bounded\"]",
        "role = \"baseline\"",
        27,
        1,
        "arm",
        "must fail",
    ),
    (
        "metric = \"attempts\"",
        "metric = \"writes\"",
        40,
        10,
        "threshold[0].metric",
        "one of amplification",
    ),
    ("at_most = \"2x\"", "at_most = 2", 43, 11, "threshold[0].at_most", "how many times in quotes"),
    ("at_most = \"2x\"", "", 38, 1, "threshold[0]", "at_most and at_least"),
    (
        "at_most = \"2x\"",
        "at_most = \"2x\"\nof = \"naive\"",
        44,
        6,
        "threshold[0].of",
        "would be held against itself",
    ),
    ("until = \"2s\"", "until = \"1s\"", 42, 9, "threshold[0].until", "after from"),
    ("from = \"1s\"\nuntil", "until", 38, 1, "threshold[0].from", "is missing"),
    (
        "at_most = \"2x\"",
        "at_most = \"2x\"\nof = \"our\"",
        44,
        6,
        "threshold[0].of",
        "did you mean `ours`?",
    ),
    (
        "at_most = \"2x\"",
        "at_most = \"2x\"\ncases = [\"a\"]",
        44,
        10,
        "threshold[0].cases[0]",
        "one of",
    ),
];

#[test]
fn every_mistake_is_told_with_its_field_and_its_place() {
    for &(from, to, line, column, field, said) in MISTAKES {
        let error = told(from, to);
        let place = (error.line(), error.column(), error.field());
        assert_eq!(place, (line, column, field), "{to}\n{error:?}");
        assert!(error.said().contains(said), "{to}\n{error:?}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_nothing_that_only_follows() {
    let wrong = [
        ("schema = 1", "schema = 2"),
        ("title = \"A small one\"\n", ""),
        ("[run]\ncalls_until = \"4s\"\n", ""),
        ("rate = \"50/s\"", "rate = 50"),
        ("clients = 10", "cliens = 0"),
        ("workers = 1\nservice = \"5ms\"", "workers = -1\nservice = 5\nqueues = 3"),
        ("do = \"errors\"\nshare = \"100%\"", "do = \"slow\""),
        ("max_attempts = 3 }", "max_attempts = 11, backoff = { base = \"9s\", cap = \"1s\" } }"),
        ("breaker = \"off\" }", "breaker = \"of\" }"),
        ("at_most = \"2x\"", "at_most = 2\ncases = [\"a\"]"),
    ];
    let file = wrong.iter().fold(RIGHT.to_owned(), |file, (from, to)| {
        assert!(file.contains(from), "{from}");
        file.replacen(from, to, 1)
    });
    let error = parse(&file).unwrap_err();
    let told: Vec<_> = error.mistakes().iter().map(|it| (it.line(), it.field())).collect();
    assert_eq!(
        told,
        [
            (1, "title"),
            (1, "run"),
            (1, "schema"),
            (9, "calls.rate"),
            (12, "fleet.cliens"),
            (12, "fleet.clients"),
            (15, "server.workers"),
            (16, "server.service"),
            (17, "server.queues"),
            (19, "fault[0].times"),
            (27, "policy.retry.max_attempts"),
            (33, "policy.breaker"),
            (40, "threshold[0].at_most"),
            (41, "threshold[0].cases[0]"),
        ],
        "{error}"
    );
    assert_eq!(error.to_string().matches("small.toml:").count(), told.len());
}

#[test]
fn what_is_no_toml_is_told_with_each_of_its_places() {
    let wrong = RIGHT.replace("workers = 1", "workers = = 1").replace("\"100%\"", "100%");
    let error = parse(&wrong).unwrap_err();
    let lines: Vec<_> = error.mistakes().iter().map(FileMistake::line).collect();
    assert!(lines.contains(&18) && lines.contains(&25), "{error}");
    assert!(error.mistakes().iter().all(|mistake| mistake.said().starts_with("not TOML")));
}

#[test]
fn an_error_points_into_the_file() {
    let error = parse(&RIGHT.replacen("\"5ms\"", "250", 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "small.toml:19:11: server.service: `250` is not allowed; give a unit with the number, like \
         800ms, 5s or 1m30s\n19 | service = 250\n   |           ^"
    );
}

#[test]
fn what_is_too_much_is_refused() {
    let arm = "\n[[arm]]\nname = \"x\"\nrole = \"test\"\n".repeat(65);
    let error = told("\n[[arm]]", &format!("{arm}\n[[arm]]"));
    assert!(error.said().contains("at most 64"), "{error:?}");
    let long = format!("{RIGHT}\n# {}", "x".repeat(300_000));
    let said = parse(&long).unwrap_err().to_string();
    assert!(said.contains("at most 262144 bytes"), "{said}");
    let deep = format!("{RIGHT}\nx = {}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(parse(&deep).is_err());
    assert!(told("name = \"naive\"", "name = \"ours\"").said().contains("each arm another name"));
}

#[test]
fn a_threshold_by_another_arm_leaves_that_one_out_unless_it_is_named() {
    let baseline = "[[arm]]\nname = \"theirs\"\nrole = \"baseline\"\n[[threshold]]\n\
                    id = \"no-worse\"\nmetric = \"success\"\nat_least = \"0.5x\"\n\
                    of = \"theirs\"\n\n[[threshold]]";
    let right = RIGHT.replacen("[[threshold]]", baseline, 1);
    let plan = Plan { seeds: vec![0], clients: None, threads: 1 };
    let outcome = parse(&right).unwrap().run(&plan, |_| ()).unwrap();
    let held = outcome.rows.iter().filter(|row| row.threshold == "no-worse");
    assert_eq!(held.map(|row| row.arm.as_str()).collect::<Vec<_>>(), ["ours"]);
    let itself = "of = \"theirs\"\narms = [\"theirs\"]";
    assert_eq!(told_of(&right, "of = \"theirs\"", itself).field(), "threshold[0].of");
}

#[test]
fn a_model_of_one_kind_takes_no_section_of_the_other() {
    let both = "[contention]\nclients = 5\ndelay = \"1ms\"\n[run]";
    let error = parse(&RIGHT.replacen("[run]", both, 1)).unwrap_err();
    let first = &error.mistakes()[0];
    assert_eq!((first.line(), first.field()), (11, "run"), "{error}");
}

/// The section of a map, after [`RIGHT`].
const MAP: &str = r#"
[map]
arm = "ours"
here = ["low", "fails"]

[[map.axis]]
name = "load"
points = [{ name = "low", calls = { rate = "50/s" } }, { name = "over", calls = { rate = "300/s" } }]

[[map.axis]]
name = "trigger"
points = [{ name = "none", fault = [] }, { name = "fails" }]
"#;

#[test]
fn a_map_tells_what_recovers_and_how_far_the_edge_is() {
    // Fourteen seconds, as recovery looks ten ahead.
    let text = format!("{RIGHT}{MAP}").replace("\"4s\"", "\"14s\"");
    let scenario = parse(&text).unwrap();
    let map = |threads| {
        let plan = Plan { seeds: vec![0, 1], clients: None, threads };
        scenario.map(&plan, || ()).unwrap()
    };
    assert_eq!(format!("{:?}", map(1)), format!("{:?}", map(3)));
    let map = map(1);
    assert_eq!((scenario.map_runs(2), map.runs), (8, 8));
    let spot = |at: [usize; 2]| map.spot(&at).unwrap();
    // 300 calls a second of 5 ms each are more than one worker does, with a trigger or without.
    let never: Vec<_> = [[0, 0], [1, 0], [0, 1], [1, 1]].map(|at| spot(at).never).into();
    assert_eq!(never, [0, 2, 0, 2]);
    assert_eq!(map.here, [0, 1]);
    let loads = [spot([0, 1]).load, spot([1, 1]).load];
    assert_eq!(loads, [Some(0.25), Some(1.5)]);
    assert_eq!(map.reach(&[1]).unwrap().at, [0, 1]);
    assert_eq!(map.margin(), Some(0.0), "the next point of the axis is too much");
    assert!(spot([0, 1]).advice.is_none());
    assert!(spot([1, 1]).advice.as_ref().unwrap().contains("150%"), "{:?}", spot([1, 1]).advice);
}

#[test]
fn retries_that_the_capacity_cannot_carry_are_advised_against() {
    let timed = "policy = { timeouts = { attempt = \"1s\" }, retry = { max_attempts = 3 } }";
    let right = RIGHT.replacen("policy = { retry = { max_attempts = 3 } }", timed, 1);
    assert_eq!(parse(&right).unwrap().advice(), []);
    // A worker of 5 ms carries 200 a second.
    let scenario = parse(&right.replace("\"50/s\"", "\"190/s\"")).unwrap();
    let advice = scenario.advice();
    assert_eq!(advice.len(), 1, "the control is no arm under test");
    let (case, arm, said) = &advice[0];
    assert_eq!((*case, *arm), ("", "ours"));
    assert!(said.contains("a peak load of 95%") && said.contains("104.5"), "{said}");
}

#[test]
fn a_map_that_cannot_be_drawn_is_refused() {
    let right = format!("{RIGHT}{MAP}");
    for (from, to, field, said) in [
        ("\"low\", \"fails\"", "\"low\", \"fail\"", "map.here[1]", "one of none, fails"),
        ("\"low\", \"fails\"", "\"low\"", "map.here", "of each axis"),
        ("arm = \"ours\"", "arm = \"our\"", "map.arm", "did you mean `ours`?"),
        ("{ name = \"fails\" }", "{ name = \"none\" }", "map.axis[1].points[1].name", "another"),
        ("{ rate = \"300/s\" }", "{ rate = 300 }", "calls.rate", "a period"),
        (
            "\n[[map.axis]]\nname = \"trigger\"\n",
            "\n[[axis]]\nname = \"trigger\"\n",
            "axis",
            "no such",
        ),
    ] {
        let error = told_of(&right, from, to);
        assert_eq!(error.field(), field, "{error:?}");
        assert!(error.said().contains(said), "{error:?}");
    }
    let plan = Plan { seeds: vec![0], clients: None, threads: 1 };
    assert_eq!(parse(RIGHT).unwrap().map(&plan, || ()).unwrap_err().field(), "map");
}

/// Sections of the models that are no fleet, what is said otherwise, and what is told.
const OF_MODELS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "[fanout]\nusers = 1\ncalls = 1\ntakes = \"1ms\"",
        "calls = 1",
        "calls = 0",
        "fanout.calls",
        "1",
    ),
    (
        "[fanout]\nusers = 1\ncalls = 1\ntakes = { survival = [[\"1ms\", 1], [\"2ms\", 0.5]] }",
        "0.5",
        "2",
        "fanout.takes.survival",
        "shares that fall from 1",
    ),
    (
        "[fanout]\nusers = 1\ncalls = 1\ntakes = { survival = [[\"1ms\", 1], [\"2ms\", 0.5]] }",
        "[\"2ms\", 0.5]",
        "\"2ms\"",
        "fanout.takes.survival[1]",
        "the share that takes longer",
    ),
    (
        "[refresh]\nreads = \"9/s\"\ntakes = \"1s\"\nlives = 1",
        "9/s",
        "0/s",
        "refresh.reads",
        "above 0/s",
    ),
    (
        "[chain]\ntasks = \"9/s\"\ncalls = 1\nworkers = 1\nservice = \"1ms\"\n\
         patience = \"1s\"\nends = \"9s\"",
        "calls = 1",
        "calls = 0",
        "chain.calls",
        "1",
    ),
    (
        "[tenants]\nworkers = 1\nservice = \"1ms\"\nends = \"9s\"\nwarm_up = \"1s\"\n\
         group = [{ rate = \"9/s\", patience = \"1s\" }]",
        "9/s",
        "0/s",
        "tenants.group[0].rate",
        "above 0/s",
    ),
    (
        "[tenants]\nworkers = 1\nservice = \"1ms\"\nends = \"9s\"\nwarm_up = \"1s\"\n\
         group = [{ rate = \"9/s\", patience = \"1s\" }]",
        "9s",
        "1s",
        "tenants.ends",
        "later than warm_up",
    ),
    (
        "[tenants]\nworkers = 1\nservice = \"1ms\"\nends = \"9s\"\n\
         queue = { admission = { target = \"1s\" } }\n\
         group = [{ rate = \"9/s\", patience = \"1s\" }]",
        "\"1s\" } }",
        "\"11s\" } }",
        "tenants.queue.admission.target",
        "1ms to 10s",
    ),
    (
        "[sharding]\nqueues = 4\nhand = 2\nheavy = 1\ndeals = 1",
        "hand = 2",
        "hand = 5",
        "sharding.hand",
        "1 to 4",
    ),
    (
        "[cache]\nreads = \"9/s\"\nholds = 1\nzipf = 1.3\nbackend = \"1/s\"\nflush = \"4s\"\nends = \"60s\"",
        "60s",
        "13s",
        "cache.ends",
        "10 s after flush",
    ),
    (
        "[overload]\nclients = 9\nround_trip = \"1ms\"\nwithin = \"1s\"\nworkers = 1\n\
         service = \"1ms\"\nrate = \"9/s\"\nthen = \"9/s\"\nfrom = \"2s\"\nends = \"22s\"",
        "22s",
        "21s",
        "overload.ends",
        "20s after from",
    ),
    (
        "[limits]\nfits = 5\nalone = \"1ms\"\nhangs = \"5s\"\nwindows = 1000",
        "fits = 5",
        "fits = 5\nrule = \"vega\"",
        "limits.rule",
        "did you mean `vegas`?",
    ),
    (
        "[station]\nopen = \"9/s\"\nservice = \"1ms\"\njobs = 9",
        "jobs = 9",
        "jobs = 9\nclients = 2",
        "station.open",
        "or clients that think",
    ),
    (
        "[station]\nopen = \"9/s\"\nservice = { exponential = \"1ms\" }\njobs = 9",
        "{ exponential = \"1ms\" }",
        "{ exponential = \"1ms\", rare = \"9ms\" }",
        "station.service.share",
        "is missing",
    ),
];

#[test]
fn mistakes_in_a_model_that_is_no_fleet_are_told_with_their_field() {
    let arms = "[[arm]]\nname = \"a\"\nrole = \"test\"\n[[arm]]\nname = \"b\"\n\
                role = \"control\"\nmisses = [\"x\"]\n[[threshold]]\nid = \"x\"\n";
    for (section, from, to, field, said) in OF_MODELS {
        let name = section[1..].split(']').next().unwrap();
        let metric = KINDS.iter().find(|kind| kind.section == name).unwrap().numbers[0];
        let limit = match metric.1 {
            Unit::Share => "\"1%\"",
            Unit::Times => "\"1x\"",
            Unit::Time => "\"1s\"",
            Unit::Count => "1",
        };
        let head = RIGHT.split("[run]").next().unwrap();
        let ending = format!("{arms}metric = \"{}\"\nat_most = {limit}\n", metric.0);
        let right = format!("{head}{section}\n{ending}");
        let scenario = parse(&right).unwrap_or_else(|error| panic!("{error}"));
        let plan = Plan { seeds: vec![0], clients: Some(1), threads: 1 };
        assert_eq!(scenario.run(&plan, |_| ()).unwrap().runs, 2, "{section}");
        assert!(section.contains(from), "{section}");
        let error = told_of(&right, section, &section.replace(from, to));
        assert_eq!(error.field(), *field, "{to}\n{error:?}");
        assert!(error.said().contains(said), "{to}\n{error:?}");
    }
}

/// A file of services that is right.
fn services() -> String {
    let (before, after) = RIGHT.split_once("[server]\n").unwrap();
    let (_, after) = after.split_once("[[fault]]\n").unwrap();
    let services = r#"[policy_for.a]
timeouts = { attempt = "1s" }

[service.a]
count = 2
workers = 4
service = "5ms"
calls = ["b", { one_of = { b = "30%", c = "70%" } }]
policies = "each"
says_stop = false
deadlines = true
dies_at = 50
restarts_in = "2s"
[service.a.policy]
retry = "off"
[service.a.policy_for.c]
breaker = "off"

[service.b]
service = "5ms"

[service.c]
count = 3
pick = "key"
service = "5ms"

[[fault]]
on = "c"
"#;
    let before = before.replace("rate = \"50/s\"", "rate = \"50/s\"\nto = \"a\"\nkeys = 100");
    let after = after.replace("metric = \"attempts\"", "metric = \"arriving\"\nservice = \"c\"");
    format!("{before}{services}{after}")
}

#[test]
fn services_are_read_by_their_names() {
    let scenario = parse(&services()).unwrap_or_else(|error| panic!("{error}"));
    let Model::Fleet(fleet) = &scenario.cells[0].model else { panic!("a fleet") };
    let names: Vec<_> = fleet.services.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let [a, _, c] = &fleet.services[..] else { panic!("three") };
    let steps = a.calls.iter().map(|step| step.iter().map(|it| (it.service, it.share)));
    let steps: Vec<Vec<_>> = steps.map(Iterator::collect).collect();
    assert_eq!(steps, [vec![(1, 1.0)], vec![(1, 0.3), (2, 0.7)]]);
    let own: Vec<_> = a.calls.iter().flatten().map(|target| target.policy.is_some()).collect();
    assert_eq!(own, [false, false, true]);
    assert!(a.deadlines && !a.says_stop && !a.is_together && a.dies.is_some());
    assert_eq!((c.pick, fleet.faults[0].service()), (crate::fleet::Pick::Key, 2));
    assert!(fleet.to[0].policy.is_some() && fleet.keys.is_some());
    let plan = Plan { seeds: vec![0], clients: None, threads: 1 };
    let outcome = scenario.run(&plan, |_| ()).unwrap();
    assert_eq!(outcome.runs, 2);
    let of_several = &outcome.courses[0];
    assert_eq!(of_several.said(&of_several.faults[0]), "c 100% 503");
    let alone = &parse(RIGHT).unwrap().run(&plan, |_| ()).unwrap().courses[0];
    assert_eq!(alone.said(&alone.faults[0]), "100% 503");
}

#[test]
fn a_mistake_in_a_graph_is_told_with_its_field() {
    let right = services();
    for (from, to, field, said) in [
        ("to = \"a\"", "to = \"d\"", "calls.to", "the name of a service: a, b, c"),
        ("calls = [\"b\"", "calls = [\"bb\"", "service.a.calls[0]", "the name of a service"),
        ("c = \"70%\"", "d = \"70%\"", "service.a.calls[1].one_of.d", "there is no such key"),
        ("c = \"70%\"", "c = \"0%\"", "service.a.calls[1].one_of.c", "a share above 0%"),
        ("policy_for.c]", "policy_for.a]", "service.a.policy_for.a", "is not called from here"),
        ("policy_for.c]", "policy_for.x]", "service.a.policy_for.x", "one of a, b, c"),
        ("[policy_for.a]", "[policy_for.b]", "policy_for.b", "is not called from here"),
        ("on = \"c\"\n", "", "fault[0].on", "is missing"),
        ("on = \"c\"", "on = \"cc\"", "fault[0].on", "a service: a, b, c"),
        ("service = \"c\"", "service = \"e\"", "threshold[0].service", "one of a, b, c"),
        ("restarts_in = \"2s\"\n", "", "service.a.restarts_in", "is missing"),
        ("keys = 100\n", "", "service", "where calls have no keys"),
        ("keys = 100", "keys = { count = 9 }", "calls.keys.zipf", "is missing"),
        ("[service.b]\n", "[service.b]\nsays_stop = true\n", "service.b.says_stop", "calls none"),
        ("[service.b]\n", "[service.b]\ncalls = [\"a\"]\n", "service", "lead back to nobody"),
        (
            "[service.b]\n",
            "[server]\nservice = \"1ms\"\n[service.b]\n",
            "server",
            "the only service",
        ),
    ] {
        let error = told_of(&right, from, to);
        assert_eq!(error.field(), field, "{to}\n{error:?}");
        assert!(error.said().contains(said), "{to}\n{error:?}");
    }
}
