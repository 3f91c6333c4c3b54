//! Reads the sections `server` and `service`: what can be called, and what calls what.
//!
//! Services have names, by which calls, faults and thresholds mean them; `[server]` is the short
//! form for a single one. What a service calls is told with it: `calls` step by step, each a name
//! or one of several, and the policies of its servers' processes as `policy`, with `policy_for` by
//! name where one target is called otherwise.

use std::time::Duration;

use seawall_policy::StackParams;

use super::known::{self, Form};
use super::mistake::Mistake;
use super::node::{Node, Value};
use super::policy::{KEYS, cancels, policy};
use super::section::{LONGEST_RUN, Read, Section};
use super::server;
use crate::fleet::{Dies, Keys, Pick, Service, Target};

/// Keys of a service that say what its servers are, beside those of a server.
const ALIKE: [&str; 4] = ["count", "pick", "dies_at", "restarts_in"];
/// Keys that say what it calls.
const CALLS: [&str; 6] = ["calls", "policy", "policy_for", "policies", "says_stop", "deadlines"];

/// The services of a file by name: those of `service`, or the one that `server` is.
pub(super) fn services(section: &Section<'_>) -> Read<Vec<Service>> {
    known::by_name("service", "(service)");
    match (section.node("server"), section.node("service")) {
        (Some(node), None) => {
            let server = Section::new(node, "server", &[&ALIKE[..], &server::KEYS].concat())?;
            Ok(vec![one(&server, "server", &[])?])
        }
        (None, Some(node)) => {
            let names = tables(node)?;
            let read = |(name, node): &(String, &Node)| {
                let keys = [&ALIKE[..], &server::KEYS, &CALLS].concat();
                let path = format!("service.{name}");
                known::as_in(&path, "(service)");
                let service = Section::new(node, &path, &keys)?;
                let all: Vec<_> = names.iter().map(|(name, _)| name.clone()).collect();
                one(&service, name, &all)
            };
            names.iter().map(read).collect()
        }
        (Some(_), Some(_)) => {
            let said = "is the only service where it is said; leave it out, or `service`";
            Err(Mistake::new(section.at("server"), "server", said))
        }
        (None, None) => Err(section.missing("server")),
    }
}

/// The tables of a section by their names.
fn tables(node: &Node) -> Read<Vec<(String, &Node)>> {
    let Value::Table(entries) = &node.value else {
        return Err(Mistake::refused(node.at, "service", node.shown(), "tables, [service.NAME]"));
    };
    if entries.is_empty() || entries.len() > MOST_SERVICES {
        let allowed = format!("1 to {MOST_SERVICES} services");
        return Err(Mistake::refused(node.at, "service", entries.len(), allowed));
    }
    Ok(entries.iter().map(|entry| (entry.key.clone(), &entry.node)).collect())
}

fn one(section: &Section<'_>, name: &str, all: &[String]) -> Read<Service> {
    let picks = [("policy", Pick::Policy), ("name", Pick::Name), ("key", Pick::Key)];
    let host = server::host(section)?;
    let servers = section.count("count", 1..=10_000)?.unwrap_or(1);
    let outward = Outward::read(section, all)?;
    if let Some(policy) = section.node("policy") {
        no_connect(policy, &section.path("policy"))?;
    }
    let is_together = together(section)?;
    known::as_in(&format!("{}[]", section.path("calls")), "(target)");
    let calls = match section.node("calls") {
        None => Vec::new(),
        Some(_) => {
            let steps = section.list("calls")?;
            let step = |(path, node): &(String, &Node)| targets(node, path, all, &outward);
            steps.iter().map(step).collect::<Read<Vec<_>>>()?
        }
    };
    if calls.is_empty() {
        for key in &CALLS[1..] {
            if section.node(key).is_some() {
                let said = "says how others are called, and this service calls none";
                return Err(Mistake::new(section.at(key), &section.path(key), said));
            }
        }
    }
    outward.check(&calls.concat())?;
    Ok(Service {
        pick: section.choice("pick", &picks)?.unwrap_or(Pick::Policy),
        calls,
        is_together,
        says_stop: section.flag("says_stop")?.unwrap_or(true),
        cancels: cancels(section)?,
        deadlines: section.flag("deadlines")?.unwrap_or(false),
        dies: dies(section)?,
        ..Service::new(name, servers, host, outward.policy.clone())
    })
}

