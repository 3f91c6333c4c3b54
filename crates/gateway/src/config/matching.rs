//! What a message must have beside host and path: a method, fields with certain values.
//!
//! A test of a value looks at a field that came once: of one that came twice, the next hop may
//! read another line than we, so it is only `present`. Values are compared byte by byte.

use http::{HeaderMap, Method};
use seawall::{HeaderCondition, HeaderTest};

use super::edits::{self, Side};
use super::model::HeaderNames;
use super::raw::RawHeaderMatch;
use super::report::Finding;
use super::scope::Scope;

/// The path a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Begins with `/`, whole segments; `/` matches any path.
    Prefix(String),
    /// This path and no other; a slash at its end counts.
    Exact(String),
}

impl PathMatch {
    /// The path as it is compared: without escapes that need none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Prefix(path) | Self::Exact(path) => path,
        }
    }

    /// Whether it is the whole path.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }
}

/// What a request must have beside host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// One of these methods; empty: any.
    pub methods: Vec<Method>,
    /// All of these.
    pub headers: Vec<HeaderCondition>,
}

impl Conditions {
    /// How many there are; all methods together are one.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(!self.methods.is_empty()) + self.headers.len()
    }

    pub(crate) fn takes_method(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    pub(crate) fn takes_fields(&self, fields: &HeaderMap) -> bool {
        self.headers.iter().all(|condition| condition.holds(fields))
    }

    /// Whether every head whose fields meet `other` meets this, too.
    pub(super) fn fields_follow_from(&self, other: &Self) -> bool {
        let follows = |mine: &HeaderCondition| other.headers.iter().any(|it| implies(it, mine));
        self.headers.iter().all(follows)
    }
}

/// Whether every head that meets `one` meets `other`, too.
fn implies(one: &HeaderCondition, other: &HeaderCondition) -> bool {
    one.name == other.name
        && match (&one.test, &other.test) {
            (HeaderTest::Absent, test) => *test == HeaderTest::Absent,
            (_, HeaderTest::Absent) => false,
            (_, HeaderTest::Present) => true,
            (HeaderTest::Exact(one), HeaderTest::Exact(other)) => one == other,
            (HeaderTest::Exact(one) | HeaderTest::Prefix(one), HeaderTest::Prefix(other)) => {
                one.starts_with(other.as_str())
            }
            (HeaderTest::Prefix(_) | HeaderTest::Present, _) => false,
        }
}

/// Reads a list of methods.
pub(super) fn methods(scope: &mut Scope<'_>, raw: &[String]) -> Vec<Method> {
    let mut methods = Vec::new();
    if raw.len() > MAX_METHODS {
        let allowed = format!("at most {MAX_METHODS}");
        scope.refuse("methods", &format!("{} methods", raw.len()), allowed);
    }
    for (i, text) in raw.iter().take(MAX_METHODS).enumerate() {
        let key = format!("methods[{i}]");
        let read = scope.read(&key, &Some(text.clone()), |text| {
            let method = Method::from_bytes(text.as_bytes()).ok();
            let is_upper = !text.bytes().any(|b| b.is_ascii_lowercase());
            let method = method.filter(|method| is_upper && *method != Method::CONNECT);
            method.ok_or("a method in capitals, like GET; CONNECT is never forwarded")
        });
        let Some(method) = read else { continue };
        if methods.contains(&method) {
            scope.refuse(&key, text, "each method once");
        }
        methods.push(method);
    }
    methods
}

/// Which fields a condition may ask about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked<'a> {
    /// Those of a request that any peer may state; the others are not judged yet when its route is
    /// found.
    Request(&'a HeaderNames),
    /// All of an answer.
    Answer,
}

/// Reads conditions on fields.
pub(super) fn headers(
    scope: &mut Scope<'_>,
    raw: &[RawHeaderMatch],
    asked: Asked<'_>,
) -> Vec<HeaderCondition> {
    let mut read: Vec<HeaderCondition> = Vec::new();
    if raw.len() > MAX_CONDITIONS {
        let allowed = format!("at most {MAX_CONDITIONS}");
        scope.refuse("headers", &format!("{} conditions", raw.len()), allowed);
    }
    for (i, raw) in raw.iter().take(MAX_CONDITIONS).enumerate() {
        let mut inner = scope.inner(&format!("headers[{i}]"));
        let Some(condition) = header(&mut inner, raw, asked) else { continue };
        if read.iter().any(|it| it.name == condition.name) {
            inner.refuse("name", condition.name.as_str(), "each header once");
        }
        read.push(condition);
    }
    read
}

