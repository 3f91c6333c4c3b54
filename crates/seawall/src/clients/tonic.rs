//! What a status of tonic means, which is what a server said, or what became of the transport.
//!
//! | the status | cause |
//! |---|---|
//! | the server's, in the head or among the trailers | its code, with the pushback beside it |
//! | no connection could be made | connect refused, connect timeout, dns, tls or connect failed |
//! | tonic's timer went off: `grpc-timeout`, or the endpoint's `timeout` | attempt timeout |
//! | an error of hyper or h2 within | as hyper's |
//! | any other error within | unmatched, or its code if it has a better one than UNKNOWN |
//! | an HTTP answer that is not gRPC | its HTTP status, with `Retry-After` |
//! | an answer that ends without a status | closed |
//!
//! tonic makes a status of everything, and a code alone does not tell a server's word from a
//! broken connection: UNAVAILABLE is a refused connect, which any call may be tried again after,
//! and a server's answer, which it may not. What tells them apart is the error within.
//!
//! A unary call has given nothing to its caller before it is over, so a code among its trailers is
//! tried again as one in the head.

use std::error::Error as StdError;

use http::header::CONTENT_TYPE;
use seawall_policy::{Cause, GrpcCode, Outcome};
use tonic::{Code, ConnectError, IntoRequest, Request, Response, Status, TimeoutExpired};

use super::hyper::{HyperErrors, of_connect, of_h2};
use crate::attempt::AttemptContext;
use crate::classify::{Classify, ErrorCause as _, Summary, cause_among_sources, find};
use crate::grpc::{GrpcClassify, is_grpc};

/// What a result of a tonic client means; for [`Stack::call`](crate::Stack::call). To declare codes
/// that are safe to repeat whatever was done, use [`GrpcClassify::retry_on`], which is a
/// [`Classify`] for tonic's results, too.
///
/// ```no_run
/// # use seawall::bytes::Bytes;
/// # use seawall::{CallOptions, Stack, classify_tonic, tonic_request};
/// # type Answer = Result<tonic::Response<Bytes>, tonic::Status>;
/// # #[derive(Clone)]
/// # struct Greeter;
/// # impl Greeter {
/// #     async fn say_hello(&mut self, _: tonic::Request<Bytes>) -> Answer { unreachable!() }
/// # }
/// # async fn f(stack: Stack, client: Greeter, hello: Bytes) {
/// let report = stack
///     .call(CallOptions::idempotent(), classify_tonic, |attempt| {
///         let (mut client, request) = (client.clone(), tonic_request(&attempt, hello.clone()));
///         async move { client.say_hello(request).await }
///     })
///     .await;
/// # }
/// ```
pub fn classify_tonic<T>(result: &Result<T, Status>) -> Outcome {
    match result {
        Ok(_) => Outcome::of(Cause::Grpc(GrpcCode::Ok)),
        Err(status) => tonic_outcome(status),
    }
}

/// What a status of tonic means, for rules of your own around it.
#[must_use]
pub fn tonic_outcome(status: &Status) -> Outcome {
    of_status(&GrpcClassify::new(), status)
}

/// The request of an attempt: with its time in `grpc-timeout` and its number in
/// `grpc-previous-rpc-attempts` ([`AttemptContext::stamp_grpc`]). For calls whose answer is one
/// message: a server ends a stream, too, when that time is up.
#[must_use]
pub fn tonic_request<T>(attempt: &AttemptContext, message: impl IntoRequest<T>) -> Request<T> {
    let mut request = message.into_request();
    attempt.stamp_grpc(request.metadata_mut().as_mut());
    request
}

impl<T, M> Classify<Response<T>, Status> for GrpcClassify<M> {
    fn classify(&self, result: Result<&Response<T>, &Status>) -> Outcome {
        match result {
            Ok(_) => Outcome::of(Cause::Grpc(GrpcCode::Ok)),
            Err(status) => of_status(self, status),
        }
    }

    fn annotate(&self, response: &mut Response<T>, summary: &Summary) {
        response.extensions_mut().insert(*summary);
    }
}

fn of_status<M>(rules: &GrpcClassify<M>, status: &Status) -> Outcome {
    let fields = status.metadata().as_ref();
    if let Some(error) = status.source() {
        return match of_error(error) {
            Some(cause) => rules.of_end(cause),
            None if status.code() == Code::Unknown => Outcome::of(Cause::Unmatched),
            None => rules.outcome(code(status), fields),
        };
    }
    // Of an answer that another server only relays, the fields are still gRPC's.
    let is_other = fields.contains_key(CONTENT_TYPE) && !is_grpc(fields);
    match status.message() {
        said if is_other && let Some(http) = said.strip_prefix(NOT_GRPC) => {
            http.parse().map_or(Outcome::of(Cause::Malformed), |http| rules.of_http(http, fields))
        }
        _ if is_other => Outcome::of(Cause::Malformed),
        said if said.starts_with(NO_STATUS) => rules.of_end(Cause::Closed),
        _ => rules.outcome(code(status), fields),
    }
}

/// The cause, if the error within a status says one: then no server said the status.
fn of_error(error: &(dyn StdError + 'static)) -> Option<Cause> {
    if find::<TimeoutExpired>(error).is_some() {
        return Some(Cause::AttemptTimeout);
    }
    if find::<ConnectError>(error).is_some() {
        return Some(of_connect(error));
    }
    let cause = match find::<::hyper::Error>(error) {
        Some(found) => HyperErrors.cause(found),
        None => find::<h2::Error>(error).map_or(Cause::Unmatched, of_h2),
    };
    let cause = if cause == Cause::Unmatched { cause_among_sources(Some(error)) } else { cause };
    (cause != Cause::Unmatched).then_some(cause)
}

fn code(status: &Status) -> GrpcCode {
    let number = u64::try_from(i32::from(status.code())).ok();
    number.and_then(GrpcCode::of_number).unwrap_or(GrpcCode::Unknown)
}

/// How tonic says that an answer was not gRPC; the number of its HTTP status follows.
const NOT_GRPC: &str = "grpc-status header missing, mapped from HTTP status code ";
/// How tonic says that an answer ended in its midst.
const NO_STATUS: &str = "protocol error: missing grpc-status trailer";
