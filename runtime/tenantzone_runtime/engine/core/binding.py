"""Binds each request to its zone by the frontend's seal. The scheduler trusts no other part of a request."""

from typing import Final

from vllm.v1.request import Request

from tenantzone_runtime.engine.blocks.demand import Demand
from tenantzone_runtime.engine.blocks.requests import state_of
from tenantzone_runtime.engine.errors import BindingError
from tenantzone_runtime.engine.patches.adapter_weights import ADAPTERS
from tenantzone_runtime.engine.patches.media.media_names import has_foreign_media
from tenantzone_runtime.engine.patches.request_seals import arguments_of, with_arguments
from tenantzone_runtime.seal import SEAL_ARGUMENT, SealError, unseal
from tenantzone_runtime.unsupported import STREAMING_SESSIONS
from tenantzone_runtime.zones.model.zone import Zone
from tenantzone_runtime.zones.tenancy import Tenancy

NO_SESSIONS: Final = STREAMING_SESSIONS.refusal()


class Binder:
    """Finds the zone of each new request by the request's seal.

    Args:
        seal_key: the key with which the frontend makes seals.
        tenancy: the zones.
        demand: computes the number of blocks that requests need.
    """

    def __init__(self, seal_key: bytes, tenancy: Tenancy, demand: Demand) -> None:
        self._seal_key = seal_key
        self._tenancy = tenancy
        self._demand = demand

    def bind(self, request: Request, now: float) -> Zone | None:
        """Returns the zone of a request, and limits the request's length to fit. Returns None if no zone is declared.

        Raises:
            BindingError: zones are declared, and the request must be refused: it has no valid seal, its tenant has no
                zone, it is a streaming session, its media belong to another tenant, its adapter's files have changed,
                its prompt is too long for its zone, or its zone's queue is full.
        """
        zone = self._find(request, now)
        if zone is not None:
            self._fit(request, zone)
            self._check_queue(request, zone, now)
        return zone

    def _find(self, request: Request, now: float) -> Zone | None:
        seal = self._take_seal(request)
        if self._tenancy.is_open_to_anybody:
            return None
        if request.resumable:
            raise BindingError("unsupported", None, NO_SESSIONS)
        try:
            tenant, state_of(request).user = unseal(self._seal_key, seal, request.cache_salt or "")
        except SealError as error:
            raise BindingError("unbound", None, f"{error}; the request did not come through the frontend") from None
        if has_foreign_media(request):
            raise BindingError("unbound", tenant, "the request's media have names that do not belong to its tenant")
        self._check_adapter(request, tenant)
        zone = self._tenancy.zone_for(tenant, now)
        if zone is None:
            raise BindingError("unknown_tenant", tenant, f"tenant {tenant!r} has no zone")
        return zone

    @staticmethod
    def _check_adapter(request: Request, tenant: str) -> None:
        """Refuse a request whose adapter's files have changed. Its cached blocks may come from the old weights."""
        adapter = request.lora_request
        if adapter is not None and ADAPTERS.have_changed(adapter):
            raise BindingError(
                "changed_adapter",
                tenant,
                f"the files of adapter {adapter.lora_name!r} have changed since they were loaded; restart the engine",
            )

    def _fit(self, request: Request, zone: Zone) -> None:
        """Limit the length of a request's answer so that the request's blocks fit into its zone."""
        limit, prompt = zone.spec.quota.limit, int(request.num_prompt_tokens)
        self._check_room(zone, prompt, limit, f"the limit of zone {zone.spec.tenant}")
        request.max_tokens = min(request.max_tokens, self._demand.tokens_in(limit) - prompt)
        if zone.spec.max_tokens is not None:
            request.max_tokens = min(request.max_tokens, zone.spec.max_tokens)
        # A zone can't borrow blocks that other zones never lend, even if its limit is higher. Refuse a prompt that does
        # not fit, because the request would wait forever.
        reachable = self._tenancy.ledger.totals.reachable(zone)
        if self._demand.peak(prompt + 1) > reachable:
            self._check_room(
                zone, prompt, reachable, f"the blocks that other zones can leave to zone {zone.spec.tenant}"
            )
        request.peak = self._demand.peak(prompt + request.max_tokens)

    def _check_room(self, zone: Zone, prompt: int, blocks: int, of: str) -> None:
        if (tokens := self._demand.tokens_in(blocks)) <= prompt:
            raise BindingError(
                "too_long",
                zone.spec.tenant,
                f"the prompt of {prompt} tokens does not fit into {of} ({blocks} blocks, which hold {tokens} "
                "tokens); send a shorter prompt",
            )

    @staticmethod
    def _check_queue(request: Request, zone: Zone, now: float) -> None:
        queue, bounds = zone.queue, zone.spec.queue
        if not queue.has_room(bounds, request.num_prompt_tokens):
            seconds = queue.retry_after(bounds, now)
            raise BindingError(
                "queue_full",
                zone.spec.tenant,
                f"the queue of zone {zone.spec.tenant} is full: {queue.requests} requests with {queue.tokens} prompt "
                f"tokens wait for this engine; retry in {seconds} s",
                seconds,
                queue.closed_seconds(bounds, now),
            )

    @staticmethod
    def _take_seal(request: Request) -> str:
        """Remove and return the seal in a request's extra arguments, so that the seal does not reach other code."""
        of_pooling = request.sampling_params is None
        params = request.pooling_params if of_pooling else request.sampling_params
        arguments = arguments_of(params)
        seal = arguments.get(SEAL_ARGUMENT, "")
        if arguments:
            others = {name: value for name, value in arguments.items() if name != SEAL_ARGUMENT}
            setattr(request, "pooling_params" if of_pooling else "sampling_params", with_arguments(params, others))
        return seal if isinstance(seal, str) else ""
