//! The credential of an upstream: read from its file again when it was rejected.
//!
//! A projected token is replaced in its file before it expires. Whoever reads the file at each
//! rejection, and only then, needs no watcher, and has the new one with the first call that needs
//! it. The old one in the file still is no other credential: the rejection goes up.

use std::fmt::Display;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use seawall::{Credentials, RefreshResult, Stack};

use crate::config;
use crate::diagnostics::{Diagnostics, Topic};
use crate::gateway::Upstream;

/// The credentials of `upstream`; those of before go on if they come from the same place.
pub(crate) fn of(
    upstream: &config::Upstream,
    before: Option<(&config::Upstream, &Credentials)>,
    diagnostics: &Diagnostics,
) -> Option<Credentials> {
    let (file, first) = upstream.credentials.as_ref()?;
    if let Some((known, credentials)) = before
        && known.credentials.as_ref().is_some_and(|(known, _)| known == file)
    {
        return Some(credentials.clone());
    }
    let shared = Arc::new((file.clone(), upstream.name.clone(), diagnostics.clone()));
    let source = move || {
        let shared = Arc::clone(&shared);
        async move {
            let read = tokio::task::spawn_blocking({
                let shared = Arc::clone(&shared);
                move || shared.0.read()
            });
            let read = read.await.unwrap_or_else(|error| Err(error.to_string()));
            read.inspect_err(|allowed| tell(&shared.2, &shared.1, &shared.0, allowed))
        }
    };
    // The time was checked with the file's other options.
    Credentials::with_timeout(first.clone(), file.timeout, source).ok()
}

fn tell(diagnostics: &Diagnostics, name: &str, file: &config::CredentialFile, allowed: &str) {
    let path = file.path.display();
    let pairs: [(&str, &(dyn Display + Sync)); 3] =
        [("upstream", &name), ("file", &path), ("allowed", &allowed)];
    diagnostics.warn(Topic::Upstream, "credential not read again", &pairs);
}

impl Upstream {
    /// The field that carries the credential in a request with these, and the stack that knows it;
    /// nothing if there is none, or the caller's own stays.
    pub(crate) fn credential_for(&self, fields: &HeaderMap) -> Option<(HeaderName, Stack)> {
        let (file, _) = self.config.credentials.as_ref().filter(|(file, _)| file.is_for(fields))?;
        let stack = self.stack.clone().with_credentials(self.credentials.clone()?);
        Some((file.header.clone(), stack))
    }
}

/// How many refreshes ended in each way.
pub(crate) fn counts(credentials: &Credentials) -> [u64; RefreshResult::ALL.len()] {
    RefreshResult::ALL.map(|result| credentials.count(result))
}
