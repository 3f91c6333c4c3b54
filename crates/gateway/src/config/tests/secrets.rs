//! No secret comes out in an error or a warning, wherever it stands and whatever is wrong beside.

use super::*;

/// A file whose every place for a secret holds one. Each line is broken in turn.
const FULL: &str = "version: 1
admin:
  token: MARK-admin-0123456789
  address: 127.0.0.1:9901
upstreams:
  a:
    endpoints: ['http://127.0.0.1:9000']
    health_check: {path: '/healthz?key=MARK-query', interval: 5s}
    rules:
    - name: plain
      headers: [{name: X-A, exact: MARK-exact}, {name: X-B, prefix: MARK-begins}]
      body: {pointer: /code, equals: [MARK-equals]}
      means: failure
routes:
- upstream: a
  headers: [{name: X-Api-Key, exact: MARK-asked}, {name: X-C, prefix: MARK-prefix}]
  request_headers:
    set:
      Authorization: Bearer MARK-set # was MARK-old
      X-Other: |-
        MARK-block
  response_headers: {set: {X-B: 'MARK-flow'}}
  fallback: {on: [failure], status: 503, content_type: text/plain, body: 'MARK-body'}
- {upstream: a, path: /plain, name: nu}
";

/// What is told of a file.
fn told(text: &str) -> String {
    let lookup = |name: &str| match name {
        "SECRET" => Some("MARK-variable".to_owned()),
        "NUMBER" => Some("77001177".to_owned()),
        "HOST" => Some("mark.internal".to_owned()),
        _ => None,
    };
    let name = "f".to_owned();
    match parse(text.as_bytes().to_vec(), name, None, &Overrides::default(), &lookup) {
        Ok((_, warnings)) => warnings.iter().map(|it| format!("{it}{}", it.message())).collect(),
        Err(errors) => {
            assert!(errors.count() > 0 && errors.to_string().contains("--> f"), "{errors}");
            format!("{errors}{:?}{}", errors.fields().collect::<Vec<_>>(), errors.coloured())
        }
    }
}

fn check(text: &str) -> String {
    let told = told(text);
    let is_clean = !told.to_lowercase().contains("mark") && !told.contains("77001177");
    assert!(is_clean, "{text}\n{told}");
    told
}

#[test]
fn a_file_full_of_secrets_is_fine() {
    assert!(!check(FULL).contains("error"), "{}", told(FULL));
}

#[test]
fn a_mistake_on_or_beside_the_line_of_a_secret_does_not_show_it() {
    let mut wrong = 0;
    for (at, line) in FULL.lines().enumerate() {
        let mut broken: Vec<_> = vec![
            line.replacen("MARK", "MÄRK-MARK", 1),
            line.replacen("MARK", "'MARK", 1),
            line.replacen("MARK", "\"MARK \\q", 1),
            line.replacen("MARK", "[MARK", 1),
            line.replacen("MARK", "*MARK", 1),
            line.replacen("MARK", "!MARK MARK", 1),
            line.replacen("MARK", "!!MARK MARK", 1),
            line.replacen("MARK", "&MARK MARK: MARK", 1),
            line.replacen("MARK", "${MARK", 1),
            line.replacen("MARK", "${MARK-x} MARK", 1),
            line.replacen("MARK", "@MARK", 1),
            line.replacen("MARK", "%MARK: MARK", 1),
            line.replacen("MARK", "?MARK\u{1}", 1),
            line.replacen(": ", ":", 1),
            line.replacen(": ", " ", 1),
            line.replace(": ", ":"),
            line.replace(": ", " "),
            line.replace(": ", ": : "),
            line.replace("'", ""),
            line.replace("}", ""),
            line.replace("]", "}"),
            line.replace("}", ", typo: 1}"),
            line.replace("MARK", "MARK MARK: MARK"),
            format!("{line} ]"),
            format!("\t{line}"),
            format!("{line}\n{line}"),
            format!(" {line}"),
        ];
        for key in ["token", "request_headers", "response_headers", "set", "Authorization", "body"]
            .into_iter()
            .chain(["exact", "prefix", "path", "equals", "health_check", "fallback", "headers"])
            .chain(["rules", "admin", "name"])
        {
            let (first, rest) = key.split_at(1);
            let typos = [format!("{key}s"), rest.to_owned(), format!("{first}.{rest}")];
            for typo in typos.iter().map(String::as_str).chain(["attempt", "admin.address", "x y"])
            {
                broken.push(line.replace(&format!("{key}:"), &format!("{typo}:")));
            }
        }
        for line in broken {
            let lines: Vec<_> = FULL.lines().collect();
            let text = [&lines[..at], &[line.as_str()], &lines[at + 1..]].concat().join("\n");
            wrong += usize::from(check(&text).contains("error"));
        }
    }
    assert!(wrong > 400, "{wrong}");
}

