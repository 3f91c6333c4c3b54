//! Reads the one configuration file and decides whether it can be run.
//!
//! A file that is accepted cannot fail later, so a mistake costs a second at the keyboard and not
//! an incident. All mistakes are told at once, each with its field, its value, what is allowed and
//! its line. Five steps: YAML to a tree with places (`node`), `${ENV}` in values (`env`), the tree
//! to structs of text (`decode`, `raw`), text to checked values (`scope`, `edge`, `upstream`,
//! `route`), and the result, which the rest of the gateway reads (`model`).
//!
//! Bounds: a file of 1 MiB, 1,000 routes, 256 upstreams, 1,024 endpoints.
//!
//! A default gives way to what is written: with `total: 5s` the default attempt timeout is 5 s,
//! not 12. Two values that are both written must agree.

mod address;
mod admin;
mod advice;
mod balance;
mod budget;
mod credentials;
mod decode;
mod door;
mod dump;
mod edge;
mod edits;
mod env;
mod grpc;
mod harmless;
mod health;
mod hedge;
mod host_header;
mod listen;
mod mask;
mod matching;
mod model;
mod node;
mod origin;
mod path;
mod precedence;
mod rate;
mod raw;
mod report;
mod retry;
mod route;
mod rules;
mod scope;
mod slow_readers;
mod tls;
mod upstream;
mod worst_case;

#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use address::parse_bind;
pub use admin::{AdminAccess, AdminToken};
pub use balance::Sharing;
pub use credentials::CredentialFile;
pub use edits::HeaderEdits;
pub use grpc::{Grpc, GrpcStreaming};
pub use health::{HealthCheck, Probe};
pub use host_header::HostHeader;
pub use listen::ListenAddress;
pub use matching::{Conditions, PathMatch};
pub use model::{
    AccessLog, Drain, EndpointAddress, Fallback, FallbackOn, GatewayConfig, HeaderNames, Limits,
    Listener, OnAbandon, PeerRange, Protocol, Route, SlowReaders, Upstream, UpstreamTimeouts,
};
pub use origin::Origin;
pub use rate::{PerKey, RateKeyOf, Rates};
pub use report::{ConfigErrors, Warning};
pub use rules::Rules;
pub use tls::{Alpn, CertificateFiles, ClientAuth, ListenerTls, RootsOf, TlsVersion, UpstreamTls};
pub use worst_case::WorstCase;

use decode::{Notes, decode};
use dump::Given;
use env::Lookup;
use node::Node;
use raw::{Named, RawConfig, RawListener, RawUpstream};
use report::{Finding, Source};
use scope::Checker;

impl GatewayConfig {
    /// Reads a file, which may be a pipe: another program's answer, which is waited for.
    ///
    /// # Errors
    /// It cannot be read ([`ConfigErrors::is_unreadable`]), or what is wrong with it.
    pub fn load(path: &Path) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        Self::load_by(read_once, path, None, None)
    }

    /// Reads a file that can be read again, so no pipe, with another address for its only listener,
    /// and another for the admin port.
    ///
    /// # Errors
    /// As [`load`](Self::load); also a pipe or a device, which nobody waits for, and `listen` for a
    /// file with several listeners.
    pub fn load_with(
        path: &Path,
        listen: Option<SocketAddr>,
        admin: Option<SocketAddr>,
    ) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        Self::load_by(|path| crate::file::read(path, MAX_BYTES), path, listen, admin)
    }

    fn load_by(
        read: impl FnOnce(&Path) -> std::io::Result<Vec<u8>>,
        path: &Path,
        listen: Option<SocketAddr>,
        admin: Option<SocketAddr>,
    ) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let name = path.display().to_string();
        let text = read(path).map_err(|why| {
            let is_other = std::fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir());
            let help = is_other.then_some(ONLY_A_FILE);
            ConfigErrors::unreadable(name.clone(), &why, help)
        })?;
        parse(text, name, Some(path), &Overrides { listen, admin }, &environment)
    }

    /// Reads `text`, which errors call `name`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, name: &str) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let bytes = text.as_bytes().to_vec();
        parse(bytes, name.to_owned(), None, &Overrides::default(), &environment)
    }

    /// The defaults around one endpoint: the same as a file with one upstream named `upstream`.
    ///
    /// # Errors
    /// `url` is not an endpoint, or one of the three addresses meets another.
    pub fn for_upstream(
        url: &str,
        listen: Option<SocketAddr>,
        admin: Option<SocketAddr>,
    ) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let upstream = RawUpstream { endpoints: vec![url.to_owned()], ..RawUpstream::default() };
        let raw = RawConfig {
            version: Some(VERSION.to_owned()),
            upstreams: Named(vec![("upstream".to_owned(), upstream)]),
            ..RawConfig::default()
        };
        let source = Source::new("the command line".to_owned(), String::new());
        let checker = Checker::default();
        check(raw, checker, Arc::new(source), &Overrides { listen, admin }, &environment)
            .map_err(|errors| errors.renamed(&OPTIONS))
    }
}

