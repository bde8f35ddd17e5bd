"""vLLM's features that are incompatible with zones: one table for command line, scheduler and documentation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tenantzone_runtime.offloading_flags import CHUNK_SIZES, is_ours
from tenantzone_runtime.usage import FLAGS, PLUGIN, UsageError, flag_values

_OTHER_ENGINE: Final = "run a vLLM without zones for it"
_SAFE_HASHES: Final = ("sha256", "sha256_cbor")


@dataclass(frozen=True, slots=True)
class Setting:
    """A flag or an environment variable that is refused."""

    name: str
    others: tuple[str, ...] = ()
    """Its further names, or equivalent settings."""
    refused: tuple[str, ...] = ()
    """The only values that are refused; empty for all."""
    bound_to: str | None = None
    """The one value that is accepted; None for none."""
    but_for: tuple[str, ...] = ()
    """Values that are accepted."""
    without: str | None = None
    """An item of its list that makes it acceptable."""
    but_if: Callable[[str], bool] | None = None
    """Returns whether a value is accepted."""
    but_beside: tuple[str, ...] = ()
    """Flags that make it acceptable if one of them is given."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.others

    def refuses(self, value: str) -> bool:
        if self.without is not None:
            return self.without not in value.split(",")
        if self.but_if is not None and self.but_if(value):
            return False
        return value not in (self.bound_to, *self.but_for) and (not self.refused or value in self.refused)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A feature of vLLM that an engine with zones refuses.

    A feature that neither a setting nor vLLM's resolved configuration reveals is refused by request.
    """

    feature: str
    reason: str
    instead: str
    """What to do instead."""
    flags: tuple[Setting, ...] = ()
    variables: tuple[Setting, ...] = ()
    is_configured: Callable[[Any, Any], bool] | None = None
    """Returns whether vLLM's configuration, with that of its KV caches, has the feature. What a file or a model adds is
    known only once the model is loaded. None if the configuration does not show it."""

    def refusal(self, name: str = "") -> str:
        """Returns the error text for the feature, or for its setting with this name."""
        return f"{name or self.feature} can't be used: {self.reason}; {self.instead}"


_COUNTED: Final = (
    "FullAttentionSpec",
    "MLAAttentionSpec",
    "SlidingWindowSpec",
    "SlidingWindowMLASpec",
    "ChunkedLocalAttentionSpec",
    "MambaSpec",
)
"""Kinds of KV caches, by the names of vLLM's classes, that may be combined."""


def _is_counted(group: Any) -> bool:
    caches = group.kv_cache_spec
    has_part_of_its_own = getattr(group, "role", "default") != "default" or getattr(group, "host_resident", False)
    return type(caches).__name__ in _COUNTED and caches.prefix_cacheable and not has_part_of_its_own


_IN_TIERS_TOGETHER: Final = frozenset(("FullAttentionSpec", "SlidingWindowSpec", "MambaSpec"))
"""Kinds of KV caches, by the names of vLLM's classes, that may be combined in tiers."""


def has_groups_in_tiers(config: Any, caches: Any) -> bool:
    """Returns whether an engine has tiers for a model with several groups of KV caches."""
    return _has_tiers(config) and len(caches.kv_cache_groups) > 1


def _go_in_tiers(caches: Any) -> bool:
    """Returns whether tiers support the groups of KV caches: one group of attention, or a supported combination.

    In a combination, cached data must end at the end of a block in all groups.
    """
    specs = [group.kv_cache_spec for group in caches.kv_cache_groups]
    kinds = {type(spec).__name__ for spec in specs}
    if len(specs) == 1:
        return "MambaSpec" not in kinds
    are_states_at_ends = all(getattr(spec, "mamba_cache_mode", "align") == "align" for spec in specs)
    have_same_ends = len({spec.block_size for spec in specs}) == 1
    return {"FullAttentionSpec"} <= kinds <= _IN_TIERS_TOGETHER and have_same_ends and are_states_at_ends


def _keeps_states_at_ends(spec: Any) -> bool:
    """Returns whether this is a cache of states that keeps one state at the end of each block."""
    return type(spec).__name__ == "MambaSpec" and bool(spec.mamba_cache_mode == "align")


_SEES_ALL: Final = frozenset(("FullAttentionSpec", "MLAAttentionSpec"))
"""Names of vLLM's classes of KV caches in which a request keeps every block from its beginning on."""


