//! Refuses a request whose length two readers could see differently.
//!
//! hyper's server refuses most of it before anyone is asked: differing or unreadable lengths, a
//! last transfer coding that is not `chunked`, a transfer coding on HTTP/1.0, folded lines, control
//! characters. Of a length beside a transfer coding it drops the length and closes after the
//! answer. What it lets through is refused here: codings before `chunked`, `chunked` twice.

use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, Version};

use super::has;
use crate::refusal::Refusal;

/// Holds the length of a request against the rules, the number of its fields against
/// `fields_max` and its expectation against what we can meet.
///
/// # Errors
///
/// [`Refusal::TooManyFields`], [`Refusal::Malformed`], [`Refusal::UnknownCoding`],
/// [`Refusal::UnknownExpectation`].
pub(crate) fn check_framing(
    fields: &HeaderMap,
    version: Version,
    fields_max: usize,
) -> Result<(), Refusal> {
    if fields.len() > fields_max {
        return Err(Refusal::TooManyFields);
    }
    check_length(fields)?;
    check_coding(fields, version)?;
    let known = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if has(fields, &EXPECT) && !fields.get_all(EXPECT).iter().all(known) {
        return Err(Refusal::UnknownExpectation);
    }
    Ok(())
}

fn check_length(fields: &HeaderMap) -> Result<(), Refusal> {
    if !has(fields, &CONTENT_LENGTH) {
        return Ok(());
    }
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(()) };
    let is_number = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
    if lengths.next().is_some() || !is_number || fields.contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::Malformed("contradictory length"));
    }
    Ok(())
}

fn check_coding(fields: &HeaderMap, version: Version) -> Result<(), Refusal> {
    if !has(fields, &TRANSFER_ENCODING) {
        return Ok(());
    }
    let mut lines = fields.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = lines.next() else { return Ok(()) };
    if version != Version::HTTP_11 {
        return Err(Refusal::Malformed("transfer coding outside HTTP/1.1"));
    }
    if lines.next().is_some() {
        return Err(Refusal::Malformed("more than one transfer coding"));
    }
    if coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let codings = coding.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    if codings.filter(|coding| coding.eq_ignore_ascii_case(b"chunked")).count() > 1 {
        return Err(Refusal::Malformed("chunked twice"));
    }
    Err(Refusal::UnknownCoding)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(version: Version, lines: &[(&'static str, &str)], expected: Option<u16>) {
        let mut fields = HeaderMap::new();
        for &(name, value) in lines {
            fields.append(name, HeaderValue::from_str(value).unwrap());
        }
        let found = check_framing(&fields, version, 3);
        assert_eq!(found.err().map(|found| found.status().as_u16()), expected, "{lines:?}");
    }

    #[test]
    fn a_length_is_one_number() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            check(version, &[("content-length", "5")], None);
            check(version, &[("content-length", "0")], None);
            check(version, &[], None);
            for value in ["", "+5", "-5", "5, 5", "0x5", "5 5", "5a"] {
                check(version, &[("content-length", value)], Some(400));
            }
            check(version, &[("content-length", "5"), ("content-length", "5")], Some(400));
        }
    }

    #[test]
    fn the_only_coding_is_chunked_once_on_http_1_1() {
        let version = Version::HTTP_11;
        let coding = "transfer-encoding";
        check(version, &[(coding, "chunked")], None);
        check(version, &[(coding, "Chunked")], None);
        check(version, &[(coding, "chunked, chunked")], Some(400));
        check(version, &[(coding, "chunked"), (coding, "chunked")], Some(400));
        check(version, &[(coding, "identity"), (coding, "chunked")], Some(400));
        check(version, &[(coding, "chunked"), ("content-length", "5")], Some(400));
        for value in ["gzip, chunked", "gzip", "identity", "xchunked", "chunked;q=1", ""] {
            check(version, &[(coding, value)], Some(501));
        }
        check(Version::HTTP_10, &[(coding, "chunked")], Some(400));
        check(Version::HTTP_2, &[(coding, "chunked")], Some(400));
    }

    #[test]
    fn fields_are_counted_by_line_and_the_limit_itself_is_allowed() {
        let three = [("a", "1"), ("a", "2"), ("b", "1")];
        check(Version::HTTP_11, &three, None);
        check(Version::HTTP_11, &[three.as_slice(), &[("a", "3")]].concat(), Some(431));
    }

    #[test]
    fn only_100_continue_is_expected_of_us() {
        check(Version::HTTP_11, &[("expect", "100-Continue")], None);
        check(Version::HTTP_11, &[("expect", "200-ok")], Some(417));
        check(Version::HTTP_11, &[("expect", "100-continue"), ("expect", "x")], Some(417));
    }
}
