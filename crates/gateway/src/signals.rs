//! What signals ask of the process: SIGTERM, SIGINT and SIGQUIT to leave, SIGHUP to read its
//! configuration again, SIGUSR1 and SIGUSR2 nothing.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::diagnostics::{Diagnostics, Topic};
use crate::notify;
use crate::server::DrainTrigger;

/// Every signal that means something to a server, each of which would else end the process.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy)]
enum Asked {
    Drain,
    Reload,
    Nothing,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> (&'static str, Asked) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", Asked::Drain),
            _ = self.interrupt.recv() => ("SIGINT", Asked::Drain),
            _ = self.quit.recv() => ("SIGQUIT", Asked::Drain),
            _ = self.hangup.recv() => ("SIGHUP", Asked::Reload),
            _ = self.user1.recv() => ("SIGUSR1", Asked::Nothing),
            _ = self.user2.recv() => ("SIGUSR2", Asked::Nothing),
        }
    }
}

/// Does what signals ask for, for as long as it is polled.
pub(crate) async fn listen_to_signals(
    trigger: DrainTrigger,
    reload: impl Fn(&'static str),
    mut signals: Signals,
    diagnostics: Diagnostics,
) {
    let mut message = "draining; a second signal hastens";
    loop {
        let (name, asked) = signals.next().await;
        match asked {
            Asked::Drain => {
                diagnostics.info(Topic::Drain, message, &[("signal", &name)]);
                message = "draining, hastened";
                notify::tell(notify::STOPPING);
                trigger.signal();
            }
            Asked::Reload => reload(name),
            Asked::Nothing => diagnostics.info(
                Topic::Signal,
                "this signal does nothing yet; SIGTERM drains, SIGHUP reloads",
                &[("signal", &name)],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use seawall::Clock;

    use super::*;
    use crate::lines::tests::Page;
    use crate::server::drain_signal;

    /// Sends a signal to this process, which catches it.
    fn send(name: &str) {
        let pid = std::process::id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    #[tokio::test]
    async fn three_signals_drain_one_reloads_and_two_are_answered_with_a_line() {
        let page = Page::default();
        let diagnostics = Diagnostics::to(page.clone(), false, Clock::new()).unwrap();
        let (trigger, _signalled) = drain_signal();
        let signals = Signals::new().unwrap();
        let reloads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reloads);
        let reload = move |_| _ = counted.fetch_add(1, SeqCst);
        let listening = listen_to_signals(trigger.clone(), reload, signals, diagnostics);
        let listening = tokio::spawn(listening);
        let until = async |what: &str, holds: &dyn Fn() -> bool| {
            let held = async {
                while !holds() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), held).await.expect(what);
        };
        send("HUP");
        until("HUP", &|| reloads.load(SeqCst) == 1).await;
        for (name, drains) in [("USR1", 0), ("USR2", 0), ("QUIT", 1), ("INT", 2), ("TERM", 3)] {
            send(name);
            until(name, &|| page.text().contains(&format!("signal=SIG{name}"))).await;
            let text = page.text();
            let line = text.lines().last().unwrap();
            let words = if drains == 0 { "does nothing yet" } else { "draining" };
            assert!(line.contains(words), "{line}");
            until(name, &|| trigger.signals() == drains).await;
        }
        assert_eq!(reloads.load(SeqCst), 1);
        listening.abort();
    }
}
