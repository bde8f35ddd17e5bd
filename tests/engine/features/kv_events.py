"""Subscribes to vLLM's KV events."""

from contextlib import contextmanager

import msgspec
import zmq
from vllm.distributed.kv_events import BlockStored, KVEventBatch

from tests.engine.features.asking import BLOCK_TOKENS, cached_tokens, complete, text

EVENTS_PORT = 5557


class Events:
    """Events published from now on."""

    def __init__(self, socket: zmq.Socket) -> None:
        self._socket = socket
        self._decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
        self.raw = b""
        """The payloads as received."""

    def until(self, kind, condition) -> list:
        """Returns the next events of a kind, until the condition holds for the hashes of their blocks."""
        events = []
        while not condition(hashes(events)):
            assert self._socket.poll(20_000), f"no more than {events}"
            payload = self._socket.recv_multipart()[-1]
            self.raw += payload
            events += [event for event in self._decoder.decode(payload).events if isinstance(event, kind)]
        return events

    def skip_to(self, prompt: list[int]) -> None:
        """Skips what is older than this prompt: the publisher keeps unsent events for its next subscriber."""
        while not any(event.token_ids == prompt[:BLOCK_TOKENS] for event in self.until(BlockStored, bool)):
            pass
        # The older ones may name an adapter, under any name that the engine's operator chose.
        self.raw = b""

    def stored(self, blocks: int) -> list:
        return self.until(BlockStored, lambda found: len(found) == blocks)


@contextmanager
def subscribed(engine):
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        # vLLM's publisher connects to its configured address, unless that is a wildcard.
        socket.bind(f"tcp://{engine.address}:{EVENTS_PORT}")

        def hears_of_a_request() -> bool:
            cached_tokens(engine.client("burst"), text(2))
            return bool(socket.poll(2_000))

        engine.wait(hears_of_a_request, "the publisher has connected")
        events = Events(socket)
        events.skip_to(complete(engine.client("burst"), text(2)).choices[0].prompt_token_ids)
        yield events


def hashes(events) -> set[bytes]:
    return {each for event in events for each in event.block_hashes}


def chains(events) -> list[bytes]:
    """For each block, in the order of storing, the first block of its prompt."""
    first: dict[bytes, bytes] = {}
    for event in events:
        start = first.get(event.parent_block_hash, event.block_hashes[0])
        first.update(dict.fromkeys(event.block_hashes, start))
    return list(first.values())


def salts(events) -> set[str]:
    return {key for event in events for keys in event.extra_keys or () for key in keys or ()}
