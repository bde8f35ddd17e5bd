"""vLLM's KV events, published for both tenants' blocks by a real engine."""

from contextlib import contextmanager

import msgspec
import zmq
from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch

from tests.engine.features.asking import cached_tokens, text, zone
from tests.engine.features.conftest import EVENTS_PORT


class Events:
    """What is published from now on."""

    def __init__(self, socket: zmq.Socket) -> None:
        self._socket = socket
        self._decoder = msgspec.msgpack.Decoder(type=KVEventBatch)
        self.raw = b""

    def until(self, kind, condition) -> list:
        """The next events of a kind, until the condition holds for the hashes of their blocks."""
        events = []
        while not condition(hashes(events)):
            assert self._socket.poll(20_000), f"no more than {events}"
            payload = self._socket.recv_multipart()[-1]
            self.raw += payload
            events += [event for event in self._decoder.decode(payload).events if isinstance(event, kind)]
        return events

    def stored(self, blocks: int) -> list:
        return self.until(BlockStored, lambda found: len(found) == blocks)


@contextmanager
def subscribed(engine):
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        # vLLM's publisher calls where it is told to, unless that is a wildcard.
        socket.bind(f"tcp://{engine.address}:{EVENTS_PORT}")

        def hears_of_a_request() -> bool:
            cached_tokens(engine.client("burst"), text(2))
            return bool(socket.poll(2_000))

        engine.wait(hears_of_a_request, "the publisher has connected")
        socket.recv_multipart()
        yield Events(socket)


def hashes(events) -> set[bytes]:
    return {each for event in events for each in event.block_hashes}


def salts(events) -> set[str]:
    return {key for event in events for keys in event.extra_keys or () for key in keys or ()}


def test_events_tell_tenants_apart_by_digests_and_name_none(engine):
    engine.declare(zone("acme"), zone("burst"))
    prompt = text(5)
    with subscribed(engine) as events:
        stored = {}
        for tenant in ("acme", "burst"):
            cached_tokens(engine.client(tenant), prompt, extra={"cache_salt": "client-secret"})
            stored[tenant] = events.stored(4)
        assert not hashes(stored["acme"]) & hashes(stored["burst"])
        assert len(salts(stored["acme"])) == len(salts(stored["burst"])) == 1
        assert salts(stored["acme"]) != salts(stored["burst"])
        assert not any(name in events.raw for name in (b"acme", b"burst", b"client-secret", b"tenantzone"))


def test_what_a_zone_loses_is_published_as_removed_and_none_of_another_zones(engine):
    engine.declare(zone("acme"), zone("burst"))
    with subscribed(engine) as events:
        blocks = {}
        for tenant in ("acme", "burst"):
            cached_tokens(engine.client(tenant), text(5))
            blocks[tenant] = hashes(events.stored(4))
        engine.declare(zone("acme", limit=0), zone("burst"))
        cached_tokens(engine.client("burst"), text(2))
        removed = hashes(events.until(BlockRemoved, lambda found: blocks["acme"] <= found))
    assert not removed & blocks["burst"]
