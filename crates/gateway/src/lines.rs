//! Writes lines from a thread of its own, so that a slow reader never holds up a request.
//!
//! A full queue drops the line that comes and counts it. Lines leave in the order they came, in
//! batches; a write that fails loses its batch, which is counted too.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// The sending end. Clones send to the same thread.
#[derive(Clone, Debug)]
pub(crate) struct LineWriter {
    queue: mpsc::Sender<Message>,
    capacity: usize,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Write what came before, then tell.
    Flush(oneshot::Sender<()>),
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
        let (queue, lines) = mpsc::channel(capacity);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = dropped.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(lines, to, &counter))?;
        Ok(Self { queue, capacity, dropped })
    }

    /// Sends the line that `render` writes, without its line feed; never waits. Where there is no
    /// place nothing is rendered.
    pub(crate) fn line(&self, render: impl FnOnce(&mut Vec<u8>)) {
        match self.queue.try_reserve() {
            Ok(place) => {
                let mut line = Vec::with_capacity(TYPICAL_LINE);
                render(&mut line);
                line.push(b'\n');
                place.send(Message::Line(line));
            }
            Err(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Lines that were not written since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Lines waiting, and as many as may wait.
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.capacity - self.queue.capacity().min(self.capacity), self.capacity)
    }

    /// Waits until every line sent before is written; false if that took longer than `at_most`.
    pub(crate) async fn flush(&self, at_most: Duration) -> bool {
        let (done, written) = oneshot::channel();
        let flushed =
            async { self.queue.send(Message::Flush(done)).await.is_ok() && written.await.is_ok() };
        tokio::time::timeout(at_most, flushed).await.unwrap_or(false)
    }
}

/// The thread.
fn run(mut lines: mpsc::Receiver<Message>, mut to: impl Write, dropped: &AtomicU64) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut torn = false;
    while let Some(first) = lines.blocking_recv() {
        let mut flushed = Vec::new();
        let mut count = 0;
        if torn {
            batch.push(b'\n');
        }
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    batch.extend_from_slice(&line);
                    count += 1;
                }
                Message::Flush(done) => flushed.push(done),
            }
            next = if batch.len() < BATCH { lines.try_recv().ok() } else { None };
        }
        // After a failed write part of a line may stand there; the next one begins its own.
        torn = to.write_all(&batch).and_then(|()| to.flush()).is_err();
        if torn {
            dropped.fetch_add(count, Ordering::Relaxed);
        }
        batch.clear();
        for done in flushed {
            // Nobody waits for it any longer: then nobody is told.
            let _ = done.send(());
        }
    }
}

/// Appends `text` as the inside of a JSON string of at most `bound` bytes. What is not UTF-8
/// becomes U+FFFD; a text that is cut ends in an ellipsis.
pub(crate) fn json_text(out: &mut Vec<u8>, text: &[u8], bound: usize) {
    let end = out.len() + bound.saturating_sub(ELLIPSIS.len());
    // Nearly every text there is: nothing in it to escape, and short enough.
    if out.len() + text.len() <= end
        && text.iter().fold(true, |plain, byte| plain & is_plain(*byte))
    {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        let broken = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        for c in chunk.valid().chars().chain(broken.chars()) {
            let mut utf8 = [0; 4];
            let mut hex = *b"\\u0000";
            let escaped: &[u8] = match c {
                '"' => b"\\\"",
                '\\' => b"\\\\",
                '\n' => b"\\n",
                '\r' => b"\\r",
                '\t' => b"\\t",
                // Controls, and what some readers take for the end of a line.
                '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    let code = u32::from(c);
                    for (place, digit) in hex[2..].iter_mut().enumerate() {
                        *digit = HEX[(code >> (12 - 4 * place)) as usize & 15];
                    }
                    &hex
                }
                c => c.encode_utf8(&mut utf8).as_bytes(),
            };
            if out.len() + escaped.len() > end {
                out.extend_from_slice(ELLIPSIS);
                return;
            }
            out.extend_from_slice(escaped);
        }
    }
}

