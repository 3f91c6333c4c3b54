//! Checks of what an upstream's requests prove themselves with; the file is read to see that it can
//! be used.
//!
//! The secret comes from a file and from nowhere else: a configuration is shown, diffed and logged.
//! No error has it, nor what stands in the file beside it.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use seawall::Credential;
use serde::Deserialize;

use super::MILLISECOND;
use super::edits::{Side, forbidden, name};
use super::model::{EndpointAddress, HeaderNames};
use super::raw::RawUpstream;
use super::scope::Scope;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCredentials {
    file: Option<String>,
    header: Option<String>,
    scheme: Option<String>,
    timeout: Option<String>,
    #[serde(rename = "override")]
    replaces: Option<String>,
}

/// Where the requests to an upstream get their credential from, and how they carry it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFile {
    /// A file with the secret and nothing else.
    pub path: PathBuf,
    /// The header that carries it. Default `Authorization`.
    pub header: HeaderName,
    /// What stands before it. Default `Bearer`; nothing in another header.
    pub scheme: Option<String>,
    /// How long reading it again may take. Default 2 s.
    pub timeout: Duration,
    /// Whether it takes the place of one that the caller sent. Default false.
    pub replaces: bool,
}

impl CredentialFile {
    /// Reads the file. Blocks.
    ///
    /// # Errors
    /// Why it cannot be used, as it fits after "give"; never what stands in it.
    pub(crate) fn read(&self) -> Result<Credential, String> {
        let bytes = read_bounded(&self.path)
            .map_err(|error| format!("a file that can be read: {error}"))?;
        let secret = bytes.trim_ascii();
        if secret.is_empty() {
            return Err("a file with a secret in it; this one is empty".to_owned());
        }
        let value = match &self.scheme {
            Some(scheme) => [scheme.as_bytes(), b" ", secret].concat(),
            None => secret.to_owned(),
        };
        let value = Bytes::from(value);
        let is_visible = value.iter().all(|b| *b == b' ' || b.is_ascii_graphic());
        if !is_visible || HeaderValue::from_maybe_shared(value.clone()).is_err() {
            let allowed = "a file with one line of visible ASCII, which a header can carry";
            return Err(allowed.to_owned());
        }
        Ok(Credential::new(value))
    }
}

/// What the requests to an upstream prove themselves with, and the first of it.
pub(super) fn read(
    scope: &mut Scope<'_>,
    raw: &RawUpstream,
    endpoints: &[EndpointAddress],
    names: &HeaderNames,
) -> Option<(CredentialFile, Credential)> {
    let raw = raw.credentials.as_ref()?;
    if let Some(open) = endpoints.iter().find(|endpoint| is_overheard(endpoint)) {
        let message = format!("goes to {open} in the clear");
        scope.warn("credentials", message, "whoever sees it on its way can use it; use https://");
    }
    let mut scope = scope.inner("credentials");
    if raw.file.is_none() {
        scope.missing("file", "name the file that holds the secret, and nothing else");
    }
    let header = scope.read("header", &raw.header, |text| {
        let header = name(text)?;
        match forbidden(&header, Side::Request, names) {
            Some(why) => Err(format!("another header: {why}")),
            None => Ok(header),
        }
    });
    let header = header.unwrap_or(AUTHORIZATION);
    let scheme = scope.read("scheme", &raw.scheme, |text| match text {
        "none" => Ok(None),
        _ if is_token(text) => Ok(Some(text.to_owned())),
        _ => Err("none, or a word such as Bearer"),
    });
    let default = || (header == AUTHORIZATION).then(|| SCHEME.to_owned());
    let timeout = scope.duration("timeout", &raw.timeout, MILLISECOND..=TIMEOUT_MAX);
    let replaces = scope.flag("override", &raw.replaces);
    let path = PathBuf::from(raw.file.as_deref()?);
    let file = CredentialFile {
        path,
        scheme: scheme.unwrap_or_else(default),
        header,
        timeout: timeout.unwrap_or(TIMEOUT),
        replaces: replaces.unwrap_or(false),
    };
    let first = scope.read("file", &raw.file, |_| file.read())?;
    Some((file, first))
}

/// Whether what goes there can be read on its way.
fn is_overheard(endpoint: &EndpointAddress) -> bool {
    let EndpointAddress::Tcp { host, tls: false, .. } = endpoint else { return false };
    let is_local = host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    !is_local && host != "localhost" && !host.ends_with(".localhost")
}

