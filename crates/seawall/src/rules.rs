//! Rules on what an answer means where its status does not say it: some services answer 200 and
//! put the failure in a field or in the body, some answer 500 for a request that was wrong.
//!
//! The first rule that an answer meets decides; without one, the status decides. A rule asks about
//! the status, fields, and a value in a JSON body, all that it has of these. It changes what the
//! answer means to breaker, budget and retries, never the answer itself.
//!
//! | means | retried | breaker | budget |
//! |---|---|---|---|
//! | success | no | success | deposits |
//! | rejected | no | success | deposits |
//! | overloaded | idempotent or keyed (429: any method) | failure (429: success) | – |
//! | not processed | any method | ignore | – |
//! | failure | idempotent or keyed | failure | – |

use std::ops::RangeInclusive;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, StatusCode};
use seawall_policy::{Class, ConfigError};
use serde_json::Value;

/// A test of one field of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCondition {
    /// Its name.
    pub name: HeaderName,
    /// What it must be.
    pub test: HeaderTest,
}

/// What a field must be. Values are compared byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// It came once, with this value.
    Exact(String),
    /// It came once, with a value that begins so.
    Prefix(String),
    /// It came.
    Present,
    /// It did not come.
    Absent,
}

impl HeaderCondition {
    /// Whether the fields meet it. A field that came twice is only present: whoever reads it next
    /// may read the other one.
    #[must_use]
    pub fn holds(&self, fields: &HeaderMap) -> bool {
        let mut values = fields.get_all(&self.name).iter();
        let Some(first) = values.next() else { return self.test == HeaderTest::Absent };
        let is_alone = values.next().is_none();
        match &self.test {
            HeaderTest::Exact(value) => is_alone && first.as_bytes() == value.as_bytes(),
            HeaderTest::Prefix(prefix) => {
                is_alone && first.as_bytes().starts_with(prefix.as_bytes())
            }
            HeaderTest::Present => true,
            HeaderTest::Absent => false,
        }
    }
}

/// What an answer means. See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Answered as asked.
    Success,
    /// Decided against the request.
    Rejected,
    /// Not now.
    Overloaded,
    /// No work was begun.
    NotProcessed,
    /// It failed, and may have done part of its work.
    Failure,
}

impl Meaning {
    /// The class of an outcome that means this.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Success => Class::Success,
            Self::Rejected => Class::Rejected,
            Self::Overloaded => Class::Overloaded,
            Self::NotProcessed => Class::NotProcessed,
            Self::Failure => Class::Unknown,
        }
    }
}

/// One rule: what an answer must be, and what it then means.
///
/// ```
/// use seawall::{HttpRule, Meaning};
/// let busy = HttpRule::new(Meaning::Overloaded).status(200..=200).json("/code", ["5031"]);
/// let lost = HttpRule::new(Meaning::Failure).status(500..=599);
/// # let _ = (busy, lost);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRule {
    means: Meaning,
    statuses: Vec<RangeInclusive<u16>>,
    fields: Vec<HeaderCondition>,
    body: Option<BodyTest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BodyTest {
    pointer: String,
    equals: Vec<String>,
}

impl HttpRule {
    /// An answer that meets all that is added means `means`.
    #[must_use]
    pub const fn new(means: Meaning) -> Self {
        Self { means, statuses: Vec::new(), fields: Vec::new(), body: None }
    }

    /// The status is in this range; asked twice, in one of them.
    #[must_use]
    pub fn status(mut self, statuses: RangeInclusive<u16>) -> Self {
        self.statuses.push(statuses);
        self
    }

    /// The fields meet this, too.
    #[must_use]
    pub fn header(mut self, condition: HeaderCondition) -> Self {
        self.fields.push(condition);
        self
    }

    /// The JSON body has one of these values at `pointer` (RFC 6901): a text as it is, numbers,
    /// `true`, `false` and `null` as JSON writes them.
    #[must_use]
    pub fn json<T: Into<String>>(
        mut self,
        pointer: impl Into<String>,
        equals: impl IntoIterator<Item = T>,
    ) -> Self {
        let equals = equals.into_iter().map(Into::into).collect();
        self.body = Some(BodyTest { pointer: pointer.into(), equals });
        self
    }

