//! A report as lines of text, the same for the same run to the last byte.

use std::fmt;

use seawall_policy::StopReason;

use super::ledger::{Counts, Second, Turned};
use super::report::{OfService, Report};
use super::rush::Rush;

/// All of it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { calls, sent, attempts, good, failed, left, cut_off, stops } = self.counts;
        writeln!(f, "events {} digest {:016x}", self.events, self.digest)?;
        writeln!(f, "calls {calls} sent {sent} attempts {attempts} good {good} failed {failed}")?;
        writeln!(f, "left {left} cut_off {cut_off} oldest {:?}", self.cut_off.longest())?;
        writeln!(f, "opened {} ejected {}", self.opened, self.ejected)?;
        if self.turned != Turned::default() {
            let Turned { refused, dropped, dropped_awaited, begun_for_nobody } = self.turned;
            write!(f, "refused {refused} dropped {dropped} awaited {dropped_awaited} ")?;
            writeln!(f, "begun for nobody {begun_for_nobody}")?;
        }
        if !self.rush.attempts.is_empty() {
            let Rush { ready, waiting, attempts } = &self.rush;
            let at = [0.5, 0.9, 0.99].map(|share| ready.quantile(share));
            writeln!(f, "ready {} {at:?} waiting {waiting} attempts {attempts:?}", ready.n())?;
        }
        for (reason, count) in StopReason::ALL.iter().zip(stops).filter(|(_, count)| *count > 0) {
            writeln!(f, "stop {} {count}", reason.as_str())?;
        }
        for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
            writeln!(f, "time {share} {:?}", self.times.quantile(share))?;
        }
        series(f, &self.seconds)?;
        for service in &self.services {
            let OfService { name, counts, turned, seconds, times, opened, died, .. } = service;
            let (in_use, waited) = (service.in_use, service.waits.longest());
            let Counts { calls, attempts, good, failed, left, cut_off, .. } = counts;
            let ends = format!("good {good} failed {failed} left {left} cut_off {cut_off}");
            writeln!(f, "service {name} calls {calls} attempts {attempts} {ends}")?;
            write!(f, "refused {} dropped {} ", turned.refused, turned.dropped)?;
            writeln!(f, "opened {opened} died {died} half {:?}", times.quantile(0.5))?;
            writeln!(f, "in use {in_use} waited {waited:?}")?;
            series(f, seconds)?;
        }
        Ok(())
    }
}

fn series(f: &mut fmt::Formatter<'_>, seconds: &[Second]) -> fmt::Result {
    for (at, second) in seconds.iter().enumerate() {
        let Second { offered, attempts, arrived, good, failed, worked, wasted } = second;
        writeln!(f, "{at} {offered} {attempts} {arrived} {good} {failed} {worked} {wasted}")?;
    }
    Ok(())
}
