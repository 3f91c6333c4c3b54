use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use seawall::Clock;
use seawall_policy::Standing;

use super::labels::Label;
use super::*;
use crate::health::HealthView;
use crate::server::CloseReason;

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// What the wire adds to the name of a sample.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

impl Row {
    /// The name of its samples (of a histogram: before `_bucket`, `_sum` and `_count`).
    fn name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        format!("{}{unit}{}", self.stem, self.kind.suffix())
    }
}

/// Two routes on one upstream, a third on another with an awkward name.
fn shape() -> Shape {
    let route = |route: &str, upstream| RouteLabels { route: route.to_owned(), upstream };
    let upstream = |upstream: &str, endpoints: &[&str]| UpstreamLabels {
        upstream: upstream.to_owned(),
        endpoints: endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect(),
    };
    Shape {
        routes: vec![route("orders", 0), route("quotes", 0), route("we\"ird\\\n", 1)],
        upstreams: vec![
            upstream("bridge", &["127.0.0.1:9001", "127.0.0.1:9002"]),
            upstream("cache", &["localhost:6379"]),
        ],
        listeners: vec!["127.0.0.1:8080".to_owned()],
    }
}

#[derive(Debug)]
struct Given;

impl Source for Given {
    fn collect(&self, snapshot: &mut Snapshot) {
        snapshot.draining = true;
        snapshot.access_log_dropped = 41;
        snapshot.handshakes = Some(1);
        snapshot.certificates = vec![("/tls.crt".to_owned(), 4_102_444_800)];
        snapshot.listen_overflows = Some([16, 17]);
        let listener = &mut snapshot.listeners[0];
        listener.backlog = Some(18);
        listener.handshakes = Some(Default::default());
        (listener.open, listener.accepted, listener.accept_errors) = (13, 14, 15);
        listener.closed[CloseReason::Abuse as usize] = 16;
        let bridge = &mut snapshot.upstreams[0];
        bridge.retries_off = true;
        bridge.handshakes = Some([19, 20, 21]);
        bridge.budget_millitokens = Some(9_500);
        bridge.budget_exhausted = 12;
        (bridge.rate_available, bridge.rate_keys_evicted) = (Some(19), Some(20));
        bridge.hedges = Some((31, [32, 33, 34, 35, 36, 37, 38, 39, 40]));
        bridge.refreshes = Some([41, 42, 43, 44]);
        bridge.unmatched = vec![("io_other_error".to_owned(), 18), ("other".to_owned(), 0)];
        let view = HealthView { healthy: true, passed: 20, failed: 21, last_failure: None };
        bridge.health = vec![(0, view)];
        bridge.rules_met = vec![("busy".to_owned(), 19)];
        bridge.breakers = vec![BreakerView { route: 1, endpoint: 1, state: BreakerState::Open }];
        bridge.standings = vec![(0, Standing::Available), (1, Standing::Ejected)];
        bridge.ejections = Some([21, 22, 23]);
        bridge.pool = PoolView {
            idle: 1,
            busy: 2,
            connecting: 3,
            waiting: 4,
            connects: 5,
            connect_errors: 6,
            reused: 7,
        };
        bridge.bulkhead = BulkheadView {
            in_flight: 8,
            limit: 1024,
            waiting: 9,
            abandoned_total: 17,
            abandoned: 11,
            streams: 10,
        };
    }
}

fn exposition(metrics: &Arc<Metrics>) -> Exposition {
    Exposition::new(metrics.clone(), Arc::new(Given), Clock::new())
}

/// All samples by their text, which must not repeat.
fn samples(metrics: &Arc<Metrics>, format: Format) -> BTreeMap<String, String> {
    let text = exposition(metrics).render(format);
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let before = samples.insert(series.to_owned(), value.to_owned());
        assert_eq!(before, None, "{series} is written twice");
    }
    samples
}