    /// What such an answer means.
    #[must_use]
    pub const fn means(&self) -> Meaning {
        self.means
    }

    /// One of these statuses; empty: any.
    #[must_use]
    pub fn statuses(&self) -> &[RangeInclusive<u16>] {
        &self.statuses
    }

    /// What the fields must meet.
    #[must_use]
    pub fn headers(&self) -> &[HeaderCondition] {
        &self.fields
    }

    /// Where the body has one of which values.
    #[must_use]
    pub fn body(&self) -> Option<(&str, &[String])> {
        self.body.as_ref().map(|body| (&*body.pointer, &*body.equals))
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.statuses.is_empty() && self.fields.is_empty() && self.body.is_none() {
            return Err(ConfigError::new("rules", "nothing", "a status, a header or a body"));
        }
        for range in &self.statuses {
            if range.is_empty() || *range.start() < 100 || *range.end() > 599 {
                let range = format!("{}-{}", range.start(), range.end());
                return Err(ConfigError::new("status", range, "statuses from 100 to 599"));
            }
        }
        let Some(BodyTest { pointer, equals }) = &self.body else { return Ok(()) };
        if !(pointer.is_empty() || pointer.starts_with('/')) {
            return Err(ConfigError::new("pointer", pointer, "a JSON pointer, like /error/code"));
        }
        if equals.is_empty() {
            return Err(ConfigError::new("equals", "nothing", "at least one value"));
        }
        Ok(())
    }

    fn takes_head(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let status = status.as_u16();
        let is_listed = self.statuses.iter().any(|range| range.contains(&status));
        (self.statuses.is_empty() || is_listed) && self.fields.iter().all(|it| it.holds(fields))
    }
}

impl BodyTest {
    fn takes(&self, body: &Value) -> bool {
        let Some(found) = body.pointer(&self.pointer) else { return false };
        let is = |text: &str| self.equals.iter().any(|wanted| wanted == text);
        match found {
            Value::String(text) => is(text),
            Value::Number(number) => is(&number.to_string()),
            Value::Bool(true) => is("true"),
            Value::Bool(false) => is("false"),
            Value::Null => is("null"),
            Value::Array(_) | Value::Object(_) => false,
        }
    }
}

/// Rules in the order in which they are asked. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpRules {
    rules: Arc<[HttpRule]>,
}

/// What is known of a body.
#[derive(Clone, Copy, Debug)]
pub enum BodySeen<'a> {
    /// It was not read yet.
    Unread,
    /// It cannot be had, or is no JSON: no rule on a body is met.
    Unreadable,
    /// All of it.
    Whole(&'a [u8]),
}

/// What the rules say of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruled {
    /// It means this, by the rule of that number, from 0.
    Means(Meaning, usize),
    /// The status decides.
    ByStatus,
    /// It depends on the body.
    NeedsBody,
}

impl HttpRules {
    /// Checks the rules.
    ///
    /// # Errors
    /// A rule that asks about nothing, a status that is none, a pointer that is none, no value to
    /// compare with, or more than 64 rules.
    pub fn new(rules: impl IntoIterator<Item = HttpRule>) -> Result<Self, ConfigError> {
        let rules: Arc<[HttpRule]> = rules.into_iter().collect();
        if rules.len() > MOST_RULES {
            let allowed = format!("at most {MOST_RULES}");
            return Err(ConfigError::new("rules", rules.len(), allowed));
        }
        rules.iter().try_for_each(HttpRule::check)?;
        Ok(Self { rules })
    }

    /// The rules, in the order in which they are asked.
    #[must_use]
    pub fn rules(&self) -> &[HttpRule] {
        &self.rules
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What an answer means.
    #[must_use]
    pub fn judge(&self, status: StatusCode, fields: &HeaderMap, body: BodySeen<'_>) -> Ruled {
        let mut parsed = None;
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.takes_head(status, fields) {
                continue;
            }
            let is_met = match (&rule.body, body) {
                (None, _) => true,
                (Some(_), BodySeen::Unread) => return Ruled::NeedsBody,
                (Some(_), BodySeen::Unreadable) => false,
                (Some(test), BodySeen::Whole(bytes)) => {
                    let value = parsed.get_or_insert_with(|| serde_json::from_slice(bytes).ok());
                    value.as_ref().is_some_and(|value| test.takes(value))
                }
            };
            if is_met {
                return Ruled::Means(rule.means, index);
            }
        }
        Ruled::ByStatus
    }
}

