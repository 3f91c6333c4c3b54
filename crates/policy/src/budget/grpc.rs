//! The retry throttling of gRPC service configs (A6), for whoever has one.
//!
//! ```text
//! tokens start at max_tokens
//! failure: tokens −= 1, not below 0     success: tokens += token_ratio, not above max_tokens
//! a retry or a hedge goes while tokens > max_tokens / 2; it takes nothing itself
//! ```
//!
//! A failure is an attempt that could be tried again by its class, or whose answer said that it
//! must not be. In balance, one failure in 1 + 1/`token_ratio`: at 0.1, one in eleven keeps retries
//! on for ever, and each above that empties the bucket.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `max_tokens` | 10 | 1 to 1,000 | grpc-a6 (the example; it has no default) |
//! | `token_ratio` | 0.1 | 0.001 to 1,000, at most three decimals | grpc-a6 (likewise) |
//!
//! Known bad case: nothing is paid by a retry, so a fast burst of calls may all be retried before
//! the first of their failures counts.

use super::TOKEN;
use crate::error::ConfigError;
use crate::ratio::Ratio;

/// The options of gRPC's retry throttling, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcThrottle {
    /// Tokens at the start and at most, 1 to 1,000; default 10.
    pub max_tokens: u32,
    /// Tokens per success, 0.001 to 1,000 in thousandths; default 0.1.
    pub token_ratio: Ratio,
}

impl Default for GrpcThrottle {
    fn default() -> Self {
        Self { max_tokens: MAX_TOKENS, token_ratio: TOKEN_RATIO }
    }
}

/// Checked [`GrpcThrottle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GrpcParams {
    pub(super) options: GrpcThrottle,
}

impl GrpcParams {
    pub(super) fn new(options: GrpcThrottle) -> Result<Self, ConfigError> {
        let GrpcThrottle { max_tokens, token_ratio } = options;
        if !(1..=MOST_TOKENS).contains(&max_tokens) {
            return Err(ConfigError::new("max_tokens", max_tokens, "1 to 1000"));
        }
        let thousandth = Ratio::SCALE / 1000;
        let millionths = token_ratio.millionths();
        let is_thousandths = millionths.is_multiple_of(thousandth);
        if !is_thousandths || !(thousandth..=1_000 * Ratio::SCALE).contains(&millionths) {
            let allowed = "0.001 to 1000, with at most three decimals";
            return Err(ConfigError::new("token_ratio", token_ratio, allowed));
        }
        Ok(Self { options })
    }

    const fn most(&self) -> u64 {
        self.options.max_tokens as u64 * TOKEN
    }
}

/// The tokens there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrpcTokens {
    /// Micro-tokens.
    tokens: u64,
    /// What they have to be above, at the last use.
    half: u64,
}

impl GrpcTokens {
    pub(super) const fn new(params: &GrpcParams) -> Self {
        Self { tokens: params.most(), half: params.most() / 2 }
    }

    pub(super) fn on_success(&mut self, params: &GrpcParams) {
        let more = u64::from(params.options.token_ratio.millionths());
        self.set(self.tokens + more, params);
    }

    pub(super) fn on_failure(&mut self, params: &GrpcParams) {
        self.set(self.tokens.min(params.most()).saturating_sub(TOKEN), params);
    }

    pub(super) fn allow(&mut self, params: &GrpcParams) -> bool {
        self.set(self.tokens, params);
        self.tokens > self.half
    }

    /// Micro-tokens above the half at which retries stop.
    pub(super) const fn above_half(&self) -> u64 {
        self.tokens.saturating_sub(self.half)
    }

    /// The same under parameters that it may not have been used with.
    pub(super) const fn above_half_of(&self, params: &GrpcParams) -> u64 {
        let most = params.most();
        let tokens = if self.tokens < most { self.tokens } else { most };
        tokens.saturating_sub(most / 2)
    }

    fn set(&mut self, tokens: u64, params: &GrpcParams) {
        self.tokens = tokens.min(params.most());
        self.half = params.most() / 2;
    }
}

/// Source: grpc-a6.
const MAX_TOKENS: u32 = 10;
/// Source: grpc-a6.
const MOST_TOKENS: u32 = 1_000;
/// Source: grpc-a6.
const TOKEN_RATIO: Ratio = Ratio::from_millionths(100_000);
