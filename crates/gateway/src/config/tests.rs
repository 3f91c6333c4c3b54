use std::fmt::Write as _;

use seawall_policy::{
    HedgeDelay, HedgeOptions, Jitter, OutlierOptions, Ratio, SlowStartOptions, SuccessBudget,
};

use super::*;

const MINIMAL: &str =
    "version: 1\nupstreams:\n  upstream:\n    endpoints: [http://127.0.0.1:9000]\n";

/// Reads with a fixed environment.
fn read(text: &str) -> Result<(GatewayConfig, Vec<Warning>), ConfigErrors> {
    let lookup = |name: &str| match name {
        "PORT" => Some("9000".to_owned()),
        "TRICK" => Some("5s\n    retry: off".to_owned()),
        _ => None,
    };
    parse(text.as_bytes().to_vec(), "seawall.yaml".to_owned(), None, &Overrides::default(), &lookup)
}

/// A file with one upstream, `section` under it.
fn upstream_with(section: &str) -> String {
    let mut text = MINIMAL.to_owned();
    for line in section.lines() {
        let _ = writeln!(text, "    {line}");
    }
    text
}

fn accepted(text: &str) -> GatewayConfig {
    match read(text) {
        Ok((config, _)) => config,
        Err(errors) => panic!("{text}\n{errors}"),
    }
}

fn accepted_upstream(section: &str) -> Upstream {
    accepted(&upstream_with(section)).upstreams.remove(0)
}

/// The fields that are refused.
fn refused(text: &str) -> Vec<String> {
    match read(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(errors) => errors.fields().map(str::to_owned).collect(),
    }
}

/// The fields that are warned of, with the messages.
fn warned(text: &str) -> Vec<(String, String)> {
    match read(text) {
        Ok((_, warnings)) => {
            let each = |it: &Warning| (it.field().to_owned(), it.message().to_owned());
            warnings.iter().map(each).collect()
        }
        Err(errors) => panic!("{text}\n{errors}"),
    }
}

