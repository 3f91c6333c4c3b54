//! Hides users and passwords in what is shown of a configuration: errors end up in logs.
//!
//! In each word with an `@`, what stands before it is hidden: from behind `://`, or, where a colon
//! but no scheme comes before, from the word's first letter. What stands behind the keys `token`,
//! `secret` and `password` is hidden to the end of its line, unless it is the name of a variable
//! alone. Rather too much than a password.

use std::ops::Range;

/// A line without its credentials.
pub(super) struct Masked {
    text: String,
    /// For each byte of the line, and for its end, the characters shown before it.
    before: Vec<usize>,
}

impl Masked {
    pub(super) fn new(line: &str) -> Self {
        let hidden = credentials(line);
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

/// Where users and passwords stand.
fn credentials(line: &str) -> Vec<Range<usize>> {
    // Secrets first: they may hold what looks like a user.
    let mut found: Vec<_> = secret(line).into_iter().collect();
    let mut next = 0;
    for word in line.split_inclusive(char::is_whitespace) {
        let begin = next;
        next += word.len();
        let Some((user, _)) = word.rsplit_once('@') else { continue };
        let start = match user.find("://") {
            Some(scheme) => Some(scheme + "://".len()),
            None if user.contains(':') => user.find(char::is_alphanumeric),
            None => None,
        };
        if let Some(start) = start.filter(|start| *start < user.len()) {
            found.push(begin + start..begin + user.len());
        }
    }
    found
}

/// Where what the first key of a secret has begins, to the end of the line.
fn secret(line: &str) -> Option<Range<usize>> {
    KEYS.iter().filter_map(|key| behind(line, key)).min_by_key(|hidden| hidden.start)
}

fn behind(line: &str, key: &str) -> Option<Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(key).find_map(|(at, _)| {
        let rest = line[at + key.len()..].trim_start_matches(['\'', '"']).trim_start();
        if line[..at].ends_with(is_word) || !rest.starts_with(':') {
            return None;
        }
        let value = rest[1..].trim_start();
        let bare = value.trim_start_matches(['\'', '"']);
        let is_variable = bare
            .strip_prefix("${")
            .and_then(|name| name.split_once('}'))
            .is_some_and(|(name, rest)| {
                name.chars().all(is_word) && !rest.starts_with(|c| !" ,}'\"".contains(c))
            });
        let end = line.trim_end().len();
        let start = line.len() - value.len();
        // A second token on one line is rather too much.
        (!is_variable && start < end).then_some(start..end)
    })
}

/// Keys of secrets: ours, and those that somebody may take for ours.
const KEYS: [&str; 3] = ["token", "secret", "password"];
/// Stands for a user and a password, whatever their length.
const MASK: &str = "***";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_are_hidden_and_nothing_else_is() {
        for (line, shown) in [
            ("- http://me:secret@h:1", "- http://***@h:1"),
            ("['http://a:b@h:1', \"http://u@h\"]", "['http://***@h:1', \"http://***@h\"]"),
            ("http://me:se@cr:et/x@h:1 # é", "http://***@h:1 # é"),
            ("[me:secret@h:1]", "[***@h:1]"),
            ("ünï:geheim@h", "***@h"),
            ("http://h:1, http://i:2", "http://h:1, http://i:2"),
            ("reason: ask ops@example.com", "reason: ask ops@example.com"),
            ("http://@h", "http://@h"),
            ("a: @b", "a: @b"),
            ("  token: geheim", "  token: ***"),
            ("admin: {\"token\" : 'a b', x: 1}", "admin: {\"token\" : ***"),
            ("token: me:x@y", "token: ***"),
            ("token: ${NAME}, address: x", "token: ${NAME}, address: x"),
            ("token: \"${NAME}\"", "token: \"${NAME}\""),
            ("token: ${NAME:-geheim}", "token: ***"),
            ("token: ${NAME}geheim", "token: ***"),
            ("max_tokens: 100, token_ratio: 0.1", "max_tokens: 100, token_ratio: 0.1"),
            ("max_token: 1", "max_token: 1"),
            ("a: {secret: geheim, token: geheim}", "a: {secret: ***"),
            ("a: {password: geheim, token: ${NAME}}", "a: {password: ***"),
            ("token:", "token:"),
            ("", ""),
        ] {
            assert_eq!(Masked::new(line).text(), shown);
        }
    }

    #[test]
    fn places_behind_a_mask_are_those_of_what_is_shown() {
        let line = "- http://me:secret@ü:1";
        let masked = Masked::new(line);
        for (text, before) in [("http", 2), ("me", 9), ("secret", 12), ("@", 12), (":1", 14)] {
            assert_eq!(masked.chars_before(line.rfind(text).unwrap()), before, "{text}");
        }
        assert_eq!(masked.chars_before(line.len()), 16);
        assert_eq!(masked.chars_before(999), 16);
    }
}
