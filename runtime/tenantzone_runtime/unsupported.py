"""The table of vLLM's features that are incompatible with zones. Command line, scheduler and documentation use it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tenantzone_runtime.offloading_flags import is_ours
from tenantzone_runtime.resolved_config import (
    fills_chunks,
    go_in_tiers,
    has_groups_in_tiers,
    has_tiers,
    is_counted,
    keeps_other_ends,
    keeps_states_at_ends,
    moves_more_than_blocks,
    shares_an_api_server,
)
from tenantzone_runtime.usage import FLAGS, PLUGIN, UsageError, flag_values

_OTHER_ENGINE: Final = "run it in a vLLM without zones"
_SAFE_HASHES: Final = ("sha256", "sha256_cbor")


@dataclass(frozen=True, slots=True)
class Setting:
    """A flag or an environment variable that is refused, possibly with exceptions."""

    name: str
    others: tuple[str, ...] = ()
    """Other names of the setting, or equivalent settings."""
    refused: tuple[str, ...] = ()
    """The only values that are refused; empty to refuse all values that the next attributes do not accept."""
    bound_to: str | None = None
    """A value that is accepted, such as the default; None if there is none."""
    but_for: tuple[str, ...] = ()
    """Further values that are accepted."""
    without: str | None = None
    """An item that a comma-separated list must contain to be accepted; None if the value is not such a list."""
    but_if: Callable[[str], bool] | None = None
    """Returns whether a value is accepted; None for no such function."""
    but_beside: tuple[str, ...] = ()
    """If one of the flags listed here is also given, any value of this flag is accepted."""

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

    The engine does not start if a setting or vLLM's resolved configuration shows that the feature is in use. If neither
    can show this, the engine refuses the requests that use the feature.
    """

    feature: str
    reason: str
    instead: str
    """Advice for the user: what to do instead of using the feature."""
    flags: tuple[Setting, ...] = ()
    variables: tuple[Setting, ...] = ()
    is_configured: Callable[[Any, Any], bool] | None = None
    """Returns whether the feature is in use. The arguments are vLLM's resolved configuration and its configuration of
    KV caches, which also have settings from a config file and the model. None if they can't show the use."""

    def refusal(self, name: str = "") -> str:
        """Returns the error message that refuses the feature, or only the setting ``name`` if a name is given."""
        return f"{name or self.feature} can't be used: {self.reason}; {self.instead}"


_RANKS: Final = ("--data-parallel-rank", "-dpn", "--data-parallel-external-lb", "-dpe")
"""Flags that make an engine one of several data-parallel ranks, each with its own API server."""

STREAMING_SESSIONS: Final = Unsupported(
    "streaming input sessions",
    "a session keeps its blocks while it waits for its client, and no queue limit or grace of a zone ends that",
    "send each input as a separate request, which finds the earlier inputs in the prefix cache",
)

