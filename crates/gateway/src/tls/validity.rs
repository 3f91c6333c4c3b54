//! Reads from a certificate when it begins and ceases to be valid.
//!
//! The files come from whoever runs us, and what they hold was checked by the TLS library before;
//! this is for warnings and a metric alone. So what cannot be read is only not told.

/// Seconds since the Unix epoch, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

impl Validity {
    /// Reads the DER of a certificate. Source: RFC 5280 section 4.1.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
        let (SEQUENCE, mut fields, _) = element(certificate)? else { return None };
        if let (VERSION, _, rest) = element(fields)? {
            fields = rest;
        }
        // Serial number, signature algorithm, issuer.
        for _ in 0..3 {
            (_, _, fields) = element(fields)?;
        }
        let (SEQUENCE, validity, _) = element(fields)? else { return None };
        let (kind, not_before, rest) = element(validity)?;
        let not_before = time(kind, not_before)?;
        let (kind, not_after, _) = element(rest)?;
        Some(Self { not_before, not_after: time(kind, not_after)? })
    }
}

/// The tag and the content of the first element, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time(kind: u8, text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b"Z")?;
    let number = |digits: &[u8]| {
        let text = std::str::from_utf8(digits).ok()?;
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?
    };
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let &[a, b, c, d, e, f, g, h, i, j] = rest else { return None };
    let [month, day, hour, minute, second] =
        [number(&[a, b])?, number(&[c, d])?, number(&[e, f])?, number(&[g, h])?, number(&[i, j])?];
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
        return None;
    }
    // Days are counted in years that begin in March, so that a leap day ends its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(DAYS_BEFORE_1970)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

const SEQUENCE: u8 = 0x30;
/// The version's tag: explicit, context 0.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// From 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_across_leap_days_and_centuries() {
        for (kind, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229123456Z", Some(951_827_696)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "20500101000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700001000000Z", None),
            (UTC_TIME, "70010100000+Z", None),
            (GENERALIZED_TIME, "19691231235959Z", None),
            (0x02, "700101000000Z", None),
        ] {
            assert_eq!(time(kind, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_validity_of_a_certificate_is_read_and_no_cut_of_it_panics() {
        let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 2, 3);
        params.not_after = rcgen::date_time_ymd(2051, 4, 5);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let der = certificate.der();
        let expected = Validity { not_before: 981_158_400, not_after: 2_564_265_600 };
        assert_eq!(Validity::of(der), Some(expected));
        for cut in 0..der.len() {
            let _ = Validity::of(&der[..cut]);
            let mut broken = der.to_vec();
            broken[cut] ^= 0xff;
            let _ = Validity::of(&broken);
        }
        assert_eq!(Validity::of(&[]), None);
    }
}
