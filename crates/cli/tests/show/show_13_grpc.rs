//! Clients of three gRPC implementations, through two gateways in a row, to a fourth program: a
//! grpc-go server, whose journal says what arrived.

use serde_json::{Value, json};

use crate::harness::{Gateway, PATIENCE, Stage, show};
use crate::peers::{Client, Peers, Server, hold};

#[test]
fn three_grpc_implementations_agree_with_the_behaviour_table() {
    show("13 · grpc-go, grpcio and tonic through two gateways", async |stage| {
        let peers = tokio::task::spawn_blocking(Peers::ready).await.unwrap();
        let server = peers.server();
        let inner = inner(stage, &server).await;
        let outer = stage
            .configured(&format!(
                "upstreams: {{inner: {{endpoints: [\"{}\"], protocol: h2c, breaker: off}}}}\n",
                inner.url()
            ))
            .await;
        for client in peers.clients() {
            let held = hold(outer.process.address(), "/full.T/Hang").await;
            let calls: Vec<_> = CALLS.iter().map(|call| call.of(&client)).collect();
            let seen = client.make(outer.process.address(), &calls).await;
            drop(held);
            assert_eq!(seen.len(), CALLS.len());
            for (call, seen) in CALLS.iter().zip(&seen) {
                judge(stage, &server, &client, call, seen).await;
            }
            stage.tell(
                client.name(),
                format!("{} of {} calls as in the table", seen.len(), CALLS.len()),
            );
            stage.tell("  remaining at the server of 2,000 ms", remaining(&server, &client).await);
            stage.tell("  told to wait 300 ms, came after", gap(&server, &client).await);
        }
        counted(&inner).await;
    });
}

/// What a call must come to.
struct Expected {
    name: &'static str,
    method: &'static str,
    metadata: &'static [(&'static str, &'static str)],
    timeout_ms: u64,
    send: &'static [u64],
    cancel_after: u64,
    code: u64,
    message: &'static str,
    received: &'static [u64],
    arrivals: usize,
}

impl Expected {
    const fn unary(name: &'static str, method: &'static str) -> Self {
        Self {
            name,
            method,
            metadata: &[],
            timeout_ms: 0,
            send: &[5],
            cancel_after: 0,
            code: 0,
            message: "",
            received: &[5],
            arrivals: 1,
        }
    }

    /// A call that the server fails with `code`.
    const fn failing(
        name: &'static str,
        method: &'static str,
        metadata: &'static [(&'static str, &'static str)],
        code: u64,
    ) -> Self {
        let plain = Self::unary(name, method);
        Self { metadata, code, message: "100 % full ✓", received: &[], ..plain }
    }

    fn id(&self, client: &Client) -> String {
        format!("{} {}", client.name(), self.name)
    }

    fn of(&self, client: &Client) -> Value {
        let mut metadata: serde_json::Map<_, _> = self
            .metadata
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
            .collect();
        metadata.insert("x-call".to_owned(), self.id(client).into());
        json!({
            "name": self.name,
            "method": self.method,
            "metadata": metadata,
            "timeout_ms": self.timeout_ms,
            "send": self.send,
            "cancel_after": self.cancel_after,
        })
    }
}

const UNAVAILABLE_ONCE: &[(&str, &str)] = &[("x-fail", "14"), ("x-fail-times", "1")];
const UNAVAILABLE_WHEN_READ: &[(&str, &str)] =
    &[("x-fail", "14"), ("x-fail-times", "1"), ("x-read", "1")];

/// Under `/idem.T` the gateway may repeat calls, under `/plain.T` it may not.
const CALLS: &[Expected] = &[
    Expected { timeout_ms: 2_000, ..Expected::unary("answered in time", "/plain.T/Unary") },
    Expected::unary("without a time limit", "/plain.T/Unary"),
    Expected {
        metadata: &[("x-wait-ms", "5000")],
        timeout_ms: 300,
        code: 4,
        received: &[],
        ..Expected::unary("out of time", "/idem.T/Unary")
    },
    Expected::failing("an error with details", "/idem.T/Unary", &[("x-fail", "9")], 9),
    Expected::failing("not to be repeated", "/plain.T/Unary", UNAVAILABLE_ONCE, 14),
    Expected {
        metadata: UNAVAILABLE_ONCE,
        arrivals: 2,
        ..Expected::unary("repeated", "/idem.T/Unary")
    },
    Expected {
        metadata: &[("x-fail", "14"), ("x-fail-times", "1"), ("x-pushback", "300")],
        arrivals: 2,
        ..Expected::unary("told when", "/idem.T/Unary")
    },
    Expected::failing(
        "told never",
        "/idem.T/Unary",
        &[("x-fail", "14"), ("x-fail-times", "1"), ("x-pushback", "-1")],
        14,
    ),
    Expected::failing("failed after its answer", "/idem.T/Unary", &[("x-late", "14")], 14),
    Expected { received: &[1, 1, 1], ..Expected::unary("server streaming", "/idem.T/Watch") },
    Expected {
        send: &[1, 2, 3],
        received: &[1],
        ..Expected::unary("client streaming", "/idem.T/Collect")
    },
    Expected {
        send: &[4, 5, 6],
        received: &[4, 5, 6],
        ..Expected::unary("both streaming", "/idem.T/Chat")
    },
    Expected {
        cancel_after: 1,
        code: 1,
        received: &[5],
        ..Expected::unary("cancelled", "/idem.T/Hang")
    },
    Expected {
        send: &[200_000],
        received: &[200_000],
        ..Expected::unary("larger than the replay buffer", "/idem.T/Unary")
    },
    Expected {
        send: &[200_000],
        ..Expected::failing("too large to repeat", "/idem.T/Unary", UNAVAILABLE_WHEN_READ, 14)
    },
    Expected {
        code: 14,
        message: "the breaker of every endpoint is open",
        received: &[],
        arrivals: 0,
        ..Expected::unary("breaker open", "/shut.T/Unary")
    },
    Expected {
        code: 14,
        message: "as many calls as allowed are in flight",
        received: &[],
        arrivals: 0,
        ..Expected::unary("bulkhead full", "/full.T/Unary")
    },
];

