"""The calls of administrators, such as the operator: groups, storages and service accounts."""

from msgspec.structs import replace

from tenantzone_manager import spaces
from tenantzone_manager.catalog import NotFound
from tenantzone_manager.core import books
from tenantzone_manager.core.quota import Account
from tenantzone_manager.core.settings import Evictions, InstanceGroup, Storage
from tenantzone_manager.server import messages as m
from tenantzone_manager.server.access import Caller
from tenantzone_manager.server.calls import Calls


class AdminCalls(Calls):
    """The calls of administrators."""

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

    async def _switch(self, caller: Caller, name: str, enabled: bool) -> m.StorageResponse:
        catalog = self._manager.catalog
        if name not in catalog.storages:
            raise NotFound(f"there is no storage {name}")
        storage = replace(catalog.storages[name], enabled=enabled)
        await catalog.put_storage(storage)
        await self._manager.storages.keep(catalog.storages.values())
        self._note("enable_storage" if enabled else "disable_storage", caller, storage=name)
        return await self._storage_response(storage)

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
        return m.StorageResponse(storage=storage, available=False, problem="not checked yet", since=0.0, used=used)


def _usage(account: Account) -> m.Usage:
    return m.Usage(used=account.used, deleting=account.deleting, committed=account.committed)
