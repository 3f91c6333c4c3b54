//! The admin port: where it is, and who may ask there.
//!
//! A token is a secret. It is read from the environment or from a file, compared in a time that
//! does not tell how much of it was right, and shown nowhere: not in errors, which quote the file,
//! and not where the configuration is written out.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::address::parse_bind;
use super::edge::ADMIN;
use super::raw::RawAdmin;
use super::report::Finding;
use super::scope::Scope;

/// Who may ask the admin port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// What must be shown for everything but the probes.
    pub token: Option<AdminToken>,
    /// The file it was read from, if it was.
    pub token_file: Option<PathBuf>,
    /// Whether `/metrics` is for everybody even so.
    pub open_metrics: bool,
}

/// A bearer token. Shown as `***`.
#[derive(Clone)]
pub struct AdminToken(Arc<[u8]>);

impl AdminToken {
    /// Whether this is it. Takes as long for a nearly right one as for any other of its length.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }

    /// Reads a token, or says what one is.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        match (SHORTEST..=LONGEST).contains(&text.len()) && is_visible {
            true => Ok(Self(text.as_bytes().into())),
            false => Err(format!(
                "{SHORTEST} to {LONGEST} visible ASCII characters without spaces, like those of \
                 `openssl rand -hex 32`"
            )),
        }
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(***)")
    }
}

