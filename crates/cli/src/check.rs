//! `seawall check`: what is wrong with a configuration file, and what it amounts to.

use std::io::{self, Write};

use seawall_gateway::{GatewayConfig, Upstream, Warning, format_duration};

use crate::args::CheckArgs;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The file can be run; there may be warnings.
    Fine,
    /// It cannot.
    Wrong,
    /// It cannot be read.
    Unreadable,
}

/// Checks the file: the summary goes to `out`, findings to `err`, coloured there if `colour`.
///
/// # Errors
/// Writing fails.
pub fn check(
    args: &CheckArgs,
    out: &mut impl Write,
    err: &mut impl Write,
    colour: bool,
) -> io::Result<Verdict> {
    match GatewayConfig::load(&args.file) {
        Ok((config, warnings)) => {
            for warning in &warnings {
                match colour {
                    true => writeln!(err, "{}", warning.coloured())?,
                    false => writeln!(err, "{warning}")?,
                }
            }
            let name = args.file.display().to_string();
            summary(&name, &config, &warnings, out)?;
            Ok(Verdict::Fine)
        }
        Err(errors) => {
            match colour {
                true => writeln!(err, "{}", errors.coloured())?,
                false => writeln!(err, "{errors}")?,
            }
            Ok(if errors.is_unreadable() { Verdict::Unreadable } else { Verdict::Wrong })
        }
    }
}

/// A table of what comes in, where it goes, and what one request costs at most.
fn summary(
    name: &str,
    config: &GatewayConfig,
    warnings: &[Warning],
    out: &mut impl Write,
) -> io::Result<()> {
    match warnings.len() {
        0 => writeln!(out, "{name} is fine")?,
        1 => writeln!(out, "{name} can be run, with 1 warning")?,
        count => writeln!(out, "{name} can be run, with {count} warnings")?,
    }
    writeln!(out)?;
    for listener in &config.listeners {
        writeln!(out, "listen  {}", listener.address)?;
    }
    writeln!(out, "admin   {}\n", config.admin)?;
    let header = ["route", "upstream", "endpoints", "attempts", "at most"].map(str::to_owned);
    let mut rows = vec![header];
    for route in &config.routes {
        let upstream = config.upstreams.get(route.upstream);
        let worst = config.worst_case(route);
        rows.push([
            route.name.clone(),
            upstream.map(|it| it.name.clone()).unwrap_or_default(),
            upstream.map(endpoints).unwrap_or_default(),
            worst.map(|it| it.attempts.to_string()).unwrap_or_default(),
            worst.map(|it| format_duration(it.time)).unwrap_or_default(),
        ]);
    }
    table(&rows, out)
}

/// The first endpoint, and how many more there are.
fn endpoints(upstream: &Upstream) -> String {
    let Some(first) = upstream.endpoints.first() else { return String::new() };
    match upstream.endpoints.len() - 1 {
        0 => first.to_string(),
        more => format!("{first} and {more} more"),
    }
}

fn table<const N: usize>(rows: &[[String; N]], out: &mut impl Write) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `text` from a file of its own; the verdict, standard output and standard error.
    fn run(text: &str) -> (Verdict, String, String) {
        let name = format!("seawall-check-{}.yaml", uuid::Uuid::new_v4());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text).unwrap();
        let told = told(&file);
        std::fs::remove_file(&file).unwrap();
        let shown = file.display().to_string();
        (told.0, told.1.replace(&shown, "FILE"), told.2.replace(&shown, "FILE"))
    }

    fn told(file: &std::path::Path) -> (Verdict, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = CheckArgs { file: file.to_owned() };
        let verdict = check(&args, &mut out, &mut err, false).unwrap();
        (verdict, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn a_file_that_can_be_run_is_summed_up() {
        let (verdict, out, err) = run("version: 1
upstreams:
  orders: {endpoints: ['http://127.0.0.1:9000', 'http://[::1]:9000']}
  prices: {endpoints: ['http://[::1]:9001'], retry: off, retry_budget: off}
routes:
  - {host: api.example.com, path_prefix: /orders, upstream: orders}
  - {upstream: prices}
");
        assert_eq!(verdict, Verdict::Fine);
        assert_eq!(err, "");
        let expected = "FILE is fine

listen  127.0.0.1:8080
admin   127.0.0.1:9901

route                   upstream  endpoints                  attempts  at most
api.example.com/orders  orders    127.0.0.1:9000 and 1 more  2         24s100ms
/                       prices    [::1]:9001                 1         12s
";
        assert_eq!(out, expected);
    }

    #[test]
    fn warnings_are_told_and_do_not_stop_it() {
        let (verdict, out, err) =
            run("version: 1\nupstreams: {a: {endpoints: ['http://h:1'], retry_budget: off}}\n");
        assert_eq!(verdict, Verdict::Fine);
        assert!(out.starts_with("FILE can be run, with 1 warning\n"), "{out}");
        assert!(err.starts_with("warning: upstreams.a.retry_budget: "), "{err}");
    }

    #[test]
    fn a_wrong_file_and_one_that_is_not_there_are_told_apart() {
        let (verdict, out, err) = run("version: 1\n");
        assert_eq!((verdict, out.as_str()), (Verdict::Wrong, ""));
        assert!(err.ends_with("1 error in FILE\n"), "{err}");
        let (verdict, out, err) = told(std::path::Path::new("/nowhere/seawall.yaml"));
        assert_eq!((verdict, out.as_str()), (Verdict::Unreadable, ""));
        assert!(err.contains("cannot be read"), "{err}");
    }
}
