//! Checks of the routes.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use seawall_policy::StopReason;

use super::address::is_host;
use super::edits::{self, Side};
use super::grpc::grpc;
use super::matching::{self, Asked, Conditions};
use super::model::{Fallback, FallbackOn, HeaderNames, Route, Upstream};
use super::raw::{RawFallback, RawRoute};
use super::report::{Finding, near_name};
use super::scope::{Checker, Scope, did_you_mean};
use super::{DAY, MILLISECOND, path, precedence, retry};
use crate::units::format_duration;

/// The routes in order of precedence, with their lanes; one for everything if none is written and
/// there is one upstream.
pub(super) fn routes(
    checker: &mut Checker,
    raw: &[RawRoute],
    upstreams: &mut [Upstream],
    names: &HeaderNames,
) -> Vec<Route> {
    let implied = [RawRoute {
        upstream: upstreams.first().map(|upstream| upstream.name.clone()),
        ..RawRoute::default()
    }];
    let raw = match (raw, upstreams.len()) {
        ([], 1) => &implied,
        ([], 2..) => {
            let help = "several upstreams need routes: `routes: [{path_prefix: /, upstream: …}]`";
            checker.scope("").missing("routes", help);
            return Vec::new();
        }
        _ => raw,
    };
    if raw.len() > MAX_ROUTES {
        let allowed = format!("at most {MAX_ROUTES}");
        checker.scope("").refuse("routes", &format!("{} routes", raw.len()), allowed);
    }
    let read = raw.iter().take(MAX_ROUTES).enumerate();
    let mut routes: Vec<Route> = read
        .map(|(i, raw)| route(checker.scope(format!("routes[{i}]")), raw, upstreams, names))
        .collect();
    precedence::distinct(checker, &routes);
    precedence::order(&mut routes);
    assign_lanes(checker, &mut routes, upstreams);
    routes
}

fn route(
    mut scope: Scope<'_>,
    raw: &RawRoute,
    upstreams: &[Upstream],
    names: &HeaderNames,
) -> Route {
    let upstream = upstream(&mut scope, &raw.upstream, upstreams);
    let host = scope.read("host", &raw.host, |text| {
        let host = text.to_ascii_lowercase();
        let bare = host.trim_end_matches('.');
        let bare = bare.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(bare);
        if is_host(bare) {
            Ok(bare.to_owned())
        } else {
            Err("one host name without a port, like api.example.com")
        }
    });
    let path = path::path(&mut scope, raw);
    let conditions = Conditions {
        methods: matching::methods(&mut scope, &raw.methods),
        headers: matching::headers(&mut scope, &raw.headers, Asked::Request(names)),
    };
    let name = scope.read("name", &raw.name, |text| {
        let fits = (1..=128).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
        match (fits, text.starts_with('_')) {
            (true, false) => Ok(text.to_owned()),
            (true, true) => Err("a name that does not begin with `_`"),
            (false, _) => Err("1 to 128 printable characters, no spaces"),
        }
    });
    let owners = [("self", true), ("caller", false)];
    let kinds = [("jittered", false), ("verbatim", true)];
    let total = scope.duration("total", &raw.total, MILLISECOND..=DAY);
    let edits = |scope: &mut Scope<'_>, key, side| {
        let raw = if side == Side::Request { &raw.request_headers } else { &raw.response_headers };
        edits::edits(scope.inner(key), raw, side, names)
    };
    let owns_retries = scope.choice("retry_owner", &raw.retry_owner, &owners).unwrap_or(true);
    let target = upstream.and_then(|index| upstreams.get(index));
    let (retry, attempt) = retry::of_route(&mut scope, raw, total, owns_retries, target);
    let route = Route {
        name: name.unwrap_or_else(|| default_name(raw)),
        host,
        rewrite: path::rewrite(&mut scope, raw, &path),
        path,
        conditions,
        upstream: upstream.unwrap_or_default(),
        lane: 0,
        request_headers: edits(&mut scope, "request_headers", Side::Request),
        response_headers: edits(&mut scope, "response_headers", Side::Response),
        total,
        attempt,
        idempotent: scope.flag("idempotent", &raw.idempotent).unwrap_or(false),
        retry,
        owns_retries,
        retry_after_verbatim: scope
            .choice("retry_after", &raw.retry_after, &kinds)
            .unwrap_or(false),
        max_body: scope.size("max_body", &raw.max_body, 0..=u64::MAX),
        grpc: grpc(scope.inner("grpc"), &raw.grpc),
        fallback: raw.fallback.as_ref().map(|raw| fallback(scope.inner("fallback"), raw)),
    };
    if let (Some(total), Some(target), None) = (total, target, attempt)
        && total < target.timeouts.attempt
    {
        let message = format!(
            "{} is below the attempt timeout of `{}` ({}), which never ends an attempt here",
            format_duration(total),
            target.name,
            format_duration(target.timeouts.attempt)
        );
        scope.warn("total", message, "no second attempt follows one that hangs");
    }
    route
}

