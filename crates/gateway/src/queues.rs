//! Every queue, map, cache and pool of the process that can hold work, with its bound.
//!
//! What piles up somewhere is found by looking in one place. The list is held against the code by
//! `docs/queues.md`, which also names the bounds within one request or connection.

use crate::admin::QueueView;
use crate::blocking;
use crate::config::{Listener, Protocol};
use crate::gateway::{Gateway, Upstream, millis};
use crate::reload::READINGS_MAX;
use crate::server::{Answers, BACKLOG, ConnectionGauges, H2_SEND_BYTES, waiting};
use crate::upgrade;

/// All of them but those of the admin port, which lists its own.
pub(crate) fn queues(
    gateway: &Gateway,
    (connections, answers): (&ConnectionGauges, &Answers),
    max_connections: usize,
) -> Vec<QueueView> {
    let mut queues = downstream(gateway, connections, max_connections as u64);
    let (answering, most_answers) = answers.depth();
    queues.push(QueueView {
        depth: Some(answering as u64),
        ..row(
            "refusals of callers being answered",
            most_answers as u64,
            "the connection is reset without an answer",
        )
    });
    queues.extend(shared(gateway, max_connections as u64));
    for upstream in &gateway.upstreams {
        queues.extend(calls(gateway, upstream));
        queues.extend(routes(gateway, upstream));
        queues.extend(pool(upstream));
    }
    queues
}

/// What callers can fill.
fn downstream(
    gateway: &Gateway,
    connections: &ConnectionGauges,
    max_connections: u64,
) -> Vec<QueueView> {
    let limits = &gateway.config.limits;
    let streams = u64::from(limits.h2_streams.max(1));
    let requests = max_connections.saturating_mul(streams);
    let calls = gateway.upstreams.iter().map(|it| u64::from(it.config.bulkhead.limit));
    let buffers = calls.fold(requests, u64::saturating_add);
    let mut queues = vec![
        QueueView {
            depth: Some(connections.active() as u64),
            ..row(
                "connections of callers",
                max_connections,
                "accepting pauses; those that come wait in the kernel backlog",
            )
        },
        QueueView {
            depth: Some(connections.introducing() as u64),
            ..row(
                "connections whose proxy has yet to name the caller",
                max_connections,
                "cannot be: each has a place among the connections of callers",
            )
        },
        QueueView {
            depth: Some(connections.addresses() as u64),
            ..row(
                "addresses of callers with connections",
                max_connections,
                "cannot be: each has a connection",
            )
        },
        QueueView {
            depth: Some(connections.requests() as u64),
            ..row("requests of callers", requests, "cannot be: connections and streams are bounded")
        },
        row(
            "streams of each HTTP/2 connection of a caller",
            streams,
            "the stream is refused: REFUSED_STREAM",
        ),
        row(
            "bytes to be sent of each HTTP/2 stream of a caller",
            H2_SEND_BYTES as u64,
            "nothing more is taken from the upstream; ended by the stall limit",
        ),
        QueueView {
            depth: Some(connections.tunnels() as u64),
            ..row(
                "tunnels",
                streams_of_all(gateway),
                "the answer is replaced: 503, problem overloaded",
            )
        },
        row(
            "bytes in each tunnel, each way",
            upgrade::BUFFER as u64,
            "nothing more is read from the other side; ended by the stall limit",
        ),
        QueueView {
            depth: Some(gateway.replay.bytes()),
            ..row(
                "bytes of uploads kept for another attempt",
                buffers.saturating_mul(limits.replay_bytes as u64),
                "an upload that outgrows its share is not sent again: body_too_large",
            )
        },
    ];
    queues.extend(backlogs(gateway, connections));
    queues
}

/// Tunnels and long streams there may be to all upstreams.
fn streams_of_all(gateway: &Gateway) -> u64 {
    let streams = gateway.upstreams.iter().map(|it| u64::from(it.config.bulkhead.max_streams));
    streams.fold(0, u64::saturating_add)
}

