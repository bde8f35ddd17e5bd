"""All calls, the same for HTTP and gRPC, with their names, messages, required rights and metrics."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tenantzone_manager.catalog import NotFound, Refused
from tenantzone_manager.core import books
from tenantzone_manager.index.backend import IndexUnavailable
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.server import messages as m
from tenantzone_manager.server.access import Caller, Denied, Unauthenticated
from tenantzone_manager.server.admin_calls import AdminCalls
from tenantzone_manager.server.calls import Calls
from tenantzone_manager.server.engine_calls import EngineCalls

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


class Service(Calls):
    """The calls of one manager.

    Args:
        manager: the manager that executes the calls.
    """

    def __init__(self, manager: CacheManager) -> None:
        super().__init__(manager)
        self._engines = EngineCalls(manager)
        self._admin = AdminCalls(manager)

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
            return await call.do(self._admin if call.needs_admin else self._engines, caller, request)
        except Exception as error:
            code = code_of(error)
            raise
        finally:
            metrics = self._manager.metrics
            metrics.requests.labels(call.name, code).inc()
            metrics.request_seconds.labels(call.name).observe(time.perf_counter() - began)

    async def show_in_metrics(self) -> None:
        """Update the gauges for a scrape.

        Raises:
            IndexUnavailable: the index does not answer. All gauges except those of accounts are up to date.
        """
        manager = self._manager
        # Update the values of this process first, because they must be current even if the index does not answer.
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


@dataclass(frozen=True, slots=True)
class Call:
    """The definition of a call, for both protocols."""

    name: str
    request: type[Any]
    response: type[Any]
    do: Callable[[Any, Caller, Any], Awaitable[Any]]
    """A method of ``AdminCalls`` if the call needs an administrator, otherwise of ``EngineCalls``."""
    needs_admin: bool = True


CALLS: Final = (
    Call("RegisterInstance", m.RegisterInstanceRequest, m.InstanceResponse, EngineCalls.register_instance, False),
    Call(
        "GetCacheLocation", m.GetCacheLocationRequest, m.GetCacheLocationResponse, EngineCalls.get_cache_location, False
    ),
    Call("StartWriteCache", m.StartWriteCacheRequest, m.StartWriteCacheResponse, EngineCalls.start_write_cache, False),
    Call(
        "FinishWriteCache", m.FinishWriteCacheRequest, m.FinishWriteCacheResponse, EngineCalls.finish_write_cache, False
    ),
    Call("RemoveCache", m.RemoveCacheRequest, m.RemovedResponse, EngineCalls.remove_cache, False),
    Call("TrimCache", m.TrimCacheRequest, m.RemovedResponse, EngineCalls.trim_cache, False),
    Call("ListInstances", m.Empty, m.ListInstancesResponse, EngineCalls.list_instances, False),
    Call("UnregisterInstance", m.OfInstance, m.Done, EngineCalls.unregister_instance, False),
    Call("PutInstanceGroup", m.PutInstanceGroupRequest, m.GroupResponse, AdminCalls.put_instance_group),
    Call("RemoveInstanceGroup", m.OfGroup, m.Done, AdminCalls.remove_instance_group),
    Call(
        "ListInstanceGroups", m.ListInstanceGroupsRequest, m.ListInstanceGroupsResponse, AdminCalls.list_instance_groups
    ),
    Call("RegisterStorage", m.RegisterStorageRequest, m.StorageResponse, AdminCalls.register_storage),
    Call("UnRegisterStorage", m.OfStorage, m.Done, AdminCalls.unregister_storage),
    Call("EnableStorage", m.OfStorage, m.StorageResponse, AdminCalls.enable_storage),
    Call("DisableStorage", m.OfStorage, m.StorageResponse, AdminCalls.disable_storage),
    Call("ListStorages", m.Empty, m.ListStoragesResponse, AdminCalls.list_storages),
    Call("GetAvailableStorage", m.OfGroup, m.ListStoragesResponse, AdminCalls.get_available_storage),
    Call("PutServiceAccount", m.PutServiceAccountRequest, m.Done, AdminCalls.put_service_account),
    Call("RemoveServiceAccount", m.OfServiceAccount, m.Done, AdminCalls.remove_service_account),
    Call("ListServiceAccounts", m.Empty, m.ListServiceAccountsResponse, AdminCalls.list_service_accounts),
)


def code_of(error: Exception) -> str:
    """Returns the gRPC status code of an error."""
    return next((code for kind, code in CODES if isinstance(error, kind)), "INTERNAL")
