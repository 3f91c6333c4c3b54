//! One line of the file, as a finding shows it.

use std::fmt;

use super::super::mask::Masked;
use super::{Paint, Place, Source};

/// A line of the file and the columns meant.
pub(super) struct Line {
    /// From 1.
    pub(super) number: usize,
    /// From 1, in characters.
    pub(super) column: usize,
    /// What is shown; tabs as one space so that the caret fits.
    shown: String,
    /// Characters before the caret.
    before: usize,
    carets: usize,
}

impl Line {
    pub(super) fn of(source: &Source, place: Place) -> Self {
        let text = source.text.as_str();
        let start = floor_boundary(text, place.start);
        let end = floor_boundary(text, start.saturating_add(place.len));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let whole = text[line_start..line_end].trim_end_matches('\r');
        let column = text[line_start..start].chars().count();
        let masked = Masked::new(whole, line_start, source.spans.as_deref());
        let lead = masked.chars_before(start - line_start);
        let marked_to = start + text[start..end.clamp(start, line_end)].trim_end().len();
        let marked = masked.chars_before(marked_to - line_start) - lead;
        let skip = lead.saturating_sub(LEAD_CHARS);
        let visible = masked.text().chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut shown: String = visible.clone().skip(skip).take(LINE_CHARS).collect();
        if visible.count() > skip + LINE_CHARS {
            shown.push('…');
        }
        if skip > 0 {
            let rest = shown.chars().skip(1);
            shown = std::iter::once('…').chain(rest).collect();
        }
        let before = lead - skip;
        let room = shown.chars().count().saturating_sub(before).max(1);
        Self {
            number: text[..start].matches('\n').count() + 1,
            column: column + 1,
            shown,
            before,
            carets: marked.clamp(1, room),
        }
    }

    pub(super) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        arrow: &str,
        width: usize,
        colour: &str,
        paint: &Paint,
    ) -> fmt::Result {
        let Paint { faint, end, .. } = paint;
        let (number, column, shown) = (self.number, self.column, self.shown.trim_end());
        let (before, carets) = (self.before, self.carets);
        writeln!(f, "{:width$}{faint}{arrow}{end} {name}:{number}:{column}", "")?;
        writeln!(f, "{:width$} {faint}|{end}", "")?;
        writeln!(f, "{faint}{number:width$} |{end} {shown}")?;
        writeln!(f, "{:width$} {faint}|{end} {:before$}{colour}{:^<carets$}{end}", "", "", "")
    }
}

/// The last character boundary at or before `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Characters of a line that are shown, and how many of them at most before the caret.
const LINE_CHARS: usize = 100;
const LEAD_CHARS: usize = 76;