/// What the kernel holds for each listener.
fn backlogs(gateway: &Gateway, connections: &ConnectionGauges) -> Vec<QueueView> {
    let known = connections.listeners();
    let inode = |number: &usize| known.get(*number).map_or(0, |listener| listener.inode());
    let inodes: Vec<_> = gateway.listeners.iter().map(inode).collect();
    let listeners = gateway.config.listeners.iter().zip(waiting(&inodes));
    let backlog = |(listener, depth): (&Listener, Option<u64>)| QueueView {
        depth,
        ..row(
            format!("kernel backlog of {}", listener.address),
            u64::from(BACKLOG.unsigned_abs()),
            "the kernel leaves the caller's SYN unanswered",
        )
    };
    listeners.map(backlog).collect()
}

/// What all requests share.
fn shared(gateway: &Gateway, max_connections: u64) -> Vec<QueueView> {
    let resolver = gateway.resolver.stats();
    let of_writer = |(depth, bound): (usize, usize), name| QueueView {
        depth: Some(depth as u64),
        ..row(name, bound as u64, "the line is dropped and counted")
    };
    let mut queues = vec![of_writer(gateway.diagnostics.depth(), "diagnostics")];
    queues.extend(gateway.access_log.depth().map(|depth| of_writer(depth, "access log")));
    let lookups = resolver.max_in_flight as u64;
    let files = u64::from(gateway.config.kill_switch.is_some())
        + (1 + READINGS_MAX as u64) * u64::from(gateway.config.origin.file().is_some());
    // One look in turn, and one for a signal.
    let files = files + if gateway.tls.is_empty() { 0 } else { 2 };
    let proofs = gateway.upstreams.iter().filter(|it| it.proof.is_some()).count() as u64;
    let (kinds, most_kinds) = gateway.unmatched.kinds();
    // For all and for each upstream, by the admin port and by the file.
    let most_offs = 2 * (gateway.upstreams.len() as u64 + 1);
    let shaking = gateway.tls.handshakes();
    let now = gateway.clock.now();
    queues.extend([
        QueueView {
            depth: Some(shaking.taken as u64),
            oldest_ms: shaking.oldest.map(|since| millis(now.since(since))),
            ..row(
                "TLS handshakes of callers",
                shaking.most as u64,
                "the handshake waits, and is given up when the time for a head is over",
            )
        },
        QueueView {
            depth: Some(shaking.waiting as u64),
            ..row(
                "TLS handshakes that wait for a place",
                max_connections,
                "cannot be: each has a place among the connections of callers",
            )
        },
        QueueView {
            depth: Some(resolver.in_flight as u64),
            ..row("name lookups", lookups, "the lookup waits within the connect timeout")
        },
        QueueView {
            depth: Some(resolver.names as u64),
            ..row(
                "names resolved",
                resolver.max_names as u64,
                "the one asked for least recently is forgotten; while all are pending, no connect",
            )
        },
        QueueView {
            depth: Some(blocking::at_work() as u64),
            ..row(
                "blocking threads",
                lookups + files + proofs,
                "cannot be: one for each name lookup, one that looks at each file, one that reads \
                 it, and those that hang",
            )
        },
        QueueView {
            depth: Some(gateway.kill_switch.list().len() as u64),
            ..row("retries switched off", most_offs, "cannot be; a new word replaces the old one")
        },
        QueueView {
            depth: Some(kinds as u64),
            ..row("kinds of unmatched errors", most_kinds as u64, "the kind counts as other")
        },
    ]);
    queues
}

