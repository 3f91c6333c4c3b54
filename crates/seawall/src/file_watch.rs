//! Notices that files hold something else than before.
//!
//! They are opened by their paths and read, links followed, again and again. That sees an edit in
//! place, another file moved over one, and a link further up that leads elsewhere (Kubernetes moves
//! `..data`), on every file system, which events of a directory would not. What is there counts
//! once two looks in a row agree, so that nothing is read while it is written, a certificate waits
//! for its key, and a file that is gone for a moment was never gone. What changes at every look
//! counts at every tenth.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Follows files; see [`changed`](Self::changed).
///
/// ```
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let mut watch = seawall::FileWatch::new(Duration::from_secs(1), 4_096).at_once();
/// let found = watch.changed(|| vec!["/nowhere/token".into()]).await;
/// assert!(found[0].content.is_err());
/// # });
/// ```
#[derive(Debug)]
pub struct FileWatch {
    every: Duration,
    most_bytes: u64,
    at_once: bool,
    looks: Looks,
}

/// What was found at a path.
#[derive(Debug)]
pub struct FileContent {
    /// Its bytes, at most one more than the watch reads; or why there are none.
    pub content: io::Result<Vec<u8>>,
    /// When it was modified, if that is known.
    pub modified: Option<SystemTime>,
}

impl FileWatch {
    /// Looks so often, and reads so much of a file at most; what is behind it is not seen to
    /// change.
    #[must_use]
    pub const fn new(every: Duration, most_bytes: u64) -> Self {
        let looks = Looks { settled: None, last: None, restless: 0 };
        Self { every, most_bytes, at_once: false, looks }
    }

    /// The first look is made at once, and what it finds counts: for who has not read the files.
    #[must_use]
    pub const fn at_once(self) -> Self {
        Self { at_once: true, ..self }
    }