/// Runs `record` on fresh metrics; exactly the samples of `expected` differ from the start.
fn check(record: impl FnOnce(&Metrics), expected: &[(&str, &str)]) {
    let metrics = Arc::new(Metrics::new(shape()));
    let before = samples(&metrics, Format::OpenMetrics);
    record(&metrics);
    let changed: BTreeMap<_, _> = samples(&metrics, Format::OpenMetrics)
        .into_iter()
        .filter(|(series, value)| before.get(series) != Some(value))
        .filter(|(series, _)| !series.starts_with("process_"))
        .filter(|(series, _)| !series.contains("_bucket") && !series.contains("retry_ratio"))
        .collect();
    let expected: BTreeMap<_, _> =
        expected.iter().map(|&(series, value)| (series.to_owned(), value.to_owned())).collect();
    assert_eq!(changed, expected);
}

#[test]
fn calls_count_under_their_route_and_its_upstream() {
    check(
        |metrics| {
            metrics.first_attempt(0);
            metrics.first_attempt(0);
            metrics.retry(1);
            metrics.redispatch(2);
            metrics.stopped(0, StopReason::Budget);
            metrics.stopped(1, StopReason::CallerLeft);
            metrics.deadline_before_send(1);
            metrics.degraded(1);
        },
        &[
            (r#"seawall_first_attempts_total{route="orders",upstream="bridge"}"#, "2"),
            (r#"seawall_retries_total{route="quotes",upstream="bridge"}"#, "1"),
            (r#"seawall_redispatches_total{route="we\"ird\\\n",upstream="cache"}"#, "1"),
            (r#"seawall_stop_reasons_total{route="orders",reason="budget"}"#, "1"),
            (r#"seawall_stop_reasons_total{route="quotes",reason="caller_left"}"#, "1"),
            (r#"seawall_deadline_exceeded_before_send_total{route="quotes"}"#, "1"),
            (r#"seawall_degraded_total{route="quotes"}"#, "1"),
        ],
    );
}

#[test]
fn requests_without_a_route_count_under_none() {
    check(
        |metrics| {
            metrics.request(Some(0), 204);
            metrics.request(None, 404);
            metrics.request(Some(1), 0);
            metrics.refused(None, Refusal::NoRoute);
            metrics.refused(Some(2), Refusal::Draining);
        },
        &[
            (r#"seawall_requests_total{route="orders",code_class="2xx"}"#, "1"),
            (r#"seawall_requests_total{route="_none",code_class="4xx"}"#, "1"),
            (r#"seawall_requests_total{route="quotes",code_class="none"}"#, "1"),
            (r#"seawall_refused_total{route="_none",reason="no_route"}"#, "1"),
            (r#"seawall_refused_total{route="we\"ird\\\n",reason="draining"}"#, "1"),
        ],
    );
}

#[test]
fn attempts_count_by_class_and_by_cause() {
    check(
        |metrics| {
            metrics.outcome(1, Class::Unknown, Cause::AttemptTimeout);
            metrics.outcome(0, Class::Cancelled, Cause::UploadFailed);
            metrics.outcome(1, Class::RefusedHere, Cause::StreamsFull);
        },
        &[
            (r#"seawall_outcomes_total{upstream="cache",class="unknown"}"#, "1"),
            (r#"seawall_causes_total{upstream="cache",cause="attempt_timeout"}"#, "1"),
            (r#"seawall_outcomes_total{upstream="bridge",class="cancelled"}"#, "1"),
            (r#"seawall_causes_total{upstream="bridge",cause="upload_failed"}"#, "1"),
            (r#"seawall_outcomes_total{upstream="cache",class="refused_here"}"#, "1"),
            (r#"seawall_causes_total{upstream="cache",cause="streams_full"}"#, "1"),
        ],
    );
}

#[test]
fn changes_of_a_breaker_count_under_its_route_and_endpoint() {
    check(
        |metrics| {
            metrics.breaker_changed(1, 1, BreakerState::Open);
            metrics.breaker_changed(1, 1, BreakerState::HalfOpen);
            metrics.breaker_changed(1, 1, BreakerState::Open);
            metrics.breaker_changed(2, 0, BreakerState::Closed);
        },
        &[
            (
                concat!(
                    r#"seawall_breaker_transitions_total{route="quotes",upstream="bridge","#,
                    r#"endpoint="127.0.0.1:9002",to="open"}"#
                ),
                "2",
            ),
            (
                concat!(
                    r#"seawall_breaker_transitions_total{route="quotes",upstream="bridge","#,
                    r#"endpoint="127.0.0.1:9002",to="half_open"}"#
                ),
                "1",
            ),
            (
                concat!(
                    r#"seawall_breaker_transitions_total{route="we\"ird\\\n",upstream="cache","#,
                    r#"endpoint="localhost:6379",to="closed"}"#
                ),
                "1",
            ),
        ],
    );
}

#[test]
fn only_endpoints_that_exist_have_a_series() {
    let metrics = Arc::new(Metrics::new(shape()));
    let name = "seawall_breaker_transitions_total{";
    let samples = samples(&metrics, Format::OpenMetrics);
    let own = samples.keys().filter(|series| series.starts_with(name)).count();
    assert_eq!(own, 3 * (2 + 2 + 1), "states, and the endpoints of each route");
}

#[test]
fn what_callers_send_counts_under_fixed_names_only() {
    check(
        |metrics| {
            metrics.caller_attempt(0, 1);
            metrics.caller_attempt(0, 1_000_000);
            metrics.ignored_header(IgnoredHeader::RetryAfter, IgnoredBecause::Repeated);
        },
        &[
            (r#"seawall_caller_attempts_total{listener="127.0.0.1:8080",attempt="1"}"#, "1"),
            (r#"seawall_caller_attempts_total{listener="127.0.0.1:8080",attempt="4+"}"#, "1"),
            (r#"seawall_ignored_headers_total{header="retry_after",reason="repeated"}"#, "1"),
        ],
    );
}

#[test]
fn headers_of_one_request_count_once_each() {
    check(
        |metrics| {
            let mut headers = IgnoredHeaders::default();
            headers.add(IgnoredHeader::Remaining, IgnoredBecause::Untrusted);
            headers.add(IgnoredHeader::Remaining, IgnoredBecause::Untrusted);
            headers.add(IgnoredHeader::RetryAfter, IgnoredBecause::Repeated);
            metrics.ignored_headers(headers);
            metrics.ignored_headers(IgnoredHeaders::default());
        },
        &[
            (r#"seawall_ignored_headers_total{header="remaining",reason="untrusted"}"#, "1"),
            (r#"seawall_ignored_headers_total{header="retry_after",reason="repeated"}"#, "1"),
        ],
    );
}

#[test]
fn durations_are_summed_in_seconds() {
    check(
        |metrics| {
            metrics.pool_wait(0, Duration::from_millis(1500));
            metrics.bulkhead_wait(1, Duration::from_millis(50));
            metrics.stage(Some(1), Stage::Total, Duration::from_millis(250));
            metrics.stage(Some(1), Stage::Total, Duration::from_millis(500));
            metrics.stage(None, Stage::Queue, Duration::ZERO);
        },
        &[
            (r#"seawall_pool_wait_seconds_sum{upstream="bridge"}"#, "1.5"),
            (r#"seawall_pool_wait_seconds_count{upstream="bridge"}"#, "1"),
            (r#"seawall_bulkhead_wait_seconds_sum{upstream="cache"}"#, "0.05"),
            (r#"seawall_bulkhead_wait_seconds_count{upstream="cache"}"#, "1"),
            (r#"seawall_stage_duration_seconds_sum{route="quotes",stage="total"}"#, "0.75"),
            (r#"seawall_stage_duration_seconds_count{route="quotes",stage="total"}"#, "2"),
            (r#"seawall_stage_duration_seconds_count{route="_none",stage="queue"}"#, "1"),
        ],
    );
}

#[test]
fn a_duration_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
    let metrics = Arc::new(Metrics::new(shape()));
    for (millis, count) in [(250, 1), (251, 2), (30_000, 3), (30_001, 4)] {
        (0..count).for_each(|_| metrics.pool_wait(0, Duration::from_millis(millis)));
    }
    let samples = samples(&metrics, Format::OpenMetrics);
    let bucket = |bound: &str| {
        let series =
            format!(r#"seawall_pool_wait_seconds_bucket{{le="{bound}",upstream="bridge"}}"#);
        samples[&series].as_str()
    };
    assert_eq!(
        ["0.0005", "0.1", "0.25", "0.5", "15.0", "30.0", "+Inf"].map(bucket),
        ["0", "0", "1", "3", "3", "6", "10"]
    );
}

#[test]
fn what_others_keep_is_asked_for_at_the_scrape() {
    let metrics = Arc::new(Metrics::new(shape()));
    let samples = samples(&metrics, Format::OpenMetrics);
    let listener = r#"{listener="127.0.0.1:8080"}"#;
    let breaker = r#"route="quotes",upstream="bridge",endpoint="127.0.0.1:9002""#;
    for (series, value) in [
        ("seawall_draining".to_owned(), "1"),
        ("seawall_access_log_dropped_total".to_owned(), "41"),
        (r#"seawall_retries_off{upstream="bridge"}"#.to_owned(), "1"),
        (r#"seawall_retries_off{upstream="cache"}"#.to_owned(), "0"),
        (r#"seawall_retry_budget_balance_tokens{upstream="bridge"}"#.to_owned(), "9.5"),
        (format!("seawall_breaker_state{{{breaker}}}"), "2"),
        (r#"seawall_retry_budget_exhausted_total{upstream="bridge"}"#.to_owned(), "12"),
        (r#"seawall_rate_available{upstream="bridge"}"#.to_owned(), "19"),
        (r#"seawall_rate_keys_evicted_total{upstream="bridge"}"#.to_owned(), "20"),
        (r#"seawall_unmatched_errors_total{upstream="bridge",kind="other"}"#.to_owned(), "0"),
        (r#"seawall_rules_met_total{upstream="bridge",rule="busy"}"#.to_owned(), "19"),
        (
            r#"seawall_endpoint_healthy{upstream="bridge",endpoint="127.0.0.1:9001"}"#.to_owned(),
            "1",
        ),
        (
            r#"seawall_health_checks_total{upstream="bridge",endpoint="127.0.0.1:9001",result="passed"}"#
                .to_owned(),
            "20",
        ),
        (
            r#"seawall_health_checks_total{upstream="bridge",endpoint="127.0.0.1:9001",result="failed"}"#
                .to_owned(),
            "21",
        ),
        (
            r#"seawall_unmatched_errors_total{upstream="bridge",kind="io_other_error"}"#.to_owned(),
            "18",
        ),
        (r#"seawall_abandoned_in_flight{upstream="bridge"}"#.to_owned(), "11"),
        (r#"seawall_abandoned_total{upstream="bridge"}"#.to_owned(), "17"),
        (format!("seawall_downstream_connections{listener}"), "13"),
        (format!("seawall_downstream_connections_opened_total{listener}"), "14"),
        (format!("seawall_accept_errors_total{listener}"), "15"),
        (
            r#"seawall_downstream_connections_closed_total{listener="127.0.0.1:8080",reason="abuse"}"#
                .to_owned(),
            "16",
        ),
        (r#"seawall_pool_connections{upstream="bridge",state="connecting"}"#.to_owned(), "3"),
        (r#"seawall_pool_waiting{upstream="bridge"}"#.to_owned(), "4"),
        (r#"seawall_pool_connects_total{upstream="bridge"}"#.to_owned(), "5"),
        (r#"seawall_pool_connect_errors_total{upstream="bridge"}"#.to_owned(), "6"),
        (r#"seawall_pool_reused_total{upstream="bridge"}"#.to_owned(), "7"),
        (r#"seawall_bulkhead_in_flight{upstream="bridge"}"#.to_owned(), "8"),
        (r#"seawall_bulkhead_limit{upstream="bridge"}"#.to_owned(), "1024"),
        (r#"seawall_bulkhead_waiting{upstream="bridge"}"#.to_owned(), "9"),
        (r#"seawall_streams_in_flight{upstream="bridge"}"#.to_owned(), "10"),
        (format!(r#"seawall_build_info{{version="{}"}}"#, env!("CARGO_PKG_VERSION")), "1"),
    ] {
        assert_eq!(samples.get(&series).map(String::as_str), Some(value), "{series}");
    }
    let off = r#"seawall_retry_budget_balance_tokens{upstream="cache"}"#;
    assert!(!samples.contains_key(off), "a budget that is off has no balance");
}

#[test]
fn the_retry_ratio_is_shown_per_upstream() {
    let metrics = Arc::new(Metrics::new(shape()));
    metrics.tick(Timestamp::ZERO);
    (0..4).for_each(|_| metrics.first_attempt(0));
    metrics.retry(1);
    let samples = samples(&metrics, Format::OpenMetrics);
    // The clock of the exposition starts an hour in, so the first look lies before the window.
    assert_eq!(samples[r#"seawall_retry_ratio{upstream="bridge"}"#], "0.25");
    assert_eq!(samples[r#"seawall_retry_ratio{upstream="cache"}"#], "0.0");
}

#[test]
fn an_index_that_does_not_exist_counts_nothing() {
    check(
        |metrics| {
            metrics.request(Some(99), 200);
            metrics.first_attempt(99);
            metrics.stopped(99, StopReason::Answered);
            metrics.breaker_changed(0, 2, BreakerState::Open);
            metrics.breaker_changed(2, 1, BreakerState::Open);
            metrics.breaker_changed(3, 0, BreakerState::Open);
            metrics.outcome(99, Class::Success, Cause::Answered);
            metrics.stage(Some(99), Stage::Total, Duration::MAX);
        },
        &[],
    );
}

#[test]
fn a_gateway_without_anything_configured_still_shows_itself() {
    let metrics = Arc::new(Metrics::new(Shape::default()));
    metrics.request(None, 404);
    let text =
        Exposition::new(metrics, Arc::new(Nothing), Clock::new()).render(Format::OpenMetrics);
    assert!(text.contains(r#"seawall_requests_total{route="_none",code_class="4xx"} 1"#));
    assert!(text.ends_with("# EOF\n"));
}

#[derive(Debug)]
struct Nothing;

impl Source for Nothing {
    fn collect(&self, _: &mut Snapshot) {}
}

#[test]
fn every_row_stands_at_its_family() {
    for (place, row) in TABLE.iter().enumerate() {
        assert_eq!(row.family as usize, place, "{:?}", row.family);
    }
}

#[test]
fn names_are_distinct_and_in_base_units() {
    let names: BTreeSet<_> = TABLE.iter().map(Row::name).collect();
    assert_eq!(names.len(), TABLE.len());
    // In OpenMetrics a counter's family has the name of its sample without `_total`.
    let families: BTreeSet<_> = TABLE.iter().map(|row| (row.stem, row.unit)).collect();
    assert_eq!(families.len(), TABLE.len());
    for row in TABLE {
        assert!(row.stem.starts_with("seawall_") || row.stem.starts_with("process_"));
        assert!(!row.stem.ends_with("_total") && !row.stem.ends_with("_seconds"));
        assert!(!row.help.ends_with('.') && !row.help.contains(['\n', '\\', '|']));
        assert_eq!(
            row.kind == Kind::Histogram,
            row.name().ends_with("_seconds") && row.origin == Origin::Own
        );
    }
}

/// Names of the families of a scrape, with their kinds.
fn scraped(format: Format) -> BTreeMap<String, String> {
    let text = exposition(&Arc::new(Metrics::new(shape()))).render(format);
    let mut families = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(families.insert(name.to_owned(), kind.to_owned()), None, "{name} twice");
        }
    }
    families
}

#[test]
fn a_scrape_has_exactly_the_families_of_the_table_in_both_formats() {
    let own_name = |row: &Row| row.name().strip_suffix(row.kind.suffix()).unwrap().to_owned();
    let open: BTreeMap<_, _> =
        TABLE.iter().map(|row| (own_name(row), row.kind.as_str().to_owned())).collect();
    assert_eq!(scraped(Format::OpenMetrics), open);
    let plain: BTreeMap<_, _> =
        TABLE.iter().map(|row| (row.name(), row.kind.as_str().replace("info", "gauge"))).collect();
    assert_eq!(scraped(Format::Prometheus), plain);
}

#[test]
fn every_sample_belongs_to_the_family_above_it_and_has_its_labels() {
    let metrics = Arc::new(Metrics::new(shape()));
    // There once it has counted.
    metrics.grpc_response(Some(0), None);
    let shown = samples(&metrics, Format::OpenMetrics);
    for row in TABLE {
        let name = row.name();
        let own: Vec<_> = shown
            .keys()
            .filter(|series| series.split('{').next() == Some(&name))
            .chain(shown.keys().filter(|series| {
                row.kind == Kind::Histogram && series.starts_with(&format!("{name}_sum"))
            }))
            .collect();
        assert!(!own.is_empty() || name == "process_max_fds", "{name} has no sample");
        for series in own {
            let labels: Vec<_> =
                row.labels.iter().map(|label| format!("{}=\"", label.name())).collect();
            assert!(labels.iter().all(|label| series.contains(label)), "{series}");
            assert_eq!(series.matches("=\"").count(), labels.len(), "{series}");
        }
    }
}

#[test]
fn the_page_of_metrics_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = page();
    if std::env::var_os("SEAWALL_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(stored == page, "docs/metrics.md is stale; run this test with SEAWALL_BLESS=1");
}

/// `docs/metrics.md`.
fn page() -> String {
    let mut page = String::from(HEAD);
    for row in TABLE {
        let labels: Vec<_> = row.labels.iter().map(|label| format!("`{}`", label.name())).collect();
        writeln!(
            page,
            "| `{}` | {} | {} | {} | {}. |",
            row.name(),
            row.kind.as_str(),
            row.unit.unwrap_or("–"),
            if labels.is_empty() { "–".to_owned() } else { labels.join(" ") },
            row.help,
        )
        .unwrap();
    }
    page.push_str(LABELS);
    let labels = || TABLE.iter().flat_map(|row| row.labels.iter().map(move |at| (row, at)));
    let mut told = BTreeSet::new();
    for (_, first) in labels() {
        if !told.insert(first.name()) {
            continue;
        }
        // The families that have each set of values.
        let mut sets = Vec::<(String, Vec<String>)>::new();
        for (row, label) in labels().filter(|(_, label)| label.name() == first.name()) {
            let (values, family) = (values(*label), format!("`{}`", row.name()));
            match sets.iter_mut().find(|(known, _)| *known == values) {
                Some((_, families)) => families.push(family),
                None => sets.push((values, vec![family])),
            }
        }
        let is_one = sets.len() == 1;
        for (values, families) in sets {
            let of = if is_one { String::new() } else { format!(" of {}", families.join(", ")) };
            writeln!(page, "| `{}`{of} | {values} |", first.name()).unwrap();
        }
    }
    let bounds: Vec<_> = BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string()).collect();
    writeln!(
        page,
        "\n## Buckets\n\nUpper bounds in seconds, each included: {}.",
        bounds.join(", ")
    )
    .unwrap();
    page
}

/// The values of a label, as the page tells them.
fn values(label: Label) -> String {
    let told = match label {
        Label::Route => "the route's name; `_none` where no route matched",
        Label::Upstream | Label::RouteUpstream => "the upstream's name",
        Label::Endpoint => "`host:port` as configured",
        Label::ErrorKind => {
            "what an error's type says of it, like `io_other_error`; 64 at most, the rest are `other`"
        }
        Label::Rule => "the rule's name, or its number from 0",
        Label::Listener => "the address it is bound to",
        Label::Certificate => "the path of its file",
        Label::Hash => "sixteen hexadecimal digits of the file's text",
        Label::Version => "the version of the program",
        Label::StopReason => {
            let all = StopReason::ALL.map(|reason| format!("`{}`", reason.as_str()));
            return all.join(" ");
        }
        fixed => {
            let all = fixed.fixed().iter().map(|value| format!("`{value}`"));
            return all.collect::<Vec<_>>().join(" ");
        }
    };
    told.to_owned()
}

const HEAD: &str = "\
# Metrics

Made from the table in `crates/gateway/src/metrics/table.rs`; edit that, then run its tests with
`SEAWALL_BLESS=1`.

`GET /metrics` on the admin port answers in OpenMetrics 1.0 if `Accept` asks for
`application/openmetrics-text`, and in Prometheus text 0.0.4 otherwise. Every series exists from
the start at zero, so that a first increase is seen; but the kinds of unmatched errors come as they
are seen, and the cause `unmatched` is there before. No label takes a value from the network.

| name | kind | unit | labels | meaning |
|---|---|---|---|---|
";

const LABELS: &str = "
## Labels

| label | values |
|---|---|
";
