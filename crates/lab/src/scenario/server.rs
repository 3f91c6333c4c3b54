//! The section `server`: how it works, what is before its workers, and how it turns away.

use std::time::Duration;

use seawall_policy::{AdmissionOptions, AdmissionParams, BulkheadOptions, BulkheadParams};

use super::known;
use super::mistake::Mistake;
use super::model::span;
use super::node::{Node, Value};
use super::section::{LONGEST_RUN, Read, Section};
use crate::baselines::{EntryRule, QueueRule};
use crate::fleet::{Door, Form, Host, Later, Refusal, Wait, Work};
use crate::server::{Discipline, Drop, Fair, Order, Queue};

/// The keys of a server.
pub(super) const KEYS: [&str; 9] =
    ["workers", "queue", "service", "alone", "each", "notices", "entry", "refusal", "door"];

pub(super) fn host(server: &Section<'_>) -> Read<Host> {
    Ok(Host {
        work: work(server)?,
        notices: server.flag("notices")?.unwrap_or(false),
        entry: server
            .choice("entry", &[("random", EntryRule::Random), ("dagor", EntryRule::Dagor)])?,
        refusal: refusal(server)?,
        door: door(server)?,
    })
}

fn work(server: &Section<'_>) -> Read<Work> {
    if server.node("alone").is_some() || server.node("each").is_some() {
        for key in ["workers", "queue", "service"] {
            if server.node(key).is_some() {
                return Err(server.refused(key, "either workers and service, or alone and each"));
            }
        }
        let time = |key| -> Read<Duration> {
            let time = server.duration(key, Duration::ZERO..=LONGEST_RUN)?;
            Ok(time.unwrap_or_default())
        };
        return Ok(Work::Crowd { base: time("alone")?, each: time("each")? });
    }
    let service = server.node("service").ok_or_else(|| server.missing("service"))?;
    let workers = server.count("workers", 1..=100_000)?.unwrap_or(1);
    Ok(Work::Queue {
        workers,
        queue: queue(server, workers)?,
        service: span(service, &server.path("service"))?,
    })
}

/// A number is the room of one that is first come, first served.
pub(crate) fn queue(server: &Section<'_>, workers: u32) -> Read<Queue> {
    known::as_in(&server.path("queue"), "(queue)");
    let Some(node) = server.node("queue") else { return Ok(Queue::fifo(None)) };
    if !matches!(node.value, Value::Table(_)) {
        return Ok(Queue::fifo(server.count("queue", 0..=MOST_WAITING)?));
    }
    let path = server.path("queue");
    let all = [
        "policy",
        "admission",
        "room",
        "full",
        "order",
        "after",
        "drop",
        "needs",
        "than",
        "target",
        "interval",
        "m",
        "n",
    ];
    let any = Section::new(node, &path, &all)?;
    if any.node("policy").is_some() {
        let only = Section::new(node, &path, &["policy"])?;
        return policy(&only, workers);
    }
    if any.node("admission").is_some() {
        return fair(&Section::new(node, &path, &["admission"])?);
    }
    let (order, by_order) = order(&any)?;
    let (drop, by_drop) = drop(&any)?;
    // A key that neither of them has would do nothing.
    let keys = [&["room", "full", "order", "drop"], by_order, by_drop].concat();
    let read = Section::new(node, &path, &keys)?;
    let full = [("refuse", false), ("displace", true)];
    let room = read.count("room", 0..=MOST_WAITING)?;
    if room.is_none() && read.node("full").is_some() {
        return Err(read.missing("room"));
    }
    let displaces = read.choice("full", &full)?.unwrap_or(false);
    Ok(Queue::Own(Discipline { room, displaces, order, drop }))
}

