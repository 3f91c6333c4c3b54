//! Reload after reload under load, by every way there is: nobody notices, and what was known is
//! known on. Files that are wrong are refused with their line, and change nothing.
#![expect(clippy::float_cmp, reason = "what is compared was counted, or must not have changed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use seawall_cli::demo::{Behaviour, Ledger, LoadOptions, Protocol, Upstream, get};

use crate::harness::{EVER, Gateway, PATIENCE, Stage, ms, request, show, upstream_of};
use crate::show_14_broken::{refuse, refuse_unread};

#[test]
fn reloads_lose_no_request_keep_all_state_and_refuse_what_is_wrong() {
    show("14 · reloads under load of HTTP/1.1 and of h2c", async |stage| {
        let world = World::start(stage).await;
        world.open_breaker().await;
        let balance = world.broken_balance().await;
        let options = LoadOptions::new(stage.pick(100, 500), PATIENCE);
        let loads = [(Protocol::Http1, "/http1"), (Protocol::H2c, "/h2c")].map(|(of, path)| {
            let client = world.gateway.client(of);
            (path, stage.load(&client, options, path))
        });
        let rounds = stage.pick(30, 200);
        let begin = stage.clock.now();
        for round in 1..=rounds {
            world.round(round).await;
        }
        let served = world.reloads("applied").await;
        assert_eq!(served, f64::from(rounds), "each once");
        assert_eq!(world.reloads("refused").await, 0.0, "{}", world.gateway.process.said());
        let took = stage.clock.now().since(begin);
        world.storm_of_signals(rounds).await;
        let refused = refuse(&world).await + refuse_unread(&world).await;

        let mut probes = world.probes.get();
        let mut ledgers = Vec::new();
        for (path, load) in loads {
            let ledger = load.stop().await;
            let all = ledger.all();
            assert_eq!(all.good, all.sent, "{path}: {}", all.describe());
            ledgers.push((path, ledger));
        }
        probes += ledgers[0].1.all().sent;
        world.judge(probes, &ledgers[1].1).await;
        assert_eq!(world.broken_balance().await, balance, "the balance went on");
        assert_eq!(world.breaker().await, OPEN);
        let held = world.gateway.metric("seawall_bulkhead_in_flight", &[]).await;
        assert_eq!(held, 0.0, "places that nobody gave back");

        stage.tell(
            "reloads",
            format!("{served} of {rounds} applied in {took:.1?}: {}", world.ways(rounds)),
        );
        for (path, ledger) in &ledgers {
            let all = ledger.all();
            let figures = format!("{}, none failed, p99 {}", all.sent, ms(all.quantile(0.99)));
            stage.tell(format!("calls of {path}"), figures);
        }
        stage.tell("breaker, budget, counters", "open on, unchanged, gone on");
        stage.tell("broken files", format!("{refused}, each refused with its place"));
    });
}

/// The gateway, its file, and what is behind it.
pub(crate) struct World<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) gateway: Gateway,
    pub(crate) place: Place,
    /// Always there, there in every other round, behind h2c, and always failing.
    upstreams: [Upstream; 4],
    probes: std::cell::Cell<u64>,
}

impl<'a> World<'a> {
    async fn start(stage: &'a Stage) -> Self {
        let behaviour = Behaviour::ok().after(Duration::from_millis(10));
        let upstreams = [
            upstream_of(stage, behaviour.clone()).await,
            upstream_of(stage, behaviour.clone()).await,
            upstream_of(stage, behaviour).await,
            upstream_of(stage, Behaviour::status(503)).await,
        ];
        let place = Place::new(&text(&upstreams, 0));
        let gateway = stage.following(&place.file()).await;
        Self { stage, gateway, place, upstreams, probes: 0.into() }
    }

    /// The file of this round.
    pub(crate) fn text(&self, round: u32) -> String {
        text(&self.upstreams, round)
    }

    async fn open_breaker(&self) {
        let client = self.gateway.client(Protocol::Http1);
        for number in 0..20 {
            let answer = client.send(get(&format!("/broken?call={number}")), PATIENCE).await;
            assert_eq!(answer.unwrap().status, 503);
        }
        assert_eq!(self.breaker().await, OPEN);
    }

    async fn breaker(&self) -> f64 {
        self.gateway.metric("seawall_breaker_state", &["route=\"broken\""]).await
    }

    async fn broken_balance(&self) -> f64 {
        let labels = ["upstream=\"broken\""];
        self.gateway.metric("seawall_retry_budget_balance_tokens", &labels).await
    }

