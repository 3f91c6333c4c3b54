//! What is simulated: a fleet, or one of the models that are none; as a case and an arm of a file
//! have it.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::units::parse_rate;
use seawall_policy::{ConfigError, Safety, Timestamp};

use super::advice::{advice, load};
use super::calls;
use super::course::USUAL;
use super::known::{self, Form};
use super::mistake::Mistake;
use super::node::{Node, Value};
use super::policy::{baseline, cancels, connect};
use super::section::{LONGEST_RUN, Read, Section, duration};
use super::service::{Outward, keys, named, services, targets, together};
use super::threshold::Unit;
use crate::fault::{Fault, Trouble};
use crate::fleet::{Fleet, Network, Sharing};
use crate::models::{KINDS, Kind, Setup};
use crate::span::Span;

/// One model, ready to be run with any seed.
#[derive(Clone, Debug)]
pub(super) enum Model {
    Fleet(Box<Fleet>),
    Setup(&'static Kind, Arc<dyn Setup>),
}

/// The sections of a file that describe a fleet.
const FLEET: [&str; 10] = [
    "run",
    "calls",
    "fleet",
    "network",
    "server",
    "service",
    "fault",
    "policy",
    "policy_for",
    "baseline",
];

/// The sections of a file that describe a model, and that cases and arms may say otherwise.
pub(super) fn sections() -> Vec<&'static str> {
    let kinds = KINDS.iter().flat_map(|kind| [&[kind.section], kind.beside].concat());
    let mut all = FLEET.to_vec();
    for section in kinds {
        if !all.contains(&section) {
            all.push(section);
        }
    }
    all
}

/// The kind of model that a file is about; `None`: a fleet.
pub(super) fn kind(file: &Node) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| file.has(kind.section))
}

impl Model {
    /// Reads the sections, all of them that of `whole`.
    pub(super) fn read(whole: &Node, kind: Option<&'static Kind>) -> Read<Self> {
        match kind {
            Some(kind) => {
                let section = Section::new(whole, "", &[&[kind.section], kind.beside].concat())?;
                (kind.read)(&section).map(|setup| Self::Setup(kind, setup))
            }
            None => {
                let section = Section::new(whole, "", &FLEET)?;
                fleet(&section).map(|fleet| Self::Fleet(Box::new(fleet)))
            }
        }
    }

    /// What goes wrong and when, and the names of all services.
    pub(super) fn faults(&self) -> (Vec<Fault>, Vec<String>) {
        match self {
            Self::Fleet(fleet) => (fleet.faults.clone(), names(fleet)),
            Self::Setup(..) => (Vec::new(), Vec::new()),
        }
    }

