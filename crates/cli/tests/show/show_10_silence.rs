//! Peers that go silent at every step, on both sides: each is ended by the timer of its step.

use std::time::Duration;

use seawall_cli::demo::{Answer, Behaviour, Ending, Failure, Protocol, Upstream, get};

use crate::harness::{Gateway, PATIENCE, Stage, ms, show, upstream_of};
use crate::raw::{Mute, Raw, SETTINGS, h2_begin, h2_frame};

/// How much later than its timer a peer may be ended; timers have a grain, machines a load.
const SLACK: Duration = Duration::from_millis(700);
/// Sooner than any timer of this file by far.
const EARLY: Duration = Duration::from_millis(100);

const FIRST_BYTE: Duration = Duration::from_millis(600);
const HEAD: Duration = Duration::from_millis(900);
const IDLE: Duration = Duration::from_millis(1200);
/// What a peer of HTTP/2 is given to take notice of GOAWAY before its connection is cut.
const NOTICE: Duration = Duration::from_secs(5);
const LISTENER: &str = "timeouts: {first_byte: 600ms, head: 900ms, idle: 1200ms}";
const UPSTREAM: &str = "breaker: off, retry: off, timeouts: {connect: 400ms, checkout: 300ms, \
     attempt: 800ms, total: 2s, idle: 1s}";
/// The `idle` of [`UPSTREAM`]: between two frames of a body.
const BODY_IDLE: Duration = Duration::from_secs(1);

