"""The calls over gRPC, as defined in manager.proto."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import msgspec

from tenantzone_manager.manager import CacheManager
from tenantzone_manager.server import encoding
from tenantzone_manager.server.access import Authenticator, Caller
from tenantzone_manager.server.conversion import from_plain, repeated_values, to_plain
from tenantzone_manager.server.generated import manager_pb2
from tenantzone_manager.server.grpc_connections import GrpcBounds
from tenantzone_manager.server.malformed import MalformedRequests
from tenantzone_manager.server.messages import LARGEST_REQUEST, LONG_REQUEST, MAX_VALUES, check_values
from tenantzone_manager.server.service import CALLS, Call, Service, code_of
from tenantzone_manager.turns import Turns

SERVICE: Final = manager_pb2.DESCRIPTOR.services_by_name["KVCacheManager"].full_name

LARGEST_ANSWER: Final = 64 * 2**20
"""Maximum size of an answer in bytes."""

_log = logging.getLogger(__name__)
Encode = Callable[[Caller, Any, Any], Awaitable[bytes]]
Read = Callable[[bytes, Caller], Any]


def server(
    manager: CacheManager, service: Service, authenticator: Authenticator, bounds: GrpcBounds | None = None
) -> grpc.aio.Server:
    """Returns the gRPC server. The caller must add a port.

    Args:
        manager: manager whose turns and timing are used.
        service: executes the calls.
        authenticator: identifies callers by their tokens.
        bounds: limits for slow clients; None for the defaults.
    """
    bounds = GrpcBounds() if bounds is None else bounds
    options = [
        *bounds.options(),
        ("grpc.max_receive_message_length", LARGEST_REQUEST),
        ("grpc.max_send_message_length", LARGEST_ANSWER),
        # With SO_REUSEPORT, two managers could open the same port, and each would get some of the calls.
        ("grpc.so_reuseport", 0),
    ]
    made = grpc.aio.server(options=options)
    methods = manager_pb2.DESCRIPTOR.services_by_name["KVCacheManager"].methods_by_name
    malformed = MalformedRequests()
    handlers = {}
    for call in CALLS:
        encode = _encoder(call, manager, _message(methods[call.name].output_type.name))
        read = _reader(call, _message(methods[call.name].input_type.name), malformed)
        # On the wire, this is a unary call. A stream handler starts before the message is received, so the server can
        # refuse an unknown caller without receiving the message.
        handlers[call.name] = grpc.stream_unary_rpc_method_handler(
            _handler(call, read, encode, service, authenticator, manager.turns, bounds.message_seconds)
        )
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return made


def _message(name: str) -> Any:
    return getattr(manager_pb2, name)


def _reader(call: Call, kind: Any, malformed: MalformedRequests) -> Read:
    def read(data: bytes, caller: Caller) -> Any:
        with malformed.noted(call.name, caller):
            message = kind.FromString(data)
            check_values(repeated_values(message, MAX_VALUES))
            return msgspec.convert(to_plain(message), call.request)

    return read


def _handler(
    call: Call,
    read: Read,
    encode: Encode,
    service: Service,
    authenticator: Authenticator,
    turns: Turns,
    message_seconds: float,
) -> Callable[[Any, Any], Awaitable[bytes]]:
    under_way: set[asyncio.Task[Any]] = set()

    async def handle(messages: AsyncIterator[bytes], context: Any) -> bytes:
        try:
            caller = await authenticator.authenticate(_token(context))
            data = await _message_within(messages, message_seconds)
            if data is None:
                raise ValueError("the call has no message; send one message per call")
            if len(data) > LONG_REQUEST:
                await turns.take(caller.turns)
            asked = read(data, caller)
            # As over HTTP, a disconnect does not cancel the call, because completed work must be recorded as an event.
            task = asyncio.create_task(service.call(call, caller, asked))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            return await encode(caller, asked, await asyncio.shield(task))
        except Exception as error:
            code = code_of(error)
            if code == "INTERNAL":
                _log.exception("%s failed", call.name)
            text = str(error) if code != "INTERNAL" else "the call failed; see the manager's log for the reason"
            await context.abort(grpc.StatusCode[code], text)
            raise

    return handle


async def _message_within(messages: AsyncIterator[bytes], seconds: float) -> bytes | None:
    """Returns the message of a call, or None if the client ends the call without a message.

    Raises:
        ValueError: the message was not received in time.
    """
    try:
        async with asyncio.timeout(seconds):
            return await anext(messages, None)
    except TimeoutError:
        raise ValueError(f"the call's message was not received within {seconds:g} s") from None


def _encoder(call: Call, manager: CacheManager, response: Any) -> Encode:
    encoder = encoding.AnswerEncoder(manager.turns, manager.settings.timing.lease)

    async def locations(caller: Caller, request: Any, match: Any) -> bytes:
        matched = encoding.matched_blocks(match, request.query_type == "key")
        return await encoder.match_as_proto(caller.turns, match, matched)

    async def started(caller: Caller, _: Any, answer: Any) -> bytes:
        return await encoder.started_as_proto(caller.turns, answer)

    async def other(_: Caller, __: Any, answer: Any) -> bytes:
        return bytes(from_plain(response, msgspec.to_builtins(answer)).SerializeToString())

    return {"GetCacheLocation": locations, "StartWriteCache": started}.get(call.name, other)


def _token(context: Any) -> str:
    metadata = dict(context.invocation_metadata() or ())
    kind, _, token = str(metadata.get("authorization", "")).partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""
