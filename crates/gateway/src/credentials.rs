//! What the requests to an upstream prove themselves with: read from its file again when it was
//! rejected.
//!
//! A projected token is replaced in its file before it expires. Whoever reads the file at each
//! rejection, and only then, needs no watcher, and has the new one with the first call that needs
//! it. The old one in the file still is no other credential: the rejection goes up.
//!
//! After a reload, what the file has then is in force. With other options it begins anew, so that
//! a call which began before never carries the new secret in the old place; with the same ones it
//! goes on, and a call whose credential is then rejected takes the new one. Counts go on; with
//! other options, those of refreshes that had ended.
//!
//! The file is read by one thread at a time: a place that hangs costs one thread, and refreshes
//! fail until it answers.

use std::fmt::Display;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use seawall::{Credential, Credentials, RefreshResult, Stack};
use tokio::sync::Semaphore;

use crate::config::{self, CredentialFile};
use crate::diagnostics::{Diagnostics, Topic};
use crate::gateway::Upstream;

/// The proof of an upstream's requests, and how it comes about.
#[derive(Debug)]
pub(crate) struct Proof {
    file: CredentialFile,
    credentials: Credentials,
    /// The stack of its upstream, to which it is known.
    stack: Stack,
    /// Refreshes under other options.
    before: Refreshes,
}

/// How many refreshes ended in each way.
pub(crate) type Refreshes = [u64; RefreshResult::ALL.len()];

impl Proof {
    /// Nothing where none is configured; what there was `before` goes on, or its counts do.
    pub(crate) fn new(
        upstream: &config::Upstream,
        stack: &Stack,
        before: Option<&Self>,
        diagnostics: &Diagnostics,
    ) -> Option<Self> {
        let (file, first) = upstream.credentials.as_ref()?;
        let goes_on = before.filter(|before| before.file == *file);
        let credentials = match goes_on {
            Some(before) => before.credentials.clone(),
            None => from_file(&upstream.name, file, first, diagnostics)?,
        };
        // Those that go on may be older than the file.
        credentials.replace(first.clone());
        Some(Self {
            file: file.clone(),
            stack: stack.clone().with_credentials(credentials.clone()),
            before: match (goes_on, before) {
                (Some(same), _) => same.before,
                (None, other) => other.map(Self::refreshes).unwrap_or_default(),
            },
            credentials,
        })
    }

    /// The field that carries it.
    pub(crate) const fn header(&self) -> &HeaderName {
        &self.file.header
    }

    /// The stack through which requests go that carry it.
    pub(crate) const fn stack(&self) -> &Stack {
        &self.stack
    }

    /// How many refreshes ended in each way.
    pub(crate) fn refreshes(&self) -> Refreshes {
        let mut all = self.before;
        for (count, result) in all.iter_mut().zip(RefreshResult::ALL) {
            *count += self.credentials.count(result);
        }
        all
    }
}

impl Upstream {
    /// The proof that a request with these fields carries; nothing if there is none, or the
    /// request's own stays.
    pub(crate) fn proof_for(&self, fields: &HeaderMap) -> Option<&Proof> {
        let proof = self.proof.as_ref()?;
        (proof.file.replaces || !fields.contains_key(proof.header())).then_some(proof)
    }
}

fn from_file(
    upstream: &str,
    file: &CredentialFile,
    first: &Credential,
    diagnostics: &Diagnostics,
) -> Option<Credentials> {
    let shared = Arc::new((file.clone(), upstream.to_owned(), diagnostics.clone()));
    let reading = Arc::new(Semaphore::new(1));
    let source = move || {
        let (shared, reading) = (Arc::clone(&shared), Arc::clone(&reading));
        async move {
            let (file, upstream, diagnostics) = &*shared;
            let read = read_apart(file, reading).await;
            read.inspect_err(|allowed| tell(diagnostics, upstream, file, allowed))
        }
    };
    // The time was checked with the file's other options.
    Credentials::with_timeout(first.clone(), file.timeout, source).ok()
}

async fn read_apart(file: &CredentialFile, one: Arc<Semaphore>) -> Result<Credential, String> {
    let place = one.try_acquire_owned().map_err(|_| "a place that can be read: it hangs")?;
    let file = file.clone();
    let read = crate::blocking::apart(move || {
        let _place = place;
        file.read()
    });
    read.await.unwrap_or_else(|error| Err(error.to_string()))
}

fn tell(diagnostics: &Diagnostics, upstream: &str, file: &CredentialFile, allowed: &str) {
    let path = file.path.display();
    let pairs: [(&str, &(dyn Display + Sync)); 3] =
        [("upstream", &upstream), ("file", &path), ("allowed", &allowed)];
    diagnostics.warn(Topic::Upstream, "credential not read again", &pairs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayConfig;
    use crate::lines::tests::Page;

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_told_by_its_path_and_one_that_hangs_costs_one_thread() {
        let path = std::env::temp_dir().join(format!("seawall-proof-{}", std::process::id()));
        std::fs::write(&path, "geheim").unwrap();
        let text = format!(
            "version: 1\nupstreams: {{a: {{endpoints: ['https://h'], \
             credentials: {{file: '{}'}}}}}}\n",
            path.display()
        );
        let (config, _) = GatewayConfig::parse(&text, "seawall.yaml").unwrap();
        let (file, first) = config.upstreams[0].credentials.clone().unwrap();
        let one = Arc::new(Semaphore::new(1));
        let read = read_apart(&file, Arc::clone(&one)).await;
        assert!(read.is_ok_and(|read| read == first));
        let hangs = Arc::clone(&one).try_acquire_owned().unwrap();
        let refused = read_apart(&file, Arc::clone(&one)).await.unwrap_err();
        assert!(refused.contains("it hangs"), "{refused}");
        drop(hangs);
        std::fs::write(&path, "geheim\ngeheim").unwrap();
        let refused = read_apart(&file, one).await.unwrap_err();
        let page = Page::default();
        let diagnostics = Diagnostics::to(page.clone(), false, seawall::Clock::new()).unwrap();
        tell(&diagnostics, "a", &file, &refused);
        assert!(diagnostics.close().await);
        std::fs::remove_file(&path).unwrap();
        let text = page.text();
        let expected =
            format!(" WARN credential not read again upstream=a file={}", path.display());
        assert!(text.contains(&expected) && text.contains("one line of visible"), "{text}");
        assert!(!text.contains("geheim"), "{text}");
    }
}
