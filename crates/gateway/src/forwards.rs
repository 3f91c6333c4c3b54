//! `Max-Forwards`: how many more hops a TRACE or an OPTIONS may take.
//! Source: RFC 9110 section 7.6.2.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Takes this hop off, and returns whether the request may go on. Of other methods, and where the
/// field came twice or is no number, nothing is changed and it may.
pub(crate) fn count_hop(method: &Method, fields: &mut HeaderMap) -> bool {
    if !matches!(*method, Method::TRACE | Method::OPTIONS) {
        return true;
    }
    let mut values = fields.get_all(&MAX_FORWARDS).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return true };
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return true;
    }
    // More than we can count is as good as the most that we can.
    let left = value.to_str().ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(u64::MAX);
    let Some(onward) = left.checked_sub(1) else { return false };
    fields.insert(MAX_FORWARDS, HeaderValue::from(onward));
    true
}

const MAX_FORWARDS: HeaderName = HeaderName::from_static("max-forwards");

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, stated: &[&str], goes_on: bool, onward: &[&str]) {
        let mut fields = HeaderMap::new();
        for value in stated {
            fields.append(MAX_FORWARDS, value.parse().unwrap());
        }
        assert_eq!(count_hop(method, &mut fields), goes_on, "{method} {stated:?}");
        let left: Vec<_> = fields.get_all(MAX_FORWARDS).iter().collect();
        assert_eq!(left, onward, "{method} {stated:?}");
    }

    #[test]
    fn trace_and_options_go_as_many_hops_as_they_may() {
        for method in [Method::TRACE, Method::OPTIONS] {
            check(&method, &["0"], false, &["0"]);
            check(&method, &["00"], false, &["00"]);
            check(&method, &["1"], true, &["0"]);
            check(&method, &["10"], true, &["9"]);
            check(&method, &["99999999999999999999"], true, &["18446744073709551614"]);
            check(&method, &[], true, &[]);
        }
    }

    #[test]
    fn what_is_no_number_or_for_other_methods_goes_on_as_it_came() {
        for stated in [&["-1"][..], &["+1"], &[""], &["x"], &["0", "0"]] {
            check(&Method::TRACE, stated, true, stated);
        }
        check(&Method::GET, &["0"], true, &["0"]);
    }
}