fn dies(section: &Section<'_>) -> Read<Option<Dies>> {
    let at = section.count("dies_at", 1..=100_000_000)?;
    let least = Duration::from_millis(1);
    let restarts_in = section.duration("restarts_in", least..=LONGEST_RUN)?;
    match (at, restarts_in) {
        (Some(at), Some(restarts_in)) => Ok(Some(Dies { at, restarts_in })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(section.missing("restarts_in")),
        (None, Some(_)) => Err(section.missing("dies_at")),
    }
}

/// How processes alike call others.
pub(super) struct Outward {
    pub(super) policy: StackParams,
    /// For single targets, by the place of the target, each with its own place in the file.
    others: Vec<(u32, StackParams, usize, String)>,
}

impl Outward {
    /// Reads `policy` and `policy_for` of a section.
    pub(super) fn read(section: &Section<'_>, all: &[String]) -> Read<Self> {
        let empty = Node { at: 0, value: Value::Table(Vec::new()) };
        let node = section.node("policy").unwrap_or(&empty);
        let mut read =
            Self { policy: params(section, node, &section.path("policy"))?, others: Vec::new() };
        known::by_name(&section.path("policy_for"), "(policy)");
        let Some(names) = section.node("policy_for") else { return Ok(read) };
        let Value::Table(entries) = &names.value else {
            return Err(section.refused("policy_for", "tables by the name of a service"));
        };
        for entry in entries {
            let path = format!("{}.{}", section.path("policy_for"), entry.key);
            let Some(place) = place_of(&entry.key, all) else {
                let allowed = format!("one of {}", all.join(", "));
                return Err(Mistake::refused(entry.at, &path, &entry.key, allowed));
            };
            known::as_in(&path, "(policy)");
            let one = Section::new(&entry.node, &path, &KEYS)?;
            if one.node("on_abandon").is_some() {
                let said = "is one for all that a process calls; say it in its policy";
                return Err(Mistake::new(one.at("on_abandon"), &one.path("on_abandon"), said));
            }
            no_connect(&entry.node, &path)?;
            // Laid over what holds for all.
            let params = params(section, &node.under(&entry.node), &path)?;
            read.others.push((place, params, entry.at, path));
        }
        Ok(read)
    }

    /// Refuses a policy for what is not called.
    pub(super) fn check(&self, targets: &[Target]) -> Read<()> {
        for (place, _, at, path) in &self.others {
            if !targets.iter().any(|target| target.service == *place) {
                return Err(Mistake::new(*at, path, "is not called from here"));
            }
        }
        Ok(())
    }

    pub(super) fn target(&self, service: u32, share: f64) -> Target {
        let other = self.others.iter().find(|(place, ..)| *place == service);
        Target { service, share, policy: other.map(|(_, params, ..)| params.clone()) }
    }
}

/// Whether a process has one state of its policies for all that it calls.
pub(super) fn together(section: &Section<'_>) -> Read<bool> {
    Ok(section.choice("policies", &[("each", false), ("one", true)])?.unwrap_or(false))
}

/// Only clients wait to be let in, and all of them alike.
fn no_connect(policy: &Node, path: &str) -> Read<()> {
    let Some(timeouts) = Section::new(policy, path, &KEYS)?.node("timeouts") else {
        return Ok(());
    };
    if timeouts.has("connect") {
        let path = format!("{path}.timeouts.connect");
        let said = "is that of clients, one for all; say it in `policy`";
        return Err(Mistake::new(timeouts.at, &path, said));
    }
    Ok(())
}

fn params(section: &Section<'_>, node: &Node, path: &str) -> Read<StackParams> {
    StackParams::new(&policy(node, path)?).map_err(|error| section.by(&error, "policy"))
}

/// What is called: a name, one of several names, or names with their shares.
pub(super) fn targets(
    node: &Node,
    path: &str,
    all: &[String],
    outward: &Outward,
) -> Read<Vec<Target>> {
    known::as_in(path, "(target)");
    known::form(path, || Form::Text);
    known::form(path, || Form::List);
    known::form(&format!("{path}[]"), || Form::Text);
    match &node.value {
        Value::Text(name) => Ok(vec![outward.target(named(node.at, path, name, all)?, 1.0)]),
        Value::List(_) => one_of(node, path, all, outward),
        Value::Table(_) => {
            let section = Section::new(node, path, &["one_of"])?;
            known::form(&section.path("one_of"), || Form::List);
            known::form(&format!("{}[]", section.path("one_of")), || Form::Text);
            known::by_name(&section.path("one_of"), "(share)");
            known::form("(share)", || Form::Ratio);
            let inner = section.node("one_of").ok_or_else(|| section.missing("one_of"))?;
            one_of(inner, &section.path("one_of"), all, outward)
        }
        Value::Bare(_) => {
            Err(Mistake::refused(node.at, path, node.shown(), "a name in quotes").alone())
        }
    }
}

/// The place of the service of this name.
pub(super) fn named(at: usize, path: &str, name: &str, all: &[String]) -> Read<u32> {
    let allowed = || format!("the name of a service: {}", all.join(", "));
    place_of(name, all).ok_or_else(|| Mistake::refused(at, path, name, allowed()))
}

fn one_of(node: &Node, path: &str, all: &[String], outward: &Outward) -> Read<Vec<Target>> {
    match &node.value {
        Value::List(names) if !names.is_empty() => names
            .iter()
            .map(|name| Ok(outward.target(named(name.at, path, &name.shown(), all)?, 1.0)))
            .collect(),
        Value::Table(shares) if !shares.is_empty() => {
            let keys: Vec<_> = all.iter().map(String::as_str).collect();
            let section = Section::new(node, path, &keys)?;
            let share = |name: &String| -> Read<Target> {
                let share = section.share(name)?.unwrap_or(0.0);
                if share <= 0.0 {
                    return Err(section.refused(name, "a share above 0%, like 30%").alone());
                }
                Ok(outward.target(named(node.at, path, name, all)?, share))
            };
            shares.iter().map(|entry| share(&entry.key)).collect()
        }
        _ => {
            let allowed = "names in a list, or a table of names with their shares";
            Err(Mistake::refused(node.at, path, node.shown(), allowed))
        }
    }
}

/// What calls are about: how many keys, alike or by Zipf's law.
pub(super) fn keys(section: &Section<'_>) -> Read<Option<Keys>> {
    known::form(&section.path("keys"), || Form::Count(1, 1_000_000));
    known::table(&section.path("keys"), &["count", "zipf"]);
    let Some(node) = section.node("keys") else { return Ok(None) };
    if !matches!(node.value, Value::Table(_)) {
        let count = section.count("keys", 1..=1_000_000)?.unwrap_or(1);
        return Keys::alike(count).map(Some).map_err(|error| section.by(&error, "keys"));
    }
    let law = Section::new(node, &section.path("keys"), &["count", "zipf"])?;
    let count = law.count("count", 1..=1_000_000)?.ok_or_else(|| law.missing("count"))?;
    let exponent = law.number("zipf", 0.001..=5.0)?.ok_or_else(|| law.missing("zipf"))?;
    Keys::zipf(count, exponent).map(Some).map_err(|error| law.by(&error, "zipf"))
}

fn place_of(name: &str, all: &[String]) -> Option<u32> {
    all.iter().position(|known| known == name).and_then(|place| u32::try_from(place).ok())
}

/// Source: own choice (as a fleet has).
const MOST_SERVICES: usize = 64;