/// The calls to an upstream.
fn calls(gateway: &Gateway, upstream: &Upstream) -> [QueueView; 6] {
    let now = gateway.clock.now();
    let name = &upstream.config.name;
    let bulkhead = &upstream.config.bulkhead;
    let limit = u64::from(bulkhead.limit);
    upstream.stack.with(|dependency, _, _| {
        let at_work = dependency.bulkhead();
        let (transitions, most_transitions) = dependency.uncollected_transitions();
        let (verdicts, most_verdicts) = dependency.uncollected_verdicts();
        let oldest = at_work.oldest_waiting();
        [
            QueueView {
                depth: Some(u64::from(at_work.in_flight())),
                ..row(format!("calls to {name}"), limit, "the call waits in the queue")
            },
            QueueView {
                depth: Some(u64::from(at_work.waiting())),
                oldest_ms: oldest.map(|since| millis(now.since(since))),
                ..row(
                    format!("queue of calls to {name}"),
                    u64::from(bulkhead.queue),
                    "the call is refused: 503, stop reason bulkhead_full",
                )
            },
            QueueView {
                depth: Some(dependency.abandoned() as u64),
                ..row(
                    format!("calls to {name} that go on without their caller"),
                    limit,
                    "cannot be: each holds one of the calls",
                )
            },
            QueueView {
                depth: Some(u64::from(at_work.streams())),
                ..row(
                    format!("streams to {name}"),
                    u64::from(bulkhead.max_streams),
                    "the answer is replaced: 503, problem overloaded",
                )
            },
            QueueView {
                depth: Some(transitions as u64),
                ..row(
                    format!("breaker changes of {name} not yet told"),
                    most_transitions as u64,
                    "the oldest is dropped",
                )
            },
            QueueView {
                depth: Some(verdicts as u64),
                ..row(
                    format!("ejections from {name} not yet told"),
                    most_verdicts as u64,
                    "the oldest is dropped",
                )
            },
        ]
    })
}

/// What each route may take of them, where that is less.
fn routes(gateway: &Gateway, upstream: &Upstream) -> Vec<QueueView> {
    let Some(limit) = upstream.config.bulkhead.lane_limit else { return Vec::new() };
    let name = &upstream.config.name;
    upstream.stack.with(|dependency, _, _| {
        let rows = upstream.lanes.iter().filter_map(|lane| {
            let route = &gateway.config.routes.get(lane.route)?.name;
            Some(QueueView {
                depth: Some(u64::from(dependency.bulkhead().in_flight_of(lane.number))),
                ..row(
                    format!("calls to {name} of {route}"),
                    u64::from(limit),
                    "the call waits in the queue",
                )
            })
        });
        rows.collect()
    })
}

/// The connections to an upstream.
fn pool(upstream: &Upstream) -> Vec<QueueView> {
    let name = &upstream.config.name;
    let stats = upstream.pool.stats();
    let settings = upstream.pool.settings();
    let connections = settings.max_connections as u64;
    let mut queues = vec![
        QueueView {
            depth: Some(stats.open as u64),
            ..row(
                format!("connections to {name}"),
                connections,
                "an idle one to another endpoint makes room, or the call waits",
            )
        },
        QueueView {
            depth: Some(stats.waiting as u64),
            oldest_ms: (stats.waiting > 0).then(|| millis(stats.waiting_longest)),
            ..row(
                format!("waits for a connection to {name}"),
                settings.max_waiting as u64,
                "the call is refused: 503, stop reason checkout_timeout",
            )
        },
    ];
    if let Some(health) = &upstream.health {
        queues.push(QueueView {
            depth: Some(health.connections() as u64),
            ..row(
                format!("connections for checks of {name}"),
                upstream.endpoints.len() as u64,
                "cannot be: one check of each endpoint at a time",
            )
        });
    }
    if upstream.config.protocol == Protocol::H2c {
        queues.push(QueueView {
            depth: Some(stats.in_use as u64),
            ..row(
                format!("HTTP/2 streams to {name}"),
                connections.saturating_mul(settings.h2_streams as u64),
                "the call waits for a connection",
            )
        });
    }
    queues
}

/// Nothing known of it but its bound.
fn row(name: impl Into<String>, bound: u64, when_full: &'static str) -> QueueView {
    QueueView { name: name.into(), bound, when_full, ..QueueView::default() }
}
