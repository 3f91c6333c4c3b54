"""Makes the calls it reads from standard input with grpcio, and says what came of each.

Messages are plain bytes, so nothing is generated.
"""

import json
import sys
import time

import grpc

SAID = ("x-cost", "grpc-retry-pushback-ms", "seawall-problem")


def text_of_details(details):
    """The text in a google.rpc.Status with one StringValue of less than 128 bytes."""
    at = details.rfind(b"google.protobuf.StringValue")
    if at < 0:
        return ""
    # Field 2 (value) of Any, its length; field 1 of StringValue, its length, the text.
    value = details[at + len(b"google.protobuf.StringValue"):]
    return value[4:4 + value[3]].decode()


def make(channel, call):
    shape = call["method"].rsplit("/", 1)[1]
    metadata = tuple(call["metadata"].items())
    timeout = call["timeout_ms"] / 1000 or None
    messages = [bytes(size) for size in call["send"]]
    kinds = {
        "Unary": channel.unary_unary,
        "Watch": channel.unary_stream,
        "Hang": channel.unary_stream,
        "Collect": channel.stream_unary,
        "Chat": channel.stream_stream,
    }
    method = kinds[shape](call["method"])
    request = messages[0] if shape in ("Unary", "Watch", "Hang") else iter(messages)
    received = []
    began = time.monotonic()
    try:
        if shape in ("Unary", "Collect"):
            reply, ended = method.with_call(request, timeout=timeout, metadata=metadata)
            received.append(len(reply))
        else:
            ended = method(request, timeout=timeout, metadata=metadata)
            for message in ended:
                received.append(len(message))
                if len(received) == call["cancel_after"]:
                    ended.cancel()
    except grpc.RpcError as error:
        ended = error
    except grpc.FutureCancelledError:
        pass
    took = (time.monotonic() - began) * 1000
    trailers = {name: value for name, value in (ended.trailing_metadata() or ())}
    said = {name: trailers[name] for name in SAID if name in trailers}
    if "proof-bin" in trailers:
        said["proof-bin"] = trailers["proof-bin"].hex()
    return {
        "name": call["name"],
        "code": ended.code().value[0],
        "message": ended.details() or "",
        "details": text_of_details(trailers.get("grpc-status-details-bin", b"")),
        "trailers": said,
        "received": received,
        "took_ms": took,
    }


def main():
    options = [("grpc.max_receive_message_length", 1 << 23)]
    with grpc.insecure_channel(sys.argv[1], options=options) as channel:
        for call in json.load(sys.stdin):
            print(json.dumps(make(channel, call)), flush=True)


main()