    /// How many reloads came to this.
    pub(crate) async fn reloads(&self, result: &str) -> f64 {
        let label = format!("result=\"{result}\"");
        self.gateway.metric("seawall_config_reloads_total", &[&label]).await
    }

    /// The status and the body of `POST /reload`.
    pub(crate) async fn post(&self) -> (u16, String) {
        let client = seawall_cli::demo::Client::new(self.gateway.process.admin(), Protocol::Http1);
        let answer = client.send(request("POST", "/reload", "", &[]), PATIENCE).await.unwrap();
        (answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).unwrap())
    }

    fn hangup(&self) {
        let pid = i32::try_from(self.gateway.process.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), Signal::HUP).unwrap();
    }

    /// Which way the reload of a round goes. By the file alone it takes a second: in the short
    /// form those are fewer.
    fn way(&self, round: u32) -> Way {
        let by_file = self.stage.pick((12..15).contains(&round), round % 5 > 1);
        match round % 15 {
            12 | 2 | 7 if by_file => Way::Rename,
            13 | 3 | 8 if by_file => Way::Edit,
            _ if by_file => Way::Link,
            even if even.is_multiple_of(2) => Way::Signal,
            _ => Way::Post,
        }
    }

    fn ways(&self, rounds: u32) -> String {
        let of = |way| (1..=rounds).filter(|round| self.way(*round) == way).count();
        let ways = [Way::Signal, Way::Post, Way::Rename, Way::Edit, Way::Link];
        let [signal, post, rename, edit, link] = ways.map(of);
        format!(
            "{signal} SIGHUP, {post} POST /reload, {rename} renames, {edit} edits in place, \
             {link} moves of ..data"
        )
    }

    /// One reload, and what must be so after it.
    async fn round(&self, round: u32) {
        let way = self.way(round);
        let text = self.text(round);
        match way {
            Way::Signal | Way::Post | Way::Rename => self.place.rename(&text),
            Way::Edit => self.place.edit(&text),
            Way::Link => self.place.link(&text, round),
        }
        match way {
            Way::Signal => self.hangup(),
            Way::Post => {
                let (status, body) = self.post().await;
                assert_eq!(status, 200, "round {round}: {body}");
            }
            Way::Rename | Way::Edit | Way::Link => {}
        }
        let end = self.stage.clock.now().after(PATIENCE);
        while self.reloads("applied").await < f64::from(round) {
            let said = self.gateway.process.said();
            assert!(self.stage.clock.now() < end, "round {round}, {way:?}:\n{said}");
            self.stage.pass(Duration::from_millis(20)).await;
        }
        self.probe(round).await;
    }

    /// The file of this round is in force, and the breaker is open still.
    pub(crate) async fn probe(&self, round: u32) {
        let client = self.gateway.client(Protocol::Http1);
        let number = self.probes.get();
        let send = async |path: &str| {
            client.send(get(&format!("{path}?call=probe-{number}")), PATIENCE).await.unwrap()
        };
        let plain = send("/probe").await;
        let body = String::from_utf8_lossy(&plain.body);
        assert_eq!(plain.status, 200, "round {round}: {body}");
        assert_eq!(plain.field("x-round"), Some(&*round.to_string()));
        assert_eq!(send("/extra").await.field("x-extra").is_some(), round.is_multiple_of(3));
        self.probes.set(number + 2);
        let arrived = self.upstreams[3].journal().len();
        assert_eq!(send("/broken").await.status, 503);
        assert_eq!(self.upstreams[3].journal().len(), arrived, "the breaker let it through");
    }

    /// A hundred times SIGHUP within a second, and ten files.
    async fn storm_of_signals(&self, last: u32) {
        let before = self.reloads("applied").await + self.reloads("unchanged").await;
        let begin = self.stage.clock.now();
        for volley in 1..=10 {
            self.place.rename(self.text(last + volley));
            (0..10).for_each(|_| self.hangup());
            self.stage.pass(Duration::from_millis(80)).await;
        }
        let took = self.stage.clock.now().since(begin);
        let end = self.stage.clock.now().after(PATIENCE);
        let client = self.gateway.client(Protocol::Http1);
        let wanted = (last + 10).to_string();
        loop {
            let number = self.probes.replace(self.probes.get() + 1);
            let path = format!("/probe?call=storm-{number}");
            let answer = client.send(get(&path), PATIENCE).await.unwrap();
            if answer.field("x-round") == Some(&*wanted) {
                break;
            }
            assert!(self.stage.clock.now() < end, "the last file is not in force");
            self.stage.pass(Duration::from_millis(20)).await;
        }
        self.probe(last + 10).await;
        let done = self.reloads("applied").await + self.reloads("unchanged").await - before;
        assert!((1.0..=60.0).contains(&done), "{done} reloads");
        assert_eq!(self.reloads("refused").await, 0.0);
        let figures = format!("{done} reloads in {took:.1?}, the last file in force");
        self.stage.tell("100 times SIGHUP", figures);
    }

    /// Each call arrived once, and was counted once, over all reloads.
    async fn judge(&self, main: u64, h2c: &Ledger) {
        let [always, at_times, second, _] =
            [0, 1, 2, 3].map(|at| self.upstreams[at].journal().attempts(EVER.0, EVER.1));
        assert!(at_times.all > 0, "the second endpoint was never used");
        assert_eq!(always.all + at_times.all, main);
        assert_eq!(always.first + at_times.first, main, "none executed twice");
        let h2c = h2c.all().sent;
        assert_eq!((second.all, second.first), (h2c, h2c));
        let counted = self.gateway.metric("seawall_first_attempts_total", &["route=\"h2c\""]);
        assert_eq!(counted.await, h2c as f64, "the counter went on");
    }
}

