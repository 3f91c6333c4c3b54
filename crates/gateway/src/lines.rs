//! Writes lines from a thread of its own, so that a slow reader never holds up a request.
//!
//! Where as many lines wait as may, the line that comes is dropped and counted. Lines leave in the
//! order they came, in batches: the thread wakes for the first one and waits 5 ms for others, so
//! that under load a line costs no wake and no write of its own. A write that fails loses its
//! batch, which is counted too.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

mod text;

pub(crate) use text::{decimal, digits, ip, json_text, utc};

/// The sending end. Clones send to the same thread.
#[derive(Clone, Debug)]
pub(crate) struct LineWriter {
    open: Arc<Open>,
}

/// Dropped with the last sending end, and the thread ends when all lines are written.
#[derive(Debug)]
struct Open(Arc<Shared>);

/// What the sending ends and the thread share.
#[derive(Debug)]
struct Shared {
    capacity: usize,
    /// Lines not yet written, those of the batch at the reader included.
    unwritten: AtomicUsize,
    dropped: AtomicU64,
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    text: Vec<u8>,
    lines: usize,
    /// Whom to tell when the text before is written.
    flushes: Vec<oneshot::Sender<()>>,
    ended: bool,
    thread: Thread,
}

/// What the thread does.
#[derive(Clone, Copy, Debug, Default)]
enum Thread {
    /// Waits for anything.
    Idle,
    /// Waits for more lines.
    Gathers,
    #[default]
    Writes,
}

impl LineWriter {
    /// Starts the thread. It ends when the last clone is gone and all lines are written.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        name: &str,
        capacity: usize,
        to: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            capacity,
            unwritten: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            waiting: Mutex::default(),
            ready: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || of_thread.run(to))?;
        Ok(Self { open: Arc::new(Open(shared)) })
    }

    /// Sends the line that `render` writes, without its line feed; never waits. Where there is no
    /// place nothing is rendered.
    pub(crate) fn line(&self, render: impl FnOnce(&mut Vec<u8>)) {
        let shared = &self.open.0;
        if shared.unwritten.fetch_add(1, Ordering::Relaxed) >= shared.capacity {
            shared.unwritten.fetch_sub(1, Ordering::Relaxed);
            shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Rendered outside of the lock, in a buffer that each thread keeps.
        let mut line = SCRATCH.try_with(Cell::take).unwrap_or_default();
        line.clear();
        render(&mut line);
        line.push(b'\n');
        shared.send(|waiting| {
            waiting.text.extend_from_slice(&line);
            waiting.lines += 1;
        });
        // A thread that ends has no buffer any longer.
        let _ = SCRATCH.try_with(|scratch| scratch.set(line));
    }

    /// Lines that were not written since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.open.0.dropped.load(Ordering::Relaxed)
    }

    /// Lines waiting, and as many as may wait.
    pub(crate) fn depth(&self) -> (usize, usize) {
        let Shared { unwritten, capacity, .. } = &*self.open.0;
        (unwritten.load(Ordering::Relaxed).min(*capacity), *capacity)
    }

    /// Waits until every line sent before is written; false if that took longer than `at_most`.
    pub(crate) async fn flush(&self, at_most: Duration) -> bool {
        let (done, written) = oneshot::channel();
        self.open.0.send(|waiting| waiting.flushes.push(done));
        tokio::time::timeout(at_most, written).await.is_ok_and(|told| told.is_ok())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send(|waiting| waiting.ended = true);
    }
}

impl Shared {
    fn send(&self, add: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock();
        add(&mut waiting);
        let wakes = match waiting.thread {
            Thread::Idle => true,
            Thread::Gathers => waiting.is_urgent(),
            Thread::Writes => false,
        };
        if wakes {
            waiting.thread = Thread::Writes;
            self.ready.notify_one();
        }
    }

    /// The thread.
    fn run(&self, mut to: impl Write) {
        let mut batch = Vec::new();
        let mut torn = false;
        loop {
            let mut waiting = self.waiting.lock();
            while waiting.text.is_empty() && !waiting.is_urgent() {
                waiting.thread = Thread::Idle;
                self.ready.wait(&mut waiting);
            }
            if !waiting.is_urgent() {
                waiting.thread = Thread::Gathers;
                self.ready.wait_for(&mut waiting, GATHER);
            }
            waiting.thread = Thread::Writes;
            let (lines, ended) = (std::mem::take(&mut waiting.lines), waiting.ended);
            let flushes = std::mem::take(&mut waiting.flushes);
            // After a failed write part of a line may stand there; the next one begins its own.
            if torn && lines > 0 {
                batch.push(b'\n');
                batch.append(&mut waiting.text);
            } else {
                std::mem::swap(&mut batch, &mut waiting.text);
            }
            drop(waiting);
            if !batch.is_empty() {
                torn = to.write_all(&batch).and_then(|()| to.flush()).is_err();
            }
            if torn {
                self.dropped.fetch_add(lines as u64, Ordering::Relaxed);
            }
            batch.clear();
            batch.shrink_to(4 * BATCH);
            self.unwritten.fetch_sub(lines, Ordering::Relaxed);
            for done in flushes {
                // Nobody waits for it any longer: then nobody is told.
                let _ = done.send(());
            }
            if ended {
                return;
            }
        }
    }
}

