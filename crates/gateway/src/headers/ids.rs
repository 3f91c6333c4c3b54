//! The ids a request is known by: its own, its caller's, and the trace it belongs to.

use http::{HeaderMap, HeaderName, HeaderValue};
use seawall_policy::Rng;

use super::{has, remove_all};
use crate::config::HeaderNames;
use crate::metrics::{IgnoredBecause, IgnoredHeader, IgnoredHeaders};

/// The ids of a request, as they go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    /// The caller's if it sent a valid one, else made here: 32 hexadecimal digits.
    pub request: HeaderValue,
    /// The caller's if it sent a valid one; never made here.
    pub correlation: Option<HeaderValue>,
    /// The trace, if `traceparent` is valid. It goes on as it came, valid or not.
    pub trace: Option<TraceContext>,
}

impl Ids {
    /// Reads the ids and leaves in `fields` what goes on: an invalid correlation id is removed, an
    /// invalid request id replaced. An id is 1 to 128 visible ASCII characters on one line.
    pub(super) fn take(
        fields: &mut HeaderMap,
        names: &HeaderNames,
        ignored: &mut IgnoredHeaders,
        rng: &mut impl Rng,
    ) -> Self {
        let request = match id(fields, &names.request_id, IgnoredHeader::RequestId, ignored) {
            Some(id) => id,
            None => {
                let made = made_id(rng);
                fields.insert(names.request_id.clone(), made.clone());
                made
            }
        };
        let correlation = id(fields, &names.correlation_id, IgnoredHeader::CorrelationId, ignored);
        if correlation.is_none() {
            remove_all(fields, [&names.correlation_id]);
        }
        let trace = read(fields, &TRACEPARENT, IgnoredHeader::Trace, ignored, TraceContext::parse);
        Self { request, correlation, trace }
    }
}

/// A valid `traceparent`. Source: W3C Trace Context section 3.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext(HeaderValue);

impl TraceContext {
    /// The id of the trace: 32 lower-case hexadecimal digits.
    #[must_use]
    pub(crate) fn trace_id(&self) -> &str {
        self.part(3, 35)
    }

    /// The id of the caller's span: 16 lower-case hexadecimal digits.
    #[must_use]
    pub(crate) fn span_id(&self) -> &str {
        self.part(36, 52)
    }

    fn part(&self, from: usize, to: usize) -> &str {
        self.0.to_str().map_or("", |text| &text[from..to])
    }

    fn parse(value: &HeaderValue) -> Option<Self> {
        let bytes = value.as_bytes();
        let (known, rest) = bytes.split_at_checked(TRACEPARENT_LENGTH)?;
        let version = &known[..2];
        // A later version may add parts after a dash; the version `ff` is none.
        let shape = known[2] == b'-' && known[35] == b'-' && known[52] == b'-';
        let end = rest.is_empty() || (version != b"00" && rest[0] == b'-');
        let (trace, span, flags) = (&known[3..35], &known[36..52], &known[53..]);
        let digits = [version, trace, span, flags].into_iter().all(is_lower_hex);
        let zero = |part: &[u8]| part.iter().all(|&digit| digit == b'0');
        let valid = shape && end && digits && version != b"ff" && !zero(trace) && !zero(span);
        (valid && value.to_str().is_ok()).then(|| Self(value.clone()))
    }
}

/// What `parse` makes of a field that came on exactly one line.
fn read<T>(
    fields: &HeaderMap,
    name: &HeaderName,
    header: IgnoredHeader,
    ignored: &mut IgnoredHeaders,
    parse: impl FnOnce(&HeaderValue) -> Option<T>,
) -> Option<T> {
    if !has(fields, name) {
        return None;
    }
    let mut values = fields.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() {
        ignored.add(header, IgnoredBecause::Repeated);
        return None;
    }
    let parsed = parse(first);
    if parsed.is_none() {
        ignored.add(header, IgnoredBecause::Malformed);
    }
    parsed
}