/// Asked one by one for each answer. Source: seawall-design.
const MOST_RULES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &'static str, value: &str) -> HeaderCondition {
        HeaderCondition {
            name: HeaderName::from_static(name),
            test: HeaderTest::Exact(value.to_owned()),
        }
    }

    fn rules() -> HttpRules {
        HttpRules::new([
            HttpRule::new(Meaning::Success).status(503..=503).header(field("x-cached", "yes")),
            HttpRule::new(Meaning::Overloaded)
                .status(200..=299)
                .json("/error/code", ["5031", "busy"]),
            HttpRule::new(Meaning::Rejected).header(field("x-error", "input")),
            HttpRule::new(Meaning::Failure).status(500..=500).status(404..=404),
        ])
        .unwrap()
    }

    #[test]
    fn the_first_rule_that_is_met_decides() {
        let head = |pairs: &[(&'static str, &'static str)]| {
            let mut fields = HeaderMap::new();
            for (name, value) in pairs {
                fields.insert(*name, http::HeaderValue::from_static(value));
            }
            fields
        };
        let judge = |status, pairs, body| {
            let status = StatusCode::from_u16(status).unwrap();
            rules().judge(status, &head(pairs), body)
        };
        let none = BodySeen::Unread;
        assert_eq!(judge(503, &[], none), Ruled::ByStatus);
        assert_eq!(judge(503, &[("x-cached", "yes")], none), Ruled::Means(Meaning::Success, 0));
        assert_eq!(judge(404, &[], none), Ruled::Means(Meaning::Failure, 3));
        assert_eq!(judge(500, &[("x-error", "input")], none), Ruled::Means(Meaning::Rejected, 2));
        assert_eq!(judge(200, &[], none), Ruled::NeedsBody);
        assert_eq!(judge(200, &[], BodySeen::Unreadable), Ruled::ByStatus);
        let ruled = |text: &'static str| judge(200, &[], BodySeen::Whole(text.as_bytes()));
        for body in [r#"{"error":{"code":5031}}"#, r#"{"error": {"code": "busy"}}"#] {
            assert_eq!(ruled(body), Ruled::Means(Meaning::Overloaded, 1), "{body}");
        }
        for body in [r#"{"error":{"code":503}}"#, r#"{"error":null}"#, "{", "", "[5031]"] {
            assert_eq!(ruled(body), Ruled::ByStatus, "{body}");
        }
    }

    #[test]
    fn a_body_is_asked_for_only_where_a_rule_before_has_not_decided() {
        let rules = HttpRules::new([
            HttpRule::new(Meaning::Rejected).header(field("x-error", "input")),
            HttpRule::new(Meaning::Failure).json("/ok", ["false"]),
        ])
        .unwrap();
        let mut fields = HeaderMap::new();
        assert_eq!(rules.judge(StatusCode::OK, &fields, BodySeen::Unread), Ruled::NeedsBody);
        fields.insert("x-error", http::HeaderValue::from_static("input"));
        let ruled = rules.judge(StatusCode::OK, &fields, BodySeen::Unread);
        assert_eq!(ruled, Ruled::Means(Meaning::Rejected, 0));
    }

    #[test]
    fn a_rule_that_could_never_be_met_or_always_is_refused() {
        let failure = || HttpRule::new(Meaning::Failure);
        for (rule, field) in [
            (failure(), "rules"),
            (failure().status(99..=200), "status"),
            (failure().status(500..=600), "status"),
            (failure().json("code", ["1"]), "pointer"),
            (failure().json::<String>("/code", []), "equals"),
        ] {
            assert_eq!(HttpRules::new([rule]).unwrap_err().field(), field);
        }
        assert!(HttpRules::new((0..65).map(|_| failure().status(500..=500))).is_err());
    }
}
