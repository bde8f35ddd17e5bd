"""The shared store: Redis, or a compatible server (Valkey), for any number of stateless managers.

Each space is a hash, each rank is a sorted set, and all accounts are one hash. A commit is a single script
(``commit.lua``), so it is atomic. The script compares each record with the value that the manager read, and changes
nothing if any record differs. It publishes the changed keys, so that other managers drop the records from their caches.

Use one server, optionally with replicas, but no Redis Cluster, because a commit changes spaces, ranks and accounts
together, and a cluster would store them on different servers. Enable the append-only file (``appendonly yes``).
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, cast

import msgspec
import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, OutOfMemoryError, RedisError

from tenantzone_manager.core.quota import Account, OverLimit
from tenantzone_manager.ending import end
from tenantzone_manager.index.backend import Commit, Conflict, IndexBackend, IndexFull, IndexUnavailable, Listener

TIMEOUT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.2
"""Seconds to wait after an interruption before subscribing to changes again."""
_NO_MEMORY: Final = (
    "the Redis of the index has no memory left; raise its maxmemory, or lower limits of groups to evict blocks"
)
_RESERVED: Final = 1 / 32
"""Fraction of the server's memory that is reserved for commits that add no bytes, for example deletions."""
_FREE_AGAIN: Final = 1 / 24
"""Fraction of the server's memory that must be free before new blocks are stored again.

This fraction is larger than the reserve. Otherwise, the store would often switch between accepting and refusing blocks.
"""
_BLOCKS: Final = b"blocks/"
"""Prefix of the names of the spaces of blocks."""
_MARKER: Final = b"marker"
"""First item of a message that reports no change. All other messages begin with the name of a space."""
_SCANNED: Final = 1000
"""Number of keys that the server examines per SCAN command."""
_ESCAPED: Final = re.compile(r"[\\*?\[\]]")
_ESCAPE: Final = r"\\\g<0>"
"""Replacement that escapes a glob character in the prefix."""
# A server that is out of memory accepts the SET only if this run of the script has already written, so DEL comes first.
_LEAD: Final = """
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""


class RedisBackend(IndexBackend):
    """A store on a server.

    Args:
        url: URL such as ``redis://host:6379/0``; ``rediss:`` for TLS.
        prefix: prefix of all keys, so that several indices can share a server.
        timeout_seconds: seconds to wait for an answer of the server.
    """

    is_shared = True

    def __init__(self, url: str, prefix: str = "tenantzone/", timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )
        self._timeout_seconds = timeout_seconds
        self.client = self._client
        self.prefix = prefix
        self._name = secrets.token_hex(8)
        self._script = self._client.register_script(files(__package__).joinpath("commit.lua").read_text())
        self._lead = self._client.register_script(_LEAD)
        self._listening: asyncio.Task[None]
        self._not_subscribed = ""
        """Error of the last failed subscription."""
        self._shortage = ""
        """Reason why commits that need room are refused; empty if they are accepted."""
        self._heard = 0
        """Number of received changes of blocks, plus the number of interruptions, which may have hidden changes."""
        self._markers: dict[bytes, asyncio.Future[None]] = {}
        """Markers that were published and have not been received yet."""

    async def start(self, listener: Listener) -> None:
        """Connect and subscribe to changes. After each interruption, the listener is called without keys.

        Raises:
            IndexUnavailable: the server does not answer, or does not accept the subscription.
        """
        try:
            await self._asked(lambda: cast(Awaitable[Any], self._client.ping()))
        except BaseException:
            await self._client.aclose()
            raise
        subscribed = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(listener, subscribed))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await subscribed.wait()
        except TimeoutError:
            why = self._not_subscribed or "it does not answer SUBSCRIBE"
            await self.close()
            raise IndexUnavailable(f"the Redis of the index sends no changes: {why}") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await end([self._listening])
        await self._client.aclose()

    async def get(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        found = await self._asked(lambda: cast(Awaitable[Any], self._client.hmget(self._key(space), list(keys))))
        return cast(list[bytes | None], found)

    async def commit(self, commit: Commit) -> None:
        if commit.takes_room and self._shortage:
            raise IndexFull(self._shortage)
        arguments = _arguments(self.prefix, self._name, commit)
        answer = await self._asked(lambda: self._script(args=arguments))
        word, _, account = answer.decode().partition(" ")
        if word == "conflict":
            raise Conflict
        if word == "over":
            raise OverLimit(account)

    async def keep_reserve(self) -> str:
        memory = await self._asked(self._memory)
        most, policy = int(memory.get("maxmemory", 0)), str(memory.get("maxmemory_policy", ""))
        # Policies that evict only keys with a TTL free no memory here, because only the leader's key has a TTL.
        refuses = bool(most) and not policy.startswith("allkeys")
        needed = _FREE_AGAIN if self._shortage else _RESERVED
        is_short = refuses and int(memory.get("used_memory", 0)) > most * (1 - needed)
        self._shortage = _NO_MEMORY if is_short else ""
        return self._shortage

    async def _memory(self) -> Mapping[str, Any]:
        try:
            return cast(Mapping[str, Any], await self._client.info("memory"))
        except NoPermissionError:
            # Without permission for INFO, the store notices full memory only when a commit is refused.
            return {}

    async def scan(self, space: str, cursor: bytes, count: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
        key, begin = self._key(space), int(cursor or 0)
        following, found = await self._asked(lambda: cast(Awaitable[Any], self._client.hscan(key, begin, count=count)))
        return list(found.items()), str(following).encode() if following else b""

    async def random_sample(self, space: str, count: int) -> list[tuple[bytes, bytes]]:
        key = self._key(space)
        found = await self._asked(lambda: cast(Awaitable[Any], self._client.hrandfield(key, count, withvalues=True)))
        return (
            list(zip(found[::2], found[1::2], strict=True))
            if found and not isinstance(found[0], list)
            else [(name, value) for name, value in found or ()]
        )

    async def count(self, space: str) -> int:
        return int(await self._asked(lambda: cast(Awaitable[Any], self._client.hlen(self._key(space)))))

    async def spaces(self, kind: str) -> list[str]:
        pattern = f"{_ESCAPED.sub(_ESCAPE, self.prefix)}{kind}/*"

        async def found() -> list[str]:
            # SCAN may return a key twice.
            return list({key.decode() async for key in self._client.scan_iter(pattern, count=_SCANNED)})

        return [key.removeprefix(self.prefix) for key in await self._asked(found)]

    async def changes_heard(self) -> int:
        # Messages arrive in order, so all changes made before the marker was published are received before the marker.
        marker = secrets.token_bytes(8)
        heard = self._markers[marker] = asyncio.get_running_loop().create_future()
        message = _message(self._name.encode(), _MARKER, marker)
        try:
            await self._asked(lambda: self._client.publish(self._key("changed"), message))
            async with asyncio.timeout(self._timeout_seconds):
                await heard
        except TimeoutError:
            raise IndexUnavailable("the Redis of the index did not deliver its change notifications in time") from None
        finally:
            del self._markers[marker]
        return self._heard

    async def lowest(
        self, rank: str, count: int, until: float, above: float = float("-inf")
    ) -> list[tuple[bytes, float]]:
        key = self._key(f"rank/{rank}")
        found = await self._asked(
            lambda: self._client.zrangebyscore(key, f"({above!r}", repr(until), start=0, num=count, withscores=True)
        )
        return [(name, float(score)) for name, score in found]

    async def accounts(self, names: Sequence[str]) -> dict[str, Account]:
        if not names:
            return {}
        found = await self._asked(lambda: cast(Awaitable[Any], self._client.hmget(self._key("accounts"), list(names))))
        try:
            return {
                name: Account(*map(int, text.split()))
                for name, text in zip(names, found, strict=True)
                if text is not None
            }
        except (TypeError, ValueError) as error:
            raise IndexUnavailable(f"the Redis of the index contains a malformed account: {error}") from error

    async def lead(self, name: str, seconds: float) -> bool:
        return bool(await self._asked(lambda: self._lead(keys=[self._key("leader")], args=[name, int(1000 * seconds)])))

    async def size(self) -> int:
        return int((await self._asked(lambda: self._client.info("memory")))["used_memory"])

    def _key(self, name: str) -> str:
        return f"{self.prefix}{name}"

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            try:
                return await ask()
            except redis.ConnectionError:
                # The server may have been restarted, which closes all connections. A commit may thus be sent twice, but
                # the second commit is refused as a conflict, because the first one has changed the records.
                await self._client.connection_pool.disconnect(inuse_connections=False)
                return await ask()
        except (RedisError, OSError) as error:
            # Before Redis 7, the error of a script has a different type, but the same text.
            if isinstance(error, OutOfMemoryError) or "OOM command not allowed" in str(error):
                self._shortage = _NO_MEMORY
                raise IndexFull(_NO_MEMORY) from error
            raise IndexUnavailable(f"the Redis of the index failed: {error}") from error

    async def _listen(self, listener: Listener, subscribed: asyncio.Event) -> None:
        while True:
            try:
                async with self._client.pubsub() as channel:
                    await channel.subscribe(self._key("changed"))
                    await self._pass_on(channel, listener, subscribed)
            except (RedisError, OSError) as error:
                self._not_subscribed = str(error)
            # Changes made before the next subscription are not received.
            self._heard += 1
            listener("", ())
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _pass_on(self, channel: Any, listener: Listener, subscribed: asyncio.Event) -> None:
        while True:
            message = await channel.get_message(timeout=1.0)
            if message is None:
                await channel.ping()
            elif message["type"] == "subscribe":
                # Changes made since the interruption were not received.
                self._heard += 1
                listener("", ())
                subscribed.set()
            elif message["type"] == "message":
                sender, *changed = _texts(message["data"])
                self._heard += any(space.startswith(_BLOCKS) for space in changed[::2])
                if sender != self._name.encode():
                    _pass_on(changed, listener)
                elif changed[0] == _MARKER and (marker := self._markers.get(changed[1])) and not marker.done():
                    marker.set_result(None)


def _arguments(prefix: str, sender: str, commit: Commit) -> list[str | bytes]:
    """Returns the arguments of the script."""
    arguments: list[str | bytes] = [prefix, b""]

    def number(value: bytes | None) -> int:
        if value is None:
            return 0
        arguments.append(value)
        return len(arguments)

    arguments[1] = msgspec.json.encode(
        {
            "changes": [
                (each.address.space, number(each.address.key), number(each.before), number(each.after))
                for each in commit.changes
            ],
            "charges": commit.charges,
            # Scores are sent as text, because Lua would round numbers.
            "ranks": [
                (each.rank, number(each.member), "" if each.score is None else repr(each.score))
                for each in commit.ranks
            ],
            "terms": commit.terms,
            "sender": sender,
            "takes_room": commit.takes_room,
        }
    )
    return arguments


def _message(*texts: bytes) -> bytes:
    """Returns a message in the format that the script publishes."""
    return b"".join(len(text).to_bytes(4) + text for text in texts)


def _texts(data: bytes) -> list[bytes]:
    """Returns the texts of a published message, in which each text follows its length."""
    texts = []
    at = 0
    while at < len(data):
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin])
        texts.append(data[begin:at])
    return texts


def _pass_on(changed: list[bytes], listener: Listener) -> None:
    """Call the listener once for each space. ``changed`` alternates between the name of a space and a key in it."""
    keys: dict[bytes, list[bytes]] = {}
    for space, key in zip(changed[::2], changed[1::2], strict=True):
        keys.setdefault(space, []).append(key)
    for space, some in keys.items():
        listener(space.decode(), some)