impl PartialEq for AdminToken {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for AdminToken {}

/// The admin address, which is loopback unless a token guards it, and the token.
pub(super) fn admin(mut scope: Scope<'_>, raw: &RawAdmin) -> (SocketAddr, AdminAccess) {
    let address = scope.read("address", &raw.address, parse_bind).unwrap_or(ADMIN);
    let open_metrics = scope.flag("open_metrics", &raw.open_metrics);
    let is_asked = ["token", "token_file"].iter().any(|key| scope.is_written(key))
        || raw.token.is_some()
        || raw.token_file.is_some();
    if !address.ip().to_canonical().is_loopback() && scope.is_sound("address") && !is_asked {
        let allowed = "a loopback address, like 127.0.0.1:9901, or a token beside it";
        let finding = Finding::refused(scope.path("address"), &address.to_string(), allowed);
        let help = "the admin port changes state; without `admin.token` or `admin.token_file` it \
                    serves this host alone";
        scope.refuse_with("address", finding.help(help));
    }
    if open_metrics.is_some() && !is_asked {
        let message = "has no effect without `token` or `token_file`";
        scope.refuse_with("open_metrics", Finding::new(scope.path("open_metrics"), message));
    }
    let read = match (&raw.token, &raw.token_file) {
        (Some(_), Some(_)) => {
            let message = "cannot be there beside `token`; give one of the two";
            scope.refuse_with("token_file", Finding::new(scope.path("token_file"), message));
            Err(())
        }
        (Some(text), None) => AdminToken::parse(text).map_err(|allowed| {
            let message = format!("what is there is not allowed; give {allowed}");
            let mut token = scope.inner("token");
            // Shown at its key: the line of a value may hold the value alone.
            token.refuse_whole(Finding::new(token.whole(), message));
        }),
        (None, Some(path)) => read_token(Path::new(path)).map_err(|why| {
            let finding = Finding::new(scope.path("token_file"), why);
            scope.refuse_with("token_file", finding);
        }),
        (None, None) => return (address, AdminAccess::default()),
    };
    let (token, token_file) = (read.ok(), raw.token_file.as_ref().map(PathBuf::from));
    (address, AdminAccess { token, token_file, open_metrics: open_metrics.unwrap_or(false) })
}

/// The token in a file, without the end of its line.
fn read_token(path: &Path) -> Result<AdminToken, String> {
    let read = crate::file::read(path, LONGEST as u64 + 2);
    let bytes = read.map_err(|why| format!("the file cannot be read: {why}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "the file cannot be read: it is not UTF-8")?;
    let token = text.strip_suffix('\n').unwrap_or(&text);
    let token = token.strip_suffix('\r').unwrap_or(token);
    AdminToken::parse(token)
        .map_err(|allowed| format!("the file holds no token; write one of {allowed}"))
}

/// Characters of a token that cannot be guessed. Source: seawall-design.
const SHORTEST: usize = 16;
/// Characters of a token that fit a head with room to spare. Source: seawall-design.
const LONGEST: usize = 512;

#[cfg(test)]
mod tests {
    use super::super::{ConfigErrors, GatewayConfig};
    use super::*;

    const SECRET: &str = "s3cret-0123456789abcdef";

    fn check(admin: &str) -> Result<AdminAccess, ConfigErrors> {
        let text = format!(
            "version: 1\nadmin: {{{admin}}}\nupstreams: {{a: {{endpoints: ['http://h:1']}}}}\n"
        );
        GatewayConfig::parse(&text, "seawall.yaml").map(|(config, _)| config.admin_access)
    }

    #[test]
    fn a_token_opens_the_port_to_other_hosts_and_is_shown_nowhere() {
        let access = check(&format!("address: '0.0.0.0:9901', token: {SECRET}")).unwrap();
        let token = access.token.clone().unwrap();
        assert!(token.is(SECRET.as_bytes()) && !token.is(&SECRET.as_bytes()[1..]));
        assert!(!token.is(b"") && !token.is(format!("{SECRET}x").as_bytes()));
        assert!(!format!("{access:?}").contains(SECRET), "{access:?}");
        for wrong in [
            format!("token: {SECRET}, address: everywhere"),
            format!("address: everywhere, token: '{SECRET}'"),
            format!("token: {SECRET}, token_file: /nowhere"),
            format!("token: '{SECRET} {SECRET}'"),
            format!("token: {SECRET}, typo: 1"),
            format!("token: {SECRET}, token: {SECRET}"),
            format!("token: ${{NOT_SET_ANYWHERE:-{SECRET}}}, typo: 1"),
            format!("token: {SECRET}, typo: ]"),
            format!("\n  token: >\n    {SECRET}\n    {SECRET}\n  "),
        ] {
            let told = check(&wrong).unwrap_err().to_string();
            assert!(!told.contains("s3cret"), "{wrong}:\n{told}");
        }
    }

    #[test]
    fn what_guards_nothing_is_refused_at_its_field() {
        for (admin, field, words) in [
            ("address: '0.0.0.0:9901'", "admin.address", "or a token beside it"),
            ("token: short", "admin.token", "16 to 512 visible"),
            ("token: ''", "admin.token", "16 to 512 visible"),
            ("open_metrics: true", "admin.open_metrics", "no effect without"),
            ("token_file: /nowhere/at/all", "admin.token_file", "cannot be read"),
        ] {
            let errors = check(admin).unwrap_err();
            assert_eq!(errors.fields().collect::<Vec<_>>(), [field], "{admin}");
            let told = errors.to_string();
            assert!(told.contains(words) && told.contains("seawall.yaml:2:"), "{told}");
        }
    }

    #[test]
    fn a_file_gives_its_token_without_the_end_of_its_line() {
        let path = std::env::temp_dir().join(format!("seawall-token-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_token(&path)
        };
        assert!(read(&format!("{SECRET}\r\n")).unwrap().is(SECRET.as_bytes()));
        assert!(read(SECRET).unwrap().is(SECRET.as_bytes()));
        assert!(read(&"x".repeat(512)).is_ok());
        for text in ["", "\n", "short\n", &format!("{SECRET}\n\n"), &"x".repeat(513)] {
            let why = read(text).unwrap_err();
            assert!(why.contains("holds no token"), "{why}");
        }
        let access = check(&format!("token_file: '{}'", path.display()));
        assert!(access.is_err(), "the file holds no token now");
        std::fs::remove_file(&path).unwrap();
    }
}
