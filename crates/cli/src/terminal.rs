//! Whether there is a terminal, of which size, and whether it wants colours.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// Whether what is written to `stream` may be coloured: only on a terminal, and not if `NO_COLOR`
/// is set to anything.
#[must_use]
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    decide(stream.is_terminal(), std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty()))
}

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters on a line; at least 1.
    pub columns: u16,
    /// Lines; at least 1.
    pub rows: u16,
}

/// The present size of the terminal that `stream` goes to, if it goes to one that knows its size.
#[must_use]
pub fn size(stream: &impl AsFd) -> Option<Size> {
    let size = tcgetwinsize(stream).ok()?;
    let size = Size { columns: size.ws_col, rows: size.ws_row };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

const fn decide(is_terminal: bool, no_color: bool) -> bool {
    is_terminal && !no_color
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_did_not_decline() {
        assert!(decide(true, false));
        assert!(!decide(true, true));
        assert!(!decide(false, false));
    }

    #[test]
    fn a_file_gets_no_colours() {
        assert!(!wants_colour(&std::fs::File::open("Cargo.toml").unwrap()));
    }

    #[test]
    fn a_file_has_no_size_of_a_terminal() {
        assert_eq!(size(&std::fs::File::open("Cargo.toml").unwrap()), None);
    }
}
