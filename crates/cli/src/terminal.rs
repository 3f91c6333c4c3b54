//! Whether there is a terminal that wants colours.

use std::io::IsTerminal;

/// Whether what is written to `stream` may be coloured: only on a terminal, and not if `NO_COLOR`
/// is set to anything.
#[must_use]
pub fn wants_colour(stream: &impl IsTerminal) -> bool {
    decide(stream.is_terminal(), std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty()))
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
}