/// Host, path and methods as written.
fn default_name(raw: &RawRoute) -> String {
    let host = raw.host.as_deref().unwrap_or_default();
    let path = raw.path.as_deref().or(raw.path_prefix.as_deref()).unwrap_or("/");
    match raw.methods.as_slice() {
        [] => format!("{host}{path}"),
        methods => format!("{host}{path}[{}]", methods.join(",")),
    }
}

fn upstream(scope: &mut Scope<'_>, raw: &Option<String>, upstreams: &[Upstream]) -> Option<usize> {
    let Some(name) = raw else {
        scope.missing("upstream", "name the upstream that the route leads to");
        return None;
    };
    let found = upstreams.iter().position(|upstream| upstream.name == *name);
    if found.is_none() {
        let names: Vec<_> = upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
        let shown = match names.as_slice() {
            [] => "a name under `upstreams`".to_owned(),
            few @ ([_] | [_, _] | [_, _, _]) => few.join(" or "),
            [first, second, rest @ ..] => format!("{first}, {second} or one of {}", rest.len()),
        };
        let finding = Finding::refused(scope.path("upstream"), name, shown);
        let near = near_name(name, names);
        scope.refuse_with("upstream", did_you_mean(finding, near));
    }
    found
}

fn fallback(mut scope: Scope<'_>, raw: &RawFallback) -> Fallback {
    let mut on = Vec::new();
    if raw.on.is_empty() {
        scope.missing("on", "list what it stands in for, like `[failure]`");
    }
    for (i, text) in raw.on.iter().take(MAX_FALLBACK_ON).enumerate() {
        let key = format!("on[{i}]");
        let Some(read) = fallback_on(&mut scope, &key, text) else { continue };
        if on.contains(&read) {
            scope.refuse(&key, text, "each once");
        }
        on.push(read);
    }
    let status = scope.count("status", &raw.status, 200..=599);
    let status = status.and_then(|status| u16::try_from(status).ok());
    let content_type = scope.read("content_type", &raw.content_type, |text| {
        let value = HeaderValue::from_str(text).ok().filter(|_| text.contains('/'));
        value.ok_or("a media type, like application/json")
    });
    let body = scope.read("body", &raw.body, |text| {
        if text.len() <= MAX_FALLBACK_BODY {
            Ok(Bytes::copy_from_slice(text.as_bytes()))
        } else {
            Err("at most 64KiB")
        }
    });
    Fallback {
        on,
        status: status.and_then(|it| StatusCode::from_u16(it).ok()).unwrap_or(StatusCode::OK),
        content_type: content_type.unwrap_or(HeaderValue::from_static("application/json")),
        body: body.unwrap_or_default(),
    }
}

fn fallback_on(scope: &mut Scope<'_>, key: &str, text: &str) -> Option<FallbackOn> {
    let reasons = StopReason::ALL
        .into_iter()
        // Nothing failed, or nobody is there to read it.
        .filter(|reason| !matches!(reason, StopReason::Answered | StopReason::CallerLeft));
    let status = text.parse::<u16>().ok().filter(|status| (400..=599).contains(status));
    if text == "failure" {
        return Some(FallbackOn::Failure);
    }
    if let Some(status) = status {
        return Some(FallbackOn::Status(status));
    }
    if let Some(reason) = reasons.clone().find(|reason| reason.as_str() == text) {
        return Some(FallbackOn::Stopped(reason));
    }
    let near = near_name(text, reasons.map(StopReason::as_str).chain(["failure"]));
    let allowed = "failure, a stop reason like budget or breaker_open, or a status from 400 to 599";
    let finding = Finding::refused(scope.path(key), text, allowed);
    scope.refuse_with(key, did_you_mean(finding, near));
    None
}

/// Numbers the routes of each upstream, bounds what one of several may take, and warns of an
/// upstream without any.
fn assign_lanes(checker: &mut Checker, routes: &mut [Route], upstreams: &mut [Upstream]) {
    let mut counts = vec![0; upstreams.len()];
    for route in routes {
        if let Some(count) = counts.get_mut(route.upstream) {
            route.lane = *count;
            *count += 1;
            let upstream = &mut upstreams[route.upstream];
            if let (Some(breaker), Some(attempt)) = (&mut upstream.breaker, route.attempt) {
                // An honest probe of any route has ended by then.
                breaker.probe_lease = breaker.probe_lease.max(attempt);
            }
        }
    }
    for (upstream, count) in upstreams.iter_mut().zip(counts) {
        let bulkhead = &mut upstream.bulkhead;
        if count > 1 && bulkhead.lane_limit.is_none() {
            bulkhead.lane_limit = Some((bulkhead.limit / 2).max(1));
        }
        if count == 0 && checker.notes.findings.is_empty() {
            let help = "give it a route, or remove it";
            checker.scope("upstreams").warn(&upstream.name, "no route leads to it", help);
        }
    }
}

/// Source: seawall-design.
const MAX_ROUTES: usize = 1_000;
/// Kept in memory, one for each route. Source: seawall-design.
const MAX_FALLBACK_BODY: usize = 64 << 10;
/// There are not more to name than this. Source: seawall-design.
const MAX_FALLBACK_ON: usize = 256;
