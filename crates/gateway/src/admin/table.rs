//! The upstreams as an aligned table, for a person at a terminal.

use super::views::UpstreamView;

/// One row for each endpoint and breaker.
pub(super) fn upstreams(upstreams: &[UpstreamView]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for upstream in upstreams {
        for endpoint in &upstream.endpoints {
            let standing = match endpoint.back_in_ms {
                Some(ms) => format!("{} {ms}ms", endpoint.standing),
                None => endpoint.standing.to_owned(),
            };
            let row = |route: &str, breaker: String| {
                [
                    plain(&upstream.name),
                    plain(&endpoint.endpoint),
                    standing.clone(),
                    plain(route),
                    breaker,
                    format!("{}/{}", upstream.in_flight, upstream.limit),
                    upstream.waiting.to_string(),
                    format!("{}+{}", endpoint.connections_busy, endpoint.connections_idle),
                    if upstream.retries_on { "on" } else { "off" }.to_owned(),
                    upstream
                        .retry_budget_balance_tokens
                        .map_or_else(|| "-".to_owned(), |balance| format!("{balance:.1}")),
                ]
            };
            for breaker in &endpoint.breakers {
                let state = match breaker.probes_in_ms {
                    Some(ms) => format!("{} {ms}ms", breaker.state),
                    None => breaker.state.to_owned(),
                };
                rows.push(row(&breaker.route, state));
            }
            if endpoint.breakers.is_empty() {
                rows.push(row("-", "-".to_owned()));
            }
        }
    }
    aligned(&rows)
}

/// Columns as wide as their widest cell, two spaces apart.
fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A name without what would move the cursor.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

const HEAD: [&str; 10] = [
    "UPSTREAM",
    "ENDPOINT",
    "STANDING",
    "ROUTE",
    "BREAKER",
    "IN FLIGHT",
    "WAITING",
    "BUSY+IDLE",
    "RETRIES",
    "BUDGET",
];

#[cfg(test)]
mod tests {
    use super::super::views::{EndpointBreakerView, EndpointView};
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let breaker = |route: &str, state, probes_in_ms| EndpointBreakerView {
            route: route.to_owned(),
            state,
            probes_in_ms,
            ..EndpointBreakerView::default()
        };
        let bridge = UpstreamView {
            name: "bridge".to_owned(),
            in_flight: 3,
            limit: 1024,
            waiting: 1,
            retries_on: true,
            retry_budget_balance_tokens: Some(9.96),
            endpoints: vec![EndpointView {
                endpoint: "127.0.0.1:9001".to_owned(),
                standing: "ejected",
                back_in_ms: Some(7_000),
                connections_idle: 2,
                connections_busy: 3,
                breakers: vec![
                    breaker("orders\x1b", "closed", None),
                    breaker("quotes", "open", Some(1500)),
                ],
                ..Default::default()
            }],
            ..Default::default()
        };
        let cache = UpstreamView {
            name: "a-long-name".to_owned(),
            endpoints: vec![EndpointView {
                endpoint: "c:1".to_owned(),
                standing: "available",
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = upstreams(&[bridge, cache]);
        let lines: Vec<_> = text.lines().collect();
        let up = "UPSTREAM     ENDPOINT        STANDING        ROUTE    BREAKER      IN FLIGHT  ";
        assert_eq!(lines[0], format!("{up}WAITING  BUSY+IDLE  RETRIES  BUDGET"));
        let tail = "3/1024     1        3+2        on       10.0";
        let first = "bridge       127.0.0.1:9001  ejected 7000ms  orders\u{fffd}  closed       ";
        assert_eq!(lines[1], format!("{first}{tail}"));
        let second = "bridge       127.0.0.1:9001  ejected 7000ms  quotes   open 1500ms  ";
        assert_eq!(lines[2], format!("{second}{tail}"));
        let bare = "a-long-name  c:1             available       -        -            0/0        0        ";
        assert_eq!(lines[3], format!("{bare}0+0        off      -"));
        assert_eq!(lines.len(), 4);
    }
}
