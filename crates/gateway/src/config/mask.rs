//! What is shown of a line of the file: errors end up in logs.
//!
//! Shown are the keys, the values that are known to be harmless (`harmless`), and the brackets,
//! colons and commas around them; all else is `***`, a comment too. Where the file is no YAML
//! nothing is known about its values, and only keys of ours are shown.

use std::ops::Range;

use super::harmless::{Span, is_key_of_ours};

/// A line without its secrets.
pub(super) struct Masked {
    text: String,
    /// For each byte of the line, and for its end, the characters shown before it.
    before: Vec<usize>,
}

impl Masked {
    /// The line that begins at byte `start` of the file; `spans` are nothing where the file is no
    /// YAML.
    pub(super) fn new(line: &str, start: usize, spans: Option<&[Span]>) -> Self {
        let hidden = hidden(line, &sights(line, start, spans));
        let mut masked = Self { text: String::new(), before: Vec::with_capacity(line.len() + 1) };
        let mut shown = 0;
        for (at, c) in line.char_indices() {
            masked.before.extend(std::iter::repeat_n(shown, c.len_utf8()));
            match hidden.iter().find(|range| range.contains(&at)) {
                Some(range) if range.start == at => {
                    masked.text.push_str(MASK);
                    shown += MASK.len();
                }
                Some(_) => {}
                None => {
                    masked.text.push(c);
                    shown += 1;
                }
            }
        }
        masked.before.push(shown);
        masked
    }

    /// What may be shown.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How many characters are shown of what came before this byte of the line.
    pub(super) fn chars_before(&self, byte: usize) -> usize {
        self.before.get(byte).or(self.before.last()).copied().unwrap_or(0)
    }
}

/// What is known of a byte of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Of a key, or of a harmless value.
    Shown,
    /// Of another value.
    Hidden,
    /// Between them: brackets, comments, and whatever YAML has.
    Between,
}

fn sights(line: &str, start: usize, spans: Option<&[Span]>) -> Vec<Sight> {
    let mut sights = vec![Sight::Between; line.len()];
    let Some(spans) = spans else {
        for key in keys(line) {
            sights[key].fill(Sight::Shown);
        }
        return sights;
    };
    let end = start + line.len();
    let within = |span: &&Span| span.place.start < end && start < span.place.start + span.place.len;
    // What is hidden under one name is so under all: an alias is a second one.
    for (shown, sight) in [(true, Sight::Shown), (false, Sight::Hidden)] {
        for span in spans.iter().filter(within).filter(|span| span.shown == shown) {
            let from = span.place.start.max(start) - start;
            let to = (span.place.start + span.place.len).min(end) - start;
            sights[from..to].fill(sight);
        }
    }
    sights
}

/// Where keys of ours stand, as far as a line alone can tell.
fn keys(line: &str) -> Vec<Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut found = Vec::new();
    for (colon, _) in line.match_indices(':') {
        let start = line[..colon]
            .rfind(|c| !is_word(c))
            .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
        if is_key_of_ours(&line[start..colon]) {
            found.push(start..colon);
        }
    }
    found
}

/// What is masked: between two things shown all at once, but for the brackets at its ends.
fn hidden(line: &str, sights: &[Sight]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let is_masked = |(at, c): &(usize, char)| match sights[*at] {
        Sight::Shown => false,
        Sight::Hidden => true,
        Sight::Between => !c.is_whitespace() && !"{}[],:-".contains(*c),
    };
    let mut open: Option<Range<usize>> = None;
    for (at, c) in line.char_indices() {
        if sights[at] == Sight::Shown {
            found.extend(open.take());
        } else if is_masked(&(at, c)) {
            let end = at + c.len_utf8();
            open = Some(open.map_or(at, |range| range.start)..end);
        }
    }
    found.extend(open);
    found
}

/// Stands for what is hidden, whatever its length.
pub(super) const MASK: &str = "***";

#[cfg(test)]
mod tests {
    use super::super::report::Place;
    use super::*;

    #[test]
    fn where_nothing_is_known_keys_of_ours_are_shown_and_nothing_else_is() {
        for (line, shown) in [
            ("upstreams: [", "upstreams: ["),
            ("  token: geheim", "  token: ***"),
            ("admin: {\"token\" : 'a b', x: 1}", "admin: {***}"),
            ("  - {name: X-Key, exact: geheim ]", "  - {name: ***, exact: *** ]"),
            ("    geheim: ünï", "    ***"),
            ("ünï:token: 1", "***:token: ***"),
            ("  # token is geheim", "  ***"),
            ("", ""),
        ] {
            assert_eq!(Masked::new(line, 0, None).text(), shown);
        }
    }

    #[test]
    fn what_is_hidden_once_is_hidden_and_carets_know_it() {
        let line = "a: sesame, b: ü1 # geheim";
        let span =
            |start: usize, len, shown| Span { place: Place { start: 100 + start, len }, shown };
        let spans = [
            span(0, 1, true),
            span(3, 6, true),
            span(3, 6, false),
            span(11, 1, true),
            span(14, 3, true),
        ];
        let masked = Masked::new(line, 100, Some(&spans));
        assert_eq!(masked.text(), "a: ***, b: ü1 ***");
        for (text, before) in [("sesame", 3), (",", 6), ("b", 8), ("1", 12), ("geheim", 17)] {
            assert_eq!(masked.chars_before(line.rfind(text).unwrap()), before, "{text}");
        }
        assert_eq!(masked.chars_before(999), 17);
    }
}
