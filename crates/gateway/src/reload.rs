//! Reads the configuration again while it is in force, and puts the new one in its place.
//!
//! Asked by SIGHUP, by the admin port, or by a change of the file. The whole file is checked first:
//! what is wrong with it is told as `seawall check` tells it, and changes nothing. What cannot
//! change in a running process is refused too, by the name of its field. Then the new
//! configuration takes over all state by name ([`Gateway::succeed`]) and is in force for every
//! request that begins from then on.
//!
//! One reload at a time; asked for again and again meanwhile, one more follows. A process that
//! drains reloads nothing. What was refused is tried again every few seconds: it may name a
//! certificate whose key came later.

mod reading;
mod refusal;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use seawall::FileWatch;
use tokio::sync::{Notify, watch as channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

pub(crate) use self::reading::READINGS_MAX;
use self::reading::Readings;
pub(crate) use self::refusal::Refusal;
use crate::access_log::AccessLog;
use crate::boot::{listener_options, open_listener, server_options};
use crate::config::{AccessLog as LogTo, GatewayConfig, MAX_BYTES};
use crate::diagnostics::Topic;
use crate::gateway::Gateway;
use crate::server::{Control, DrainPhase, DrainView, Listener, Listening};
use crate::tls::TlsStore;

/// The configuration in force, and the way to another.
#[derive(Debug)]
pub(crate) struct Reloader {
    gateway: ArcSwap<Gateway>,
    control: Control,
    drain: channel::Receiver<DrainView>,
    file_limit: u64,
    /// Whether the configuration says where the access log goes.
    owns_log: bool,
    /// Held while a reload is under way.
    one: Arc<tokio::sync::Mutex<()>>,
    readings: Readings,
    asked: Notify,
    asked_by: Mutex<&'static str>,
    status: Mutex<Status>,
    /// Follows the file of the kill switch.
    switch: Mutex<Option<JoinHandle<()>>>,
}

/// What became of reloads so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// By [`Reloaded::index`].
    pub(crate) counts: [u64; Reloaded::LABELS.len()],
    /// Why the last one was refused; nothing if it was not.
    pub(crate) refused: Option<Refusal>,
    /// When the configuration in force was put there, in milliseconds since the Unix epoch.
    pub(crate) in_force_since: u64,
}

impl Status {
    /// How manieth the configuration in force is.
    pub(crate) const fn generation(&self) -> u64 {
        self.counts[Reloaded::Applied.index()] + 1
    }
}

/// What became of one reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reloaded {
    /// The new configuration is in force.
    Applied,
    /// It is the one in force.
    Unchanged,
    /// It cannot be run. The one in force stays.
    Refused(Refusal),
}