/// Addresses that the command line gives in place of the file's.
#[derive(Debug, Default)]
struct Overrides {
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The file, or a byte more than it may have.
fn read_once(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(
    bytes: Vec<u8>,
    name: String,
    file: Option<&Path>,
    overrides: &Overrides,
    lookup: &Lookup<'_>,
) -> Result<(GatewayConfig, Vec<Warning>), ConfigErrors> {
    let whole = |name, message: String| {
        let source = Arc::new(Source::new(name, String::new()));
        ConfigErrors::new(source, vec![Finding::new("", message)])
    };
    if bytes.len() as u64 > MAX_BYTES {
        return Err(whole(name, "the file is larger than 1MiB".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        whole(name.clone(), format!("the file is not UTF-8 (byte {at})"))
    })?;
    let mut source = Source::new(name, text);
    let node = match Node::parse(&source.text) {
        Ok(node) => node,
        Err(finding) => return Err(ConfigErrors::new(Arc::new(source), vec![*finding])),
    };
    let ((raw, notes), given) = Given::to(lookup, |lookup| decode::<RawConfig>(&node, lookup));
    source.spans = Some(harmless::spans(&node, &notes, &source.text));
    let source = Arc::new(source);
    let raw = raw.map_err(|error| {
        let finding = Finding::new("", error.to_string());
        ConfigErrors::new(Arc::clone(&source), vec![finding])
    })?;
    let origin = Origin::new(file, overrides, &source, given.clone());
    let checker = Checker { notes, warnings: Vec::new() };
    let hidden = harmless::hidden_names(&raw.upstreams);
    let told = |errors: ConfigErrors| errors.renamed(&hidden).scrubbed(&given);
    let (config, warnings) = check(raw, checker, source, overrides, lookup).map_err(told)?;
    let warnings = warnings.into_iter().map(|warning| warning.scrubbed(&given)).collect();
    Ok((GatewayConfig { origin, ..config }, warnings))
}

/// From text to values that hold together.
fn check(
    mut raw: RawConfig,
    mut checker: Checker,
    source: Arc<Source>,
    overrides: &Overrides,
    lookup: &Lookup<'_>,
) -> Result<(GatewayConfig, Vec<Warning>), ConfigErrors> {
    version(&mut checker, &raw.version);
    apply(&mut raw, &mut checker, overrides);
    let listeners = edge::listeners(&mut checker, &raw.listeners);
    let (admin, admin_access) = admin::admin(checker.scope("admin"), &raw.admin);
    let headers = edge::headers(checker.scope("headers"), &raw.headers);
    let mut upstreams = upstream::upstreams(&mut checker, &raw.upstreams, &headers);
    let routes = route::routes(&mut checker, &raw.routes, &mut upstreams, &headers);
    edge::distinct_sockets(&mut checker, &listeners, admin);
    edge::no_loops(&mut checker, &listeners, admin, &upstreams);
    let grace = lookup(edge::GRACE_VARIABLE);
    let limits = edge::limits(checker.scope("limits"), &raw.limits, listeners.len());
    let config = GatewayConfig {
        listeners,
        admin,
        admin_access,
        upstreams,
        routes,
        limits,
        drain: edge::drain(checker.scope("drain"), &raw.drain, grace),
        headers,
        access_log: edge::access_log(checker.scope(""), &raw.access_log),
        kill_switch: edge::kill_switch(checker.scope(""), &raw.kill_switch),
        origin: Origin::default(),
    };
    let Checker { notes: Notes { findings, .. }, warnings } = checker;
    if findings.is_empty() {
        Ok((config, Warning::all(&source, warnings)))
    } else {
        Err(ConfigErrors::new(source, findings))
    }
}

fn version(checker: &mut Checker, raw: &Option<String>) {
    let mut scope = checker.scope("");
    if raw.is_none() {
        scope.missing("version", format!("write `version: {VERSION}` at the top"));
    }
    scope.read("version", raw, |text| if text == VERSION { Ok(()) } else { Err(VERSION) });
}

/// Puts the addresses of the command line in place of the file's.
fn apply(raw: &mut RawConfig, checker: &mut Checker, overrides: &Overrides) {
    if let Some(admin) = overrides.admin {
        raw.admin.address = Some(admin.to_string());
    }
    let Some(listen) = overrides.listen.map(|listen| listen.to_string()) else { return };
    match raw.listeners.as_mut_slice() {
        [] => {
            raw.listeners.push(RawListener { address: Some(listen), ..RawListener::default() });
        }
        [only] => {
            only.address = Some(listen);
            // A port has none.
            only.socket_mode = None;
        }
        several => {
            let count = several.len();
            let message = format!("--listen replaces one address, and there are {count}");
            checker.scope("").refuse_with("listeners", Finding::new("listeners", message));
        }
    }
}

const VERSION: &str = "1";
/// What the fields are called on the command line.
const OPTIONS: [(&str, &str); 3] = [
    ("upstreams.upstream.endpoints[0]", "--upstream"),
    ("listeners[0].address", "--listen"),
    ("admin.address", "--admin"),
];
/// Source: seawall-design.
pub(crate) const MAX_BYTES: u64 = 1 << 20;
/// What to do instead of a pipe or a device.
const ONLY_A_FILE: &str = "it is read again at every reload, which a pipe cannot be: write it to a \
                           file and name that. `seawall check` reads a pipe as well";
/// The shortest time limit there is: what is written in whole milliseconds, and not zero.
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
/// The longest time limit there is. Source: seawall-design.
const DAY: Duration = Duration::from_secs(86_400);