UNSUPPORTED: Final[tuple[Unsupported, ...]] = (
    Unsupported(
        "a prefix hash that is not SHA-256",
        "with a weaker hash, a client could make two prompts with the same hash, and the engine would confuse them",
        "set --prefix-caching-hash-algo to sha256_cbor, whose hashes are the same in all images, or to sha256",
        flags=(Setting("--prefix-caching-hash-algo", but_for=_SAFE_HASHES),),
        is_configured=lambda config, _: config.cache_config.prefix_caching_hash_algo not in _SAFE_HASHES,
    ),
    Unsupported(
        "KV connectors other than the zones' own",
        "other KV connectors move blocks that zones do not account for",
        "omit the flag, or configure tiers with --cpu-tier and --disk-tier of tenantzone-runtime serve",
        flags=(Setting("--kv-transfer-config", but_if=is_ours),),
        is_configured=lambda config, _: (
            config.kv_transfer_config is not None and not is_ours(config.kv_transfer_config)
        ),
    ),
    Unsupported(
        "vLLM's own flag for KV offloading",
        "it moves blocks that zones do not account for",
        "omit the flag, and use --cpu-tier and --disk-tier of tenantzone-runtime serve, which are divided among zones",
        flags=(Setting("--kv-offloading-size"),),
    ),
    Unsupported(
        "tiers without chunked prefill",
        "the part of a prompt that a tier has is loaded first, and the rest might never fit into a single step",
        "omit --no-enable-chunked-prefill, or the tiers",
        is_configured=lambda config, _: has_tiers(config) and not config.scheduler_config.enable_chunked_prefill,
    ),
    Unsupported(
        "tiers for a model that has only states, or groups other than full attention, sliding windows and states",
        "the stored blocks of one group are useless without those of the other groups",
        "omit the tiers for this model",
        is_configured=lambda config, caches: has_tiers(config) and not go_in_tiers(caches),
    ),
    Unsupported(
        "chunks of several blocks for a model with sliding windows or with several groups of KV caches",
        "if a window begins within a chunk, vLLM stores only a part of the chunk, and does not report which part",
        "omit --tier-chunk",
        is_configured=lambda config, caches: (
            has_tiers(config) and moves_more_than_blocks(config) and not fills_chunks(caches)
        ),
    ),
    Unsupported(
        "tiers for a model with several groups of KV caches, with speculative decoding or other ends of cache hits",
        "tiers store complete data only for the last block of a prompt and for blocks at which prompts diverged",
        "omit --speculative-config, --prefix-cache-retention-interval and --prefix-match-unit, or the tiers",
        is_configured=lambda config, caches: has_groups_in_tiers(config, caches) and keeps_other_ends(config),
    ),
    Unsupported(
        "tiers for a model with latent attention on several ranks",
        "data that is equal on all ranks is stored once, in a form that zones do not account for",
        "omit the tiers, or use a single rank",
        is_configured=lambda config, _: (
            has_tiers(config) and config.model_config.use_mla and config.parallel_config.world_size > 1
        ),
    ),
    Unsupported(
        "routed experts in answers",
        "they are cached by prefix, and zones do not account for them",
        "omit the flag",
        flags=(Setting("--enable-return-routed-experts", ("--aux-output-config",)),),
        is_configured=lambda config, _: config.aux_output_config.enabled,
    ),
    Unsupported(
        "encoder cache connectors",
        "they share encoder caches without regard to zones",
        "omit the flag, so that each engine encodes the images of its own requests",
        flags=(Setting("--ec-transfer-config"),),
        is_configured=lambda config, _: config.ec_transfer_config is not None,
    ),
    Unsupported(
        "an encoder cache manager other than the zones' own",
        "the zones' own encoder cache manager keeps the encoded images of each zone apart",
        "omit the flag",
        flags=(Setting("--ec-manager-config"),),
        is_configured=lambda config, _: config.ec_manager_config.encoder_cache_manager_cls is not None,
    ),
    Unsupported(
        "several ranks of data parallelism behind one API server",
        "each frontend, admin port and report belongs to exactly one engine",
        "run one Pod for each rank, with --data-parallel-size and --data-parallel-rank, or one Pod for each engine, "
        "without these flags; each of them enforces the pool's zones",
        flags=(
            Setting("--data-parallel-size", ("-dp",), bound_to="1", but_beside=_RANKS),
            Setting("--data-parallel-size-local", ("-dpl",), bound_to="1"),
            Setting(
                "--data-parallel-start-rank",
                ("-dpr", "--data-parallel-hybrid-lb", "-dph", "--data-parallel-multi-port-external-lb", "-dpm"),
            ),
            # Refuse this flag, because it cancels --data-parallel-external-lb, with which a size above 1 is accepted.
            Setting("--no-data-parallel-external-lb"),
        ),
        is_configured=lambda config, _: shares_an_api_server(config.parallel_config),
    ),
    Unsupported(
        "data-parallel ranks that are set in the environment",
        "vLLM treats them as ranks without a coordinator, so no rank wakes up the others",
        "unset the variable, and use --data-parallel-size and --data-parallel-rank",
        variables=(Setting("VLLM_DP_SIZE", bound_to="1"), Setting("VLLM_DP_RANK", bound_to="0")),
    ),
    Unsupported(
        "data-parallel ranks that are started by Ray",
        "an engine core on another node does not have its API server's seal key",
        "omit the flag, and run one Pod for each rank",
        flags=(Setting("--data-parallel-backend", ("-dpb",), bound_to="mp"),),
        is_configured=lambda config, _: config.parallel_config.data_parallel_backend == "ray",
    ),
    Unsupported(
        "engines that continue after a failed step",
        "the blocks that zones held in the failed step would no longer be counted",
        "omit the flag, so that Kubernetes restarts the Pod",
        flags=(Setting("--enable-fault-tolerance", ("--fault-tolerance-config",)),),
        is_configured=lambda config, _: getattr(config.parallel_config, "enable_fault_tolerance", False),
    ),
    Unsupported(
        "pipeline parallelism without asynchronous scheduling",
        "with several steps in flight, vLLM's older model runner would be asked for tokens before it has them",
        "let vLLM use its V2 model runner, or use --tensor-parallel-size, or run engines in more Pods",
        is_configured=lambda config, _: (
            config.parallel_config.pipeline_parallel_size > 1 and not config.scheduler_config.async_scheduling
        ),
    ),
    Unsupported(
        "a scheduler other than the zones' own",
        "the zones' own scheduler enforces them",
        "omit the flag, which tenantzone-runtime serve sets, or start vLLM without zones",
        flags=(Setting("--scheduler-cls", bound_to=FLAGS["--scheduler-cls"]),),
    ),
    Unsupported(
        "synchronous scheduling",
        "the zone scheduler extends vLLM's asynchronous one",
        "omit the flag; vLLM disables asynchronous scheduling itself on platforms that do not support it",
        flags=(Setting("--no-async-scheduling"),),
    ),
    Unsupported(
        "prefill at intervals of several steps",
        "a zone's guarantee takes effect in the next step, but prompts would wait for several steps",
        "omit the flag; latency targets (spec.latency) prevent prompts from delaying the tokens of other requests",
        flags=(Setting("--prefill-schedule-interval", bound_to="1"),),
        is_configured=lambda config, _: config.scheduler_config.prefill_schedule_interval > 1,
    ),
    Unsupported(
        "gRPC",
        "gRPC requests bypass the frontend, which binds requests to tenants",
        "use the HTTP routes",
        flags=(Setting("--grpc", ("--grpc-port",)),),
    ),
    Unsupported(
        "the Rust front end",
        "it does not run the middleware that binds requests to tenants",
        "unset the variable",
        variables=(Setting("VLLM_USE_RUST_FRONTEND", bound_to="0"),),
    ),
    Unsupported(
        "an API server in another Pod",
        "an API server in another Pod does not have the engine's seal key",
        "run the API server and the engine in one Pod",
        flags=(Setting("--headless"),),
    ),
    Unsupported(
        "an API server that accepts only tokens",
        "its routes have no field that could carry the tenant's seal to the scheduler",
        "send text, or token ids as the prompt of /v1/completions",
        flags=(Setting("--tokens-only"),),
    ),
    Unsupported(
        "vLLM's own API keys",
        "a key would have to be on both lists, vLLM's and the tenants', to be accepted",
        "set the tenants' keys with --tenant-keys",
        flags=(Setting("--api-key"),),
        variables=(Setting("VLLM_API_KEY"),),
    ),
    Unsupported(
        "a list of plugins without TenantZone's",
        f"it lacks the plugin {PLUGIN!r}, which creates the seal key",
        "add the plugin to the list",
        variables=(Setting("VLLM_PLUGINS", without=PLUGIN),),
    ),
    Unsupported(
        "request ids that are not made unique",
        "clients choose the ids of their requests, so one tenant could abort another tenant's request",
        "unset the variable",
        variables=(Setting("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", bound_to="0"),),
    ),
    Unsupported(
        "LoRA adapters that are loaded at run time",
        "any tenant could load an adapter by naming it in a request",
        "list the adapters in --lora-modules when the engine starts",
        variables=(Setting("VLLM_ALLOW_RUNTIME_LORA_UPDATING", but_for=("0", "false", "False")),),
    ),
    Unsupported(
        "models without KV caches",
        "zones consist of KV-cache blocks, and such a model has none",
        _OTHER_ENGINE,
        is_configured=lambda _, caches: not caches.kv_cache_groups,
    ),
    Unsupported(
        "hybrid models with other kinds of layers",
        "in one model, zones can count the blocks of full, latent, windowed and chunked attention and of the states of "
        "Mamba and linear attention, but no blocks of other layers, because some are outside the block pool",
        _OTHER_ENGINE,
        is_configured=lambda _, caches: (
            len(caches.kv_cache_groups) > 1 and not all(map(is_counted, caches.kv_cache_groups))
        ),
    ),
    Unsupported(
        "speculative decoding on CPUs for a model that keeps its states at the ends of blocks",
        "vLLM's engine fails at the first request in this case",
        "omit --speculative-config or --mamba-cache-mode align, or use a GPU",
        is_configured=lambda config, caches: (
            config.device_config.device_type == "cpu"
            and config.speculative_config is not None
            and any(keeps_states_at_ends(group.kv_cache_spec) for group in caches.kv_cache_groups)
        ),
    ),
    Unsupported(
        "encoder-decoder models",
        "the encoder's output has blocks of a separate kind, and zones count blocks of a single kind",
        _OTHER_ENGINE,
        is_configured=lambda config, _: config.model_config.is_encoder_decoder,
    ),
    STREAMING_SESSIONS,
)


def check(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Refuse flags and variables that are incompatible with zones.

    Raises:
        UsageError: a flag or a variable is refused. The message names it, and states why and what to do instead.
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
    """Returns the unsupported features that are in use, according to vLLM's configuration.

    Args:
        config: vLLM's resolved configuration.
        caches: vLLM's configuration of its KV caches.
    """
    return [each for each in UNSUPPORTED if each.is_configured is not None and each.is_configured(config, caches)]


def _named(settings: tuple[Setting, ...]) -> list[tuple[str, Setting]]:
    return [(name, setting) for setting in settings for name in setting.names]
