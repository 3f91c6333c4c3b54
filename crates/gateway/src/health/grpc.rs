//! The health check of gRPC: asks `grpc.health.v1.Health/Check` for a service, in which an empty
//! name stands for the whole server. Source: grpc-health.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};

use crate::upstream::UpstreamBody;

/// Makes a request ask for `service`; whom it is for is said elsewhere.
pub(super) fn ask_for(service: &str, request: &mut Request<Full<Bytes>>) -> PathAndQuery {
    *request.method_mut() = Method::POST;
    *request.body_mut() = Full::new(message(service));
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    PathAndQuery::from_static("/grpc.health.v1.Health/Check")
}

/// The framed message: a service's name is its field 1.
fn message(service: &str) -> Bytes {
    let mut fields = Vec::new();
    if !service.is_empty() {
        fields.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            fields.push(0x80 | u8::try_from(length & 0x7f).unwrap_or(0));
            length >>= 7;
        }
        fields.push(u8::try_from(length).unwrap_or(0));
        fields.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(fields.len()).unwrap_or(0).to_be_bytes());
    framed.extend_from_slice(&fields);
    framed.into()
}

/// Why the answer says no, if it does.
pub(super) async fn verdict(response: Response<UpstreamBody>) -> Result<(), String> {
    let (parts, body) = response.into_parts();
    if parts.status != http::StatusCode::OK {
        return Err(format!("status {}", parts.status.as_u16()));
    }
    let read = Limited::new(body, MOST_BYTES).collect().await;
    let read = read.map_err(|_| "the answer broke off, or is too long".to_owned())?;
    let trailers = read.trailers().cloned().unwrap_or_default();
    judge(&parts.headers, &trailers, &read.to_bytes())
}

fn judge(head: &HeaderMap, trailers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let status = trailers.get(STATUS).or_else(|| head.get(STATUS));
    match status.map(HeaderValue::as_bytes) {
        Some(b"0") => {}
        Some(other) => {
            let shown = other.iter().take(3).filter(|byte| byte.is_ascii_digit());
            let shown: String = shown.copied().map(char::from).collect();
            return Err(format!("gRPC status {shown}"));
        }
        None => return Err("no gRPC status".to_owned()),
    }
    // Not compressed, four bytes of length, and field 1, the serving status.
    match body {
        [0, _, _, _, _, 0x08, SERVING, ..] => Ok(()),
        [0, _, _, _, _, 0x08, status, ..] => Err(format!("serving status {status}")),
        _ => Err("no serving status".to_owned()),
    }
}

const STATUS: &str = "grpc-status";
/// Source: grpc-health.
const SERVING: u8 = 1;
/// An answer has a handful. Source: seawall-design.
const MOST_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_service_is_framed() {
        assert_eq!(&message("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&message("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = message(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(long.len(), 5 + 3 + 300);
    }

    #[test]
    fn only_a_serving_service_passes() {
        let with = |status: &'static str| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static(STATUS),
                HeaderValue::from_static(status),
            )])
        };
        let none = HeaderMap::new();
        let serving = [0, 0, 0, 0, 2, 8, 1];
        assert_eq!(judge(&none, &with("0"), &serving), Ok(()));
        assert_eq!(
            judge(&none, &with("0"), &[0, 0, 0, 0, 2, 8, 2]).unwrap_err(),
            "serving status 2"
        );
        for (head, trailers, body, why) in [
            (&none, &none, &serving[..], "no gRPC status"),
            (&with("5"), &none, &[], "gRPC status 5"),
            (&none, &with("0"), &[0, 0, 0, 0, 0], "no serving status"),
            (&none, &with("0"), &[1, 0, 0, 0, 2, 8, 1], "no serving status"),
            (&none, &with("0"), &[], "no serving status"),
        ] {
            assert_eq!(judge(head, trailers, body).unwrap_err(), why);
        }
    }
}
