//! Checks of what an upstream's requests prove themselves with; the file is read to see that it can
//! be used.
//!
//! The secret comes from a file and from nowhere else: a configuration is shown, diffed and logged.
//! No error has it, nor what stands in the file beside it.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use seawall::Credential;
use serde::Deserialize;

use super::MILLISECOND;
use super::edits::{Side, forbidden, name};
use super::model::HeaderNames;
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
    /// Whether a request with these fields carries it, and not one of its caller's own.
    pub(crate) fn is_for(&self, fields: &HeaderMap) -> bool {
        self.replaces || !fields.contains_key(&self.header)
    }

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
) -> Option<(CredentialFile, Credential)> {
    let raw = raw.credentials.as_ref()?;
    let mut scope = scope.inner("credentials");
    if raw.file.is_none() {
        scope.missing("file", "name the file that holds the secret, and nothing else");
    }
    let names = HeaderNames::default();
    let header = scope.read("header", &raw.header, |text| {
        let header = name(text)?;
        match forbidden(&header, Side::Request, &names) {
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

/// Source: RFC 9110, section 11.1 (the scheme is a token).
fn is_token(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=64).contains(&text.len()) && text.bytes().all(fits)
}

/// A named pipe would be waited for, so that only what is a file is opened.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
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
