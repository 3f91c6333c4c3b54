//! Reads on where something is wrong, so that a person is told of everything at once.
//!
//! | what is wrong | how the rest is read |
//! |---|---|
//! | by itself: a unit, a word, a range | without it |
//! | a key that means nothing | as the key it looks like, or without it |
//! | nothing is there, or not what goes with something else | with a section that is right in place of its own |
//!
//! What may only follow from a mistake before it is not told: what is missing where something was
//! left out, and what does not go together with what was.

use super::mistake::{Mistake, Wrong};
use super::node::{Entry, Node, Value};
use super::section::Read;

/// Mistakes that were told.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<Mistake>);

impl Told {
    /// What is read of a node. If something is wrong, it is told, and what is read is what is left.
    pub(super) fn read<T>(&mut self, node: &Node, read: impl Fn(&Node) -> Read<T>) -> Option<T> {
        self.mended(node, read).1
    }

    /// The same, and the node without what is wrong.
    pub(super) fn mended<T>(
        &mut self,
        node: &Node,
        read: impl Fn(&Node) -> Read<T>,
    ) -> (Node, Option<T>) {
        let mut rest = node.clone();
        // Parts that are not as they were written.
        let mut spoiled: Vec<String> = Vec::new();
        loop {
            let mistake = match read(&rest) {
                Ok(read) => return (rest, Some(read)),
                Err(mistake) => mistake,
            };
            let part = part(&mistake.field).to_owned();
            let is_clean = !spoiled.contains(&part);
            let is_told = match mistake.kind {
                Wrong::Alone | Wrong::Key(_) => true,
                Wrong::Missing => is_clean,
                Wrong::Together => spoiled.is_empty() || (is_clean && stands_alone(&part)),
            };
            if is_told {
                self.tell(mistake.clone());
            }
            let is_mended = match &mistake.kind {
                Wrong::Alone => leave_out(&mut rest, mistake.at),
                Wrong::Key(near) => rename(&mut rest, mistake.at, near.as_deref()),
                Wrong::Missing | Wrong::Together => {
                    let set_aside = format!("{part} set aside");
                    let is_first = !spoiled.contains(&set_aside);
                    spoiled.push(set_aside);
                    is_first && stand_in(&mut rest, &part)
                }
            };
            spoiled.push(part);
            if !is_mended || self.0.len() >= MOST_TOLD {
                return (rest, None);
            }
        }
    }

    /// Tells one, unless it was.
    pub(super) fn tell(&mut self, mistake: Mistake) {
        let is_known = |known: &Mistake| {
            (known.at, &known.field, &known.said) == (mistake.at, &mistake.field, &mistake.said)
        };
        if !self.0.iter().any(is_known) {
            self.0.push(mistake);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by their places.
    pub(super) fn all(mut self) -> Vec<Mistake> {
        self.0.sort_by_key(|mistake| mistake.at);
        self.0.truncate(MOST_TOLD);
        self.0
    }
}

/// The part of a file that a field belongs to: an entry of a list, a service, or a section.
fn part(field: &str) -> &str {
    let names = if field.starts_with("service.") { 1 } else { 0 };
    let end = field.match_indices('.').nth(names).map_or(field.len(), |(at, _)| at);
    &field[..end]
}

/// Whether what does not go together there has nothing to do with other parts.
fn stands_alone(part: &str) -> bool {
    let alone = ["run", "calls", "network", "server", "policy", "baseline"];
    alone.contains(&part) || part.starts_with("service.") || part.ends_with(']')
}

/// Takes out the entry with what stands at a place.
fn leave_out(node: &mut Node, at: usize) -> bool {
    match &mut node.value {
        Value::List(nodes) => nodes.iter_mut().any(|node| leave_out(node, at)),
        Value::Table(entries) => {
            if entries.iter_mut().any(|entry| leave_out(&mut entry.node, at)) {
                return true;
            }
            let holds = |entry: &Entry| {
                let is_in_list =
                    |node: &Node| matches!(&node.value, Value::List(_)) && has(node, at);
                entry.at == at || entry.node.at == at || is_in_list(&entry.node)
            };
            let place = entries.iter().position(holds);
            place.map(|place| entries.remove(place)).is_some()
        }
        Value::Text(_) | Value::Bare(_) => false,
    }
}

/// Whether anything of a list stands at a place.
fn has(list: &Node, at: usize) -> bool {
    let Value::List(nodes) = &list.value else { return list.at == at };
    nodes.iter().any(|node| node.at == at || has(node, at))
}

/// Gives the key at a place the name that was meant, or takes it out if that is there as well.
fn rename(node: &mut Node, at: usize, near: Option<&str>) -> bool {
    match &mut node.value {
        Value::List(nodes) => nodes.iter_mut().any(|node| rename(node, at, near)),
        Value::Table(entries) => {
            if entries.iter_mut().any(|entry| rename(&mut entry.node, at, near)) {
                return true;
            }
            let Some(place) = entries.iter().position(|entry| entry.at == at) else {
                return false;
            };
            match near.filter(|near| entries.iter().all(|entry| entry.key != *near)) {
                Some(near) => near.clone_into(&mut entries[place].key),
                None => drop(entries.remove(place)),
            }
            true
        }
        Value::Text(_) | Value::Bare(_) => false,
    }
}

/// Puts what is right in place of a part, or takes it out where nothing has to be there.
fn stand_in(file: &mut Node, part: &str) -> bool {
    let (section, rest) = part.split_at(part.find(['.', '[']).unwrap_or(part.len()));
    let right = STAND_INS.iter().find(|(known, _)| *known == section);
    let right = right.and_then(|(_, text)| Node::parse(text).ok()).and_then(|node| node.first());
    let Value::Table(entries) = &mut file.value else { return false };
    let place = entries.iter().position(|entry| entry.key == section);
    match (place, right) {
        (None, None) => return false,
        (Some(place), None) => drop(entries.remove(place)),
        (None, Some(node)) => {
            entries.push(Entry { key: section.to_owned(), at: usize::MAX, node });
        }
        (Some(place), Some(right)) => match &mut entries[place].node.value {
            Value::List(nodes) => {
                let number = rest.trim_matches(['[', ']']).parse::<usize>().ok();
                let Some(node) = number.and_then(|number| nodes.get_mut(number)) else {
                    return false;
                };
                *node = right;
            }
            Value::Table(services) if section == "service" => {
                let name = rest.trim_start_matches('.');
                let Some(one) = services.iter_mut().find(|entry| entry.key == name) else {
                    return false;
                };
                one.node = right;
            }
            _ => entries[place].node = right,
        },
    }
    true
}

/// What is right, whatever the rest says.
const STAND_INS: [(&str, &str); 12] = [
    ("schema", "x = 1"),
    ("name", "x = 'x'"),
    ("title", "x = 'x'"),
    ("shows", "x = 'x'"),
    ("matters", "x = 'x'"),
    ("change", "x = 'x'"),
    ("run", "x = { calls_until = '1s' }"),
    ("calls", "x = { rate = '1/s' }"),
    ("fleet", "x = { clients = 1 }"),
    ("server", "x = { service = '1ms' }"),
    ("service", "x = { service = '1ms' }"),
    ("fault", "x = { from = '0s', for = '1ms', do = 'clock', ahead = '1s' }"),
];
/// Mistakes that are told at once. Source: own choice (more than anybody reads).
const MOST_TOLD: usize = 40;
