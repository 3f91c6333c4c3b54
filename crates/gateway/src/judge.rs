//! Asks an upstream's rules what an answer means, and reads the body for it where one asks.
//!
//! A body is read only for a rule that depends on it, and only if it is JSON, not compressed, and
//! at most 64 KiB: one that announces more, or turns out to be longer, is judged without. What was
//! read stays in front of the rest, so that the answer passes as it came. Reading ends at half the
//! time that is left of the attempt, at most a second: a slow body is judged without, too.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use seawall::{AttemptContext, BodySeen, HttpClassify, Ruled};
use seawall_policy::{Cause, Outcome};
use tokio::time::timeout;

use crate::outbound::Outbound;
use crate::upstream::UpstreamBody;

/// An answer and what it means.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    /// The number of the rule that decided.
    pub(crate) rule: Option<usize>,
    pub(crate) response: Response<UpstreamBody>,
}

impl Outbound {
    /// The answer and what the upstream's rules say of it.
    pub(crate) async fn judged(
        &self,
        response: Response<UpstreamBody>,
        context: &AttemptContext,
    ) -> Result<Judged, Cause> {
        let left = || self.clock.now().until(context.deadline());
        let judged = judge(&self.rules, response, left).await?;
        if let Some(met) = judged.rule.and_then(|rule| self.rules_met.get(rule)) {
            met.fetch_add(1, Relaxed);
        }
        Ok(judged)
    }
}

/// Judges an answer; `left` says how much time the attempt has, if it matters.
///
/// # Errors
/// Its body broke off while it was read; nothing of it has gone on.
async fn judge(
    rules: &HttpClassify,
    response: Response<UpstreamBody>,
    left: impl FnOnce() -> Duration,
) -> Result<Judged, Cause> {
    let (status, fields) = (response.status(), response.headers());
    let mut ruled = match status {
        StatusCode::SWITCHING_PROTOCOLS => Ruled::ByStatus,
        _ => rules.rules().judge(status, fields, BodySeen::Unread),
    };
    let mut response = response;
    if ruled == Ruled::NeedsBody {
        let body = match is_readable(&response) {
            true => read(&mut response, (left() / 2).min(READ_TIME)).await?,
            false => None,
        };
        let seen = body.as_deref().map_or(BodySeen::Unreadable, BodySeen::Whole);
        ruled = rules.rules().judge(status, response.headers(), seen);
    }
    let outcome = rules.outcome_of_ruled(status, response.headers(), ruled);
    let rule = match ruled {
        Ruled::Means(_, rule) => Some(rule),
        Ruled::ByStatus | Ruled::NeedsBody => None,
    };
    Ok(Judged { outcome, rule, response })
}

/// Whether the body may be JSON of a length that is looked at.
fn is_readable(response: &Response<UpstreamBody>) -> bool {
    let fields = response.headers();
    let length = fields.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let fits = length.is_none_or(|length: usize| length <= MOST_BYTES);
    fits && is_json(fields) && fields.get(CONTENT_ENCODING).is_none_or(|it| it == "identity")
}

/// `application/json`, and every type that says it is written in JSON.
fn is_json(fields: &HeaderMap) -> bool {
    let Some(value) = fields.get(CONTENT_TYPE) else { return false };
    let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    let kind = kind.trim_ascii();
    let suffix = kind.len().checked_sub(b"+json".len()).map(|at| &kind[at..]);
    kind.eq_ignore_ascii_case(b"application/json")
        || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"))
}

/// Reads the body to its end and puts it back; nothing if it is too long or too slow.
async fn read(
    response: &mut Response<UpstreamBody>,
    within: Duration,
) -> Result<Option<Vec<u8>>, Cause> {
    let mut frames = Vec::new();
    let mut text = Vec::new();
    let body = response.body_mut();
    let ended = timeout(within, collect(body, &mut frames, &mut text)).await;
    body.put_back(frames);
    match ended {
        Ok(Ok(true)) => Ok(Some(text)),
        Ok(Ok(false)) | Err(_) => Ok(None),
        Ok(Err(cause)) => Err(cause),
    }
}

/// Whether the body came to its end within the length that is looked at.
async fn collect(
    body: &mut UpstreamBody,
    frames: &mut Vec<Frame<Bytes>>,
    text: &mut Vec<u8>,
) -> Result<bool, Cause> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| crate::upstream::classify(&error))?;
        if let Some(bytes) = frame.data_ref() {
            text.extend_from_slice(bytes);
        }
        frames.push(frame);
        if text.len() > MOST_BYTES || frames.len() > MOST_FRAMES {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Source: seawall-design (replay buffer).
const MOST_BYTES: usize = 64 << 10;
/// Empty frames cost as much as others. Source: seawall-design.
const MOST_FRAMES: usize = 1_024;
/// Source: seawall-design.
const READ_TIME: Duration = Duration::from_secs(1);