#[test]
fn a_silent_caller_is_ended_by_the_timer_of_its_step() {
    show("10 · silent callers", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok()).await;
        let gateway = before(stage, &upstream.url()).await;
        let silent = [
            ("nothing at all", &b""[..], FIRST_BYTE),
            ("`PRI * HT` and nothing more", b"PRI * HT", HEAD),
            ("half a head", b"GET / HTTP/1.1\r\nHost: x\r\n", HEAD),
            ("half a body", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx", BODY_IDLE),
            ("a request, then nothing", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", IDLE),
            ("a preface, then no SETTINGS", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", IDLE + NOTICE),
        ];
        for (name, bytes, timer) in silent {
            let mut raw = Raw::connect(stage.clock, gateway.process.address()).await;
            assert!(raw.send(bytes).await);
            let came = raw.rest(PATIENCE).await;
            stage.tell(name, format!("ended after {} (timer {})", ms(came.after), ms(timer)));
            assert!(came.closed, "{name}");
            // Half a body outlasts the attempt's 800 ms: its own timer alone ends it.
            let least = if timer == BODY_IDLE { BODY_IDLE - EARLY } else { EARLY };
            assert!(came.after >= least && came.after <= timer + SLACK, "{name}: {came:?}");
        }
        slow_head(stage, &gateway).await;
        idle_h2(stage, &gateway).await;
        alive(&gateway).await;
    });
}

/// A byte every 50 ms resets no timer.
async fn slow_head(stage: &Stage, gateway: &Gateway) {
    let mut raw = Raw::connect(stage.clock, gateway.process.address()).await;
    let begin = stage.clock.now();
    raw.send("GET / HTTP/1.1\r\nX: ").await;
    while raw.send("x").await && stage.clock.now().since(begin) < PATIENCE {
        stage.pass(Duration::from_millis(50)).await;
    }
    let after = stage.clock.now().since(begin);
    stage.tell("a head, byte by byte", format!("ended after {} (timer {})", ms(after), ms(HEAD)));
    assert!(after <= HEAD + SLACK, "{after:?}");
}

/// A connection that is set up and then carries nothing.
async fn idle_h2(stage: &Stage, gateway: &Gateway) {
    let mut raw = Raw::connect(stage.clock, gateway.process.address()).await;
    raw.send(h2_begin()).await;
    raw.send(h2_frame(SETTINGS, 1, 0, &[])).await;
    let came = raw.rest(PATIENCE).await;
    stage.tell(
        "HTTP/2 without a stream",
        format!("ended after {} (timer {})", ms(came.after), ms(IDLE + NOTICE)),
    );
    assert!(came.closed && came.after <= IDLE + NOTICE + SLACK, "{came:?}");
}

#[test]
fn a_silent_upstream_is_answered_for_by_the_timer_of_its_step() {
    show("10 · silent upstreams", async |stage| {
        let hole = Mute::black_hole(stage.clock).await;
        let mute = Mute::accepting().await;
        let connect = Duration::from_millis(400);
        let attempt = Duration::from_millis(800);
        for (name, url, protocol, timer) in [
            ("a SYN into a black hole", hole.url(), "http1", connect),
            ("accepts, then silence", mute.url(), "http1", attempt),
            ("accepts, no HTTP/2 SETTINGS", mute.url(), "h2c", connect),
        ] {
            let gateway = behind(stage, &url, protocol).await;
            let (took, answer) = ask(stage, &gateway).await;
            let status = answer.unwrap().status;
            stage.tell(name, format!("{status} after {} (timer {})", ms(took), ms(timer)));
            assert!(matches!(status.as_u16(), 502..=504), "{name}: {status}");
            assert!(took >= EARLY && took <= timer + SLACK, "{name}: {took:?}");
        }
        silent_resolver(stage, connect).await;
        let gap = Duration::from_secs(60);
        let stalled = Behaviour::ok().ending(Ending::SlowBody { pieces: 2, gap });
        let upstream = upstream_of(stage, stalled).await;
        let gateway = behind(stage, &upstream.url(), "http1").await;
        let (took, answer) = ask(stage, &gateway).await;
        assert_eq!(answer.unwrap_err(), Failure::Broken);
        stage.tell(
            "a head, then no body",
            format!("cut after {} (timer {})", ms(took), ms(BODY_IDLE)),
        );
        assert!(took <= BODY_IDLE + SLACK, "{took:?}");
    });
}

/// The name has to be resolved within the time to connect.
async fn silent_resolver(stage: &Stage, timer: Duration) {
    let name = "a resolver that never answers";
    let url = "http://somewhere.seawall.test:80";
    let sections = format!("upstreams: {{only: {{endpoints: [\"{url}\"], {UPSTREAM}}}}}\n");
    let Some((gateway, _resolver)) = stage.without_names(&sections).await else {
        stage.tell(name, "NOT SHOWN: no mount namespace, or port 53 is not to be had");
        return;
    };
    let (took, answer) = ask(stage, &gateway).await;
    let status = answer.unwrap().status;
    stage.tell(name, format!("{status} after {} (timer {})", ms(took), ms(timer)));
    assert!(matches!(status.as_u16(), 502..=504), "{status}");
    assert!(took >= EARLY && took <= timer + SLACK, "{took:?}");
}

async fn ask(stage: &Stage, gateway: &Gateway) -> (Duration, Result<Answer, Failure>) {
    let begin = stage.clock.now();
    let answer = gateway.client(Protocol::Http1).send(get("/"), PATIENCE).await;
    (stage.clock.now().since(begin), answer)
}

#[test]
fn a_response_that_is_never_read_is_neither_kept_in_memory_nor_waited_for() {
    show("10 · 50 callers that never read 64 MiB", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok().body(vec![b'x'; 64 << 20])).await;
        let gateway = before(stage, &upstream.url()).await;
        alive(&gateway).await;
        let baseline = gateway.memory_kib("VmHWM");
        let mut callers = Vec::new();
        for _ in 0..50 {
            let mut raw = Raw::connect(stage.clock, gateway.process.address()).await;
            raw.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert_eq!(raw.first_byte().await, Some(b'H'));
            callers.push(raw);
        }
        let ended = stage.clock.now();
        gone(stage, &upstream).await;
        let ended = stage.clock.now().since(ended);
        let grown = gateway.memory_kib("VmHWM").saturating_sub(baseline);
        stage.tell("ended", format!("all after {} (timer {})", ms(ended), ms(BODY_IDLE)));
        stage.tell("memory", format!("peak {grown} KiB above {baseline} KiB (32768 allowed)"));
        assert!(ended <= BODY_IDLE + SLACK, "{ended:?}");
        assert!(grown <= 32 * 1024, "{grown} KiB");
        drop(callers);
        alive(&gateway).await;
    });
}

/// Waits until the upstream is no longer sending to anyone: sending fills the sockets and stalls,
/// so its connections end only when the gateway ends them.
async fn gone(stage: &Stage, upstream: &Upstream) {
    stage.until("every transfer to end", PATIENCE, || upstream.journal().open() == 0).await;
}

async fn before(stage: &Stage, upstream: &str) -> Gateway {
    stage
        .configured_listener(
            LISTENER,
            &format!("upstreams: {{only: {{endpoints: [\"{upstream}\"], {UPSTREAM}}}}}\n"),
        )
        .await
}

async fn behind(stage: &Stage, upstream: &str, protocol: &str) -> Gateway {
    stage
        .configured(&format!(
            "upstreams: {{only: {{endpoints: [\"{upstream}\"], \
             protocol: {protocol}, {UPSTREAM}}}}}\n"
        ))
        .await
}

async fn alive(gateway: &Gateway) {
    let answer = gateway.client(Protocol::Http1).send(get("/"), PATIENCE).await.unwrap();
    assert_eq!(answer.status, 200);
}