/// Files that are wrong, each in its way.
const BROKEN: &[(&str, &str)] = &[
    ("no version, nothing else either", ""),
    ("another version", "version: 2\nupstreams: {a: {endpoints: ['http://h:1']}}\n"),
    ("not YAML", "version: 1\nupstreams: [\n"),
    ("a tab for indentation", "version: 1\nupstreams:\n\ta: {}\n"),
    (
        "gRPC of a route",
        "version: 1
upstreams: {a: {endpoints: ['http://h:1'], protocol: h2c}}
routes:
  - path_prefix: /
    upstream: a
    grpc: {idempotent: maybe, retry_on: [unavailble, ok, aborted, ABORTED], streaming: yes}
",
    ),
    ("a key twice", "version: 1\nadmin: {}\nadmin: {}\n"),
    (
        "an unknown key with a near name",
        "version: 1\nupstream:\n  a: {endpoints: ['http://h:1']}\n",
    ),
    (
        "unknown keys at every depth, and a wrong value beside them",
        "version: 1
upstreams:
  orders:
    endpoints: [http://h:1]
    retries: 3
    timeouts: {atempt: 5s}
    breaker:
      open: {bse: 1s}
      color: red
    bulkhead: {limit: many}
",
    ),
    (
        "a map where a value belongs",
        "version: {major: 1}\nupstreams: {a: {endpoints: ['http://h:1']}}\n",
    ),
    (
        "a value where a map belongs",
        "version: 1\nupstreams: {a: {endpoints: ['http://h:1'], timeouts: 5s}}\n",
    ),
    ("a value where a list belongs", "version: 1\nupstreams: {a: {endpoints: http://h:1}}\n"),
    ("no value", "version: 1\naccess_log:\nupstreams: {a: {endpoints: ['http://h:1']}}\n"),
    (
        "a switch that is neither off nor a map",
        "version: 1\nupstreams: {a: {endpoints: ['http://h:1'], retry: false, breaker: none}}\n",
    ),
    (
        "durations, sizes, counts, ratios and rates that are none",
        "version: 1
limits: {head: 64KB, head_fields: 1e2, replay: 5}
upstreams:
  a:
    endpoints: [http://h:1]
    timeouts: {attempt: 5, total: 1.5s, idle: 0s}
    retry: {max_attempts: 0, redispatches: -1, backoff: {jitter: fulll}}
    retry_budget: {ratio: 150%, reserve: 10/m}
    breaker: {failure_ratio: 0%, mode: forced-open}
    peak_load: 500
    capacity: 600/s
",
    ),
    (
        "time limits that cannot take effect",
        "version: 1
upstreams:
  a:
    endpoints: [http://h:1]
    timeouts: {connect: 6s, checkout: 7s, attempt: 5s, total: 4s}
    breaker: {slow: 8s, open: {base: 5s, cap: 1s}}
    bulkhead: {wait: 9s, limit: 10, per_route: 11}
    retry: {backoff: {base: 2s, cap: 1s}}
    retry_budget: {initial: 20, cap: 5}
  b:
    endpoints: [http://h:2]
    timeouts: {attempt: 40s}
    breaker: {slow_ratio: 20%}
    retry: {backoff: {cap: 50ms}}
routes:
  - {path_prefix: /a, upstream: a}
  - {path_prefix: /b, upstream: b}
",
    ),
    (
        "a slow ratio where nothing is slow",
        "version: 1\nupstreams: {a: {endpoints: ['http://h:1'], breaker: {slow_ratio: 20%}}}\n",
    ),
    (
        "endpoints of every wrong kind",
        "version: 1
upstreams:
  a:
    endpoints:
      - https://h:443/x
      - http://h:1/api
      - http://me:secret@h:1
      - h:1
      - http://h:1
      - http://h:1
  'b c': {}
",
    ),
    ("no upstreams", "version: 1\n"),
    (
        "a second document",
        "version: 1\nupstreams: {a: {endpoints: ['http://h:1']}}\n---\nversion: 1\n",
    ),
    (
        "several upstreams and no routes",
        "version: 1\nupstreams: {a: {endpoints: ['http://h:1']}, b: {endpoints: ['http://h:2']}}\n",
    ),
    (
        "routes that lead nowhere, twice, and oddly",
        "version: 1
upstreams:
  orders: {endpoints: [http://h:1]}
routes:
  - {path_prefix: /a, upstream: order}
  - {path_prefix: /a}
  - {path_prefix: a, upstream: orders}
  - {path_prefix: /a/../b, upstream: orders}
  - {path_prefix: /a%2fb, upstream: orders}
  - {path_prefix: '/a//', upstream: orders}
  - {path_prefix: '/a/%2e%2e', upstream: orders}
  - {path_prefix: '/a%zz', upstream: orders}
  - {host: 'h:80', upstream: orders, retry_owner: me, retry_after: exact, max_body: 1MB}
  - {host: H, path_prefix: /x/, upstream: orders}
  - {host: h, path_prefix: /x, upstream: orders, name: 'a b'}
",
    ),
    (
        "names that metrics keep for what has none",
        "version: 1
upstreams:
  _none: {endpoints: ['http://h:1']}
  a_b: {endpoints: ['http://h:2']}
routes:
  - {path_prefix: /a, upstream: a_b, name: _none}
  - {path_prefix: /b, upstream: a_b, name: a_}
  - {path_prefix: /_none, upstream: a_b}
",
    ),
    (
        "two routes for the same requests",
        "version: 1
upstreams: {a: {endpoints: ['http://h:1']}}
routes:
  - {host: API.example.com, path_prefix: /x/, upstream: a}
  - {host: api.example.com, path_prefix: /x, upstream: a}
  - {path_prefix: /~user, upstream: a}
  - {path_prefix: /%7Euser, upstream: a}
  - {path_prefix: /y, upstream: a, name: same}
  - {path_prefix: /z, upstream: a, name: same}
",
    ),
    (
        "routes that no request could reach",
        "version: 1
upstreams: {a: {endpoints: ['http://h:1']}}
routes:
  - {path_prefix: /x, upstream: a, methods: [GET, PUT]}
  - {path_prefix: /x, upstream: a, methods: [POST]}
  - {path_prefix: /x, upstream: a, methods: [POST, PUT]}
  - {path: /y, upstream: a, headers: [{name: X-A, prefix: b}]}
  - {path: /y, upstream: a, name: other, headers: [{name: x-a, exact: bc}]}
  - {path_prefix: /y, upstream: a, name: prefix, headers: [{name: x-a, exact: bc}]}
",
    ),
    (
        "conditions that are none",
        "version: 1
upstreams: {a: {endpoints: ['http://h:1']}}
routes:
  - upstream: a
    path: /a
    path_prefix: /b
    methods: [get, GET, GET, CONNECT, 'A B']
    headers:
      - {name: Host, exact: a}
      - {name: x-tenant, present: true}
      - {name: Transfer-Encoding, present: false}
      - {name: X-A, exact: '', present: true}
      - {name: X-B, exact: a, prefix: b}
      - {name: X-C, present: yes}
      - {name: X-C, present: true}
      - {present: true}
",
    ),
    (
        "paths that cannot become what is wanted",
        "version: 1
upstreams: {a: {endpoints: ['http://h:1'], host_header: 'http://x'}}
routes:
  - {upstream: a, strip_prefix: true}
  - {upstream: a, path: /a, strip_prefix: true}
  - {upstream: a, path_prefix: /b, strip_prefix: true, prefix_rewrite: /c}
  - {upstream: a, path_prefix: /d, prefix_rewrite: '/../c'}
  - {upstream: a, path_prefix: /e, prefix_rewrite: c}
",
    ),
    (
        "retries of a route that cannot be made",
        "version: 1
upstreams:
  a: {endpoints: ['http://h:1'], retry: {on: []}}
routes:
  - {upstream: a, attempt: 26s, retry: {on: [unkown, 200, 503, 503, rejected]}}
  - {upstream: a, path: /b, attempt: 5s, total: 4s, retry: {backoff: {base: 6s}}}
  - {upstream: a, path: /c, retry_owner: caller, retry: {max_attempts: 3}}
  - upstream: a
    path: /d
    retry: {on: [400, 401, 402, 403, 404, 405, 406, 407, 408]}
",
    ),
    (
        "rules on answers that mean nothing",
        "version: 1
upstreams:
  a:
    endpoints: ['http://h:1']
    rules:
      - {status: [200, 6xx, 99, 2xx, 200], means: overloadd}
      - {means: failure}
      - {headers: [{name: X-Error, exact: busy, prefix: b}]}
      - {body: {pointer: code, equals: []}, means: success}
      - {body: {pointer: /a~2}, means: success, name: a b}
      - {status: [200], means: success, name: '0'}
",
    ),
    (
        "checks that cannot be made",
        "version: 1
upstreams:
  a: {endpoints: ['http://h:1'], health_check: {interval: 2s, timeout: 3s, unhealthy: 0}}
  b: {endpoints: ['http://h:1'], health_check: {path: health, status: [ok], port: 65536}}
  c: {endpoints: ['http://h:1'], health_check: {grpc_service: a, path: /b, status: [200]}}
",
    ),
    (
        "fields that are not the file's to edit",
        "version: 1
upstreams: {a: {endpoints: ['http://h:1']}}
headers: {tenant: X-Customer}
routes:
  - upstream: a
    request_headers:
      set:
        Host: b
        Content-Length: 1
        X-Customer: c
        X-Forwarded-For: d
        Seawall-Retry: no
        Idempotency-Key: e
        not a name: f
        X-A: \"two\\nlines\"
        X-B: fine
        x-b: again
      remove: [Connection, x-b, X-C, x-c, Via]
    response_headers:
      set: {Retry-After: 1, Seawall-Attempts: 2}
      remove: [X-Request-Id, Host]
",
    ),
    (
        "a fallback for what is none",
        "version: 1
upstreams: {a: {endpoints: ['http://h:1']}}
routes:
  - upstream: a
    fallback: {on: [failures, 200, answered, budget, budget], status: 100, content_type: json}
  - path_prefix: /x
    upstream: a
    fallback: {body: '{}'}
",
    ),
    (
        "credentials that cannot be used",
        "version: 1
upstreams:
  a:
    endpoints: ['http://h:1']
    credentials: {file: /does/not/exist, header: Host, scheme: 'a b', timeout: 0s, override: maybe}
  b:
    endpoints: ['http://h:2']
    credentials: {header: X-Key}
  c:
    endpoints: ['http://h:3']
    credentials: {file: /dev/null, fill: x}
  d:
    endpoints: ['http://h:4']
    credentials: {token: geheim}
  e:
    endpoints: ['http://h:5']
    credentials: {file: /does/not/exist, header: X-Who}
  f:
    endpoints: ['http://h:6']
    credentials: {file: /does/not/exist, header: Transfer-Encoding}
  g:
    endpoints: ['http://h:7']
    credentials: {file: /does/not/exist, header: X-Forwarded-For}
headers: {tenant: X-Who}
",
    ),
    (
        "what makes no sense of a hedge",
        "version: 1
upstreams:
  a:
    endpoints: ['http://h:1', 'http://h:2']
    hedge: {delay: p49, delay_min: 13s, max_extra: 0%, max_load: 101%, same_endpoint: perhaps}
  b:
    endpoints: ['http://h:3']
    hedge: {delay: 800ms}
    timeouts: {attempt: 800ms}
  c:
    endpoints: ['http://h:4', 'http://h:5']
    retry: off
    hedge: {dely: p99.95}
  d:
    endpoints: ['http://h:6', 'http://h:7']
    hedge: {delay: 20ms, delay_min: 30ms}
",
    ),
    (
        "what makes no sense between endpoints",
        "version: 1
upstreams:
  a:
    endpoints: ['http://h:1']
    balance: least_requests
    outlier:
      interval: 6s
      min_calls: 33
      failure_excess: 0%
      slow_excess: 101%
      slow_factor: 1
      ejection: {base: 2m, cap: 1m}
      max_ejected: 0%
      probes: 0
      slow_after: 1s
    slow_start: {window: 0s, least: 0%}
",
    ),
    (
        "sockets that meet",
        "version: 1
listeners:
  - {address: 0.0.0.0:8080}
  - {address: 127.0.0.1:8080}
  - {address: 127.0.0.1:9901}
  - {}
  - {address: ':80'}
  - {address: localhost:80, trusted_peers: [10.0.0.0/33, x]}
upstreams: {a: {endpoints: ['http://h:1']}}
",
    ),
    (
        "sockets of this host",
        "version: 1
listeners:
  - {address: unix:run/a.sock}
  - {address: unix:/run/seawall-listens-here/with-a-path-that-is-longer-than-any-socket-can-have/\
     because-108-bytes-are-all.sock}
  - {address: unix:/run/a.sock, socket_mode: 0888}
  - {address: unix:/run/b.sock, socket_mode: 01777}
  - {address: unix:/run/a.sock, socket_mode: 0660}
  - {address: 127.0.0.1:1, socket_mode: 0660}
  - {address: /run/c.sock}
upstreams: {a: {endpoints: ['unix:/run/a.sock']}}
",
    ),
    (
        "endpoints that lead back here",
        "version: 1
listeners: [{address: 0.0.0.0:8080}]
admin: {address: 127.0.0.1:9000}
upstreams: {a: {endpoints: ['http://localhost:8080', 'http://0.0.0.0:9000']}}
",
    ),
    (
        "an admin port for everybody",
        "version: 1\nadmin: {address: 0.0.0.0:9901}\nupstreams: {a: {endpoints: ['http://h:1']}}\n",
    ),
    (
        "a drain longer than the grace",
        "version: 1\ndrain: {in_flight: 23s}\nupstreams: {a: {endpoints: ['http://h:1']}}\n",
    ),
    (
        "header names that are taken",
        "version: 1
headers: {tenant: Authorization, priority: x tenant, cost: x-remaining-ms, attempt: Seawall-Retry}
upstreams: {a: {endpoints: ['http://h:1']}}
",
    ),
    (
        "variables that are not there",
        "version: 1\nupstreams: {a: {endpoints: ['http://${HOST}:1', 'http://h:${PORT']}}\n",
    ),
    (
        "a variable that tries to add structure",
        "version: 1\nupstreams:\n  a:\n    endpoints: [http://h:1]\n    timeouts:\n\
         \x20     total: ${TRICK}\n",
    ),
    (
        "the caret below wide text",
        "{version: 1, upstreams: {ä: {}, a: {endpoints: ['http://h:1']}}, access_log: überall}\n",
    ),
];

#[test]
fn every_mistake_is_told_with_its_field_its_value_and_its_place() {
    let mut told = String::new();
    for (name, text) in BROKEN {
        let Err(errors) = read(text) else { panic!("accepted: {name}") };
        let _ = writeln!(told, "=== {name}\n{errors}\n");
    }
    insta::assert_snapshot!(told);
}

mod door;
mod dump;
mod limits;
mod pages;
mod schema;
mod secrets;

#[test]
fn a_password_is_shown_neither_of_a_file_nor_of_the_command_line_nor_of_a_variable() {
    let url = "http://me:sesame@127.0.0.1:9000";
    let long = format!("http://me:{}@h:1", "sesame".repeat(20));
    for url in [url, "me:sesame@h:1", "https://me:sesame@h", &long] {
        let told = GatewayConfig::for_upstream(url, None, None).unwrap_err().to_string();
        assert!(told.contains("***") && !told.contains("sesame"), "{told}");
    }
    let text = format!("version: 1\nupstreams: {{a: {{endpoints: ['{url}', '{url}']}}}}\n");
    for (lookup, text) in [("", text), ("sesame", MINIMAL.replace("//", "//me:${SECRET}@"))] {
        let lookup = |name: &str| (name == "SECRET").then(|| lookup.to_owned());
        let errors = parse(text.into_bytes(), "f".into(), None, &Overrides::default(), &lookup);
        let told = errors.unwrap_err();
        let told = format!("{told}{}", told.coloured());
        assert!(told.contains("***") && !told.contains("sesame"), "{told}");
    }
}

#[test]
fn a_file_with_only_an_upstream_is_the_same_as_an_upstream_on_the_command_line() {
    let (from_url, warnings) =
        GatewayConfig::for_upstream("http://127.0.0.1:9000", None, None).unwrap();
    assert_eq!(from_url, accepted(MINIMAL));
    assert!(warnings.is_empty());
    assert_eq!(from_url.routes.len(), 1);
    assert_eq!(from_url.routes[0].name, "/");
    let worst = from_url.worst_case(&from_url.routes[0]).unwrap();
    assert_eq!(worst, WorstCase { attempts: 2, time: Duration::from_millis(24_100) });
}

#[test]
fn addresses_of_the_command_line_are_checked_like_those_of_a_file() {
    let bound = |text: &str| Some(text.parse().unwrap());
    let url = "http://127.0.0.1:9000";
    let (config, _) =
        GatewayConfig::for_upstream(url, bound("127.0.0.1:0"), bound("[::1]:1")).unwrap();
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:0");
    assert_eq!(config.admin, "[::1]:1".parse().unwrap());
    for (listen, admin, field) in [
        (bound("0.0.0.0:9000"), None, "--upstream"),
        (None, bound("127.0.0.1:9000"), "--upstream"),
        (None, bound("0.0.0.0:1"), "--admin"),
        (bound("0.0.0.0:9901"), None, "--listen"),
    ] {
        let errors = GatewayConfig::for_upstream(url, listen, admin).unwrap_err();
        assert_eq!(errors.fields().collect::<Vec<_>>(), [field]);
        let told = errors.to_string();
        assert!(told.contains("the command line") && !told.contains(".address"), "{told}");
        assert!(!told.contains("listeners[") && !told.contains("endpoints["), "{told}");
    }
    let several =
        format!("{MINIMAL}listeners: [{{address: '127.0.0.1:1'}}, {{address: '127.0.0.1:2'}}]\n");
    let overrides = Overrides { listen: bound("127.0.0.1:3"), admin: None };
    let errors = parse(several.into_bytes(), "f".into(), None, &overrides, &|_| None).unwrap_err();
    assert_eq!(errors.fields().collect::<Vec<_>>(), ["listeners"]);
    // A port in place of a socket has no permissions.
    let socket = format!("{MINIMAL}listeners: [{{address: 'unix:/a', socket_mode: 0660}}]\n");
    let (config, _) = parse(socket.into_bytes(), "f".into(), None, &overrides, &|_| None).unwrap();
    assert_eq!(config.listeners[0].address.tcp(), bound("127.0.0.1:3"));
}

#[test]
fn a_file_that_cannot_be_read_is_told_apart_from_a_wrong_one() {
    let errors = GatewayConfig::load(Path::new("/nowhere/seawall.yaml")).unwrap_err();
    assert!(errors.is_unreadable());
    assert!(errors.to_string().starts_with("error: cannot be read: "), "{errors}");
    assert!(!GatewayConfig::parse("", "empty").unwrap_err().is_unreadable());
    let pipe = std::env::temp_dir().join(format!("seawall-config-pipe-{}", std::process::id()));
    let _ = std::fs::remove_file(&pipe);
    crate::file::pipe(&pipe);
    // Nobody writes to it, and nobody waits.
    let errors = GatewayConfig::load_with(&pipe, None, None).unwrap_err();
    std::fs::remove_file(&pipe).unwrap();
    assert!(errors.is_unreadable());
    let told = errors.to_string();
    assert!(told.starts_with("error: cannot be read: not a file\n"), "{told}");
    assert!(told.contains(&format!("--> {}\n", pipe.display())), "{told}");
    assert!(told.contains("help: it is read again at every reload"), "{told}");
}

#[test]
fn defaults_give_way_to_what_is_written() {
    let timeouts = accepted_upstream("timeouts: {total: 500ms}").timeouts;
    let short = Duration::from_millis(500);
    assert_eq!((timeouts.attempt, timeouts.connect, timeouts.checkout), (short, short, short));
    let upstream = accepted_upstream("timeouts: {attempt: 20ms}");
    assert_eq!(upstream.bulkhead.wait, Duration::from_millis(20));
    assert_eq!(upstream.breaker.unwrap().probe_lease, Duration::from_millis(20));
    let retry = accepted_upstream("retry: {backoff: {base: 6s}}").retry.unwrap();
    assert_eq!(retry.backoff.cap, Duration::from_secs(6));
    let breaker = accepted_upstream("breaker: {open: {base: 20s}}").breaker.unwrap();
    assert_eq!(breaker.open_cap, Duration::from_secs(20));
    let small = SuccessBudget { initial: 1, cap_floor: 1, ..SuccessBudget::default() };
    assert_eq!(accepted_upstream("retry_budget: {cap: 1}").budget, Some(small.into()));
    let upstream = accepted_upstream("bulkhead: {limit: 100}");
    assert_eq!((upstream.max_connections, upstream.bulkhead.queue), (110, 100));
}

#[test]
fn slow_calls_count_where_somebody_set_a_time_for_them() {
    let slow = |section: &str| accepted_upstream(section).breaker.unwrap().slow;
    assert_eq!(slow("timeouts: {total: 10s}"), None);
    assert_eq!(slow("timeouts: {attempt: 10s}"), Some(Duration::from_secs(5)));
    assert_eq!(slow("breaker: {slow: 1s}"), Some(Duration::from_secs(1)));
    assert_eq!(slow("timeouts: {attempt: 5s}\nbreaker: {slow: 5s}"), Some(Duration::from_secs(5)));
    let above = upstream_with("timeouts: {attempt: 5s}\nbreaker: {slow: 5001ms}");
    assert_eq!(refused(&above), ["upstreams.upstream.breaker.slow"]);
}

#[test]
fn every_option_arrives_where_it_belongs() {
    let upstream = accepted_upstream(
        "protocol: h2c
max_connections: 7
on_abandon: cancel
send_deadline: false
timeouts: {connect: 1s, checkout: 2s, attempt: 3s, total: 4s, idle: 5s, body: 6s}
retry:
  max_attempts: 3
  backoff: {base: 10ms, cap: 20ms, jitter: ±25%}
  retry_after_max: 7s
  redispatches: 0
  honour_stop: false
retry_budget: {ratio: 12.5%, initial: 3, cap: 30, reserve: 4/s}
breaker:
  preset: bridge
  min_calls: 5
  failure_ratio: 0.25
  consecutive_failures: 0
  slow: 2s
  slow_ratio: 75%
  probes: 2
  mode: metrics_only
hedge: {delay: p99.5, delay_min: 2ms, max_extra: 0.6%, max_load: 70%, same_endpoint: true}
bulkhead: {limit: 9, per_route: 8, wait: 0s, queue: 6, max_streams: 0}
balance: peak_ewma
outlier:
  interval: 2s
  min_calls: 10
  failure_excess: 20%
  slow_excess: 0.4
  slow_factor: 4
  slow_floor: 0s
  ejection: {base: 3s, cap: 30s}
  max_ejected: 10%
  probes: 3
slow_start: {window: 20s, least: 5%}",
    );
    insta::assert_debug_snapshot!(upstream);
    let off = accepted_upstream("retry: off\nretry_budget: off\nbreaker: off");
    assert!(off.retry.is_none() && off.budget.is_none() && off.breaker.is_none());
    assert_eq!(off.sharing, Sharing::default());
    let on = accepted_upstream("outlier: {}\nslow_start: {}").sharing;
    assert_eq!(on.outlier, Some(OutlierOptions::default()));
    assert_eq!(on.slow_start, Some(SlowStartOptions::default()));
    assert_eq!(off.hedge, None);
    let hedge = |text: &str| accepted_upstream(text).hedge.unwrap();
    let default = HedgeOptions { same_endpoint: true, ..HedgeOptions::default() };
    assert_eq!(hedge("hedge: {same_endpoint: true}"), default);
    let fixed = hedge("hedge: {delay: 20ms, same_endpoint: true}").delay;
    assert_eq!(fixed, HedgeDelay::Fixed(Duration::from_millis(20)));
    assert_eq!(accepted_upstream("outlier: off\nslow_start: off").sharing, Sharing::default());
    for (word, jitter) in [
        ("none", Jitter::None),
        ("equal", Jitter::Equal),
        ("decorrelated", Jitter::Decorrelated),
        ("'20%'", Jitter::Factor(Ratio::from_percent(20))),
    ] {
        let section = format!("retry: {{backoff: {{jitter: {word}}}}}");
        assert_eq!(accepted_upstream(&section).retry.unwrap().backoff.jitter, jitter);
    }
}

#[test]
fn fewer_connections_than_listeners_are_refused() {
    let with = |connections: u32| {
        format!(
            "{MINIMAL}listeners: [{{address: '127.0.0.1:1'}}, {{address: '127.0.0.1:2'}}]\n\
             limits: {{max_connections: {connections}}}\n"
        )
    };
    assert_eq!(refused(&with(1)), ["limits.max_connections"]);
    assert_eq!(accepted(&with(2)).limits.max_connections, Some(2));
}

#[test]
fn the_edge_reads_what_is_written() {
    let config = accepted(&format!(
        "{MINIMAL}
listeners:
  - address: '[::]:1'
    trusted_peers: [10.0.0.0/8, '::1']
    trust_loopback_deadline: false
    timeouts: {{first_byte: 1s, head: 2s, idle: 3s, max_age: 4s}}
admin: {{address: '[::1]:2'}}
limits: {{max_connections: 3, head: 8KiB, head_fields: 4, replay: 0B, h2_streams: 5}}
drain: {{accept: 0s, in_flight: 1s, close: 2s}}
headers: {{tenant: X-Customer, cost: X-Tenant}}
access_log: off
kill_switch: /run/off
routes:
  - upstream: upstream
    fallback: {{on: [failure, budget, 503], status: 203, content_type: text/plain, body: later}}
  - path_prefix: /a/b/
    host: H.example.com.
    upstream: upstream
    name: ab
    total: 1s
    retry_owner: caller
    retry_after: verbatim
    max_body: 1KiB
    prefix_rewrite: /
    request_headers: {{set: {{X-A: secret}}, remove: [X-B]}}
    response_headers: {{remove: [Server]}}
  - path: /a/b/
    upstream: upstream
    methods: [PURGE, GET]
    headers: [{{name: X-A, exact: b}}, {{name: X-C, present: false}}]
"
    ));
    insta::assert_debug_snapshot!((
        &config.listeners,
        config.admin,
        &config.limits,
        config.drain,
        &config.headers,
        config.access_log,
        &config.kill_switch,
        &config.routes,
    ));
}

#[test]
fn routes_are_ordered_as_matched_and_share_an_upstream_by_halves() {
    let config = accepted(
        "version: 1
upstreams:
  a: {endpoints: [http://h:1], bulkhead: {limit: 10}}
  b: {endpoints: [http://h:2]}
  c: {endpoints: [http://h:3], bulkhead: {limit: 10, per_route: 9}}
routes:
  - {upstream: a}
  - {path_prefix: /long/prefix, upstream: b}
  - {path_prefix: /long, upstream: c}
  - {host: h, upstream: a}
  - {host: h, path_prefix: /x, upstream: c}
",
    );
    let order: Vec<_> = config.routes.iter().map(|it| (it.name.as_str(), it.lane)).collect();
    assert_eq!(order, [("h/x", 0), ("h/", 0), ("/long/prefix", 0), ("/long", 1), ("/", 1)]);
    let lanes: Vec<_> = config.upstreams.iter().map(|it| it.bulkhead.lane_limit).collect();
    assert_eq!(lanes, [Some(5), None, Some(9)]);
}

#[test]
fn routes_for_one_path_are_ordered_by_their_conditions_and_then_as_written() {
    let config = accepted(
        "version: 1
upstreams: {a: {endpoints: [http://h:1]}}
routes:
  - {upstream: a, path_prefix: /x, name: none}
  - {upstream: a, path_prefix: /x, methods: [GET], name: get}
  - {upstream: a, path_prefix: /x, headers: [{name: X-A, present: true}], name: field}
  - upstream: a
    path_prefix: /x
    methods: [GET]
    headers: [{name: X-A, exact: b}, {name: X-B, exact: b}]
    name: three
  - {upstream: a, path: /x, name: whole}
  - {upstream: a, path: /xy, name: longer}
",
    );
    let order: Vec<_> = config.routes.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(order, ["longer", "whole", "three", "get", "field", "none"]);
}

#[test]
fn a_route_has_its_own_retries_and_its_own_worst_case() {
    let config = accepted(
        "version: 1
upstreams:
  a:
    endpoints: [http://h:1]
    timeouts: {attempt: 2s}
    retry: {max_attempts: 3, backoff: {base: 50ms, cap: 1s}}
  b: {endpoints: [http://h:2], retry: off}
routes:
  - {upstream: a, path: /a}
  - {upstream: a, path: /b, retry: off}
  - upstream: a
    path: /c
    attempt: 8s
    idempotent: true
    retry: {backoff: {base: 10ms, cap: 20ms}, on: [500]}
  - {upstream: b, path: /d, retry: {}}
",
    );
    let worst = |i: usize| config.worst_case(&config.routes[i]).unwrap();
    let of = |attempts, millis| WorstCase { attempts, time: Duration::from_millis(millis) };
    assert_eq!(worst(0), of(3, 6_150));
    assert_eq!(worst(1), of(1, 2_000));
    assert_eq!(worst(2), of(3, 24_030), "backoff as the route has it, the rest as the upstream");
    assert_eq!(worst(3), of(2, 24_100));
    assert!(config.routes[2].idempotent && !config.routes[0].idempotent);
    let lease = config.upstreams[0].breaker.unwrap().probe_lease;
    assert_eq!(lease, Duration::from_secs(8), "a probe of any route");
    let text = "version: 1
upstreams: {a: {endpoints: ['http://h:1']}}
routes: [{upstream: a, attempt: 20s}, {upstream: a, path: /b, retry: {max_attempts: 4}}]
";
    let fields: Vec<_> = warned(text).into_iter().map(|(field, _)| field).collect();
    assert_eq!(fields, ["routes[0].attempt", "routes[1].retry", "routes[1].retry.max_attempts"]);
}

#[test]
fn what_is_set_in_a_field_is_shown_neither_by_debug_nor_by_an_error() {
    let text = |value: &str| {
        format!(
            "{MINIMAL}routes: [{{upstream: upstream, request_headers: {{set: {{X-A: {value}}}}}}}]"
        )
    };
    let config = accepted(&text("sesame"));
    assert_eq!(config.routes[0].request_headers.set[0].1, "sesame");
    assert!(!format!("{config:?}").contains("sesame"));
    let lookup = |name: &str| (name == "SECRET").then(|| "sesame\n".to_owned());
    let text = text("'${SECRET}'").into_bytes();
    let errors = parse(text, "f".into(), None, &Overrides::default(), &lookup).unwrap_err();
    assert_eq!(errors.fields().collect::<Vec<_>>(), ["routes[0].request_headers.set.X-A"]);
    assert!(!errors.to_string().contains("sesame"), "{errors}");
}

#[test]
fn what_works_but_will_be_regretted_is_warned_of() {
    let field = |key: &str| format!("upstreams.upstream.{key}");
    for (section, key, part) in [
        ("timeouts: {total: 24s}", "timeouts.total", "come to 24s100ms, and total is 24s"),
        ("retry: {max_attempts: 4}\ntimeouts: {attempt: 1s}", "retry.max_attempts", "64 for one"),
        ("retry_budget: off", "retry_budget", "multiplies the load by 2"),
        ("hedge: {}", "hedge", "no effect with one endpoint"),
        ("hedge: {delay: p95, same_endpoint: true}", "hedge.delay", "5% of the calls"),
        ("outlier: {}", "outlier", "no effect with one endpoint"),
        ("retry: {honour_stop: false}", "retry.honour_stop", "multiply"),
        ("peak_load: 10/s\ncapacity: 660/m", "peak_load", "100.00% of capacity"),
    ] {
        let warnings = warned(&upstream_with(section));
        assert_eq!(warnings.len(), 1, "{section}: {warnings:?}");
        assert_eq!(warnings[0].0, field(key), "{section}");
        assert!(warnings[0].1.contains(part), "{section}: {warnings:?}");
    }
    for calm in [
        "timeouts: {total: 24100ms}",
        "retry: {max_attempts: 3}\ntimeouts: {attempt: 1s}",
        "retry: {max_attempts: 1, honour_stop: false}\nretry_budget: off",
        "retry: off\nretry_budget: off",
        "peak_load: 10/s\ncapacity: 661/m",
        "peak_load: 10/s\ncapacity: 1/s\nretry_budget: off\nretry: off",
    ] {
        assert_eq!(warned(&upstream_with(calm)), [], "{calm}");
    }
    let text = "version: 1
upstreams: {a: {endpoints: ['http://h:1']}, b: {endpoints: ['http://h:2']}}
routes: [{upstream: a, total: 5s}]
";
    let warnings = warned(text);
    assert_eq!(warnings[0], ("upstreams.b".to_owned(), "no route leads to it".to_owned()));
    assert_eq!(warnings[1].0, "routes[0].total");
    assert_eq!(warnings.len(), 2);
    let (_, shown) = read(text).unwrap();
    insta::assert_snapshot!(shown.iter().map(ToString::to_string).collect::<String>());
}

#[test]
fn variables_fill_values_and_never_keys() {
    let text = "version: 1\nupstreams: {a: {endpoints: ['http://h:${PORT}']}}\n";
    assert_eq!(accepted(text).upstreams[0].endpoints[0].to_string(), "h:9000");
    let text = upstream_with("timeouts: {total: '${TOTAL:-7s}'}");
    assert_eq!(accepted(&text).upstreams[0].timeouts.total, Duration::from_secs(7));
    assert_eq!(refused(&upstream_with("${PORT}: 1")), ["upstreams.upstream.${PORT}"]);
}

#[test]
fn the_grace_of_the_environment_bounds_the_drain() {
    let with_grace = |grace: &str, text: &str| {
        let lookup = |name: &str| (name == edge::GRACE_VARIABLE).then(|| grace.to_owned());
        parse(text.as_bytes().to_vec(), "f".into(), None, &Overrides::default(), &lookup)
            .map(|(config, _)| config.drain)
            .map_err(|errors| errors.fields().map(str::to_owned).collect::<Vec<_>>())
    };
    assert!(with_grace("27001ms", MINIMAL).is_ok());
    assert_eq!(with_grace("27s", MINIMAL).unwrap_err(), ["drain"]);
    assert_eq!(with_grace("30", MINIMAL).unwrap_err(), ["SEAWALL_TERMINATION_GRACE"]);
    let long = format!("{MINIMAL}drain: {{in_flight: 5m}}\n");
    assert!(with_grace("6m", &long).is_ok());
}

#[test]
fn what_is_too_large_is_refused_before_it_costs_anything() {
    let refusal = |text: &str| read(text).unwrap_err().to_string();
    let large = format!("{MINIMAL}# {}\n", "x".repeat(1 << 20));
    assert!(refusal(&large).contains("larger than 1MiB"));
    let mut bomb = "version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(bomb, "a{level}: &a{level} [{items}]");
    }
    assert!(refusal(&bomb).contains("larger than a configuration may be"), "{}", refusal(&bomb));
    let deep = format!("version: {}\n", "[".repeat(1_000));
    assert!(!refusal(&deep).is_empty());
    let routes = |count: usize| {
        let each = |i: usize| format!("  - {{path_prefix: /{i}, upstream: upstream}}\n");
        format!("{MINIMAL}routes:\n{}", (0..count).map(each).collect::<String>())
    };
    assert_eq!(accepted(&routes(1_000)).routes.len(), 1_000);
    assert_eq!(refused(&routes(1_001)), ["routes"]);
    let upstreams = |count: usize, endpoints: usize| {
        let urls: Vec<_> = (1..=endpoints).map(|port| format!("'http://h:{port}'")).collect();
        let each = |i: usize| format!("  u{i}: {{endpoints: [{}]}}\n", urls.join(", "));
        let all: String = (0..count).map(each).collect();
        format!("version: 1\nroutes: [{{upstream: u0}}]\nupstreams:\n{all}")
    };
    assert_eq!(accepted(&upstreams(256, 4)).upstreams.len(), 256);
    assert_eq!(refused(&upstreams(257, 1)), ["upstreams"]);
    assert_eq!(refused(&upstreams(1, 1_025)), ["upstreams"]);
    let body = |len: usize| {
        let body = "x".repeat(len);
        format!(
            "{MINIMAL}routes: [{{upstream: upstream, fallback: {{on: [404], body: {body}}}}}]\n"
        )
    };
    assert_eq!(
        accepted(&body(64 << 10)).routes[0].fallback.as_ref().unwrap().on,
        [FallbackOn::Status(404)]
    );
    assert_eq!(refused(&body((64 << 10) + 1)), ["routes[0].fallback.body"]);
}

#[test]
fn many_errors_are_counted_and_the_first_twenty_shown() {
    let keys: String = (0..30).map(|i| format!("k{i}: 1\n")).collect();
    let errors = read(&format!("{MINIMAL}{keys}")).unwrap_err();
    assert_eq!(errors.count(), 30);
    let shown = errors.to_string();
    assert_eq!(shown.matches("error: ").count(), 20);
    assert!(shown.ends_with("30 errors in seawall.yaml, the first 20 shown"), "{shown}");
    assert_eq!(errors.lines().count(), 30);
}

#[test]
fn a_line_of_an_error_has_the_same_words_and_the_same_place() {
    let text = "version: 1\nupstreams:\n  a: {endpoints: ['http://h:1'], timeouts: {total: 1}}\n\
                limitz: 1\nlimitz: 2\n";
    for (_, text) in BROKEN.iter().copied().chain([("", text)]) {
        let errors = read(text).unwrap_err();
        let shown = errors.to_string();
        let lines: Vec<_> = errors.lines().collect();
        assert_eq!(lines.len(), errors.count());
        for (line, block) in lines.iter().zip(shown.split("\n\n")) {
            assert!(!line.contains('\n'), "{line}");
            let what = block.lines().next().unwrap().strip_prefix("error: ").unwrap();
            let rest = line.strip_prefix(what).unwrap_or_else(|| panic!("{what} in {line}"));
            let place = block.lines().nth(1).unwrap().trim().strip_prefix("--> ").unwrap();
            let rest =
                rest.strip_prefix(&format!(" at {place}")).unwrap_or_else(|| panic!("{line}"));
            let place = |it: &str| it.trim().strip_prefix("::: ").map(str::to_owned);
            let help = |it: &str| it.trim().strip_prefix("= ").map(|it| format!("; {it}"));
            for more in block.lines().filter_map(|it| place(it).or_else(|| help(it))) {
                assert!(rest.contains(&more), "{more} in {line}");
            }
        }
    }
}

#[test]
fn aliases_and_merge_keys_repeat_sections() {
    let config = accepted(
        "version: 1
upstreams:
  a: &common
    endpoints: [http://h:1]
    timeouts: &times {attempt: 5s}
  b:
    <<: *common
    endpoints: [http://h:2]
  c: {endpoints: [http://h:3], timeouts: *times}
routes: [{upstream: a}, {path_prefix: /b, upstream: b}, {path_prefix: /c, upstream: c}]
",
    );
    let attempts: Vec<_> = config.upstreams.iter().map(|it| it.timeouts.attempt).collect();
    assert_eq!(attempts, [Duration::from_secs(5); 3]);
    assert!(config.upstreams[1].endpoints[0].to_string().ends_with(":2"));
}

#[test]
fn colours_change_nothing_but_colours() {
    let errors = read(BROKEN[6].1).unwrap_err();
    let coloured = errors.coloured().to_string();
    assert!(coloured.contains("\x1b[1;31merror"));
    let mut plain = coloured;
    for code in ["\x1b[1;31m", "\x1b[1;33m", "\x1b[1m", "\x1b[34m", "\x1b[0m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, errors.to_string());
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z:{}\\[\\]\\n '\"&*<>|#$-]{0,200}") {
        let _ = read(&text);
        let _ = read(&format!("version: 1\nupstreams:\n  a: {text}"));
    }
}