impl Waiting {
    /// Whether it is to be written without waiting for more.
    const fn is_urgent(&self) -> bool {
        !self.flushes.is_empty() || self.ended || self.text.len() >= BATCH
    }
}

thread_local! {
    /// Where lines of this thread are rendered.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes that are written without waiting for more.
const BATCH: usize = 64 * 1024;
/// How long a line waits for others. A reader does not see it, and at 1,000 requests/s five share
/// what waking a thread and a write cost, which is more than all the rest of a line.
const GATHER: Duration = Duration::from_millis(5);

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc as std_mpsc;

    use super::*;

    /// A writer whose text can be read.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A writer that waits for a word before each write, and fails where the word is false.
    struct Gate {
        words: std_mpsc::Receiver<bool>,
        entered: std_mpsc::Sender<()>,
        page: Page,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.entered.send(()).unwrap();
            if self.words.recv().unwrap_or(true) {
                self.page.write(bytes)
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gate() -> (Gate, std_mpsc::Sender<bool>, std_mpsc::Receiver<()>, Page) {
        let (word, words) = std_mpsc::channel();
        let (entered, has_entered) = std_mpsc::channel();
        let page = Page::default();
        (Gate { words, entered, page: page.clone() }, word, has_entered, page)
    }

    const BOUND: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn all_lines_sent_before_a_flush_are_written_in_order() {
        let page = Page::default();
        let writer = LineWriter::start("lines", 512, page.clone()).unwrap();
        for number in 0..300 {
            writer.line(|line| write!(line, "{number}").unwrap());
        }
        assert!(writer.flush(BOUND).await);
        let expected: String = (0..300).map(|number| format!("{number}\n")).collect();
        assert_eq!(page.text(), expected);
        assert_eq!(writer.dropped(), 0);
    }

    #[tokio::test]
    async fn a_full_queue_drops_what_comes_and_counts_it() {
        let (gate, word, entered, page) = gate();
        let writer = LineWriter::start("lines", 3, gate).unwrap();
        writer.line(|line| line.push(b'a'));
        entered.recv_timeout(BOUND).unwrap();
        for byte in *b"bcde" {
            writer.line(|line| line.push(byte));
        }
        assert_eq!(writer.dropped(), 2);
        assert_eq!(writer.depth(), (3, 3), "the one at the reader counts");
        drop(word);
        assert!(writer.flush(BOUND).await);
        assert_eq!(page.text(), "a\nb\nc\n");
    }

    #[test]
    fn lines_that_come_during_a_write_leave_in_one() {
        let (gate, word, entered, page) = gate();
        let writer = LineWriter::start("lines", 512, gate).unwrap();
        writer.line(|line| line.push(b'a'));
        entered.recv_timeout(BOUND).unwrap();
        for byte in *b"bcd" {
            writer.line(|line| line.push(byte));
        }
        word.send(true).unwrap();
        entered.recv_timeout(BOUND).unwrap();
        assert_eq!(page.text(), "a\n");
        word.send(true).unwrap();
        drop(writer);
        assert!(entered.recv_timeout(BOUND).is_err(), "the thread has ended");
        assert_eq!(page.text(), "a\nb\nc\nd\n");
    }

    #[tokio::test]
    async fn a_write_that_fails_is_counted_and_the_next_line_begins_anew() {
        let (gate, word, entered, page) = gate();
        let writer = LineWriter::start("lines", 8, gate).unwrap();
        writer.line(|line| line.push(b'a'));
        entered.recv_timeout(BOUND).unwrap();
        word.send(false).unwrap();
        drop(word);
        assert!(writer.flush(BOUND).await);
        assert_eq!(writer.dropped(), 1);
        writer.line(|line| line.push(b'b'));
        assert!(writer.flush(BOUND).await);
        assert!(page.text().ends_with("\nb\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_ends_when_its_time_is_over_though_the_reader_hangs() {
        let (gate, word, entered, _) = gate();
        let writer = LineWriter::start("lines", 1, gate).unwrap();
        writer.line(|line| line.push(b'a'));
        entered.recv_timeout(BOUND).unwrap();
        assert!(!writer.flush(Duration::from_secs(2)).await);
        drop(word);
    }
}