#[test]
fn what_a_variable_gave_is_shown_as_its_name() {
    for section in [
        "timeouts: {total: '${SECRET}'}",
        "timeouts: '${SECRET}'",
        "retry: '${SECRET}'",
        "timeouts: {attempt: '${NUMBER}s'}",
        "bulkhead: {limit: '${NUMBER}'}",
        "health_check: {path: '${SECRET}'}",
        "rate: {per_key: {key: '${SECRET}', limit: 5/s}}",
        "host_header: '${SECRET}/'",
        "protocol: '${SECRET}'",
        "tls: {ca: '${SECRET}'}",
        "rules: [{name: a, status: ['${SECRET}'], means: failure}]",
        "credentials: {file: '${SECRET}'}",
    ] {
        let told = check(&upstream_with(section));
        let name = if section.contains("NUMBER") { "${NUMBER}" } else { "${SECRET}" };
        assert!(told.contains(name) || told.contains("***"), "{section}: {told}");
    }
    for top in [
        "admin: {open_metrics: '${SECRET}', address: '${SECRET}'}",
        "admin: {token_file: '${SECRET}'}",
        "admin: {token: '${NUMBER}'}",
        "listeners: [{address: '${SECRET}'}]",
        "listeners: [{address: 'unix:${SECRET}'}]",
        "listeners: [{trusted_peers: ['${SECRET}']}]",
        "headers: {attempt: '${SECRET} '}",
        "routes: [{upstream: '${SECRET}'}]",
        "routes: [{upstream: upstream, host: '${SECRET}/', methods: ['${SECRET}!']}]",
        "routes: [{upstream: upstream, path: '${SECRET}'}, {upstream: upstream, host: '${HOST}'}, \
         {upstream: upstream, host: '${HOST}'}]",
    ] {
        check(&format!("{MINIMAL}{top}\n"));
    }
    for endpoint in ["${SECRET}", "http://${SECRET}/x", "http://${HOST}:0", "http://u:${SECRET}@h"]
    {
        let text = MINIMAL.replace("http://127.0.0.1:9000", &format!("'{endpoint}'"));
        check(&text);
    }
    let file = std::env::temp_dir().join(format!("seawall-secrets-{}", std::process::id()));
    std::fs::write(&file, "sesame").unwrap();
    let section = format!("credentials: {{file: {}}}", file.display());
    let text = upstream_with(&section).replace("http://127.0.0.1:9000", "'http://${HOST}:9000'");
    let told = check(&text);
    assert!(told.contains("goes to ***:9000 in the clear"), "{told}");
    std::fs::remove_file(&file).unwrap();
    let told = check(&upstream_with("timeouts: {total: '${SECRET}'}"));
    assert!(told.contains("upstreams.upstream.timeouts.total: `${SECRET}` is not allowed; give"));
    assert!(told.contains("timeouts: {total: '${SECRET}'}"), "{told}");
}

#[test]
fn what_is_put_in_the_wrong_place_is_not_repeated() {
    for section in [
        "credentials: {file: MARK-token}",
        "credentials: {file: /nowhere, scheme: 'Bearer MARK'}",
        "credentials: {file: /nowhere, header: 'X-Key: MARK'}",
        "tls: {client_key: \"-----BEGIN PRIVATE KEY-----\\nMARK\"}",
        "tls: {ca: \"./ca\\nMARK\"}",
        "protocol: 'X-Key: MARK'",
        "endpoint: 'http://h/MARK'",
    ] {
        check(&upstream_with(section));
    }
    for endpoint in ["https://me:MARK@h", "https://h/hooks/MARK", "https://h?key=MARK", "h/MARK"] {
        let told = check(&MINIMAL.replace("http://127.0.0.1:9000", endpoint));
        assert!(told.contains("h/***") || told.contains("h?***") || told.contains("***@h"));
    }
    for top in [
        "admin: {MARK}",
        "admin: {token MARK}",
        "admin: {token:MARK}",
        "admin: {toke.n: MARK}",
        "admin:\n  token:MARK-0123456789",
        "admin: {token_file: MARK-0123456789}",
        "admin: &x {tokn: &y MARK}\naccess_log: *y",
        "routes: [{upstream: upstream, request_headers: {set: {Authorization:Bearer MARK}}}]",
        "routes: [{upstream: upstream, request_headers: {set: {MARK}}}]",
        "routes: [{upstream: upstream, request_headers: {set: {a MARK, a MARK}}}]",
        "routes: [{upstream: upstream, request_headers: {remove: ['Authorization: MARK']}}]",
        "routes: [{upstream: upstream, request_headers: {Authorization: Bearer MARK}}]",
    ] {
        let told = check(&format!("{MINIMAL}{top}\n"));
        assert!(!told.is_empty(), "{top}");
    }
}

