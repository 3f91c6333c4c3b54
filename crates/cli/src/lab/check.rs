//! `seawall lab check`: whether files can be run, and what their own numbers say against them.

use std::io::{self, Write as _};

use seawall_lab::ScenarioError;

use super::{Judged, Loaded, load};
use crate::args::LabCheckArgs;

pub(super) fn check(args: &LabCheckArgs) -> anyhow::Result<Judged> {
    let mut judged = Judged::Passed;
    for name in &args.names {
        let Loaded { asked, scenario } = match load(name) {
            Ok(loaded) => loaded,
            Err(error) if error.is::<ScenarioError>() => {
                writeln!(io::stderr(), "{error}")?;
                judged = Judged::Failed;
                continue;
            }
            Err(error) => return Err(error),
        };
        let advice = scenario.advice();
        writeln!(io::stdout(), "{asked}: can be run; {}", scenario.title())?;
        for (case, arm, said) in advice {
            let place = [case, arm].into_iter().filter(|part| !part.is_empty());
            let place = place.collect::<Vec<_>>().join(", ");
            writeln!(io::stdout(), "  advice, {place}: {said}")?;
        }
    }
    Ok(judged)
}