fn id(
    fields: &HeaderMap,
    name: &HeaderName,
    header: IgnoredHeader,
    ignored: &mut IgnoredHeaders,
) -> Option<HeaderValue> {
    read(fields, name, header, ignored, |value| is_id(value).then(|| value.clone()))
}

fn is_id(value: &HeaderValue) -> bool {
    (1..=ID_LENGTH_MAX).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn is_lower_hex(part: &[u8]) -> bool {
    part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn made_id(rng: &mut impl Rng) -> HeaderValue {
    let random = [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()];
    let mut id = [0; 32];
    for (digits, byte) in id.chunks_exact_mut(2).zip(random.as_flattened()) {
        digits.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
    HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("0"))
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Of version `00`, in bytes. Source: W3C Trace Context section 3.2.2.
const TRACEPARENT_LENGTH: usize = 55;
/// Bytes of an id: a line of a log stays a line.
const ID_LENGTH_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use seawall_policy::SplitMix64;

    use super::*;

    fn take(lines: &[(&'static str, &[u8])]) -> (Ids, HeaderMap) {
        let mut fields = HeaderMap::new();
        for &(name, value) in lines {
            fields.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        let (names, mut ignored) = (HeaderNames::default(), IgnoredHeaders::default());
        let ids = Ids::take(&mut fields, &names, &mut ignored, &mut SplitMix64::new(1));
        (ids, fields)
    }

    #[test]
    fn a_valid_request_id_is_kept_and_any_other_replaced_by_a_made_one() {
        let long = [b'a'; 128];
        for id in [b"a".as_slice(), b"{\"x\"}~!", &long] {
            let (ids, fields) = take(&[("x-request-id", id)]);
            assert_eq!(ids.request.as_bytes(), id);
            assert_eq!(fields["x-request-id"], ids.request);
        }
        let made = take(&[]).0.request;
        assert_eq!(made.len(), 32);
        assert!(is_lower_hex(made.as_bytes()));
        for id in [b"".as_slice(), b"a b", b"a\xff", b"a\tb", &[b'a'; 129]] {
            let (ids, fields) = take(&[("x-request-id", id)]);
            assert_eq!(ids.request, made);
            assert_eq!(fields.get_all("x-request-id").iter().collect::<Vec<_>>(), [&made]);
        }
        let (ids, fields) = take(&[("x-request-id", b"a"), ("x-request-id", b"b")]);
        assert_eq!(ids.request, made);
        assert_eq!(fields.get_all("x-request-id").iter().count(), 1);
    }

    #[test]
    fn a_correlation_id_is_kept_if_valid_and_never_made() {
        assert_eq!(take(&[("x-correlation-id", b"c-1")]).0.correlation.unwrap(), "c-1");
        for id in [b"".as_slice(), b"c 1"] {
            let (ids, fields) = take(&[("x-correlation-id", id)]);
            assert_eq!(ids.correlation, None);
            assert!(!fields.contains_key("x-correlation-id"));
        }
    }

    #[test]
    fn a_valid_traceparent_is_parsed_and_any_goes_on_byte_for_byte() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        for valid in [
            format!("00-{trace}-{span}-01"),
            format!("01-{trace}-{span}-00"),
            format!("cc-{trace}-{span}-00-later"),
        ] {
            let (ids, fields) = take(&[("traceparent", valid.as_bytes())]);
            let found = ids.trace.unwrap();
            assert_eq!((found.trace_id(), found.span_id()), (trace, span));
            assert_eq!(fields["traceparent"], valid);
        }
        for invalid in [
            String::new(),
            format!("00-{trace}-{span}-0"),
            format!("00-{trace}-{span}-01-x"),
            format!("00-{trace}-{span}-01x"),
            format!("cc-{trace}-{span}-01x"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00_{trace}_{span}_01"),
            format!("00-{trace}-{span}-0g"),
        ] {
            let (ids, fields) = take(&[("traceparent", invalid.as_bytes())]);
            assert_eq!(ids.trace, None, "{invalid}");
            assert_eq!(fields["traceparent"], invalid);
        }
    }
}