/// Whether a byte stands for itself in a JSON string.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Appends a number.
pub(crate) fn decimal(out: &mut Vec<u8>, number: impl Into<u64>) {
    out.extend_from_slice(itoa::Buffer::new().format(number.into()).as_bytes());
}

/// Appends the last `DIGITS` digits of a number, zeros in front.
pub(crate) fn digits<const DIGITS: usize>(out: &mut Vec<u8>, mut number: u64) {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789"[usize::try_from(number % 10).unwrap_or(0)];
        number /= 10;
    }
    out.extend_from_slice(&text);
}

/// Appends a moment as `2026-01-31T23:59:59.123Z`; years above 9999 stop there.
pub(crate) fn utc(out: &mut Vec<u8>, unix_millis: u64) {
    let unix_millis = unix_millis.min(LAST_MILLI);
    let (days, in_day) = (unix_millis / DAY, unix_millis % DAY);
    // Days are counted in years that begin in March, so that a leap day ends its year.
    let day_of_era = days + DAYS_BEFORE_1970;
    let (era, day) = (day_of_era / DAYS_PER_ERA, day_of_era % DAYS_PER_ERA);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1000 % 60, in_day % 1000);
    digits::<4>(out, year);
    for (mark, part) in
        [(b'-', month), (b'-', day_of_month), (b'T', hour), (b':', minute), (b':', second)]
    {
        out.push(mark);
        digits::<2>(out, part);
    }
    out.push(b'.');
    digits::<3>(out, milli);
    out.push(b'Z');
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const ELLIPSIS: &[u8] = "…".as_bytes();
/// Milliseconds of a day.
const DAY: u64 = 86_400_000;
/// From 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: u64 = 719_468;
/// Days of 400 years.
const DAYS_PER_ERA: u64 = 146_097;
/// 9999-12-31T23:59:59.999Z.
const LAST_MILLI: u64 = 253_402_300_799_999;
/// Bytes written at once, about; one line may go beyond.
const BATCH: usize = 64 * 1024;
/// Bytes a line usually needs, so that rendering does not grow it.
const TYPICAL_LINE: usize = 1024;

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
        let writer = LineWriter::start("lines", 2, gate).unwrap();
        writer.line(|line| line.push(b'a'));
        entered.recv_timeout(BOUND).unwrap();
        for byte in *b"bcde" {
            writer.line(|line| line.push(byte));
        }
        assert_eq!(writer.dropped(), 2);
        assert_eq!(writer.depth(), (2, 2));
        drop(word);
        assert!(writer.flush(BOUND).await);
        assert_eq!(page.text(), "a\nb\nc\n");
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

    #[test]
    fn texts_are_escaped_and_cut_at_their_bound() {
        let check = |text: &[u8], bound| {
            let mut out = Vec::new();
            json_text(&mut out, text, bound);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(check(b"a\"b\\c\n\r\t\x01\x7f", 99), r#"a\"b\\c\n\r\t\u0001\u007f"#);
        assert_eq!(check("é\u{2028}\u{85}".as_bytes(), 99), "é\\u2028\\u0085");
        assert_eq!(check(b"a\xffb\xc3", 99), "a\u{fffd}b\u{fffd}");
        assert_eq!(check(b"abcdefgh", 11), "abcdefgh");
        assert_eq!(check(b"abcdefgh", 10), "abcdefg…");
        assert_eq!(check(b"abcde\n\n", 10), "abcde\\n…");
        assert_eq!(check(b"", 0), "");
    }

    #[test]
    fn moments_are_written_by_the_calendar() {
        for (seconds, milli, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (68_169_599, 999, "1972-02-28T23:59:59.999Z"),
            (68_169_600, 0, "1972-02-29T00:00:00.000Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.001Z"),
            (1_709_251_199, 0, "2024-02-29T23:59:59.000Z"),
            (1_767_225_599, 0, "2025-12-31T23:59:59.000Z"),
            (1_767_225_600, 20, "2026-01-01T00:00:00.020Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
            (u64::MAX / 1000, 0, "9999-12-31T23:59:59.999Z"),
        ] {
            let mut out = Vec::new();
            utc(&mut out, seconds * 1000 + milli);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