#[test]
fn an_address_is_repeated_without_its_user_its_path_and_its_query_wherever_it_stands() {
    let endpoint = "http://127.0.0.1:9000";
    for (from, to) in [
        ("upstream:", "'https://me:MARK@h':"),
        ("upstream:", "'https://h/MARK.mark':"),
        ("upstream:", "'me@MARK':"),
        ("upstream:", "'h?key=MARK':"),
        ("endpoints:", "endpoint:"),
        (endpoint, "https://h"),
    ] {
        let named = MINIMAL.replace(from, to);
        // What is said of the upstream, of what is in it, and of what should lead to it.
        for rest in ["", "routes: [{upstream: 'https://me:MARK@hh'}]\n", "typo: 1\n"] {
            let text = format!("{named}{rest}");
            check(&text);
            check(&text.replace("endpoints:", "endpoint: 'https://h/MARK'\n    endpoints:"));
        }
    }
    let told = check(&MINIMAL.replace("upstream:", "'https://me:MARK@h':"));
    assert!(told.contains("upstreams.***: `***` is not allowed; give 1 to 64 letters"), "{told}");
    for text in [
        "upstreams: https://h/MARK".to_owned(),
        "upstreams: {upstream: 'https://h/MARK'}".to_owned(),
        "upstreams: {path: 'https://h/MARK'}".to_owned(),
        format!("{MINIMAL}routes: 'h/?key=MARK'"),
        format!("{MINIMAL}routes: [https://h/MARK]"),
        format!("{MINIMAL}routes: [{{upstream: 'https://h/MARK'}}]"),
        format!("{MINIMAL}routes: [{{upstream: upstream, host: 'h/?key=MARK'}}]"),
        format!("{MINIMAL}listeners: Bearer MARK"),
    ] {
        check(&format!("version: 1\n{}\n", text.trim_start_matches("version: 1\n")));
    }
    for (text, shown) in [
        ("routes: [{upstream: upstream, host: 'https://me:x@h:80/MARK'}]", "https://***@h:80/***"),
        ("listeners: [{address: 'http://127.0.0.1:80/MARK'}]", "http://127.0.0.1:80/***"),
    ] {
        let told = check(&format!("{MINIMAL}{text}\n"));
        assert!(told.contains(&format!("`{shown}` is not allowed")), "{told}");
    }
}

#[test]
fn of_a_file_that_is_no_configuration_nothing_is_shown() {
    for text in [
        "-----BEGIN PRIVATE KEY-----\nMARK\n-----END PRIVATE KEY-----\n",
        "TOKEN=MARK\nOTHER=MARK\n",
        "MARK",
        "'MARK'",
        "|\n  MARK\n",
        "[MARK, MARK]",
    ] {
        let told = check(text);
        assert!(told.contains(" is not allowed; give a map of version, "), "{told}");
    }
    assert!(check("${SECRET}").contains("`${SECRET}` is not allowed"));
}

#[test]
fn every_key_is_in_one_list_of_those_shown_and_those_not() {
    for path in pages::raw_keys() {
        let key = path.rsplit('.').next().unwrap().trim_end_matches("[]");
        if key != "<name>" {
            assert!(harmless::is_key_of_ours(key), "{path} is in no list of `harmless`");
        }
    }
    for field in [
        "admin.token",
        "routes[0].request_headers.set.timeout",
        "routes[0].response_headers.set.host",
        "routes[0].headers[0].exact",
        "routes[0].headers[0].prefix",
        "routes[0].fallback.body",
        "upstreams.a.rules[0].body.equals[1]",
        "upstreams.a.credentials.scheme",
        "of_nobody",
    ] {
        assert_eq!(harmless::value(field, "5s"), "***", "{field}");
    }
    assert_eq!(harmless::value("upstreams.a.timeouts.body", "5s"), "5s");
}
