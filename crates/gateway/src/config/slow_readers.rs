//! Checks of what becomes of callers that do not take what is sent to them.

use seawall_policy::{SpreadOptions, SpreadParams};
use serde::Deserialize;

use super::model::SlowReaders;
use super::scope::Scope;
use super::upstream::checked;
use super::{DAY, MILLISECOND};
use crate::units::parse_rate;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSlowReaders {
    stall: Option<String>,
    close_rate: Option<String>,
    send_buffer: Option<String>,
}

pub(super) fn slow_readers(mut scope: Scope<'_>, raw: &RawSlowReaders) -> SlowReaders {
    let stall = scope.duration("stall", &raw.stall, MILLISECOND..=DAY);
    let rate = scope
        .read("close_rate", &raw.close_rate, |text| parse_rate(text).map_err(|it| it.allowed()));
    let default = SpreadOptions::default();
    let read =
        rate.map_or(default, |rate| SpreadOptions { limit: rate.count.get(), period: rate.period });
    let refused = SpreadParams::new(read).err();
    let close_rate = checked(&mut scope, read, refused, &[("limit", "close_rate")]);
    let range = SEND_BUFFER_MIN..=SEND_BUFFER_MAX;
    let buffer = scope.size("send_buffer", &raw.send_buffer, range);
    let send_buffer = buffer.and_then(|bytes| usize::try_from(bytes).ok());
    SlowReaders { stall, close_rate, send_buffer }
}

/// Below it a socket is woken for every few frames. Source: seawall-design.
const SEND_BUFFER_MIN: u64 = 4 << 10;
/// Source: seawall-design.
const SEND_BUFFER_MAX: u64 = 16 << 20;