/// Source: RFC 9110, section 11.1 (the scheme is a token).
fn is_token(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=64).contains(&text.len()) && text.bytes().all(fits)
}

/// The file, if it is not larger than it may be.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = crate::file::read(path, FILE_BYTES_MAX)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("larger than 64KiB"));
    }
    Ok(bytes)
}

/// Source: seawall-design.
const SCHEME: &str = "Bearer";
/// Source: seawall-design.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Source: seawall-design.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// More than any head that has it may be long. Source: seawall-design.
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{ConfigErrors, GatewayConfig, Warning};
    use super::*;

    /// A file of this test, gone with it.
    struct Secret(PathBuf);

    impl Secret {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("seawall-{}-{name}", std::process::id()));
            fs::write(&path, bytes).unwrap();
            Self(path)
        }
    }

    impl Drop for Secret {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn check(
        endpoint: &str,
        path: &Path,
        more: &str,
    ) -> Result<(GatewayConfig, Vec<Warning>), ConfigErrors> {
        let text = format!(
            "version: 1\nheaders: {{tenant: X-Who}}\nupstreams: {{a: {{endpoints: ['{endpoint}'], \
             credentials: {{file: '{}'{more}}}}}}}\n",
            path.display()
        );
        GatewayConfig::parse(&text, "seawall.yaml")
    }

    #[test]
    fn a_file_gives_one_line_behind_its_scheme() {
        for (name, bytes, more, shown) in [
            ("plain", "t0ken", "", "Bearer t0ken"),
            ("lines", " \r\n t0ken\n\n", "", "Bearer t0ken"),
            ("scheme", "dTpw", ", scheme: Basic", "Basic dTpw"),
            ("none", "Digest a=1, b=2", ", scheme: none", "Digest a=1, b=2"),
            ("header", "k3y", ", header: X-Key", "k3y"),
            ("both", "k3y", ", header: X-Key, scheme: Token", "Token k3y"),
            // The name that another one was given is free.
            ("renamed", "k3y", ", header: X-Tenant", "k3y"),
        ] {
            let file = Secret::new(name, bytes.as_bytes());
            let (config, warnings) = check("https://h", &file.0, more).unwrap();
            assert!(warnings.is_empty(), "{warnings:?}");
            let (_, first) = config.upstreams[0].credentials.as_ref().unwrap();
            assert_eq!(first.expose(), shown.as_bytes(), "{name}");
            assert!(!format!("{config:?}").contains("k3y"), "{config:?}");
        }
    }

    #[test]
    fn what_no_header_can_carry_is_refused_and_not_repeated() {
        for (name, bytes, part) in [
            ("empty", &b" \n"[..], "this one is empty"),
            ("two", b"geheim\ngeheim", "one line of visible ASCII"),
            ("nul", b"geheim\0", "one line of visible ASCII"),
            ("umlaut", "geheim\u{e4}".as_bytes(), "one line of visible ASCII"),
            ("large", &[b'x'; 64 * 1024 + 1], "larger than 64KiB"),
        ] {
            let file = Secret::new(name, bytes);
            let errors = check("https://h", &file.0, "").unwrap_err();
            assert_eq!(errors.fields().collect::<Vec<_>>(), ["upstreams.a.credentials.file"]);
            let told = errors.to_string();
            assert!(told.contains(part) && told.contains("seawall.yaml:3:"), "{told}");
            assert!(!told.contains("geheim"), "{told}");
        }
        let folder = check("https://h", &std::env::temp_dir(), "").unwrap_err().to_string();
        assert!(folder.contains("not a file"), "{folder}");
        let most = Secret::new("most", &[b'x'; 64 * 1024]);
        assert!(check("https://h", &most.0, "").is_ok());
    }

    #[test]
    fn a_secret_that_leaves_this_host_in_the_clear_is_warned_of() {
        let file = Secret::new("clear", b"geheim");
        for (endpoint, is_warned) in [
            ("http://orders.internal", true),
            ("http://10.0.0.1:80", true),
            ("https://orders.internal", false),
            ("http://127.0.0.2:80", false),
            ("http://[::1]:80", false),
            ("http://localhost:80", false),
            ("unix:/run/orders.sock", false),
        ] {
            let (_, warnings) = check(endpoint, &file.0, "").unwrap();
            let fields: Vec<_> = warnings.iter().map(Warning::field).collect();
            let expected: &[_] = if is_warned { &["upstreams.a.credentials"] } else { &[] };
            assert_eq!(fields, expected, "{endpoint}");
        }
    }
}
