//! What one address may have: connections at a time, connections in a time, requests in a time.

use alloc::collections::BTreeMap;

use super::DoorRefusal;
use crate::error::ConfigError;
use crate::rate::{
    KeyedRate, KeyedRateOptions, KeyedRateParams, RateExceeded, RateKey, RateOptions,
};
use crate::time::Timestamp;

/// The limits of one address, unchecked. At least one of them is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressOptions {
    /// Connections at a time, 1 or more. Default: no limit.
    pub connections: Option<u32>,
    /// Connections in a time. Default: no limit.
    pub connection_rate: Option<RateOptions>,
    /// Requests in a time. Default: no limit.
    pub request_rate: Option<RateOptions>,
    /// Addresses that can owe something of a rate at a time, 1 to 1,000,000; about 50 bytes each
    /// and rate, taken when the first comes. Default 10,000.
    pub addresses: u32,
}

impl Default for AddressOptions {
    fn default() -> Self {
        Self { connections: None, connection_rate: None, request_rate: None, addresses: ADDRESSES }
    }
}

/// Checked [`AddressOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressParams {
    connections: Option<u32>,
    connection_rate: Option<KeyedRateParams>,
    request_rate: Option<KeyedRateParams>,
}

impl AddressParams {
    /// Checks the options; `accept` is the rate of all addresses together.
    pub(super) fn new(
        options: AddressOptions,
        accept: Option<RateOptions>,
    ) -> Result<Self, ConfigError> {
        let AddressOptions { connections, connection_rate, request_rate, addresses } = options;
        if connections.is_none() && connection_rate.is_none() && request_rate.is_none() {
            return Err(ConfigError::new("per_address", "{}", "one limit at least"));
        }
        if connections == Some(0) {
            return Err(ConfigError::new("connections", 0, "1 or more"));
        }
        if let (Some(one), Some(all)) = (connection_rate, accept)
            && all.is_within(&one)
        {
            let allowed = "less than the accept rate, which is reached first";
            return Err(ConfigError::new("connection_rate", one.limit, allowed));
        }
        let keyed = |field, rate: Option<RateOptions>| {
            let params =
                rate.map(|rate| KeyedRateParams::new(KeyedRateOptions { rate, keys: addresses }));
            params.transpose().map_err(|refused| match refused.field() {
                "keys" => ConfigError::new("addresses", addresses, "1 to 1000000"),
                _ => refused.under(field),
            })
        };
        Ok(Self {
            connections,
            connection_rate: keyed("connection_rate", connection_rate)?,
            request_rate: keyed("request_rate", request_rate)?,
        })
    }

    /// Whether connections are limited, or requests alone.
    pub(super) const fn of_connections(&self) -> bool {
        self.connections.is_some() || self.connection_rate.is_some()
    }
}

/// What is known of addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    /// Connections of each that has any.
    open: BTreeMap<RateKey, u32>,
    /// Made when the first one comes.
    came: Option<KeyedRate>,
    asked: Option<KeyedRate>,
}

impl Addresses {
    /// Whether one more connection may come; takes nothing.
    pub(super) fn check(
        &mut self,
        now: Timestamp,
        params: &AddressParams,
        key: RateKey,
    ) -> Result<(), DoorRefusal> {
        let open = self.open.get(&key).copied().unwrap_or(0);
        if params.connections.is_some_and(|most| open >= most) {
            return Err(DoorRefusal::AddressConnections);
        }
        let Some(rate) = &params.connection_rate else { return Ok(()) };
        let came = self.came.get_or_insert_with(|| KeyedRate::new(rate));
        came.check(now, rate, key, 1).map_err(|_| DoorRefusal::AddressRate)
    }

    /// One more has come, after [`check`](Self::check).
    pub(super) fn take(&mut self, now: Timestamp, params: &AddressParams, key: RateKey) {
        *self.open.entry(key).or_insert(0) += 1;
        if let (Some(rate), Some(came)) = (&params.connection_rate, &mut self.came) {
            let taken = came.try_acquire(now, rate, key, 1);
            debug_assert!(taken.is_ok(), "it was asked at the same time");
        }
    }

    pub(super) fn release(&mut self, key: RateKey) {
        if let Some(open) = self.open.get_mut(&key) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&key);
            }
        }
    }

    pub(super) fn try_request(
        &mut self,
        now: Timestamp,
        params: &AddressParams,
        key: RateKey,
    ) -> Result<(), RateExceeded> {
        let Some(rate) = &params.request_rate else { return Ok(()) };
        let asked = self.asked.get_or_insert_with(|| KeyedRate::new(rate));
        asked.try_acquire(now, rate, key, 1)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn evicted_total(&self) -> u64 {
        let evicted =
            |table: &Option<KeyedRate>| table.as_ref().map_or(0, KeyedRate::evicted_total);
        evicted(&self.came).saturating_add(evicted(&self.asked))
    }
}

/// Source: seawall-defaults.
const ADDRESSES: u32 = 10_000;
