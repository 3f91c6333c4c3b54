//! Reads a configuration again, and what it names, on threads of their own.
//!
//! A file that hangs ends its reload, which is refused, and costs a thread until it answers. The
//! next reload has another thread, so that a configuration that names other files can be put in
//! force; of these threads there are a few.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Refusal;
use crate::config::GatewayConfig;
use crate::gateway::Gateway;
use crate::tls::TlsStore;

/// A configuration in place of another, and its TLS; nothing if it is the one in force.
type Read = Result<Option<(GatewayConfig, Arc<TlsStore>)>, Refusal>;

/// The readings under way.
#[derive(Debug)]
pub(super) struct Readings(Arc<Semaphore>);

impl Readings {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(READINGS_MAX)))
    }

    /// Whether any is under way that nobody waits for any more; to be asked between readings.
    pub(super) fn hang(&self) -> bool {
        self.0.available_permits() < READINGS_MAX
    }

    /// Reads the file of `old`, and those that it names then. Unless somebody wants to look
    /// `closely`, the text of the one in force is enough: what else it names may be half written
    /// at this moment, and has its own watch.
    pub(super) async fn read(&self, old: &Arc<Gateway>, closely: bool) -> Read {
        let old = Arc::clone(old);
        self.apart(move || read(&old, closely)).await
    }

    async fn apart(&self, reading: impl FnOnce() -> Read + Send + 'static) -> Read {
        let Ok(place) = Arc::clone(&self.0).try_acquire_owned() else {
            let why = format!("{READINGS_MAX} readings of the file, or of one it names, hang");
            return Err(why.into());
        };
        let reading = crate::blocking::apart(move || {
            let _place = place;
            reading()
        });
        match timeout(READING, reading).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => Err(format!("reading the file failed: {error}").into()),
            Err(_) => {
                let what = "reading the file, and those it names,";
                Err(format!("{what} took longer than {READING:?}").into())
            }
        }
    }

    /// So many readings that end when what is given is dropped.
    #[cfg(test)]
    pub(super) fn begin(&self, count: usize) -> Option<tokio::sync::OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_many_owned(u32::try_from(count).ok()?).ok()
    }
}

fn read(old: &Gateway, closely: bool) -> Read {
    let origin = &old.config.origin;
    if !closely && origin.is_unchanged() {
        return Ok(None);
    }
    let Some(read) = origin.read() else {
        let why = "there is no file to read again: it was started with --upstream";
        return Err(why.to_owned().into());
    };
    let (config, _) = read?;
    if config.origin.hash() == origin.hash() && config == old.config {
        return Ok(None);
    }
    let tls = old.tls.succeed(&old.config, &config).map_err(|error| error.to_string())?;
    Ok(Some((config, tls)))
}

/// Readings under way: one, and those that hang. Source: own choice.
pub(crate) const READINGS_MAX: usize = 4;
/// The longest that reading may take. Source: seawall-design.
const READING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_hangs_is_given_up_and_has_its_place_until_it_answers() {
        let readings = Readings::new();
        let (answer, hangs) = mpsc::channel::<()>();
        let reading = readings.apart(move || {
            // Not for ever, should it be waited for.
            let _ = hangs.recv_timeout(READING * 4);
            Ok(None)
        });
        // Time stands still while a thread reads, so it is moved on.
        let (read, ()) = tokio::join!(reading, tokio::time::advance(READING));
        assert!(read.unwrap_err().to_string().contains("took longer than 5s"));
        assert!(readings.hang());
        assert!(readings.apart(|| Ok(None)).await.unwrap().is_none(), "the next has its own");
        drop(answer);
        let all = u32::try_from(READINGS_MAX).unwrap();
        assert!(readings.0.acquire_many(all).await.is_ok());
    }
}
