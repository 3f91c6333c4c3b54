//! The order in which routes are matched, and routes that no request could reach.
//!
//! Exact host before any host; the longer path before the shorter, a whole path before a prefix of
//! its length; more conditions before fewer, where the methods together are one and each header is
//! one; then the order of the file.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use http::Method;

use super::matching::Conditions;
use super::model::Route;
use super::report::Finding;
use super::scope::Checker;

/// Puts routes in the order in which they are matched.
pub(super) fn order(routes: &mut [Route]) {
    routes.sort_by_key(|route| {
        let path = &route.path;
        let conditions = Reverse(route.conditions.count());
        (route.host.is_none(), Reverse(path.as_str().len()), !path.is_exact(), conditions)
    });
}

/// Refuses a route all of whose requests another takes, and two of one name. `routes` are in the
/// order of the file.
pub(super) fn distinct(checker: &mut Checker, routes: &[Route]) {
    let mut alike: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let key =
        |route: &Route| (route.host.clone(), route.path.as_str().to_owned(), route.path.is_exact());
    for (i, route) in routes.iter().enumerate() {
        let failed = |key: &&str| checker.notes.has_failed_within(&format!("routes[{i}].{key}"));
        if !["host", "path", "path_prefix", "methods", "headers"].iter().any(failed) {
            alike.entry(key(route)).or_default().push(i);
        }
    }
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, route) in routes.iter().enumerate() {
        let Some(group) = alike.get(&key(route)).filter(|group| group.contains(&i)) else {
            continue;
        };
        let namesake = names.insert(&route.name, i);
        if let Some(other) = shadowed_by(routes, group, i) {
            refuse(checker, routes, i, other, "", "takes the same requests");
        } else if let Some(other) = namesake {
            refuse(checker, routes, i, other, "name", "has the same name");
        }
    }
}

/// Of the routes for one host and path, one that is asked before route `i` and leaves it no
/// request, alone or as the last of several.
fn shadowed_by(routes: &[Route], group: &[usize], i: usize) -> Option<usize> {
    let mine = &routes[i].conditions;
    let is_before = |other: usize| {
        let count = routes[other].conditions.count();
        count > mine.count() || (count == mine.count() && other < i)
    };
    let mut taken: Vec<&Method> = Vec::new();
    for &other in group {
        let theirs: &Conditions = &routes[other].conditions;
        if other == i || !is_before(other) || !theirs.fields_follow_from(mine) {
            continue;
        }
        taken.extend(&theirs.methods);
        let takes_all = |method: &Method| taken.contains(&method);
        let covers = theirs.methods.is_empty()
            || (!mine.methods.is_empty() && mine.methods.iter().all(takes_all));
        if covers {
            return Some(other);
        }
    }
    None
}

/// At the later route's `key`; if that is empty, at what it asks of a request.
fn refuse(
    checker: &mut Checker,
    routes: &[Route],
    i: usize,
    other: usize,
    key: &'static str,
    what: &str,
) {
    let place_of = |checker: &Checker, i: usize| {
        let keys: [&str; 4] = match key {
            "" => ["headers", "methods", path_key(&routes[i]), "host"],
            key => [key; 4],
        };
        let written = |key: &&str| checker.notes.is_written(&format!("routes[{i}].{key}"));
        keys.into_iter().find(written).unwrap_or(keys[2])
    };
    let (mine, theirs) = (place_of(checker, i), place_of(checker, other));
    let path = format!("routes[{i}]");
    let message = format!("routes[{other}] {what}");
    let place = checker.notes.place(&format!("routes[{other}].{theirs}"));
    let finding = Finding::new(format!("{path}.{mine}"), message);
    checker.scope(path).refuse_with(mine, finding.beside("the earlier route", place));
}

fn path_key(route: &Route) -> &'static str {
    if route.path.is_exact() { "path" } else { "path_prefix" }
}