    /// What its own numbers say against it before it is run.
    pub(super) fn advice(&self) -> Vec<String> {
        match self {
            Self::Fleet(fleet) if fleet.baseline.is_none() => {
                let load = load(fleet).and_then(|load| advice(fleet, load));
                fleet.policy.warnings().iter().cloned().chain(load).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The names of all services, if none has this one.
    pub(super) fn lacks(&self, service: &str) -> Option<Vec<String>> {
        let names: Vec<_> = match self {
            Self::Fleet(fleet) => names(fleet),
            Self::Setup(..) => Vec::new(),
        };
        (!names.iter().any(|name| name == service)).then_some(names)
    }

    /// The numbers that are of interest whatever the thresholds, and their units.
    pub(super) const fn usual(&self) -> &'static [(&'static str, Unit)] {
        match self {
            Self::Fleet(_) => &USUAL,
            Self::Setup(kind, _) => kind.numbers,
        }
    }

    /// The same with so many clients, if it has any whose number could be another.
    pub(super) fn with_clients(&self, clients: u32) -> Result<Self, ConfigError> {
        match self {
            Self::Fleet(fleet) => {
                let fleet = Fleet { clients, ..(**fleet).clone() };
                fleet.check()?;
                Ok(Self::Fleet(Box::new(fleet)))
            }
            Self::Setup(kind, setup) => {
                let other = setup.with_clients(clients)?;
                Ok(Self::Setup(kind, other.unwrap_or_else(|| Arc::clone(setup))))
            }
        }
    }
}

fn names(fleet: &Fleet) -> Vec<String> {
    fleet.services.iter().map(|service| service.name.clone()).collect()
}

fn fleet(section: &Section<'_>) -> Read<Fleet> {
    let need = |key, keys: &[&str]| section.need(key, keys);
    let run = need("run", &["warm_up", "calls_until", "ends"])?;
    let size = need("fleet", &["clients", "sharing", "policies", "lives", "patience"])?;
    let services = services(section)?;
    let names: Vec<_> = services.iter().map(|service| service.name.clone()).collect();
    let network = section.inner("network", &["delay", "loss"])?;
    let calls_until = run.point("calls_until")?.ok_or_else(|| run.missing("calls_until"))?;
    let delay = network.as_ref().and_then(|network| network.node("delay"));
    let safety = [("idempotent", Safety::Idempotent), ("unsafe", Safety::Unsafe)];
    let sharing = [("each", Sharing::Each), ("all", Sharing::All)];
    let made = need("calls", &[&calls::KEYS[..], &["to", "keys", "safety"]].concat())?;
    let outward = Outward::read(section, &names)?;
    known::as_in("calls.to", "(target)");
    let to = match made.node("to") {
        Some(node) => targets(node, "calls.to", &names, &outward)?,
        None => vec![outward.target(0, 1.0)],
    };
    outward.check(&to)?;
    let read = Fleet {
        clients: size.count("clients", 1..=MOST_CLIENTS)?.ok_or_else(|| size.missing("clients"))?,
        to,
        keys: keys(&made)?,
        lives: size.count("lives", 1..=1_000_000)?,
        calls: calls::calls(&made)?,
        safety: made.choice("safety", &safety)?,
        cancels: cancels(section)?,
        connect: connect(section)?,
        patience: size.node("patience").map(|node| span(node, "fleet.patience")).transpose()?,
        policy: outward.policy,
        baseline: section.node("baseline").map(|node| baseline(node, "baseline")).transpose()?,
        sharing: size.choice("sharing", &sharing)?.unwrap_or(Sharing::Each),
        is_together: together(&size)?,
        network: Network {
            delay: delay.map_or(Ok(Span::ZERO), |node| span(node, "network.delay"))?,
            loss: network.map_or(Ok(None), |network| network.share("loss"))?.unwrap_or(0.0),
        },
        services,
        faults: section
            .list("fault")?
            .iter()
            .map(|(path, node)| fault(node, path, &names))
            .collect::<Read<_>>()?,
        warm_up: run.point("warm_up")?.unwrap_or(Timestamp::ZERO),
        calls_until,
        ends: run.point("ends")?.unwrap_or(calls_until),
    };
    read.check().map_err(|error| match error.field() {
        "ends" | "calls_until" => run.by(&error, "calls_until"),
        "fault.server" | "fault.workers" => section.by(&error, "fault"),
        "lives" => size.by(&error, "lives"),
        "connect" => section.by(&error, "policy"),
        "calls" | "pick" => {
            let key = if section.node("service").is_some() { "service" } else { "server" };
            Mistake::refused(section.at(key), key, error.value(), error.allowed())
        }
        _ => section.by(&error, "fleet"),
    })?;
    Ok(read)
}

fn fault(node: &Node, path: &str, names: &[String]) -> Read<Fault> {
    let all = [
        "from", "for", "do", "on", "server", "times", "share", "status", "workers", "clients",
        "ahead", "behind",
    ];
    let any = Section::new(node, path, &all)?;
    let kinds = [
        ("down", &[][..]),
        ("silent", &[]),
        ("slow", &["times"]),
        ("errors", &["share", "status"]),
        ("capacity", &["workers"]),
        ("pause", &[]),
        ("restart", &[]),
        ("hold", &[]),
        ("partition", &["clients"]),
        ("reset", &["clients"]),
        ("stall", &["clients"]),
        ("clock", &["clients", "ahead", "behind"]),
    ];
    let own = any.choice("do", &kinds)?.ok_or_else(|| any.missing("do"))?;
    // Some are the clients' own, whatever they talk to.
    let is_of_clients = ["stall", "clock"].contains(&any.text("do")?.unwrap_or_default());
    let mut keys: Vec<_> = all[..5].iter().chain(own).copied().collect();
    keys.retain(|key| !is_of_clients || !["on", "server"].contains(key));
    let read = Section::new(node, path, &keys)?;
    let trouble = match any.text("do")?.unwrap_or_default() {
        "down" => Trouble::Down,
        "silent" => Trouble::Silent,
        "slow" => {
            Trouble::Slow(read.number("times", 0.001..=1e6)?.ok_or_else(|| read.missing("times"))?)
        }
        "errors" => Trouble::Errors {
            share: read.share("share")?.ok_or_else(|| read.missing("share"))?,
            status: read
                .count("status", 400..=599)?
                .and_then(|status| u16::try_from(status).ok())
                .unwrap_or(503),
        },
        "capacity" => Trouble::Capacity(
            read.count("workers", 0..=100_000)?.ok_or_else(|| read.missing("workers"))?,
        ),
        "pause" => Trouble::Pause,
        "restart" => Trouble::Restart,
        "hold" => Trouble::Hold,
        "reset" => Trouble::Reset { share: read.share("clients")?.unwrap_or(1.0) },
        "partition" => Trouble::Partition {
            share: read.share("clients")?.ok_or_else(|| read.missing("clients"))?,
        },
        "stall" => Trouble::Stall { share: read.share("clients")?.unwrap_or(1.0) },
        _ => Trouble::Clock { share: read.share("clients")?.unwrap_or(1.0), ahead: ahead(&read)? },
    };
    let from = read.point("from")?.ok_or_else(|| read.missing("from"))?;
    let lasts = read.duration("for", Duration::from_millis(1)..=LONGEST_RUN)?;
    let until = from.after(lasts.ok_or_else(|| read.missing("for"))?);
    let server = read.count("server", 0..=9_999)?;
    let fault = Fault::new(from, until, server, trouble).map_err(|error| read.by(&error, "do"))?;
    match read.text("on")?.map(|name| named(read.at("on"), &read.path("on"), name, names)) {
        Some(on) => Ok(fault.on(on?)),
        None if names.len() == 1 || is_of_clients => Ok(fault),
        None => Err(read.missing("on")),
    }
}

/// Seconds that clocks are ahead.
fn ahead(read: &Section<'_>) -> Read<i64> {
    let time = |key| read.duration(key, Duration::from_secs(1)..=LONGEST_RUN);
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(0);
    match (time("ahead")?, time("behind")?) {
        (Some(ahead), None) => Ok(seconds(ahead)),
        (None, Some(behind)) => Ok(-seconds(behind)),
        _ => {
            Err(Mistake::new(read.at("ahead"), &read.path("ahead"), "give one of ahead and behind"))
        }
    }
}

/// How long something takes: a duration, or a table that says how it varies.
pub(crate) fn span(node: &Node, path: &str) -> Read<Span> {
    known::as_in(path, "(time)");
    if !matches!(node.value, Value::Table(_)) {
        return duration(node, path).map(Span::fixed);
    }
    let kinds: [&[&str]; 9] = [
        &["exponential", "rare", "share"],
        &["uniform"],
        &["normal", "deviation"],
        &["log_normal", "sigma"],
        &["pareto", "exponent"],
        &["usual", "rare", "share"],
        &["trace"],
        &["survival"],
        &["pace"],
    ];
    let any = Section::new(node, path, &kinds.concat())?;
    let kind = kinds.into_iter().find(|keys| any.node(keys[0]).is_some());
    let kind = kind.ok_or_else(|| {
        let kinds: Vec<_> = kinds.iter().map(|keys| keys[0]).collect();
        Mistake::new(node.at, path, format!("needs one of {}", kinds.join(", ")))
    })?;
    let read = Section::new(node, path, kind)?;
    law(&read, kind[0])?.map_err(|error| read.by(&error, kind[0]))
}

/// The distribution of this kind, or what its constructor refuses.
fn law(read: &Section<'_>, kind: &str) -> Read<Result<Span, ConfigError>> {
    let time = |key| {
        let time = read.duration(key, Duration::ZERO..=LONGEST_RUN)?;
        time.ok_or_else(|| read.missing(key))
    };
    let times = |key| {
        let nodes = read.list(key)?;
        nodes.iter().map(|(path, node)| duration(node, path)).collect::<Read<Vec<_>>>()
    };
    let ends = |key| match times(key)?[..] {
        [least, most] => Ok((least, most)),
        _ => Err(read.refused(key, "two durations, like [\"1ms\", \"20ms\"]")),
    };
    Ok(match kind {
        "exponential" => match (read.node("rare"), read.share("share")?) {
            (None, None) => Ok(Span::exponential(time("exponential")?)),
            (_, share) => {
                let share = share.ok_or_else(|| read.missing("share"))?;
                Span::exponentials(time("exponential")?, time("rare")?, share)
            }
        },
        "uniform" => {
            let (least, most) = ends("uniform")?;
            Span::uniform(least, most)
        }
        "normal" => Span::normal(time("normal")?, time("deviation")?),
        "log_normal" => {
            let sigma = read.number("sigma", 0.0..=3.0)?;
            Span::log_normal(time("log_normal")?, sigma.ok_or_else(|| read.missing("sigma"))?)
        }
        "pareto" => {
            let (least, most) = ends("pareto")?;
            let exponent = read.number("exponent", 0.1..=10.0)?;
            Span::pareto(least, most, exponent.ok_or_else(|| read.missing("exponent"))?)
        }
        "usual" => {
            let share = read.share("share")?.ok_or_else(|| read.missing("share"))?;
            Span::two_points(time("usual")?, time("rare")?, share)
        }
        "trace" => Span::trace(&times("trace")?),
        "survival" => Span::survival(&points(read)?),
        // One after another at a rate, for what is no whole number of milliseconds.
        _ => {
            let text = read.text("pace")?.unwrap_or_default();
            let rate = parse_rate(text).map_err(|error| read.refused("pace", error.allowed()))?;
            Ok(Span::fixed(rate.period / rate.count.get()))
        }
    })
}

/// Times, and the shares that take longer.
fn points(read: &Section<'_>) -> Read<Vec<(Duration, f64)>> {
    let point = |(path, node): &(String, &Node)| {
        let allowed = "a duration and the share that takes longer, like [\"4ms\", 0.5]";
        let refused = || Mistake::refused(node.at, path, node.shown(), allowed).alone();
        known::form(path, || Form::List);
        known::form(&format!("{path}[1]"), || Form::Number(0.0, 1.0));
        let Value::List(pair) = &node.value else { return Err(refused()) };
        let [time, share] = &pair[..] else { return Err(refused()) };
        let Value::Bare(number) = &share.value else { return Err(refused()) };
        Ok((duration(time, &format!("{path}[0]"))?, number.parse().map_err(|_| refused())?))
    };
    read.list("survival")?.iter().map(point).collect()
}

/// Clients of a fleet. Source: own choice.
const MOST_CLIENTS: u32 = 16_000_000;
