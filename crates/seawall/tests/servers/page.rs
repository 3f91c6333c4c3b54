//! docs/clients.md: what is provoked here is what stands there.

use std::fs;
use std::path::Path;

/// A code, and what the page says of it.
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) cause: String,
    pub(crate) class: String,
    /// Whether the attempt that failed had no connection yet.
    pub(crate) connecting: bool,
}

/// The rows of the table of the page behind the comment that names it.
pub(crate) fn rows(table: &str) -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md");
    let page = fs::read_to_string(path).unwrap();
    let mark = format!("<!-- {table} -->\n");
    let (_, after) = page.split_once(&mark).unwrap_or_else(|| panic!("{mark} is on the page"));
    let table: Vec<_> = after.lines().skip_while(|line| line.is_empty()).skip(2).collect();
    let rows = table.iter().take_while(|line| line.starts_with('|'));
    let mut found = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [codes, outcomes @ ..] = cells.as_slice() else { continue };
        for code in codes.split('`').skip(1).step_by(2) {
            for (connecting, outcome) in
                [(true, outcomes.first()), (false, outcomes.get(1))].into_iter()
            {
                let words: Vec<_> = outcome
                    .into_iter()
                    .flat_map(|cell| cell.split('`'))
                    .skip(1)
                    .step_by(2)
                    .collect();
                if let [cause, class] = words.as_slice() {
                    let (key, cause, class) =
                        (code.to_owned(), (*cause).to_owned(), (*class).to_owned());
                    found.push(Row { key, cause, class, connecting });
                }
            }
        }
    }
    assert!(found.len() > 5, "the rows of the page are found");
    found
}
