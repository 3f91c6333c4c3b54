//! Files that are wrong, and where.
#![expect(clippy::float_cmp, reason = "what is compared was counted, or must not have changed")]

use std::fs;
use std::time::Duration;

use crate::show_14_reload::World;

/// Reloads each wrong file; how many there were.
pub(crate) async fn refuse(world: &World<'_>) -> usize {
    let good = fs::read_to_string(world.place.file()).unwrap();
    let round = round_of(&good);
    for (from, to, why) in WRONG {
        let pause = pause(world);
        assert!(good.contains(from), "{from}");
        let marked = good.replacen(from, to, 1);
        let (before, after) = marked.split_once('§').unwrap();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
        let place = format!("{}:{line}:{column}", world.place.file().display());
        world.place.rename(format!("{before}{after}"));
        let body = refused(world, why).await;
        assert!(
            body.lines().any(|line| line.trim_start() == format!("--> {place}")),
            "{place}\n{body}"
        );
        // At the end of the line, or before what follows on it.
        let named = ["\"", ";"].map(|next| format!(" at {place}{next}"));
        let told = || {
            let said = world.gateway.process.said();
            named.iter().any(|named| said.contains(named))
        };
        world.stage.until(&format!("{place} on standard error"), PATIENCE, told).await;
        world.probe(round).await;
        pause.await;
    }
    good_again(world, &good).await;
    WRONG.len()
}

/// The same with files that have no line to name.
pub(crate) async fn refuse_unread(world: &World<'_>) -> usize {
    let good = fs::read_to_string(world.place.file()).unwrap();
    let round = round_of(&good);
    let mut latin = good.clone().into_bytes();
    latin.extend_from_slice(b"# caf\xe9\n");
    let large = format!("{good}#{}\n", "x".repeat(1 << 20));
    let restart = good.replace("admin: {address: \"127.0.0.1:0\"}", "admin: {address: '[::1]:0'}");
    let wrong = [
        (Vec::new(), "version: is missing"),
        (latin, "not UTF-8"),
        (large.into_bytes(), "larger than 1MiB"),
        (restart.into_bytes(), "needs a restart"),
    ];
    for (text, why) in &wrong {
        let pause = pause(world);
        world.place.rename(text);
        refused(world, why).await;
        let told = || world.gateway.process.said().contains(why);
        world.stage.until(&format!("{why} on standard error"), PATIENCE, told).await;
        world.probe(round).await;
        pause.await;
    }
    fs::remove_file(world.place.file()).unwrap();
    refused(world, "No such file").await;
    world.probe(round).await;
    fs::write(world.place.file(), &good).unwrap();
    good_again(world, &good).await;
    wrong.len() + 1
}

/// The answer of `POST /reload` to what is there now.
async fn refused(world: &World<'_>, why: &str) -> String {
    let before = world.reloads("refused").await;
    let (status, body) = world.post().await;
    assert_eq!(status, 422, "{why}: {body}");
    assert!(body.contains(why), "{why}: {body}");
    assert!(world.reloads("refused").await > before);
    assert_eq!(successful(world).await, 0.0);
    body
}

/// Over a tenth of a second from now. A topic says ten lines a second on standard error, and every
/// file is looked for there.
fn pause(world: &World<'_>) -> tokio::time::Sleep {
    let clock = world.stage.clock;
    tokio::time::sleep_until(clock.instant(clock.now().after(Duration::from_millis(110))))
}

async fn good_again(world: &World<'_>, good: &str) {
    world.place.rename(good);
    let (status, body) = world.post().await;
    assert!(status == 200 && body.contains("unchanged"), "{status} {body}");
    assert_eq!(successful(world).await, 1.0);
}

async fn successful(world: &World<'_>) -> f64 {
    world.gateway.metric("seawall_config_last_reload_successful", &[]).await
}

fn round_of(text: &str) -> u32 {
    let (_, round) = text.split_once("X-Round: '").unwrap();
    round.split('\'').next().unwrap().parse().unwrap()
}

const PATIENCE: Duration = Duration::from_secs(5);
const LOG: &str = "access_log: off\n";

/// What of the good file is replaced, by what, and what is said; `§` is the place that is named.
const WRONG: &[(&str, &str, &str)] = &[
    ("\"}\naccess_log: off", "\"\n§access_log: off", "this is not YAML"),
    ("version: 1\n", "version: §1\n\t", "this is not YAML"),
    (LOG, "access_log: off\n§access_log: off\n", "the key `access_log` is there twice"),
    (LOG, "access_log: off\n§---\n", "only one document"),
    (LOG, "§access_lag: off\n", "did you mean `access_log`?"),
    ("bulkhead: {", "§bulkheed: {", "did you mean `bulkhead`?"),
    ("version: 1", "version: §2", "`2` is not allowed; give 1"),
    ("protocol: h2c", "max_connections: §many", "`many` is not allowed; give a whole number"),
    ("protocol: h2c", "protocol: §h3", "give http1, h2 or h2c"),
    ("attempt: 5s", "attempt: §5 parsecs", "`5 parsecs` is not allowed"),
    ("attempt: 5s", "attempt: §-5s", "`-5s` is not allowed"),
    ("attempt: 5s", "attempt: §30s", "`30s` is not allowed; give at most total (20s)"),
    ("limit: 100}", "limit: 1, per_route: §10}", "give at most limit (1)"),
    ("min_calls: 4", "failure_ratio: §150%", "give over 0% up to 100%"),
    ("min_calls: 4", "mode: §ajar", "`ajar` is not allowed"),
    ("limits: {", "limits: {replay: §64 quarts, ", "`64 quarts` is not allowed"),
    ("upstream: second", "upstream: §secund", "did you mean `second`?"),
    ("[127.0.0.1/32]", "[§127.0.0.1/40]", "give a prefix of 0 to 32 bits"),
    ("\"127.0.0.1:0\"", "§\"127.0.0.1:99999\"", "give a literal address and a port"),
    ("path_prefix: /h2c", "path_prefix: §h2c", "give a path like /orders"),
    ("path_prefix: /h2c", "path_prefix: §/broken", "takes the same requests"),
    ("endpoints: [", "§endpoints: []\n    # [", "endpoints: is missing"),
    ("[\"http:", "[§\"ftp:", "give a URL like"),
    (LOG, "access_log: off\nkill_switch: §${SEAWALL_SHOW_NOWHERE}\n", "is not set"),
    (LOG, "access_log: off\n§drain: {accept: 50s}\n", "termination grace (30s)"),
    (LOG, "access_log: off\nheaders: {tenant: §\"X Tenant\"}\n", "give a header name"),
];