fn header(
    scope: &mut Scope<'_>,
    raw: &RawHeaderMatch,
    asked: Asked<'_>,
) -> Option<HeaderCondition> {
    if raw.name.is_none() {
        scope.missing("name", "name the header, like `name: X-Version`");
    }
    let name = scope.read("name", &raw.name, |text| {
        let name = edits::name(text)?;
        let forbidden = match asked {
            Asked::Request(names) => edits::forbidden(&name, Side::Condition, names),
            Asked::Answer => None,
        };
        match forbidden {
            Some(why) => Err(format!("another header: {why}")),
            None => Ok(name),
        }
    });
    let value = |text: &str| match edits::is_value(text) && !text.is_empty() {
        true => Ok(text.to_owned()),
        false => Err("visible characters of ASCII, without spaces around them"),
    };
    let tests = [
        ("exact", scope.read("exact", &raw.exact, value).map(HeaderTest::Exact)),
        ("prefix", scope.read("prefix", &raw.prefix, value).map(HeaderTest::Prefix)),
        (
            "present",
            scope.flag("present", &raw.present).map(|present| match present {
                true => HeaderTest::Present,
                false => HeaderTest::Absent,
            }),
        ),
    ];
    let written = [raw.exact.is_some(), raw.prefix.is_some(), raw.present.is_some()];
    match written.iter().filter(|written| **written).count() {
        0 => scope.missing("exact", "give one of `exact`, `prefix` and `present`"),
        1 => {}
        _ => {
            let second = tests.iter().zip(written).filter(|(_, written)| *written).nth(1);
            let key = second.map_or("present", |((key, _), _)| *key);
            let message = "stands beside another test; give one of exact, prefix and present";
            scope.refuse_with(key, Finding::new(scope.path(key), message));
        }
    }
    let test = tests.into_iter().find_map(|(_, test)| test)?;
    Some(HeaderCondition { name: name?, test })
}

/// Source: seawall-design.
const MAX_METHODS: usize = 16;
/// On one route or rule. Source: seawall-design.
const MAX_CONDITIONS: usize = 8;

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn condition(test: HeaderTest) -> HeaderCondition {
        HeaderCondition { name: HeaderName::from_static("x-version"), test }
    }

    fn fields(values: &[&'static str]) -> HeaderMap {
        let value = |value: &&'static str| {
            (HeaderName::from_static("x-version"), http::HeaderValue::from_static(value))
        };
        values.iter().map(value).collect()
    }

    #[test]
    fn a_field_that_came_twice_is_present_and_has_no_value() {
        let exact = condition(HeaderTest::Exact("2".to_owned()));
        let prefix = condition(HeaderTest::Prefix("2".to_owned()));
        let [present, absent] = [HeaderTest::Present, HeaderTest::Absent].map(condition);
        for (values, holds) in [
            (&[][..], [false, false, false, true]),
            (&["2"], [true, true, true, false]),
            (&["2.1"], [false, true, true, false]),
            (&["3"], [false, false, true, false]),
            (&["2", "2"], [false, false, true, false]),
        ] {
            let fields = fields(values);
            let held = [&exact, &prefix, &present, &absent].map(|it| it.holds(&fields));
            assert_eq!(held, holds, "{values:?}");
        }
    }

    #[test]
    fn what_implies_another_holds_wherever_it_does() {
        let tests = [
            HeaderTest::Exact("a".to_owned()),
            HeaderTest::Exact("ab".to_owned()),
            HeaderTest::Prefix("a".to_owned()),
            HeaderTest::Prefix("ab".to_owned()),
            HeaderTest::Present,
            HeaderTest::Absent,
        ];
        let heads: [&[&str]; 7] = [&[], &["a"], &["ab"], &["abc"], &["ac"], &["b"], &["a", "ab"]];
        for (one, other) in tests.iter().flat_map(|one| tests.iter().map(move |it| (one, it))) {
            let (one, other) = (condition(one.clone()), condition(other.clone()));
            let follows = |head: &&[&'static str]| {
                let fields = fields(head);
                !one.holds(&fields) || other.holds(&fields)
            };
            assert_eq!(implies(&one, &other), heads.iter().all(follows), "{one:?} {other:?}");
        }
    }
}
