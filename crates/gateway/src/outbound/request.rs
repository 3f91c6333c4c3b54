//! The request of one attempt: what all attempts of its call say, and what only this one does.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Uri, Version};
use seawall::AttemptContext;
use seawall_policy::{Purpose, Timestamp, remaining_to_send};

use super::Outbound;
use crate::config::Protocol;
use crate::headers;
use crate::upload::{RequestBody, Upload};

impl Outbound {
    pub(super) fn request(&self, context: &AttemptContext, now: Timestamp) -> Request<RequestBody> {
        let read = match context.purpose() {
            Purpose::Hedge => Upload::read_beside,
            _ => Upload::read,
        };
        let body = self.upload.as_ref().map_or(RequestBody::Empty, read);
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        *request.version_mut() = match self.protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::H2c => Version::HTTP_2,
        };
        let places = self.hosts.as_ref().map(|places| places.load());
        let place = places.as_ref().and_then(|places| places.get(context.endpoint()));
        if let Some(host) = place.and_then(|place| place.host.as_ref()) {
            address(&mut request, host, self.protocol);
        }
        // hyper drops the body of a GET that announces neither a length nor a coding.
        let announced = self.headers.contains_key(CONTENT_LENGTH);
        if self.protocol == Protocol::Http1 && self.upload.is_some() && !announced {
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if let (Some(header), Some(secret)) = (&self.credential, context.credential())
            && let Ok(value) = secret.header_value()
        {
            request.headers_mut().insert(header, value);
        }
        if let Some(names) = &self.names {
            let number = self.caller_attempt.max(context.number());
            let headers = request.headers_mut();
            headers.insert(names.attempt.clone(), headers::number(number));
            let left = left_upstream(now, context.deadline(), self.stated, self.margin);
            if let Some(left) = left {
                headers.insert(names.remaining.clone(), headers::number(left));
            }
            if let Some(grpc) = &self.grpc {
                grpc.stamp(headers, now, left, number);
            }
        }
        request
    }
}

/// Says whom a request is for.
fn address(request: &mut Request<RequestBody>, host: &HeaderValue, protocol: Protocol) {
    if protocol == Protocol::Http1 {
        request.headers_mut().insert(HOST, host.clone());
        return;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.authority = host.as_bytes().try_into().ok();
    let scheme = parts.scheme.take().unwrap_or(http::uri::Scheme::HTTP);
    parts.scheme = parts.authority.is_some().then_some(scheme);
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// The milliseconds an attempt tells its upstream. An answer that comes when the attempt's own time
/// is over comes too late, so the margin is off that time as it is off the caller's; of a time that
/// is not twice the margin, half.
fn left_upstream(
    now: Timestamp,
    deadline: Timestamp,
    stated: Option<Timestamp>,
    margin: Duration,
) -> Option<u64> {
    let kept_back = match stated {
        Some(stated) if stated <= deadline => Duration::ZERO,
        _ => margin.min(now.until(deadline) / 2),
    };
    remaining_to_send(now, deadline, kept_back, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_off_whatever_bounds_the_attempt_and_off_it_once() {
        let at = Timestamp::from_millis;
        let told = |deadline, stated: Option<u64>| {
            left_upstream(at(1000), at(deadline), stated.map(at), Duration::from_millis(5))
        };
        assert_eq!(told(3000, None), Some(1995), "the attempt's own time");
        assert_eq!(told(3000, Some(9000)), Some(1995), "the caller has longer");
        assert_eq!(told(3000, Some(3000)), Some(2000), "the caller's time, kept back before");
        assert_eq!(told(3000, Some(3001)), Some(1995));
        assert_eq!(told(1010, None), Some(5), "half of a short time");
        assert_eq!(told(1004, None), Some(2));
        assert_eq!(told(1001, None), None);
        assert_eq!(told(1000, None), None);
    }
}