async fn inner(stage: &Stage, server: &Server) -> Gateway {
    let up = format!("endpoints: [\"http://{}\"], protocol: h2c", server.address);
    stage
        .configured(&format!(
            "upstreams:\n\
             \x20 peer: {{{up}, breaker: off, retry_budget: off, \
             retry: {{backoff: {{base: 20ms, cap: 20ms}}}}}}\n\
             \x20 shut: {{{up}, breaker: {{mode: forced_open}}}}\n\
             \x20 full: {{{up}, bulkhead: {{limit: 1, wait: 0s}}}}\n\
             routes:\n\
             \x20 - {{path_prefix: /idem.T, upstream: peer, grpc: {{idempotent: true}}}}\n\
             \x20 - {{path_prefix: /plain.T, upstream: peer}}\n\
             \x20 - {{path_prefix: /shut.T, upstream: shut}}\n\
             \x20 - {{path_prefix: /full.T, upstream: full, grpc: {{streaming: false}}}}\n"
        ))
        .await
}

async fn judge(stage: &Stage, server: &Server, client: &Client, call: &Expected, seen: &Value) {
    let id = call.id(client);
    if call.code == 1 || call.code == 4 {
        cut(stage, server, &id).await;
    }
    let arrivals = server.journal(&id).await;
    assert_eq!(arrivals.len(), call.arrivals, "{id}: {arrivals:?} {seen}");
    // tonic gives its own limit another code than the others, where its timer goes off first.
    let own_limit = call.code == 4 && seen["code"] == 1;
    assert!(seen["code"] == call.code || own_limit, "{id}: {seen}");
    assert_eq!(seen["received"], json!(call.received), "{id}: {seen}");
    let (message, details) = (&seen["message"], &seen["details"]);
    if !call.message.is_empty() {
        assert_eq!(message, call.message, "{id}: {seen}");
    }
    if call.message == "100 % full ✓" {
        assert_eq!(details, "why", "{id}: {seen}");
    }
    let by_server = call.arrivals > 0 && ![1, 4].contains(&call.code);
    if by_server {
        assert_eq!(seen["trailers"]["x-cost"], "7", "{id}: {seen}");
        assert_eq!(seen["trailers"]["proof-bin"], "0001feff", "{id}: {seen}");
    }
    let pushback = seen["trailers"]["grpc-retry-pushback-ms"].as_str();
    let pushback = pushback.map(|value| value.parse::<i64>().unwrap());
    match call.name {
        "breaker open" | "told never" => assert_eq!(pushback, Some(-1), "{id}: {seen}"),
        "bulkhead full" => assert!(pushback >= Some(1_000), "{id}: {seen}"),
        "repeated" => {
            let earlier: Vec<_> = arrivals.iter().map(|it| it["previous"].clone()).collect();
            assert_eq!(earlier, ["", "1"], "{id}");
        }
        "without a time limit" => assert_eq!(arrivals[0]["remaining_ms"], -1.0, "{id}"),
        _ => {}
    }
}

/// Waits until the server knows that nobody waits, which must not take long.
async fn cut(stage: &Stage, server: &Server, id: &str) {
    let end = stage.clock.now().after(PATIENCE);
    loop {
        let arrivals = server.journal(id).await;
        let when = |name: &str| arrivals.last().map_or(-1.0, |it| it[name].as_f64().unwrap());
        let (came, cancelled) = (when("at_ms"), when("cancelled_ms"));
        if cancelled >= 0.0 {
            assert!(cancelled - came < 1_000.0, "{id}: cut after {} ms", cancelled - came);
            return;
        }
        assert!(stage.clock.now() < end, "{id}: the server was never told");
    }
}

/// The time a call of two seconds had left at the server, two margins of 5 ms or more less.
async fn remaining(server: &Server, client: &Client) -> String {
    let arrivals = server.journal(&CALLS[0].id(client)).await;
    let left = arrivals[0]["remaining_ms"].as_f64().unwrap();
    assert!((1_000.0..=1_990.0).contains(&left), "{left}");
    format!("{left:.0} ms")
}

/// How long after the first attempt the second came that was told to come after 300 ms.
async fn gap(server: &Server, client: &Client) -> String {
    let told = CALLS.iter().find(|call| call.name == "told when").unwrap();
    let arrivals = server.journal(&told.id(client)).await;
    let at = |n: usize| arrivals[n]["at_ms"].as_f64().unwrap();
    let gap = at(1) - at(0);
    assert!((300.0..450.0).contains(&gap), "{gap}");
    format!("{gap:.1} ms")
}

/// Every code the clients saw was counted.
async fn counted(inner: &Gateway) {
    for code in ["ok", "unavailable", "failed_precondition", "deadline_exceeded"] {
        let label = format!("code=\"{code}\"");
        let count = inner.metric("seawall_grpc_responses_total", &[&label]).await;
        assert!(count >= 1.0, "{code}");
    }
}
