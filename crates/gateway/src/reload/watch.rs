//! Notices that the file of the configuration has changed.
//!
//! Twice a second it is looked up by its path, links followed: which file it is, how long, and
//! when it was changed last. That sees an edit in place, another file moved over it, and a link
//! further up that leads elsewhere (Kubernetes moves `..data`), on every file system, which events
//! of one directory would not. A change counts once two looks in a row agree, so that a file is not
//! read while it is written; if it is, it is wrong, nothing happens, and the next look reads it
//! again.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use super::Reloader;

/// Follows the file for as long as it is polled; at once over where there is none.
pub(crate) async fn watch_file(reloader: &Reloader) {
    let Some(path) = reloader.gateway().config.origin.file().map(Path::to_owned) else { return };
    let mut watched = Watched::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let path = path.clone();
        // A file system can hang; only this task waits for it.
        let Ok(seen) = tokio::task::spawn_blocking(move || Seen::look(&path)).await else {
            continue;
        };
        if watched.see(seen) {
            reloader.file_changed().await;
        }
    }
}

/// What was seen of the file.
#[derive(Debug, Default)]
struct Watched {
    settled: Option<Seen>,
    last: Option<Seen>,
}

impl Watched {
    /// Whether it has changed, and is still as it was at the look before.
    fn see(&mut self, seen: Seen) -> bool {
        let again = self.last.as_ref() == Some(&seen);
        let is_new = self.settled.as_ref() != Some(&seen);
        self.last = Some(seen.clone());
        if again && is_new {
            self.settled = Some(seen);
        }
        again && is_new
    }
}

/// One look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    File { device: u64, number: u64, bytes: u64, modified: (i64, i64), changed: (i64, i64) },
    Not(io::ErrorKind),
}

impl Seen {
    fn look(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(known) => Self::File {
                device: known.dev(),
                number: known.ino(),
                bytes: known.size(),
                modified: (known.mtime(), known.mtime_nsec()),
                changed: (known.ctime(), known.ctime_nsec()),
            },
            Err(error) => Self::Not(error.kind()),
        }
    }
}

/// Source: seawall-design.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64, bytes: u64) -> Seen {
        Seen::File { device: 1, number, bytes, modified: (0, 0), changed: (0, 0) }
    }

    #[test]
    fn a_change_counts_once_when_two_looks_agree() {
        let gone = || Seen::Not(io::ErrorKind::NotFound);
        let mut watched = Watched::default();
        for (seen, counts) in [
            (file(1, 10), false),
            (file(1, 10), true),
            (file(1, 10), false),
            // Still being written.
            (file(1, 0), false),
            (file(1, 5), false),
            (file(1, 12), false),
            (file(1, 12), true),
            (file(1, 12), false),
            (gone(), false),
            // Moved over it in between.
            (file(2, 12), false),
            (file(2, 12), true),
            (gone(), false),
            (gone(), true),
            (gone(), false),
        ] {
            assert_eq!(watched.see(seen.clone()), counts, "{seen:?}");
        }
    }
}
