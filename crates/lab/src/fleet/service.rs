//! What can be called, and who calls whom.
//!
//! ```text
//!   clients ──▶ gateway ──▶ api ──▶ auth
//!                            └────▶ one of bridge-a, bridge-b
//! ```
//!
//! A server of a service that calls others is a process like a client, with policies of its own. A
//! request that it works on holds its worker through its own work and then through its calls, one
//! after another; the first that fails ends it. What its caller is told is the upstream's answer as
//! it is, or, where it never came, that this server could not get one.

use std::time::Duration;

use seawall_policy::units::format_duration;
use seawall_policy::{ConfigError, StackParams};

use super::{Fleet, Host, Later, Refusal, Sharing, Work};
use crate::span::check as within;

/// Servers, alike, under one name.
#[derive(Clone, Debug)]
pub struct Service {
    /// What it is called.
    pub name: String,
    /// How many servers. From 1 to 10,000.
    pub servers: u32,
    /// What each of them is.
    pub host: Host,
    /// Who says which server a request goes to.
    pub pick: Pick,
    /// What a request calls after its server's own work: step by step one of these. At most 8.
    pub calls: Vec<Vec<Target>>,
    /// How those calls are made, unless their target says otherwise.
    pub policy: StackParams,
    /// Whether one budget, breaker and bulkhead of a server stand before all that it calls, as if
    /// it had one name; otherwise each target has its own.
    pub is_together: bool,
    /// Whether it tells its caller not to try again where its own retries gave up.
    pub says_stop: bool,
    /// Whether its calls for a request end in the time that was left for it when it came.
    pub deadlines: bool,
    /// Whether the attempts of a call that nobody waits for any longer are cut, as
    /// [`Fleet::cancels`].
    pub cancels: bool,
    /// When a server dies of its load.
    pub dies: Option<Dies>,
}

/// Who says which server of a service a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The caller's policies: each server is an endpoint of its own.
    Policy,
    /// Something behind the one name that callers know, at random.
    Name,
    /// The same, by the key of the call: always the same server for the same key.
    Key,
}

impl Pick {
    /// Whether callers know one name only.
    pub(super) const fn is_hidden(self) -> bool {
        matches!(self, Self::Name | Self::Key)
    }
}

/// A server that cannot hold more than so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dies {
    /// Requests inside, waiting and worked on, at which it dies: all are closed, and what it knew
    /// of what it calls is gone. From 1.
    pub at: u32,
    /// How long nobody can connect to it then.
    pub restarts_in: Duration,
}

/// A service that is called, by its place among all.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which.
    pub service: u32,
    /// How often, beside the shares of the others; above 0.
    pub share: f64,
    /// How it is called, if not as the others.
    pub policy: Option<StackParams>,
}

impl Service {
    /// Servers that call nobody, each an endpoint of whoever calls them.
    #[must_use]
    pub fn new(name: &str, servers: u32, host: Host, policy: StackParams) -> Self {
        Self {
            name: name.to_owned(),
            servers,
            host,
            pick: Pick::Policy,
            calls: Vec::new(),
            policy,
            is_together: false,
            says_stop: true,
            deadlines: false,
            cancels: false,
            dies: None,
        }
    }
}

impl Target {
    /// A service called as often as each other one, by the policy of all.
    #[must_use]
    pub const fn new(service: u32) -> Self {
        Self { service, share: 1.0, policy: None }
    }
}

/// Refuses services and calls that can never work.
pub(super) fn check(fleet: &Fleet) -> Result<(), ConfigError> {
    let count = u32::try_from(fleet.services.len()).unwrap_or(u32::MAX);
    within("services", count.into(), 1.0, MOST_SERVICES)?;
    for service in &fleet.services {
        within("servers", service.servers.into(), 1.0, MOST_SERVERS)?;
        if let Work::Queue { workers: 0, .. } = service.host.work {
            return Err(ConfigError::new("host.workers", 0, "at least 1"));
        }
        if let Some(door) = &service.host.door {
            within("door.workers", door.workers.into(), 1.0, 1e6)?;
            // A bit for each caller at each server.
            let bits = f64::from(fleet.clients) * f64::from(service.servers);
            within("clients", bits, 1.0, MOST_INSIDE)?;
        }
        let Refusal { cost, drop_cost, later, .. } = &service.host.refusal;
        within("refusal.cost", *cost, 0.0, 10.0)?;
        within("refusal.drop_cost", *drop_cost, 0.0, 10.0)?;
        later.as_ref().map_or(Ok(()), Later::check)?;
        if let Some(Dies { at: 0, .. }) = service.dies {
            return Err(ConfigError::new("dies.at", 0, "at least 1"));
        }
        if service.pick == Pick::Key && fleet.keys.is_none() {
            return Err(ConfigError::new("pick", "key", "another way where calls have no keys"));
        }
        within("calls", service.calls.len() as f64, 0.0, MOST_STEPS)?;
        for step in &service.calls {
            targets("calls", step, service.is_together, fleet)?;
        }
    }
    if fleet.lives.is_some() && fleet.sharing == Sharing::All {
        let allowed = "lives only where each client has policies of its own";
        return Err(ConfigError::new("lives", fleet.lives.unwrap_or(0), allowed));
    }
    if let Some(connect) = fleet.connect
        && !fleet.services.iter().any(|service| service.host.door.is_some())
    {
        let shown = format_duration(connect);
        let allowed = "none where no server has a door: connections are there already";
        return Err(ConfigError::new("connect", shown, allowed));
    }
    targets("to", &fleet.to, fleet.is_together, fleet)?;
    ends(fleet)
}

fn targets(
    field: &'static str,
    targets: &[Target],
    is_together: bool,
    fleet: &Fleet,
) -> Result<(), ConfigError> {
    within(field, targets.len() as f64, 1.0, MOST_SERVICES)?;
    for target in targets {
        within("share", target.share, 1e-6, 1e6)?;
        if target.service as usize >= fleet.services.len() {
            let allowed = format!("a service below {}", fleet.services.len());
            return Err(ConfigError::new(field, target.service, allowed));
        }
        if target.policy.is_some() && is_together {
            let allowed = "one policy for all where their state is one";
            return Err(ConfigError::new("policy", "of one target", allowed));
        }
    }
    Ok(())
}

/// A service that calls itself, by whatever way round, would do so for ever.
fn ends(fleet: &Fleet) -> Result<(), ConfigError> {
    let calls = |from: usize| {
        let steps = fleet.services[from].calls.iter().flatten();
        steps.map(|target| target.service as usize).collect::<Vec<_>>()
    };
    for service in 0..fleet.services.len() {
        let mut reached = vec![false; fleet.services.len()];
        let mut to_go = calls(service);
        while let Some(next) = to_go.pop() {
            if next == service {
                let name = fleet.services[service].name.clone();
                return Err(ConfigError::new("calls", name, "calls that lead back to nobody"));
            }
            if !std::mem::replace(&mut reached[next], true) {
                to_go.extend(calls(next));
            }
        }
    }
    Ok(())
}

/// Source: own choice.
const MOST_SERVICES: f64 = 64.0;
/// Clients times servers that have a door: an eighth of that is taken in bytes. Source: own choice.
const MOST_INSIDE: f64 = 1e9;
/// Source: own choice (each is an endpoint of every client's dependency).
const MOST_SERVERS: f64 = 1e4;
/// Source: own choice (each has draws of its own).
const MOST_STEPS: f64 = 8.0;