    /// Waits until the files at `paths` hold something else, or were modified, since the last time
    /// it returned, and then gives what they hold, in their order. The first time whatever is there
    /// is a change: it may be another than its reader saw. `paths` is asked at every look; other
    /// paths are a change.
    ///
    /// May be dropped at any point. Needs a tokio runtime with time, and reads on its threads for
    /// what blocks: a file system that hangs holds up nobody else.
    pub async fn changed(&mut self, paths: impl Fn() -> Vec<PathBuf>) -> Vec<FileContent> {
        loop {
            let counts_at_once = std::mem::take(&mut self.at_once);
            if !counts_at_once {
                tokio::time::sleep(self.every).await;
            }
            let (paths, most) = (paths(), self.most_bytes);
            let look = move || {
                let found: Vec<_> =
                    paths.iter().map(|path| FileContent::read(path, most)).collect();
                (fingerprint(&paths, &found), found)
            };
            match tokio::task::spawn_blocking(look).await {
                Ok((seen, found)) if self.looks.see(seen, counts_at_once) => return found,
                // Or the runtime ends.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

impl FileContent {
    fn read(path: &Path, most: u64) -> Self {
        let opened = || {
            // To open what is no file could block for ever.
            match std::fs::metadata(path)?.is_file() {
                true => File::open(path),
                false => Err(io::Error::other("not a file")),
            }
        };
        let file = match opened() {
            Ok(file) => file,
            Err(error) => return Self { content: Err(error), modified: None },
        };
        let modified = file.metadata().and_then(|known| known.modified()).ok();
        let mut bytes = Vec::new();
        let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
        Self { content: read.map(|_| bytes), modified }
    }
}

/// A number that is another if anything is.
fn fingerprint(paths: &[PathBuf], found: &[FileContent]) -> u64 {
    let mut hasher = DefaultHasher::new();
    paths.hash(&mut hasher);
    for FileContent { content, modified } in found {
        modified.hash(&mut hasher);
        content.as_ref().map_err(io::Error::kind).hash(&mut hasher);
    }
    hasher.finish()
}

/// What was seen, and what of it counted.
#[derive(Debug)]
struct Looks {
    settled: Option<u64>,
    last: Option<u64>,
    /// Looks in a row at something that does not count yet.
    restless: u32,
}

impl Looks {
    /// Whether what is seen now counts, and is new.
    fn see(&mut self, seen: u64, at_once: bool) -> bool {
        let again = self.last.replace(seen) == Some(seen);
        let is_new = self.settled != Some(seen);
        self.restless = if is_new { self.restless + 1 } else { 0 };
        let counts = again || at_once || self.restless >= RESTLESS_LOOKS;
        if is_new && counts {
            (self.settled, self.restless) = (Some(seen), 0);
        }
        is_new && counts
    }
}

/// Source: seawall-design.
const RESTLESS_LOOKS: u32 = 10;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn a_change_counts_once_when_two_looks_agree() {
        let mut looks = FileWatch::new(Duration::ZERO, 0).looks;
        for (place, (seen, counts)) in [
            // What is there at first is a change, too.
            (1, false),
            (1, true),
            (1, false),
            // Being written.
            (2, false),
            (3, false),
            (4, false),
            (4, true),
            (4, false),
            // Gone for a moment.
            (5, false),
            (4, false),
            (4, false),
            (5, false),
            // And another in its place.
            (6, false),
            (6, true),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(looks.see(seen, false), counts, "{place}");
        }
        // Never the same twice.
        let counted = (10..110).filter(|seen| looks.see(*seen, false)).count();
        assert_eq!(counted, 10);
        assert!(looks.see(1, true));
    }

    /// A watch of two files in a directory of its own, on virtual time.
    struct Watched {
        directory: PathBuf,
        changes: mpsc::UnboundedReceiver<Vec<Option<String>>>,
        task: tokio::task::JoinHandle<()>,
    }

    const EVERY: Duration = Duration::from_secs(1);

    impl Watched {
        fn new(name: &str, files: [&str; 2]) -> Self {
            let directory =
                std::env::temp_dir().join(format!("seawall-watch-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(&directory).unwrap();
            let paths: Vec<_> = files.iter().map(|file| directory.join(file)).collect();
            let (changed, changes) = mpsc::unbounded_channel();
            let task = tokio::spawn(async move {
                let mut watch = FileWatch::new(EVERY, 8).at_once();
                loop {
                    let found = watch.changed(|| paths.clone()).await;
                    let text = |it: FileContent| it.content.ok().map(String::from_utf8);
                    let found = found.into_iter().map(|it| text(it).map(Result::unwrap));
                    let _ = changed.send(found.collect());
                }
            });
            Self { directory, changes, task }
        }

        fn at(&self, file: &str) -> PathBuf {
            self.directory.join(file)
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.at(file), text).unwrap();
        }

        /// Gives it one look, no more: it has just looked.
        async fn one_look(&self) {
            tokio::time::sleep(EVERY * 3 / 2).await;
        }

        /// What it says next.
        async fn next(&mut self) -> [Option<String>; 2] {
            self.changes.recv().await.unwrap().try_into().unwrap()
        }

        /// Nothing is said in ten looks.
        async fn says_nothing(&mut self) {
            tokio::time::sleep(EVERY * 10).await;
            assert_eq!(self.changes.try_recv(), Err(mpsc::error::TryRecvError::Empty));
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.task.abort();
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    fn found(one: &str, other: &str) -> [Option<String>; 2] {
        [one, other].map(|text| (!text.is_empty()).then(|| text.to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_in_place_a_file_moved_over_and_one_that_goes_are_seen_once() {
        let mut watched = Watched::new("edits", ["cert", "key"]);
        assert_eq!(watched.next().await, found("", ""), "what is there at first");
        watched.write("cert", "one");
        watched.one_look().await;
        // It waits for the other.
        watched.write("key", "its");
        assert_eq!(watched.next().await, found("one", "its"));
        watched.says_nothing().await;
        watched.write("cert", "two");
        assert_eq!(watched.next().await, found("two", "its"));
        watched.write("fresh", "three");
        fs::rename(watched.at("fresh"), watched.at("cert")).unwrap();
        assert_eq!(watched.next().await, found("three", "its"));
        fs::remove_file(watched.at("cert")).unwrap();
        assert_eq!(watched.next().await, found("", "its"));
        watched.write("cert", "a long one, and then more");
        assert_eq!(watched.next().await, found("a long on", "its"), "one byte more than asked for");
        watched.says_nothing().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_further_up_that_leads_elsewhere_is_seen() {
        let mut watched = Watched::new("links", ["..data/cert", "..data/key"]);
        for version in ["v1", "v2"] {
            fs::create_dir(watched.at(version)).unwrap();
            watched.write(&format!("{version}/cert"), version);
            watched.write(&format!("{version}/key"), "key");
        }
        symlink("v1", watched.at("..data")).unwrap();
        assert_eq!(watched.next().await, found("v1", "key"));
        symlink("v2", watched.at("..new")).unwrap();
        fs::rename(watched.at("..new"), watched.at("..data")).unwrap();
        assert_eq!(watched.next().await, found("v2", "key"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_gone_for_a_moment_was_never_gone() {
        let mut watched = Watched::new("moment", ["one", "other"]);
        watched.write("one", "1");
        watched.write("other", "2");
        assert_eq!(watched.next().await, found("1", "2"));
        fs::rename(watched.at("one"), watched.at("aside")).unwrap();
        watched.one_look().await;
        fs::rename(watched.at("aside"), watched.at("one")).unwrap();
        watched.says_nothing().await;
        // What is no file is not waited for.
        fs::remove_file(watched.at("one")).unwrap();
        fs::create_dir(watched.at("one")).unwrap();
        assert_eq!(watched.next().await, found("", "2"));
    }
}
