//! The codes of gRPC as the values of a label.

use seawall_policy::GrpcCode;

/// The place of a gRPC code among [`GRPC_CODES`].
pub(super) fn grpc_code(code: Option<GrpcCode>) -> usize {
    code.map_or(GrpcCode::ALL.len(), |code| usize::from(code.number()))
}

/// By their number; the last is for what is none of them.
pub(super) const GRPC_CODES: [&str; GrpcCode::ALL.len() + 1] = {
    let mut labels = ["other"; GrpcCode::ALL.len() + 1];
    let mut number = 0;
    while number < GrpcCode::ALL.len() {
        labels[number] = GrpcCode::ALL[number].as_str();
        number += 1;
    }
    labels
};
