//! What the reader of scenarios knows, taken down while it reads: a JSON Schema is made of it, so
//! that there is no second list of keys to go stale.
//!
//! Every key that is asked for is taken down with its form, whether a file has it or not; what is
//! inside a table, once a file has that. What was never looked into has no form, and may be
//! anything.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::Scenario;

/// What is known of a place in a file.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The keys of the table that may stand there.
    pub keys: Vec<String>,
    /// What else may.
    pub forms: Vec<Form>,
    /// It is as this other place, which is in no file.
    pub as_in: Option<&'static str>,
    /// It is a table by names that the file gives, each entry as this other place.
    pub by_name: Option<&'static str>,
}

/// What may stand somewhere.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// A text.
    Text,
    /// One of these words.
    Words(Vec<String>),
    /// `true` or `false`.
    Flag,
    /// A whole number, from and to.
    Count(u32, u32),
    /// A number, from and to.
    Number(f64, f64),
    /// A time with its unit.
    Duration,
    /// How many in which time.
    Rate,
    /// A share, as a percentage or a number.
    Ratio,
    /// A list of what is known of the place with `[]` after it.
    List,
}

/// Every place that was read or asked for in these files, by its path: dotted, with `[]` for any
/// entry of a list. Files that are wrong count as far as they are read.
#[must_use]
pub fn known(files: &[&str]) -> BTreeMap<String, Known> {
    TAKEN.with_borrow_mut(|taken| *taken = Some(BTreeMap::new()));
    for text in files {
        // What is wrong with one is told by whoever runs it.
        let _ = Scenario::parse("", text);
    }
    TAKEN.take().unwrap_or_default()
}

thread_local! {
    /// What this thread takes down, while it does.
    static TAKEN: RefCell<Option<BTreeMap<String, Known>>> = const { RefCell::new(None) };
}

/// A table with no other keys than these stands there; or, if it is read again by what it says,
/// with some of those.
pub(super) fn table(path: &str, keys: &[&str]) {
    note(path, |known| {
        for key in keys.iter().map(|key| (*key).to_owned()) {
            if !known.keys.contains(&key) {
                known.keys.push(key);
            }
        }
    });
}

/// This may stand there.
pub(super) fn form(path: &str, form: impl FnOnce() -> Form) {
    note(path, |known| {
        let form = form();
        if !known.forms.contains(&form) {
            known.forms.push(form);
        }
    });
}

/// What stands there is as in another place.
pub(super) fn as_in(path: &str, place: &'static str) {
    TAKEN.with_borrow_mut(|taken| {
        if let Some(taken) = taken {
            let path = any_entry(path);
            let end = path.rfind(['.', '[']).unwrap_or(0);
            let moved = format!("{}{}", elsewhere(taken, path[..end].to_owned()), &path[end..]);
            // What lies within is looked for by the path that it has in its file.
            taken.entry(path).or_default().as_in = Some(place);
            taken.entry(moved).or_default().as_in = Some(place);
        }
    });
}

/// A table by names that the file gives, each entry as in another place.
pub(super) fn by_name(path: &str, place: &'static str) {
    note(path, |known| known.by_name = Some(place));
}

fn note(path: &str, note: impl FnOnce(&mut Known)) {
    TAKEN.with_borrow_mut(|taken| {
        if let Some(taken) = taken {
            let path = elsewhere(taken, any_entry(path));
            note(taken.entry(path).or_default());
        }
    });
}

/// The path, or, if it lies within what is as in another place, the path there.
fn elsewhere(taken: &BTreeMap<String, Known>, path: String) -> String {
    let ends: Vec<_> =
        path.match_indices(['.', '[']).map(|(at, _)| at).chain([path.len()]).collect();
    let moved = ends.into_iter().rev().find_map(|at| {
        let place = taken.get(&path[..at])?.as_in?;
        Some(format!("{place}{}", &path[at..]))
    });
    moved.unwrap_or(path)
}

/// The path with `[]` for every number of an entry.
fn any_entry(path: &str) -> String {
    let mut out = String::new();
    let mut is_number = false;
    for c in path.chars() {
        is_number = c == '[' || (is_number && c != ']');
        if c == '[' || !is_number {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_is_asked_for_is_taken_down_whether_it_is_there_or_not() {
        let file = "schema = 1\n[[arm]]\nname = \"a\"\nrole = \"test\"\n[server]\nqueue = 1";
        let known = known(&[file]);
        assert!(known[""].keys.contains(&"server".to_owned()));
        assert_eq!(known["schema"].forms, [Form::Count(1, 1)]);
        let roles = ["test", "baseline", "control"].map(str::to_owned).to_vec();
        assert!(known["arm[].role"].forms.contains(&Form::Words(roles)));
        assert_eq!(known["arm"].forms, [Form::List]);
        assert!(super::known(&[]).is_empty(), "and nothing is left of it");
    }

    #[test]
    fn the_number_of_an_entry_is_left_out() {
        assert_eq!(any_entry("map.axis[12].points[0].name"), "map.axis[].points[].name");
    }
}