def _fills_chunks(caches: Any) -> bool:
    """Returns whether a request that stores a chunk of several blocks has all of them."""
    kinds = [type(group.kv_cache_spec).__name__ for group in caches.kv_cache_groups]
    return len(kinds) == 1 and kinds[0] in _SEES_ALL


def _moves_more_than_blocks(config: Any) -> bool:
    extra = config.kv_transfer_config.kv_connector_extra_config
    return any(extra.get(name) is not None for name in CHUNK_SIZES)


def _keeps_other_ends(config: Any) -> bool:
    """Returns whether hits may end elsewhere than at the last block before a prompt's end or at a branch."""
    caches = config.cache_config
    interval = getattr(caches, "prefix_cache_retention_interval", None)
    ends_in_blocks = getattr(caches, "prefix_match_unit", None) is not None
    return interval != 0 or ends_in_blocks or config.speculative_config is not None


def _shares_an_api_server(parallel: Any) -> bool:
    """Returns whether an API server has several ranks behind it.

    vLLM turns a dense model's ranks into engines that do not know of each other; only their numbers remain.
    """
    if parallel.data_parallel_size > 1:
        return not parallel.data_parallel_external_lb
    return bool(getattr(parallel, "data_parallel_index", 0))


_RANKS: Final = ("--data-parallel-rank", "-dpn", "--data-parallel-external-lb", "-dpe")
"""Flags that mark an engine as one of several ranks, each with its own API server."""

STREAMING_SESSIONS: Final = Unsupported(
    "streaming input sessions",
    "a session keeps its blocks while it waits for its client, where no queue or grace of a zone bounds it",
    "send each input as a request of its own, which finds the prefix of those before it cached",
)

