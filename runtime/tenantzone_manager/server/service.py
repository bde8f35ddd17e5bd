"""The implementation of all calls, which is the same for HTTP and gRPC."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from tenantzone_manager import spaces
from tenantzone_manager.catalog import NotFound, Refused
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import Account
from tenantzone_manager.core.reclaiming import Removed
from tenantzone_manager.core.settings import Evictions, Instance, InstanceGroup, Storage
from tenantzone_manager.core.writing import Ending, WriteStatus
from tenantzone_manager.events.writer import Value
from tenantzone_manager.index.backend import IndexUnavailable
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.reads.reading import Match
from tenantzone_manager.reclaims.removing import OnRemoved
from tenantzone_manager.server import messages as m
from tenantzone_manager.server.access import Caller, Denied, Unauthenticated
from tenantzone_manager.server.hashing import block_keys
from tenantzone_manager.turns import READ_AT_ONCE, caller_of

CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (Unauthenticated, "UNAUTHENTICATED"),
    (Denied, "PERMISSION_DENIED"),
    (NotFound, "NOT_FOUND"),
    (Refused, "FAILED_PRECONDITION"),
    (IndexUnavailable, "UNAVAILABLE"),
    (OSError, "UNAVAILABLE"),
    (m.RequestTooLarge, "RESOURCE_EXHAUSTED"),
    (ValueError, "INVALID_ARGUMENT"),
)
"""Status codes by type of exception, as reported to callers. The first matching type applies."""


class Service:
    """The calls of one manager.

    Args:
        manager: the manager that executes the calls.
    """

    def __init__(self, manager: CacheManager) -> None:
        self._manager = manager

    async def call(self, call: "Call", caller: Caller, request: Any) -> Any:
        """Execute a call.

        Raises:
            Exception: an exception with a status code in ``CODES``, or an internal error.
        """
        began = time.perf_counter()
        code = "ok"
        try:
            if call.needs_admin:
                caller.require_admin()
            return await call.do(self, caller, request)
        except Exception as error:
            code = code_of(error)
            raise
        finally:
            metrics = self._manager.metrics
            metrics.requests.labels(call.name, code).inc()
            metrics.request_seconds.labels(call.name).observe(time.perf_counter() - began)

    async def register_instance(self, caller: Caller, request: m.RegisterInstanceRequest) -> m.InstanceResponse:
        instance = request.instance
        group = self._manager.catalog.group_meant(instance.group)
        if not caller.is_admin:
            if instance.pool not in ("", caller.pool):
                raise Denied(f"{caller.name} may not register instances of the pool {instance.pool}")
            if group is None or not caller.pool or caller.pool not in group.pools:
                raise NotFound(f"there is no instance group {instance.group} for the pool {caller.pool}")
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
            raise ValueError("a query by window needs window: how many of the last blocks are wanted")
        reader = self._manager.reader
        if request.query_type == "groups":
            if not request.groups or request.specs:
                raise ValueError("a query by groups needs groups: what each of them adds to keys; and takes no specs")
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
        # In a query by groups, each block of the prefix counts once, even if several groups need it.
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
            raise ValueError(f"there is no block {wrong[0]}: the request names {len(keys)}")
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
            # Repeated, because a block can be removed from its type only after later blocks left the other types.
            is_done = len(types) == 1 or removed.blocks == before
        return m.RemovedResponse(blocks=removed.blocks, bytes=removed.bytes)

    async def list_instances(self, caller: Caller, _: m.Empty) -> m.ListInstancesResponse:
        mine = [each for each in self._manager.catalog.instances.values() if caller.may_touch(each)]
        return m.ListInstancesResponse(instances=[await self._instance_response(each) for each in mine])

    async def unregister_instance(self, caller: Caller, request: m.OfInstance) -> m.Done:
        instance = await self._instance(caller, request.instance_id)
        if any((await self._bytes_of(instance)).values()):
            raise Refused(f"instance {instance.name} has blocks; TrimCache first, and wait until they are deleted")
        await self._manager.catalog.forget_instance(instance)
        self._note("unregister_instance", caller, instance)
        return m.Done()

    async def put_instance_group(self, caller: Caller, request: m.PutInstanceGroupRequest) -> m.GroupResponse:
        caller.require_namespace(request.namespace)
        group = await self._manager.catalog.put_group(request.group, request.namespace)
        self._note("put_instance_group", caller, group=group.name)
        return await self._group_response(group, request.namespace)

    async def remove_instance_group(self, caller: Caller, request: m.OfGroup) -> m.Done:
        await self._manager.catalog.remove_group(request.group)
        self._note("remove_instance_group", caller, group=request.group)
        return m.Done()

    async def list_instance_groups(
        self, _: Caller, request: m.ListInstanceGroupsRequest
    ) -> m.ListInstanceGroupsResponse:
        groups = list(self._manager.catalog.groups.values())
        responses = [await self._group_response(group, request.namespace) for group in groups]
        return m.ListInstanceGroupsResponse(groups=responses)

    async def register_storage(self, caller: Caller, request: m.RegisterStorageRequest) -> m.StorageResponse:
        manager = self._manager
        manager.storages.check(request.storage)
        await manager.catalog.put_storage(request.storage)
        await manager.storages.keep(manager.catalog.storages.values())
        self._note("register_storage", caller, storage=request.storage.name, type=request.storage.type)
        return await self._storage_response(request.storage)

    async def unregister_storage(self, caller: Caller, request: m.OfStorage) -> m.Done:
        await self._manager.catalog.remove_storage(request.name)
        await self._manager.storages.keep(self._manager.catalog.storages.values())
        self._note("unregister_storage", caller, storage=request.name)
        return m.Done()

    async def enable_storage(self, caller: Caller, request: m.OfStorage) -> m.StorageResponse:
        return await self._switch(caller, request.name, True)

    async def disable_storage(self, caller: Caller, request: m.OfStorage) -> m.StorageResponse:
        return await self._switch(caller, request.name, False)

    async def list_storages(self, _: Caller, __: m.Empty) -> m.ListStoragesResponse:
        storages = list(self._manager.catalog.storages.values())
        return m.ListStoragesResponse(storages=[await self._storage_response(storage) for storage in storages])

    async def get_available_storage(self, _: Caller, request: m.OfGroup) -> m.ListStoragesResponse:
        group = self._manager.catalog.group(request.group)
        available = self._manager.storages.get_available_storage(group.storages)
        return m.ListStoragesResponse(storages=[await self._storage_response(each) for each in available])

    async def put_service_account(self, caller: Caller, request: m.PutServiceAccountRequest) -> m.Done:
        account = request.account
        for name in (account.name, account.pool):
            caller.require_namespace(name.partition("/")[0])
        await self._manager.catalog.put_service_account(account)
        self._note("put_service_account", caller, account=account.name, pool=account.pool)
        return m.Done()

    async def remove_service_account(self, caller: Caller, request: m.OfServiceAccount) -> m.Done:
        caller.require_namespace(request.name.partition("/")[0])
        await self._manager.catalog.remove_service_account(request.name)
        self._note("remove_service_account", caller, account=request.name)
        return m.Done()

    async def list_service_accounts(self, _: Caller, __: m.Empty) -> m.ListServiceAccountsResponse:
        return m.ListServiceAccountsResponse(accounts=list(self._manager.catalog.service_accounts.values()))

    async def show_in_metrics(self) -> None:
        """Update the gauges for a scrape.

        Raises:
            IndexUnavailable: the index does not answer. All gauges except those of accounts are up to date.
        """
        manager = self._manager
        # Values of this process are updated first, because they must be up to date even if the index does not answer.
        manager.metrics.show_storages(
            (each.storage, manager.storages.is_available(each.storage.name)) for each in manager.storages.states()
        )
        cache = manager.index.cache
        manager.metrics.cache_lookups.labels("found").set(cache.hits)
        manager.metrics.cache_lookups.labels("missing").set(cache.misses)
        manager.metrics.cached.set(len(cache))
        manager.metrics.conflicts.set(manager.index.conflicts)
        manager.metrics.corrupt.set(manager.index.corrupt)
        manager.metrics.answered.set(manager.is_ready)
        manager.metrics.has_room.set(manager.is_ready and not manager.problem)
        manager.metrics.leads.set(manager.leads)
        names = {(group, ""): f"g/{group}" for group in manager.catalog.groups}
        for group in manager.catalog.groups:
            names |= {(group, where): books.group_chain(group, where)[0] for where in self._types()}
        accounts = await manager.index.accounts(list(names.values()))
        manager.metrics.show_accounts({at: accounts[name] for at, name in names.items() if name in accounts})

    async def _instance(self, caller: Caller, name: str) -> Instance:
        """Returns an instance that the caller may access. Errors do not reveal whether other instances exist."""
        try:
            instance = await self._manager.catalog.instance(name)
        except NotFound:
            instance = None
        if instance is None or not caller.may_touch(instance):
            raise NotFound(f"there is no instance {name}; register it first")
        return instance

    async def _rest(self, instance: Instance, blocks: int) -> None:
        """Take a turn before the next step that processes all blocks of a call, if there are many blocks."""
        if blocks > READ_AT_ONCE:
            await self._manager.turns.take(caller_of(instance))

    async def _switch(self, caller: Caller, name: str, enabled: bool) -> m.StorageResponse:
        catalog = self._manager.catalog
        if name not in catalog.storages:
            raise NotFound(f"there is no storage {name}")
        storage = replace(catalog.storages[name], enabled=enabled)
        await catalog.put_storage(storage)
        await self._manager.storages.keep(catalog.storages.values())
        self._note("enable_storage" if enabled else "disable_storage", caller, storage=name)
        return await self._storage_response(storage)

    async def _bytes_of(self, instance: Instance) -> dict[str, int]:
        names = {where: books.instance_account(instance.name, where) for where in self._types()}
        accounts = await self._manager.index.accounts(list(names.values()))
        return {where: accounts[name].used for where, name in names.items() if name in accounts}

    async def _instance_response(self, instance: Instance) -> m.InstanceResponse:
        return m.InstanceResponse(instance=instance, bytes_by_type=await self._bytes_of(instance))

    async def _group_response(self, group: InstanceGroup, namespace: str) -> m.GroupResponse:
        names = {where: books.group_chain(group.name, where)[0] for where in self._types()}
        accounts = await self._manager.index.accounts([f"g/{group.name}", *names.values()])
        types = {where: _usage(accounts[name]) for where, name in names.items() if name in accounts}
        (lost,) = await self._manager.index.get(spaces.EVICTIONS, [group.name.encode()])
        evictions: Evictions = lost.value if lost is not None else Evictions()
        return m.GroupResponse(
            group=await self._manager.catalog.group_of(group, namespace) if namespace else group,
            total=_usage(accounts.get(f"g/{group.name}", Account())),
            types=types,
            instances=len(self._manager.catalog.instances_of(group.name)),
            evicted_blocks=evictions.blocks,
            evicted_bytes=evictions.bytes,
        )

    async def _storage_response(self, storage: Storage) -> m.StorageResponse:
        """Returns the answer for a storage, even if another call has removed the storage meanwhile."""
        used = (await self._manager.index.account(books.storage_account(storage.name))).used
        for state in self._manager.storages.states():
            if state.storage.name == storage.name:
                return m.StorageResponse(
                    storage=storage,
                    available=self._manager.storages.is_available(storage.name),
                    problem=state.problem,
                    since=state.since,
                    used=used,
                    shares_place_with=self._manager.storages.sharing_place(storage.name),
                )
        return m.StorageResponse(storage=storage, available=False, problem="not tried yet", since=0.0, used=used)

    def _types(self) -> list[str]:
        return sorted({storage.type for storage in self._manager.catalog.storages.values()})

    def _note(self, event: str, caller: Caller, instance: Instance | None = None, **fields: Value) -> None:
        whose: dict[str, Value] = (
            {"pool": instance.pool, "group": instance.group, "instance": instance.name} if instance else {}
        )
        self._manager.events.note(event, caller.name, pod=caller.pod, **whose, **fields)

    def _on_removed(self, event: str, caller: Caller) -> OnRemoved:
        """Returns a function that records an event for blocks that a caller has removed."""

        def note(instance: Instance, where: str, keys: Sequence[bytes]) -> None:
            self._note(event, caller, instance, keys=keys, type=where)

        return note


@dataclass(frozen=True, slots=True)
class Call:
    """The definition of a call, for both protocols."""

    name: str
    request: type[Any]
    response: type[Any]
    do: Callable[[Service, Caller, Any], Awaitable[Any]]
    needs_admin: bool = True


CALLS: Final = (
    Call("RegisterInstance", m.RegisterInstanceRequest, m.InstanceResponse, Service.register_instance, False),
    Call("GetCacheLocation", m.GetCacheLocationRequest, m.GetCacheLocationResponse, Service.get_cache_location, False),
    Call("StartWriteCache", m.StartWriteCacheRequest, m.StartWriteCacheResponse, Service.start_write_cache, False),
    Call("FinishWriteCache", m.FinishWriteCacheRequest, m.FinishWriteCacheResponse, Service.finish_write_cache, False),
    Call("RemoveCache", m.RemoveCacheRequest, m.RemovedResponse, Service.remove_cache, False),
    Call("TrimCache", m.TrimCacheRequest, m.RemovedResponse, Service.trim_cache, False),
    Call("ListInstances", m.Empty, m.ListInstancesResponse, Service.list_instances, False),
    Call("UnregisterInstance", m.OfInstance, m.Done, Service.unregister_instance, False),
    Call("PutInstanceGroup", m.PutInstanceGroupRequest, m.GroupResponse, Service.put_instance_group),
    Call("RemoveInstanceGroup", m.OfGroup, m.Done, Service.remove_instance_group),
    Call("ListInstanceGroups", m.ListInstanceGroupsRequest, m.ListInstanceGroupsResponse, Service.list_instance_groups),
    Call("RegisterStorage", m.RegisterStorageRequest, m.StorageResponse, Service.register_storage),
    Call("UnRegisterStorage", m.OfStorage, m.Done, Service.unregister_storage),
    Call("EnableStorage", m.OfStorage, m.StorageResponse, Service.enable_storage),
    Call("DisableStorage", m.OfStorage, m.StorageResponse, Service.disable_storage),
    Call("ListStorages", m.Empty, m.ListStoragesResponse, Service.list_storages),
    Call("GetAvailableStorage", m.OfGroup, m.ListStoragesResponse, Service.get_available_storage),
    Call("PutServiceAccount", m.PutServiceAccountRequest, m.Done, Service.put_service_account),
    Call("RemoveServiceAccount", m.OfServiceAccount, m.Done, Service.remove_service_account),
    Call("ListServiceAccounts", m.Empty, m.ListServiceAccountsResponse, Service.list_service_accounts),
)


def code_of(error: Exception) -> str:
    """Returns the gRPC status code of an error."""
    return next((code for kind, code in CODES if isinstance(error, kind)), "INTERNAL")


def _usage(account: Account) -> m.Usage:
    return m.Usage(used=account.used, deleting=account.deleting, committed=account.committed)


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
        asked = f"{count} blocks of {groups} groups, of {parts} parts each,"
        raise ValueError(f"{asked} have more than the {m.MAX_PARTS} parts that a call names; name fewer blocks")


def _keys(instance: Instance, keys: list[bytes], token_ids: list[int]) -> list[bytes]:
    """Returns the keys of a prompt's blocks.

    Raises:
        ValueError: neither or both of keys and tokens are given, a key is repeated, or the tokens form too many blocks.
    """
    if bool(keys) == bool(token_ids):
        raise ValueError("say which blocks are meant by block_keys or by token_ids: by one of the two")
    if token_ids:
        if len(token_ids) // instance.block_size > m.MAX_KEYS:
            raise ValueError(f"token_ids make more than {m.MAX_KEYS} blocks of {instance.block_size} tokens")
        return block_keys(instance.name, token_ids, instance.block_size)
    if len(set(keys)) < len(keys):
        raise ValueError("block_keys has a key twice")
    return keys