fn order(queue: &Section<'_>) -> Read<(Order, &'static [&'static str])> {
    let kinds = [("fifo", 0), ("lifo", 1), ("adaptive", 2)];
    Ok(match queue.choice("order", &kinds)?.unwrap_or(0) {
        0 => (Order::Fifo, &[]),
        1 => (Order::Lifo, &[]),
        _ => (Order::Adaptive(time(queue, "after", HUNDRED)?), &["after"]),
    })
}

fn drop(queue: &Section<'_>) -> Read<(Drop, &'static [&'static str])> {
    let kinds =
        [("never", 0), ("expired", 1), ("older", 2), ("codel", 3), ("folly", 4), ("m-n", 5)];
    let kind = queue.choice("drop", &kinds)?.unwrap_or(0);
    let target_and_interval =
        || Ok((time(queue, "target", FIVE)?, time(queue, "interval", HUNDRED)?));
    Ok(match kind {
        0 => (Drop::Never, &[]),
        1 => (Drop::Expired(time(queue, "needs", Duration::ZERO)?), &["needs"]),
        2 => {
            let than = queue.duration("than", Duration::ZERO..=LONGEST_RUN)?;
            (Drop::Older(than.ok_or_else(|| queue.missing("than"))?), &["than"])
        }
        3 => {
            let (target, interval) = target_and_interval()?;
            (Drop::By(QueueRule::Codel { target, interval }), &["target", "interval"])
        }
        4 => {
            let (target, interval) = target_and_interval()?;
            (Drop::By(QueueRule::Folly { target, interval }), &["target", "interval"])
        }
        _ => {
            let (m, n) = (time(queue, "m", FIVE)?, time(queue, "n", HUNDRED)?);
            (Drop::By(QueueRule::MAndN { m, n }), &["m", "n"])
        }
    })
}

fn time(section: &Section<'_>, key: &str, default: Duration) -> Read<Duration> {
    Ok(section.duration(key, Duration::ZERO..=LONGEST_RUN)?.unwrap_or(default))
}

/// The policy's bulkhead, in the words of the section `policy`, its limit being the workers.
fn policy(queue: &Section<'_>, workers: u32) -> Read<Queue> {
    let keys = ["wait", "queue", "lanes", "lane_limit"];
    let Some(read) = queue.inner("policy", &keys)? else { return Err(queue.missing("policy")) };
    let sized = BulkheadOptions::with_limit(workers);
    let options = BulkheadOptions {
        wait: time(&read, "wait", sized.wait)?,
        queue: read.count("queue", 0..=65_536)?.unwrap_or(sized.queue),
        lane_limit: read.count("lane_limit", 1..=workers).map_err(Mistake::together)?,
        ..sized
    };
    let lanes = read.count("lanes", 1..=10_000)?.unwrap_or(1);
    let params = BulkheadParams::new(options).map_err(|error| read.by(&error, "queue"))?;
    Ok(Queue::Policy(params, lanes))
}

/// The policy's admission queue, in its own words.
fn fair(queue: &Section<'_>) -> Read<Queue> {
    let keys = ["queue", "target", "patience", "tenants"];
    let Some(read) = queue.inner("admission", &keys)? else {
        return Err(queue.missing("admission"));
    };
    let usual = AdmissionOptions::default();
    let options = AdmissionOptions {
        queue: read.count("queue", 1..=131_072)?.unwrap_or(usual.queue),
        target: time(&read, "target", usual.target)?,
        patience: time(&read, "patience", usual.patience)?,
        ..usual
    };
    let params = AdmissionParams::new(options).map_err(|error| read.by(&error, "queue"))?;
    let tenants = read.count("tenants", 1..=1_000_000)?.unwrap_or(1);
    Ok(Queue::Admission(Box::new(Fair { params, tenants, kinds: Vec::new() })))
}

fn door(server: &Section<'_>) -> Read<Option<Door>> {
    let keys = ["workers", "queue", "tls", "login", "subscribe", "trips"];
    let Some(read) = server.inner("door", &keys)? else { return Ok(None) };
    let costs = keys[2..5].iter().filter_map(|key| Some((key, read.node(key)?)));
    let costs = costs.map(|(key, node)| span(node, &read.path(key))).collect::<Read<Vec<_>>>()?;
    if costs.is_empty() {
        return Err(read.missing("login"));
    }
    let workers = read.count("workers", 1..=100_000)?.unwrap_or(1);
    Ok(Some(Door {
        workers,
        queue: queue(&read, workers)?,
        costs,
        trips: read.count("trips", 0..=100)?.unwrap_or(2),
    }))
}

fn refusal(server: &Section<'_>) -> Read<Refusal> {
    let keys = ["status", "cost", "drop_cost", "retry_after"];
    let Some(read) = server.inner("refusal", &keys)? else { return Ok(Refusal::PLAIN) };
    let status = read.count("status", 400..=599)?.and_then(|status| u16::try_from(status).ok());
    Ok(Refusal {
        status: status.unwrap_or(Refusal::PLAIN.status),
        cost: read.share("cost")?.unwrap_or(0.0),
        drop_cost: read.share("drop_cost")?.unwrap_or(0.0),
        later: read.node("retry_after").map(|node| later(node, &read)).transpose()?,
    })
}

fn later(node: &Node, refusal: &Section<'_>) -> Read<Later> {
    let keys = ["wait", "backlog", "spread", "form"];
    let read = Section::new(node, &refusal.path("retry_after"), &keys)?;
    let wait = match (read.node("wait"), read.per_second("backlog")?) {
        (Some(_), None) => Wait::Fixed(time(&read, "wait", Duration::ZERO)?),
        (None, Some(rate)) if rate > 0.0 => Wait::Backlog(rate),
        (None, Some(_)) => return Err(read.refused("backlog", "a rate above 0/s")),
        _ => {
            let said = "needs one of wait and backlog";
            return Err(Mistake::new(node.at, &refusal.path("retry_after"), said));
        }
    };
    let forms = [
        ("seconds", Form::Seconds),
        ("date", Form::Date { dated: true }),
        ("date-alone", Form::Date { dated: false }),
        ("slots", Form::Slots),
    ];
    let form = read.choice("form", &forms)?.unwrap_or(Form::Seconds);
    if form == Form::Slots && read.node("wait").is_some() {
        return Err(read.refused("form", "slots only with backlog, whose rate they come at"));
    }
    Ok(Later { wait, spread: read.share("spread")?.unwrap_or(0.0), form })
}

/// Those that wait at one server. Source: own choice.
const MOST_WAITING: u32 = 100_000_000;
/// The target of CoDel, and the m of m and n. Source: rfc-8289.
const FIVE: Duration = Duration::from_millis(5);
/// The interval of CoDel, and the n of m and n. Source: rfc-8289.
const HUNDRED: Duration = Duration::from_millis(100);
