"""The calls of engines: they register instances, and find, write and remove blocks."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from tenantzone_manager.catalog import NotFound, Refused
from tenantzone_manager.core import books
from tenantzone_manager.core.reclaiming import Removed
from tenantzone_manager.core.settings import Instance
from tenantzone_manager.core.writing import Ending, WriteStatus
from tenantzone_manager.reads.reading import Match
from tenantzone_manager.reclaims.removing import OnRemoved
from tenantzone_manager.server import messages as m
from tenantzone_manager.server.access import Caller, Denied
from tenantzone_manager.server.calls import Calls
from tenantzone_manager.server.hashing import block_keys
from tenantzone_manager.turns import READ_AT_ONCE, caller_of


class EngineCalls(Calls):
    """The calls of engines."""

    async def register_instance(self, caller: Caller, request: m.RegisterInstanceRequest) -> m.InstanceResponse:
        instance = request.instance
        group = self._manager.catalog.group_meant(instance.group)
        if not caller.is_admin:
            if instance.pool not in ("", caller.pool):
                raise Denied(
                    f"{caller.name} may not register instances of the pool {instance.pool}, only of its own pool"
                )
            if group is None or not caller.pool or caller.pool not in group.pools:
                raise NotFound(
                    f"the instance group {instance.group} does not exist or does not list the pool {caller.pool}; "
                    "create the group, or add the pool to the group's pools"
                )
            instance = replace(instance, pool=caller.pool)
        if group is not None and group.name != instance.group:
            known = self._manager.catalog.instances.get(instance.name)
            # A registered instance stays in its group even if the alias has been moved to another group.
            instance = replace(instance, group=known.group if known is not None else group.name)
        registered = await self._manager.catalog.register_instance(instance)
        self._note("register_instance", caller, registered)
        return await self._instance_response(registered)

    async def get_cache_location(self, caller: Caller, request: m.GetCacheLocationRequest) -> Match:
        instance = await self._instance(caller, request.instance_id)
        keys = _keys(instance, request.block_keys, request.token_ids)
        if request.query_type == "window" and not request.window:
            raise ValueError(
                "a request with the query_type 'window' must have the field 'window', the number of last blocks"
            )
        reader = self._manager.reader
        if request.query_type == "groups":
            if not request.groups or request.specs:
                raise ValueError(
                    "a request with the query_type 'groups' must have the field 'groups' and must not have the field "
                    "'specs'"
                )
            _check_parts(instance, len(keys), len(request.groups))
            match = await reader.get_hit(instance, keys, request.groups)
        else:
            _check_parts(instance, len(keys))
            specs = frozenset(request.specs)
            match = await reader.get_cache_location(instance, keys, request.query_type, request.window, specs)
        await self._rest(instance, len(keys))
        found = sum(bool(block.locations) for block in match.blocks)
        metrics = self._manager.metrics
        metrics.queried.labels(instance.group).inc(len(keys))
        # In a query by groups, each block of the prefix counts once, even if several groups need the block.
        metrics.matched.labels(instance.group).inc(match.hit or found)
        if self._manager.events.is_on:
            given = match.hit_keys or keys[match.first : match.first + len(match.blocks)]
            if found < len(given):
                given = [key for key, block in zip(given, match.blocks, strict=True) if block.locations]
            self._note("get_cache_location", caller, instance, keys=given, asked=len(keys), query=request.query_type)
        return match

    async def start_write_cache(self, caller: Caller, request: m.StartWriteCacheRequest) -> m.StartWriteCacheResponse:
        instance = await self._instance(caller, request.instance_id)
        keys = _keys(instance, request.block_keys, request.token_ids)
        _check_parts(instance, len(keys))
        started = await self._manager.writer.start_write_cache(
            instance,
            keys,
            first=min(request.first_block, len(keys)),
            parents=request.parents,
            spec_sets=request.spec_sets,
            whole=request.whole,
            write_seconds=request.write_timeout_seconds,
        )
        taken = [keys[index] for index in sorted(started.locations)]
        self._note("start_write_cache", caller, instance, keys=taken, asked=len(keys), write_id=started.write_id)
        counts: Counter[WriteStatus] = Counter()
        blocks: list[m.BlockToWrite] = []
        async for part in self._manager.turns.parts(caller_of(instance), len(keys), READ_AT_ONCE):
            some = started.statuses[part]
            counts.update(some)
            blocks += [
                m.BlockToWrite(standing=status, location=started.locations.get(index))
                for index, status in enumerate(some, start=part.start)
            ]
        for status, count in counts.items():
            self._manager.metrics.writes.labels(instance.group, status.value).inc(count)
        return m.StartWriteCacheResponse(write_id=started.write_id, deadline=started.deadline, blocks=blocks)

    async def finish_write_cache(
        self, caller: Caller, request: m.FinishWriteCacheRequest
    ) -> m.FinishWriteCacheResponse:
        instance = await self._instance(caller, request.instance_id)
        keys = _keys(instance, request.block_keys, request.token_ids)
        indices = request.blocks if request.blocks or request.token_ids else range(len(keys))
        failed = set(request.failed_blocks)
        wrong = [index for index in (*indices, *failed) if not 0 <= index < len(keys)]
        if wrong:
            raise ValueError(
                f"there is no block {wrong[0]}; the request names {len(keys)} blocks, and the first block has the "
                "index 0"
            )
        order = [index for index in indices if index not in failed] + sorted(failed)
        await self._rest(instance, len(keys))
        endings = await self._manager.writer.finish_write_cache(
            instance,
            request.write_id,
            [keys[index] for index in order[: len(order) - len(failed)]],
            [keys[index] for index in sorted(failed)],
        )
        await self._rest(instance, len(keys))
        for ending in set(endings):
            self._manager.metrics.finished.labels(instance.group, ending.value).inc(endings.count(ending))
        await self._rest(instance, len(keys))
        by_index = dict(zip(order, endings, strict=True))
        asked = list(dict.fromkeys([*indices, *sorted(failed)]))
        await self._rest(instance, len(keys))
        ended = {ending: [keys[index] for index in asked if by_index[index] is ending] for ending in Ending}
        self._note(
            "finish_write_cache",
            caller,
            instance,
            keys=ended[Ending.SERVING],
            failed=ended[Ending.FAILED],
            expired=ended[Ending.EXPIRED],
            write_id=request.write_id,
        )
        return m.FinishWriteCacheResponse(endings=[by_index[index] for index in asked])

    async def remove_cache(self, caller: Caller, request: m.RemoveCacheRequest) -> m.RemovedResponse:
        instance = await self._instance(caller, request.instance_id)
        keys = _keys(instance, request.block_keys, request.token_ids)[request.first_block :]
        removed = await self._manager.remover.remove_cache(instance, keys, self._on_removed("remove_cache", caller))
        return m.RemovedResponse(blocks=removed.blocks, bytes=removed.bytes)

    async def trim_cache(self, caller: Caller, request: m.TrimCacheRequest) -> m.RemovedResponse:
        instance = await self._instance(caller, request.instance_id)
        types = [request.storage_type] if request.storage_type else self._types()
        removed = Removed()
        is_done = False
        while not is_done:
            before = removed.blocks
            for where in types:
                removed += await self._manager.remover.trim_cache(
                    instance,
                    where,
                    unused_for=request.unused_for_seconds,
                    to_bytes=request.to_bytes,
                    on_removed=self._on_removed("trim_cache", caller),
                )
            # Repeat, because the last location of a block can be removed only after later blocks have left all types.
            is_done = len(types) == 1 or removed.blocks == before
        return m.RemovedResponse(blocks=removed.blocks, bytes=removed.bytes)

    async def list_instances(self, caller: Caller, _: m.Empty) -> m.ListInstancesResponse:
        mine = [each for each in self._manager.catalog.instances.values() if caller.may_touch(each)]
        return m.ListInstancesResponse(instances=[await self._instance_response(each) for each in mine])

    async def unregister_instance(self, caller: Caller, request: m.OfInstance) -> m.Done:
        instance = await self._instance(caller, request.instance_id)
        if any((await self._bytes_of(instance)).values()):
            raise Refused(
                f"instance {instance.name} has blocks; call TrimCache first, and wait until the blocks are deleted"
            )
        await self._manager.catalog.forget_instance(instance)
        self._note("unregister_instance", caller, instance)
        return m.Done()

    async def _instance(self, caller: Caller, name: str) -> Instance:
        """Returns an instance that the caller may access. For others, the error does not reveal whether they exist."""
        try:
            instance = await self._manager.catalog.instance(name)
        except NotFound:
            instance = None
        if instance is None or not caller.may_touch(instance):
            raise NotFound(f"there is no instance {name}; register it first")
        return instance

    async def _rest(self, instance: Instance, blocks: int) -> None:
        """If a call has many blocks, wait for a turn before the next step that processes all of them."""
        if blocks > READ_AT_ONCE:
            await self._manager.turns.take(caller_of(instance))

    async def _bytes_of(self, instance: Instance) -> dict[str, int]:
        names = {where: books.instance_account(instance.name, where) for where in self._types()}
        accounts = await self._manager.index.accounts(list(names.values()))
        return {where: accounts[name].used for where, name in names.items() if name in accounts}

    async def _instance_response(self, instance: Instance) -> m.InstanceResponse:
        return m.InstanceResponse(instance=instance, bytes_by_type=await self._bytes_of(instance))

    def _on_removed(self, event: str, caller: Caller) -> OnRemoved:
        """Returns a function that records an event for blocks that a caller has removed."""

        def note(instance: Instance, where: str, keys: Sequence[bytes]) -> None:
            self._note(event, caller, instance, keys=keys, type=where)

        return note


def _check_parts(instance: Instance, count: int, groups: int = 1) -> None:
    """Refuse a call whose answer would be too long.

    Args:
        instance: instance of the blocks.
        count: number of blocks.
        groups: number of KV-cache groups, each with up to ``count`` blocks.

    Raises:
        ValueError: the blocks together have too many parts.
    """
    parts = len(instance.specs)
    if count * groups * parts > m.MAX_PARTS:
        asked = f"{count} blocks in {groups} groups with {parts} parts each"
        raise ValueError(f"{asked} exceed the maximum of {m.MAX_PARTS} parts per call; send fewer blocks")


def _keys(instance: Instance, keys: list[bytes], token_ids: list[int]) -> list[bytes]:
    """Returns the keys of a prompt's blocks.

    Raises:
        ValueError: neither or both of keys and tokens are given, a key is repeated, or the tokens form too many blocks.
    """
    if bool(keys) == bool(token_ids):
        raise ValueError("exactly one of block_keys and token_ids must be given")
    if token_ids:
        if len(token_ids) // instance.block_size > m.MAX_KEYS:
            raise ValueError(
                f"token_ids form more than {m.MAX_KEYS} blocks of {instance.block_size} tokens; send fewer tokens"
            )
        return block_keys(instance.name, token_ids, instance.block_size)
    if len(set(keys)) < len(keys):
        raise ValueError("block_keys contains a key twice; send each key once")
    return keys