impl Reloaded {
    /// Labels in metrics.
    pub(crate) const LABELS: [&'static str; 3] = ["applied", "unchanged", "refused"];

    const fn index(&self) -> usize {
        match self {
            Self::Applied => 0,
            Self::Unchanged => 1,
            Self::Refused(_) => 2,
        }
    }

    /// Its label.
    pub(crate) const fn as_str(&self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

impl Reloader {
    /// With `gateway` in force.
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        control: Control,
        drain: channel::Receiver<DrainView>,
        file_limit: u64,
        owns_log: bool,
    ) -> Arc<Self> {
        let in_force_since = gateway.clock.unix_millis();
        let reloader = Self {
            gateway: ArcSwap::new(gateway),
            control,
            drain,
            file_limit,
            owns_log,
            one: Arc::default(),
            readings: Readings::new(),
            asked: Notify::new(),
            asked_by: Mutex::new(""),
            status: Mutex::new(Status { in_force_since, ..Status::default() }),
            switch: Mutex::default(),
        };
        reloader.follow_switch();
        Arc::new(reloader)
    }

    /// The gateway of the configuration in force.
    pub(crate) fn gateway(&self) -> Arc<Gateway> {
        self.gateway.load_full()
    }

    /// What became of reloads so far.
    pub(crate) fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// As many connections as there may be.
    pub(crate) fn max_connections(&self) -> usize {
        server_options(&self.gateway.load().config, self.file_limit).max_connections
    }

    /// Asks for a reload, and does not wait for it.
    pub(crate) fn ask(&self, by: &'static str) {
        *self.asked_by.lock() = by;
        self.asked.notify_one();
    }

    /// Reloads whenever it is asked, for as long as it is polled.
    pub(crate) async fn run(self: &Arc<Self>) {
        loop {
            self.asked.notified().await;
            let by = *self.asked_by.lock();
            self.reload(by).await;
        }
    }

    /// The file has changed, or seems to. Nothing is said if its text is the one in force.
    async fn file_changed(&self) {
        let _one = self.one.lock().await;
        if let Some(reloaded) = self.read_and_take(false).await {
            self.tell("its file", &reloaded);
        }
    }

    /// Reads the file again and puts it in force; the certificates, too. Once begun it goes on to
    /// its end, should nobody wait for it any more: half of it would be in force.
    pub(crate) async fn reload(self: &Arc<Self>, by: &str) -> Reloaded {
        let one = Arc::clone(&self.one).lock_owned().await;
        let (reloader, by) = (Arc::clone(self), by.to_owned());
        let reload = tokio::spawn(async move {
            let _one = one;
            reloader.reload_alone(&by).await
        });
        let failed = |error| Reloaded::Refused(format!("reloading failed: {error}").into());
        reload.await.unwrap_or_else(failed)
    }

    async fn reload_alone(&self, by: &str) -> Reloaded {
        let reloaded = self.read_and_take(true).await.unwrap_or(Reloaded::Unchanged);
        self.tell(by, &reloaded);
        // What is new or wrong there is told there. What hangs would be waited for once more.
        let tls = Arc::clone(&self.gateway.load().tls);
        if !tls.is_empty() && !self.readings.hang() {
            tls.reload().await;
        }
        reloaded
    }

    /// What was refused may be fit by now: a file that it names was half written, and is whole.
    async fn try_again(&self) {
        let _one = self.one.lock().await;
        let Some(before) = self.status().refused else { return };
        // What hangs is left to who asks.
        if self.readings.hang() || self.is_leaving() {
            return;
        }
        match self.read_and_take(true).await {
            Some(Reloaded::Refused(why)) if why == before => {}
            Some(reloaded) => self.tell("another try", &reloaded),
            None => {}
        }
    }

    /// Nothing if the text is the one in force and nobody asked to look closer.
    async fn read_and_take(&self, closely: bool) -> Option<Reloaded> {
        let leaving = || Reloaded::Refused("the process is leaving".to_owned().into());
        if self.is_leaving() {
            return closely.then(leaving);
        }
        let old = self.gateway.load_full();
        let taken = match self.readings.read(&old, closely).await {
            // It took its time.
            _ if self.is_leaving() => return closely.then(leaving),
            Ok(Some((config, tls))) => self.take(&old, config, tls).await.map_err(Refusal::from),
            Ok(None) => return closely.then_some(Reloaded::Unchanged),
            Err(why) => Err(why),
        };
        Some(match taken {
            Ok(()) => Reloaded::Applied,
            Err(why) => Reloaded::Refused(why),
        })
    }

    fn is_leaving(&self) -> bool {
        self.drain.borrow().phase != DrainPhase::Serving
    }

    /// Puts a checked configuration in force, or says why it cannot be.
    async fn take(
        &self,
        old: &Arc<Gateway>,
        config: GatewayConfig,
        tls: Arc<TlsStore>,
    ) -> Result<(), String> {
        if config.admin != old.config.admin {
            let (now, then) = (old.config.admin, config.admin);
            return Err(format!("admin.address: {then} in place of {now} needs a restart"));
        }
        let numbers = old.listener_numbers(&config)?;
        let mut sockets = Vec::new();
        for (listener, number) in config.listeners.iter().zip(&numbers) {
            let address = &listener.address;
            let socket = (!old.listeners.contains(number)).then(|| open_listener(address));
            sockets.push(socket.transpose().map_err(|error| error.to_string())?);
        }
        let access_log = self.access_log(old, &config)?;
        let gateway = old.succeed(config, tls, access_log).map_err(|error| error.to_string())?;
        let options = server_options(&gateway.config, self.file_limit);
        let listeners = gateway.config.listeners.iter().zip(numbers).zip(sockets).enumerate();
        let listening = |(index, ((listener, number), socket))| {
            let options = listener_options(listener, gateway.tls.listener(index).cloned());
            Listening { number, socket, options }
        };
        let listeners = listeners.map(listening).collect();
        let moved = gateway.config.kill_switch != old.config.kill_switch;
        gateway.begin_checks();
        set_modes(&gateway);
        gateway.tls.warn_of_times(Some(&old.tls));
        self.gateway.store(gateway);
        self.control.change(options, listeners).await;
        if moved {
            self.move_switch(old.config.kill_switch.as_deref()).await;
        }
        Ok(())
    }

    fn access_log(&self, old: &Gateway, config: &GatewayConfig) -> Result<AccessLog, String> {
        if !self.owns_log || old.config.access_log == config.access_log {
            return Ok(old.access_log.clone());
        }
        let log = match config.access_log {
            LogTo::Off => old.access_log.silenced(),
            LogTo::Stdout => old.access_log.or_stdout().map_err(|error| error.to_string())?,
        };
        Ok(log)
    }

    /// Follows the kill switch's file, if there is one, and leaves a line when an *off* ends.
    fn follow_switch(&self) {
        let gateway = self.gateway.load();
        let switch = gateway.kill_switch.clone();
        let file = gateway.config.kill_switch.clone();
        let task = tokio::spawn(async move {
            match file {
                Some(file) => switch.watch_file(file).await,
                None => switch.watch().await,
            }
        });
        *self.switch.lock() = Some(task);
    }

    /// Follows the file that there is now, and no longer the one before, whose word ends.
    async fn move_switch(&self, before: Option<&Path>) {
        let task = self.switch.lock().take();
        if let Some(task) = task {
            task.abort();
            // It may be speaking at this moment.
            let _ = task.await;
        }
        if let Some(before) = before {
            self.gateway.load().kill_switch.forget_file(before);
        }
        self.follow_switch();
    }

    /// Ends what it began.
    pub(crate) fn close(&self) {
        self.gateway().end_checks();
        if let Some(task) = self.switch.lock().take() {
            task.abort();
        }
    }

    fn tell(&self, by: &str, reloaded: &Reloaded) {
        let gateway = self.gateway.load();
        let hash = gateway.config.origin.hash();
        {
            let mut status = self.status.lock();
            status.counts[reloaded.index()] += 1;
            status.refused = match reloaded {
                Reloaded::Refused(why) => Some(why.clone()),
                Reloaded::Applied | Reloaded::Unchanged => None,
            };
            if *reloaded == Reloaded::Applied {
                status.in_force_since = gateway.clock.unix_millis();
            }
        }
        let diagnostics = &gateway.diagnostics;
        match reloaded {
            Reloaded::Applied => {
                let message = "configuration reloaded";
                diagnostics.info(Topic::Reload, message, &[("by", &by), ("hash", &hash)]);
            }
            Reloaded::Unchanged => {
                let message = "configuration unchanged";
                diagnostics.info(Topic::Reload, message, &[("by", &by), ("hash", &hash)]);
            }
            Reloaded::Refused(why) => diagnostics.warn_each(
                Topic::Reload,
                "configuration not reloaded: the one in force stays",
                &[("by", &by), ("hash", &hash)],
                ("why", why.lines()),
            ),
        }
    }
}

/// Follows the file for as long as it is polled, and tries again what was refused; at once over
/// where there is none, or a pipe, which was read once and has nothing more to say.
pub(crate) async fn watch_file(reloader: &Reloader) {
    let Some(path) = reloader.gateway().config.origin.file().map(Path::to_owned) else { return };
    let read = path.clone();
    let is_pipe = move || std::fs::metadata(read).is_ok_and(|known| !known.is_file());
    if crate::blocking::apart(is_pipe).await.unwrap_or(false) {
        return;
    }
    let mut watch = FileWatch::new(LOOK_EVERY, MAX_BYTES);
    let follow = async {
        loop {
            watch.changed(|| vec![path.clone()]).await;
            reloader.file_changed().await;
        }
    };
    let again = async {
        loop {
            sleep(AGAIN_EVERY).await;
            reloader.try_again().await;
        }
    };
    // Neither ends.
    tokio::select! {
        () = follow => {}
        () = again => {}
    }
}

/// Sockets that stay open have the permissions of the new configuration; the others have them.
fn set_modes(gateway: &Gateway) {
    for listener in &gateway.config.listeners {
        if let Err(error) = Listener::set_mode(&listener.address) {
            gateway.diagnostics.warn(
                Topic::Reload,
                "permissions of a socket not changed",
                &[("address", &listener.address), ("why", &error)],
            );
        }
    }
}

/// Source: seawall-design.
const AGAIN_EVERY: Duration = Duration::from_secs(5);
/// Source: seawall-design.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