UNSUPPORTED: Final[tuple[Unsupported, ...]] = (
    Unsupported(
        "a prefix hash that is not SHA-256",
        "a client that makes two prompts of one hash makes an engine take one for the other",
        "--prefix-caching-hash-algo takes sha256_cbor, which is the same in each image, or sha256",
        flags=(Setting("--prefix-caching-hash-algo", but_for=_SAFE_HASHES),),
        is_configured=lambda config, _: config.cache_config.prefix_caching_hash_algo not in _SAFE_HASHES,
    ),
    Unsupported(
        "KV connectors other than the zones' own",
        "other KV connectors move blocks past the zones",
        "name tiers below the GPU by --cpu-tier and --disk-tier of tenantzone-runtime serve, or leave the flag out",
        flags=(Setting("--kv-transfer-config", but_if=is_ours),),
        is_configured=lambda config, _: (
            config.kv_transfer_config is not None and not is_ours(config.kv_transfer_config)
        ),
    ),
    Unsupported(
        "KV offloading by vLLM's own flag",
        "it moves blocks past the zones",
        "leave the flag out; --cpu-tier and --disk-tier of tenantzone-runtime serve keep more, zone by zone",
        flags=(Setting("--kv-offloading-size"),),
    ),
    Unsupported(
        "tiers and prompts that are computed whole",
        "what a tier has of a prompt is loaded first, and the rest could wait for a whole step for ever",
        "leave --no-enable-chunked-prefill out, or the tiers",
        is_configured=lambda config, _: _has_tiers(config) and not config.scheduler_config.enable_chunked_prefill,
    ),
    Unsupported(
        "tiers and a model with states alone, or with other groups than of full attention, of windows and of states",
        "what is stored of one group alone is of no use",
        "leave the tiers out for this model",
        is_configured=lambda config, caches: _has_tiers(config) and not _go_in_tiers(caches),
    ),
    Unsupported(
        "chunks of several blocks, and a model with windows or with several groups of KV caches",
        "of a chunk in which a window begins vLLM stores a part, and it does not say which",
        "leave --tier-chunk out",
        is_configured=lambda config, caches: (
            _has_tiers(config) and _moves_more_than_blocks(config) and not _fills_chunks(caches)
        ),
    ),
    Unsupported(
        "tiers, a model with several groups of KV caches, and drafts or other places where prompts are found again",
        "tiers keep together what a prompt needs at its last block, or where others were seen to go on otherwise",
        "leave --speculative-config, --prefix-cache-retention-interval and --prefix-match-unit out, or the tiers",
        is_configured=lambda config, caches: has_groups_in_tiers(config, caches) and _keeps_other_ends(config),
    ),
    Unsupported(
        "tiers and latent attention over several ranks",
        "what ranks have alike is stored once, in a form that zones do not account for",
        "leave the tiers out, or use one rank",
        is_configured=lambda config, _: (
            _has_tiers(config) and config.model_config.use_mla and config.parallel_config.world_size > 1
        ),
    ),
    Unsupported(
        "routed experts in answers",
        "they are kept by prefix, past the zones",
        "leave the flag out",
        flags=(Setting("--enable-return-routed-experts", ("--aux-output-config",)),),
        is_configured=lambda config, _: config.aux_output_config.enabled,
    ),
    Unsupported(
        "encoder cache connectors",
        "encoder caches are shared past the zones",
        "let images be encoded where they are served, and leave the flag out",
        flags=(Setting("--ec-transfer-config"),),
        is_configured=lambda config, _: config.ec_transfer_config is not None,
    ),
    Unsupported(
        "another encoder cache manager",
        "what an encoder made of a tenant's images is kept by zone, by a manager of the zones' own",
        "leave the flag out",
        flags=(Setting("--ec-manager-config"),),
        is_configured=lambda config, _: config.ec_manager_config.encoder_cache_manager_cls is not None,
    ),
    Unsupported(
        "several ranks of data parallelism behind one API server",
        "a frontend, an admin port and a report are of one engine",
        "run one Pod for each rank, with --data-parallel-size and --data-parallel-rank, or one for each engine, "
        "without these flags: the pool's zones hold in each",
        flags=(
            Setting("--data-parallel-size", ("-dp",), bound_to="1", but_beside=_RANKS),
            Setting("--data-parallel-size-local", ("-dpl",), bound_to="1"),
            Setting(
                "--data-parallel-start-rank",
                ("-dpr", "--data-parallel-hybrid-lb", "-dph", "--data-parallel-multi-port-external-lb", "-dpm"),
            ),
            # It cancels the flag that makes a size acceptable.
            Setting("--no-data-parallel-external-lb"),
        ),
        is_configured=lambda config, _: _shares_an_api_server(config.parallel_config),
    ),
    Unsupported(
        "ranks that the environment names",
        "vLLM takes them for ranks without a coordinator, and none wakes the others",
        "unset the variable, and use --data-parallel-size and --data-parallel-rank",
        variables=(Setting("VLLM_DP_SIZE", bound_to="1"), Setting("VLLM_DP_RANK", bound_to="0")),
    ),
    Unsupported(
        "ranks that Ray starts",
        "an engine core that runs elsewhere does not share its API server's seal key",
        "leave the flag out, and run one Pod for each rank",
        flags=(Setting("--data-parallel-backend", ("-dpb",), bound_to="mp"),),
        is_configured=lambda config, _: config.parallel_config.data_parallel_backend == "ray",
    ),
    Unsupported(
        "engines that go on after a step has failed",
        "what zones held in that step is counted no more",
        "leave the flag out: Kubernetes starts the Pod again",
        flags=(Setting("--enable-fault-tolerance", ("--fault-tolerance-config",)),),
        is_configured=lambda config, _: getattr(config.parallel_config, "enable_fault_tolerance", False),
    ),
    Unsupported(
        "pipeline parallelism without asynchronous scheduling",
        "several steps are in flight then, and vLLM's older runner would be asked for tokens that it does not know",
        "let vLLM run its V2 model runner, or use --tensor-parallel-size, or engines in more Pods",
        is_configured=lambda config, _: (
            config.parallel_config.pipeline_parallel_size > 1 and not config.scheduler_config.async_scheduling
        ),
    ),
    Unsupported(
        "another scheduler",
        "zones are enforced by a scheduler of their own",
        "leave the flag to tenantzone-runtime serve, or start vLLM without zones",
        flags=(Setting("--scheduler-cls", bound_to=FLAGS["--scheduler-cls"]),),
    ),
    Unsupported(
        "synchronous scheduling",
        "the zone scheduler extends vLLM's asynchronous one",
        "leave the flag out: vLLM itself goes without where the platform can't",
        flags=(Setting("--no-async-scheduling"),),
    ),
    Unsupported(
        "prompts at intervals",
        "a zone's promise is kept in the next step, and prompts would wait for more of them",
        "leave the flag out; latency targets (spec.latency) keep prompts from delaying others' tokens",
        flags=(Setting("--prefill-schedule-interval", bound_to="1"),),
        is_configured=lambda config, _: config.scheduler_config.prefill_schedule_interval > 1,
    ),
    Unsupported(
        "gRPC",
        "gRPC requests do not pass the frontend that binds them to tenants",
        "use the HTTP routes",
        flags=(Setting("--grpc", ("--grpc-port",)),),
    ),
    Unsupported(
        "the Rust front end",
        "the Rust front end does not run the middleware that binds requests to tenants",
        "unset the variable",
        variables=(Setting("VLLM_USE_RUST_FRONTEND", bound_to="0"),),
    ),
    Unsupported(
        "an API server elsewhere",
        "its requests come from an API server elsewhere, which does not share its seal key",
        "run API server and engine in one Pod",
        flags=(Setting("--headless"),),
    ),
    Unsupported(
        "tokens in place of text",
        "the routes that it serves have no field in which the tenant's seal would reach the scheduler",
        "send text, or token ids as the prompt of /v1/completions",
        flags=(Setting("--tokens-only"),),
    ),
    Unsupported(
        "vLLM's own API keys",
        "two lists of keys would exclude each other",
        "give the keys of tenants by --tenant-keys",
        flags=(Setting("--api-key"),),
        variables=(Setting("VLLM_API_KEY"),),
    ),
    Unsupported(
        "a list of plugins without ours",
        f"it leaves out the plugin {PLUGIN!r}, which makes the seal key",
        "add it to the list",
        variables=(Setting("VLLM_PLUGINS", without=PLUGIN),),
    ),
    Unsupported(
        "request ids that are not made unique",
        "clients choose their requests' ids, and one tenant's could end another's",
        "unset the variable",
        variables=(Setting("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", bound_to="0"),),
    ),
    Unsupported(
        "adapters that are loaded at run time",
        "any tenant could load one by naming it",
        "name the adapters by --lora-modules when the engine starts",
        variables=(Setting("VLLM_ALLOW_RUNTIME_LORA_UPDATING", but_for=("0", "false", "False")),),
    ),
    Unsupported(
        "models without KV caches",
        "blocks of KV caches are what zones own",
        _OTHER_ENGINE,
        is_configured=lambda _, caches: not caches.kv_cache_groups,
    ),
    Unsupported(
        "hybrid models with other kinds of layers",
        "in one model, zones count the blocks of full, latent, windowed and chunked attention and of Mamba's and "
        "linear attention's states, and of no others: some are no blocks of the pool",
        _OTHER_ENGINE,
        is_configured=lambda _, caches: (
            len(caches.kv_cache_groups) > 1 and not all(map(_is_counted, caches.kv_cache_groups))
        ),
    ),
    Unsupported(
        "drafts on CPUs for a model whose states are kept at the ends of blocks",
        "vLLM's engine fails at the first request there",
        "leave --speculative-config out, or --mamba-cache-mode align, or use a GPU",
        is_configured=lambda config, caches: (
            config.device_config.device_type == "cpu"
            and config.speculative_config is not None
            and any(_keeps_states_at_ends(group.kv_cache_spec) for group in caches.kv_cache_groups)
        ),
    ),
    Unsupported(
        "encoder-decoder models",
        "what the encoder made has blocks of its own kind, and zones count those of one kind",
        _OTHER_ENGINE,
        is_configured=lambda config, _: config.model_config.is_encoder_decoder,
    ),
    STREAMING_SESSIONS,
)


def check(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Refuse flags and variables that are incompatible with zones.

    Raises:
        UsageError: a flag or a variable is refused; the message names it and states why.
    """
    given = flag_values(arguments)
    for unsupported in UNSUPPORTED:
        for name, setting in _named(unsupported.flags):
            if any(other in given for other in setting.but_beside):
                continue
            if any(setting.refuses(value) for value in given.get(name, ())):
                raise UsageError(unsupported.refusal(name))
        for name, setting in _named(unsupported.variables):
            if environ.get(name) and setting.refuses(environ[name]):
                raise UsageError(unsupported.refusal(f"the environment variable {name}"))


def configured(config: Any, caches: Any) -> list[Unsupported]:
    """Returns the unsupported features in vLLM's resolved configuration and that of its KV caches."""
    return [each for each in UNSUPPORTED if each.is_configured is not None and each.is_configured(config, caches)]


def _has_tiers(config: Any) -> bool:
    return config.kv_transfer_config is not None and is_ours(config.kv_transfer_config)


def _named(settings: tuple[Setting, ...]) -> list[tuple[str, Setting]]:
    return [(name, setting) for setting in settings for name in setting.names]
