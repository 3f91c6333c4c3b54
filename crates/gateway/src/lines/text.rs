//! What lines are written of: escaped text, numbers, addresses and moments, without the formatter
//! of the standard library, which costs several times as much.

use std::io::Write as _;
use std::net::IpAddr;

/// Appends `text` as the inside of a JSON string of at most `bound` bytes. What is not UTF-8
/// becomes U+FFFD; a text that is cut ends in an ellipsis.
pub(crate) fn json_text(out: &mut Vec<u8>, text: &[u8], bound: usize) {
    let end = out.len() + bound.saturating_sub(ELLIPSIS.len());
    // Nearly every text there is: nothing in it to escape, and short enough.
    if out.len() + text.len() <= end
        && text.iter().fold(true, |plain, byte| plain & is_plain(*byte))
    {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        let broken = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        for c in chunk.valid().chars().chain(broken.chars()) {
            let mut utf8 = [0; 4];
            let mut hex = *b"\\u0000";
            let escaped: &[u8] = match c {
                '"' => b"\\\"",
                '\\' => b"\\\\",
                '\n' => b"\\n",
                '\r' => b"\\r",
                '\t' => b"\\t",
                // Controls, and what some readers take for the end of a line.
                '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    let code = u32::from(c);
                    for (place, digit) in hex[2..].iter_mut().enumerate() {
                        *digit = HEX[(code >> (12 - 4 * place)) as usize & 15];
                    }
                    &hex
                }
                c => c.encode_utf8(&mut utf8).as_bytes(),
            };
            if out.len() + escaped.len() > end {
                out.extend_from_slice(ELLIPSIS);
                return;
            }
            out.extend_from_slice(escaped);
        }
    }
}

/// Whether a byte stands for itself in a JSON string.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Appends a number.
pub(crate) fn decimal(out: &mut Vec<u8>, number: impl Into<u64>) {
    out.extend_from_slice(itoa::Buffer::new().format(number.into()).as_bytes());
}

/// Appends an address.
pub(crate) fn ip(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (place, octet) in address.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push(b'.');
                }
                decimal(out, octet);
            }
        }
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Appends the last `DIGITS` digits of a number, zeros in front.
pub(crate) fn digits<const DIGITS: usize>(out: &mut Vec<u8>, mut number: u64) {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789"[usize::try_from(number % 10).unwrap_or(0)];
        number /= 10;
    }
    out.extend_from_slice(&text);
}

/// Appends a moment as `2026-01-31T23:59:59.123Z`; years above 9999 stop there.
pub(crate) fn utc(out: &mut Vec<u8>, unix_millis: u64) {
    let unix_millis = unix_millis.min(LAST_MILLI);
    let (days, in_day) = (unix_millis / DAY, unix_millis % DAY);
    // Days are counted in years that begin in March, so that a leap day ends its year.
    let day_of_era = days + DAYS_BEFORE_1970;
    let (era, day) = (day_of_era / DAYS_PER_ERA, day_of_era % DAYS_PER_ERA);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1000 % 60, in_day % 1000);
    digits::<4>(out, year);
    for (mark, part) in
        [(b'-', month), (b'-', day_of_month), (b'T', hour), (b':', minute), (b':', second)]
    {
        out.push(mark);
        digits::<2>(out, part);
    }
    out.push(b'.');
    digits::<3>(out, milli);
    out.push(b'Z');
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const ELLIPSIS: &[u8] = "…".as_bytes();
/// Milliseconds of a day.
const DAY: u64 = 86_400_000;
/// From 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: u64 = 719_468;
/// Days of 400 years.
const DAYS_PER_ERA: u64 = 146_097;
/// 9999-12-31T23:59:59.999Z.
const LAST_MILLI: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_cut_at_their_bound() {
        let check = |text: &[u8], bound| {
            let mut out = Vec::new();
            json_text(&mut out, text, bound);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(check(b"a\"b\\c\n\r\t\x01\x7f", 99), r#"a\"b\\c\n\r\t\u0001\u007f"#);
        assert_eq!(check("é\u{2028}\u{85}".as_bytes(), 99), "é\\u2028\\u0085");
        assert_eq!(check(b"a\xffb\xc3", 99), "a\u{fffd}b\u{fffd}");
        assert_eq!(check(b"abcdefgh", 11), "abcdefgh");
        assert_eq!(check(b"abcdefgh", 10), "abcdefg…");
        assert_eq!(check(b"abcde\n\n", 10), "abcde\\n…");
        assert_eq!(check(b"", 0), "");
    }

    #[test]
    fn moments_are_written_by_the_calendar() {
        for (seconds, milli, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (68_169_599, 999, "1972-02-28T23:59:59.999Z"),
            (68_169_600, 0, "1972-02-29T00:00:00.000Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.001Z"),
            (1_709_251_199, 0, "2024-02-29T23:59:59.000Z"),
            (1_767_225_599, 0, "2025-12-31T23:59:59.000Z"),
            (1_767_225_600, 20, "2026-01-01T00:00:00.020Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
            (u64::MAX / 1000, 0, "9999-12-31T23:59:59.999Z"),
        ] {
            let mut out = Vec::new();
            utc(&mut out, seconds * 1000 + milli);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
