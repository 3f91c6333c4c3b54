//! Writes SVG. Numbers have at most one decimal, so that equal pictures have equal bytes.

use super::report::escaped;

/// A picture under way.
pub(super) struct Svg(String);

/// Where a text's `x` is.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Of this size in its own units; `said` is what it tells whoever cannot see it, and nothing if
    /// it stands beside words that tell the same.
    pub(super) fn new(width: f64, height: f64, said: &str) -> Self {
        let (width, height) = (number(width), number(height));
        let role = match said {
            "" => "aria-hidden=\"true\"".to_owned(),
            said => format!("role=\"img\" aria-label=\"{}\"", escaped(said)),
        };
        Self(format!("<svg viewBox=\"0 0 {width} {height}\" {role}>"))
    }

    pub(super) fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4]) {
        let [x, y, width, height] = [x, y, width, height].map(number);
        self.0.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    pub(super) fn path(&mut self, class: &str, d: &str) {
        if !d.is_empty() {
            self.0.push_str(&format!("<path class=\"{class}\" d=\"{d}\"/>"));
        }
    }

    /// A line through points.
    pub(super) fn line(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.path(class, &through(points));
    }

    /// A text with its baseline at `y`.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, text) = (number(x), number(y), escaped(text));
        self.0.push_str(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>"
        ));
    }

    pub(super) fn done(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }
}

/// The path through points.
pub(super) fn through(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut d = String::new();
    for (x, y) in points {
        d.push_str(if d.is_empty() { "M" } else { "L" });
        d.push_str(&format!("{} {}", number(x), number(y)));
    }
    d
}

/// A coordinate.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A count on an axis.
pub(super) fn count(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{}M", number(value / 1e6)),
        _ if value >= 1e4 => format!("{}k", number(value / 1e3)),
        _ if value < 10.0 && value.fract() != 0.0 => {
            format!("{value:.2}").trim_end_matches('0').to_owned()
        }
        _ => number(value),
    }
}

/// Ticks from zero to at least `most`, at about `parts` steps of 1, 2 or 5 times a power of ten.
pub(super) fn ticks(most: f64, parts: u32) -> Vec<f64> {
    if most.is_nan() || most <= 0.0 {
        return vec![0.0, 1.0];
    }
    let wanted = most / f64::from(parts.max(1));
    let mut power = 1e-6;
    while power * 10.0 <= wanted {
        power *= 10.0;
    }
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    let step = step.into_iter().find(|step| *step >= wanted * 0.999).unwrap_or(power * 10.0);
    let mut ticks = vec![0.0];
    while ticks.len() < 32 && ticks.last().is_some_and(|last| *last < most * 0.999) {
        ticks.push(step * ticks.len() as f64);
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinate_is_written_in_one_way() {
        assert_eq!([1.0, 1.04, 1.06, -0.01, -2.5].map(number), ["1", "1", "1.1", "0", "-2.5"]);
        assert_eq!(
            [0.0, 0.25, 400.0, 12_500.0, 2e6].map(count),
            ["0", "0.25", "400", "12.5k", "2M"]
        );
    }

    #[test]
    fn ticks_are_round_and_reach_the_most() {
        assert_eq!(ticks(80.0, 4), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(81.0, 4), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(ticks(1.0, 2), [0.0, 0.5, 1.0]);
        for most in [1e-9, 3.0, 12_345.0, 1e12, f64::NAN] {
            let ticks = ticks(most, 4);
            assert!(ticks.len() < 8 && (most.is_nan() || ticks[ticks.len() - 1] >= most * 0.999));
        }
    }

    #[test]
    fn what_is_written_is_escaped() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\"");
        svg.text("axis", (1.0, 2.0), Anchor::End, "<b>");
        svg.line("l", [(0.0, 1.0), (2.0, 3.27)]);
        assert_eq!(
            svg.done(),
            "<svg viewBox=\"0 0 10 10\" role=\"img\" aria-label=\"a &quot;b&quot;\"><text class=\"axis\" \
             x=\"1\" y=\"2\" text-anchor=\"end\">&lt;b&gt;</text><path class=\"l\" d=\"M0 1L2 3.3\"/></svg>"
        );
    }
}