fn text(upstreams: &[Upstream; 4], round: u32) -> String {
    let [always, at_times, second, broken] = upstreams.each_ref().map(Upstream::url);
    let more = if round % 2 == 1 { format!(", \"{at_times}\"") } else { String::new() };
    let extra = "  - {path_prefix: /extra, upstream: main, name: extra, \
                 response_headers: {set: {X-Extra: 'yes'}}}\n";
    let extra = if round.is_multiple_of(3) { extra } else { "" };
    let (few, many) = (round % 7, round % 50);
    format!(
        "version: 1\n\
         listeners: [{{address: \"127.0.0.1:0\", trusted_peers: [127.0.0.1/32], \
         timeouts: {{idle: {}s}}}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         access_log: off\n\
         limits: {{head: {}KiB}}\n\
         upstreams:\n  \
           main:\n    \
             endpoints: [\"{always}\"{more}]\n    \
             timeouts: {{attempt: {}s, total: {}s}}\n    \
             bulkhead: {{limit: {}}}\n  \
           second:\n    \
             endpoints: [\"{second}\"]\n    \
             protocol: h2c\n    \
             timeouts: {{attempt: {}s}}\n  \
           broken:\n    \
             endpoints: [\"{broken}\"]\n    \
             timeouts: {{attempt: 5s, total: 20s}}\n    \
             breaker: {{min_calls: 4, open: {{base: 1h, cap: 1h}}}}\n    \
             bulkhead: {{limit: 100}}\n\
         routes:\n\
           {extra}  \
           - {{path_prefix: /broken, upstream: broken, name: broken}}\n  \
           - {{path_prefix: /h2c, upstream: second, name: h2c}}\n  \
           - {{path_prefix: /, upstream: main, name: all, \
           response_headers: {{set: {{X-Round: '{round}'}}}}}}\n",
        60 + few,
        48 + few,
        10 + few,
        20 + few,
        900 + many,
        11 + few,
    )
}

/// What asks for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Signal,
    Post,
    Rename,
    Edit,
    Link,
}

/// A folder laid out as Kubernetes mounts one: the file is a link into a link that moves.
pub(crate) struct Place(PathBuf);

impl Place {
    fn new(text: &str) -> Self {
        let place = std::env::temp_dir().join(format!("seawall-reload-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(place.join("..0")).unwrap();
        fs::write(place.join("..0/seawall.yaml"), text).unwrap();
        symlink("..0", place.join("..data")).unwrap();
        symlink("..data/seawall.yaml", place.join("seawall.yaml")).unwrap();
        Self(place)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("seawall.yaml")
    }

    /// Writes another file and moves it over the one that is linked to.
    pub(crate) fn rename(&self, text: impl AsRef<[u8]>) {
        let (beside, real) = (self.0.join("..data/beside"), self.0.join("..data/seawall.yaml"));
        fs::write(&beside, text).unwrap();
        fs::rename(beside, real).unwrap();
    }

    /// Writes into the file.
    fn edit(&self, text: &str) {
        fs::write(self.file(), text).unwrap();
    }

    /// Moves the link to another folder with another file.
    fn link(&self, text: &str, round: u32) {
        let name = format!("..{round}");
        fs::create_dir(self.0.join(&name)).unwrap();
        fs::write(self.0.join(&name).join("seawall.yaml"), text).unwrap();
        symlink(name, self.0.join("..tmp")).unwrap();
        fs::rename(self.0.join("..tmp"), self.0.join("..data")).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The value of `seawall_breaker_state` for an open breaker.
const OPEN: f64 = 2.0;
