"""What zones do not support is refused before a model is loaded, or by the scheduler, with its name."""

from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from vllm.config import CacheConfig, KVTransferConfig
from vllm.config.cache import PrefixCachingHashAlgo
from vllm.config.ec_manager_config import EncoderCacheManagerConfig
from vllm.v1.kv_cache_interface import CrossAttentionSpec, KVCacheConfig, KVCacheGroupSpec

from hack.harness.kv_caches import KINDS, caches
from hack.harness.scheduler import BLOCK_TOKENS, vllm_config
from tenantzone_runtime.engine.versions import UnsupportedError, check_supported
from tenantzone_runtime.frontend.routes import WEBSOCKET, Access, RouteTable
from tenantzone_runtime.offloading_flags import CONNECTOR, CONNECTOR_MODULE
from tenantzone_runtime.unsupported import UNSUPPORTED, check
from tenantzone_runtime.usage import UsageError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--kv-transfer-config", "{}"],
            "--kv-transfer-config can't be used: other KV connectors move blocks that zones do not account for",
        ),
        (
            ["--data-parallel-size=2"],
            "one Pod for each rank, with --data-parallel-size and --data-parallel-rank, or one",
        ),
        (["--prefix-caching-hash-algo=builtin"], "--prefix-caching-hash-algo can't be used: with a weaker hash"),
        (["--prefix_caching_hash_algo", "xxhash_cbor"], "--prefix-caching-hash-algo can't be used: with a weaker hash"),
        (["--grpc"], "--grpc can't be used: gRPC requests bypass the frontend"),
        (["--enable-return-routed-experts"], "--enable-return-routed-experts can't be used: they are cached by prefix"),
        (
            ["--prefill-schedule-interval=4"],
            "--prefill-schedule-interval can't be used: a zone's guarantee takes effect",
        ),
        (
            ["--no-async-scheduling"],
            "--no-async-scheduling can't be used: the zone scheduler extends vLLM's asynchronous",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_flags_are_refused_before_a_model_is_loaded(arguments, message):
    with pytest.raises(UsageError) as refusal:
        check(["model", *arguments], {})
    assert message in str(refusal.value)


def test_the_rust_front_end_is_refused():
    with pytest.raises(UsageError, match="VLLM_USE_RUST_FRONTEND can't be used: it does not run"):
        check(["model"], {"VLLM_USE_RUST_FRONTEND": "1"})


def with_connector(config):
    config.kv_transfer_config = KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both")


def with_tiers(config):
    config.kv_transfer_config = KVTransferConfig(
        kv_connector=CONNECTOR, kv_connector_module_path=CONNECTOR_MODULE, kv_role="kv_both"
    )


def with_tiers_and_whole_prompts(config):
    with_tiers(config)
    config.scheduler_config.enable_chunked_prefill = False


def with_tiers_and_latent_attention(config):
    with_tiers(config)
    config.parallel_config.world_size = 2
    config.model_config = SimpleNamespace(model="m", use_mla=True, runner_type="generate", is_encoder_decoder=False)


def with_encoder_connector(config):
    config.ec_transfer_config = object()


def with_an_encoder_cache(config):
    config.ec_manager_config = EncoderCacheManagerConfig(encoder_cache_manager_cls="some.Class")


def with_encoder(config):
    config.model_config.is_encoder_decoder = True


def with_several_engines(config):
    config.parallel_config.data_parallel_size = 2


def with_ray(config):
    config.parallel_config.data_parallel_backend = "ray"


def with_fault_tolerance(config):
    config.parallel_config.enable_fault_tolerance = True


def with_a_pipeline(config):
    config.parallel_config.pipeline_parallel_size = 2
    config.scheduler_config.async_scheduling = False


def with_a_fast_hash(config):
    config.cache_config.prefix_caching_hash_algo = "xxhash"


def with_prompts_at_intervals(config):
    config.scheduler_config.prefill_schedule_interval = 4


def with_routed_experts(config):
    config.aux_output_config.enable_return_routed_experts = True


USES = {
    "routed experts in answers": with_routed_experts,
    "prefill at intervals of several steps": with_prompts_at_intervals,
    "KV connectors other than the zones' own": with_connector,
    "tiers without chunked prefill": with_tiers_and_whole_prompts,
    "tiers for a model with latent attention on several ranks": with_tiers_and_latent_attention,
    "encoder cache connectors": with_encoder_connector,
    "an encoder cache manager other than the zones' own": with_an_encoder_cache,
    "encoder-decoder models": with_encoder,
    "several ranks of data parallelism behind one API server": with_several_engines,
    "data-parallel ranks that are started by Ray": with_ray,
    "engines that continue after a failed step": with_fault_tolerance,
    "pipeline parallelism without asynchronous scheduling": with_a_pipeline,
    "a prefix hash that is not SHA-256": with_a_fast_hash,
}
"""Settings that a config file, another flag or the model may turn on."""
CONFIGURED = {each.feature: f"{each.reason}; {each.instead}" for each in UNSUPPORTED if each.is_configured is not None}


@pytest.mark.parametrize("feature", USES)
@pytest.mark.shows("refused by configuration")
def test_what_is_configured_whichever_way_is_refused_when_the_model_is_loaded(tmp_path, feature):
    config = vllm_config(tmp_path)
    USES[feature](config)
    with pytest.raises(UnsupportedError) as refusal:
        check_supported(config, caches(10))
    assert f"can't be served with zones: {feature} ({CONFIGURED[feature]}). To run without zones" in str(refusal.value)


def test_a_pipeline_with_asynchronous_scheduling_is_accepted(tmp_path):
    config = vllm_config(tmp_path)
    with_a_pipeline(config)
    config.scheduler_config.async_scheduling = True
    check_supported(config, caches(10))
    check(["model", "-pp", "2"], {})


@pytest.mark.parametrize("rank", [0, 1])
def test_the_second_rank_of_a_dense_model_is_refused_and_one_that_has_no_others_is_accepted(tmp_path, rank):
    config = vllm_config(tmp_path)
    config.parallel_config.data_parallel_size = 2
    config.parallel_config.data_parallel_index = rank
    config.parallel_config.reconfigure_for_independent_dp_rank()
    if rank == 0:
        check_supported(config, caches(10))
    else:
        with pytest.raises(UnsupportedError, match="several ranks of data parallelism behind one API server"):
            check_supported(config, caches(10))


def test_a_rank_with_an_api_server_of_its_own_is_accepted(tmp_path):
    config = vllm_config(tmp_path)
    with_several_engines(config)
    config.parallel_config.data_parallel_external_lb = True
    check_supported(config, caches(10))


def test_all_that_a_configuration_reveals_is_tried_here():
    assert CONFIGURED.keys() == (
        USES.keys() | MODELS.keys() | GROUPS_IN_TIERS.keys() | {KINDS_IN_TIERS, DRAFTS_AND_STATES_ON_CPUS}
    )


KINDS_IN_TIERS = (
    "tiers for a model that has only states, or groups other than full attention, sliding windows and states"
)


@pytest.mark.parametrize(
    "kinds",
    [
        ("mamba align",),
        ("full", "mamba all"),
        ("full", "mamba none"),
        ("wide", "mamba align"),
        ("full", "chunks"),
        ("latent", "window"),
        ("wide", "window"),
    ],
    ids="+".join,
)
@pytest.mark.shows("refused by configuration")
def test_tiers_of_a_model_with_states_alone_or_other_groups_are_refused(tmp_path, kinds):
    config = vllm_config(tmp_path)
    with_tiers(config)
    with pytest.raises(UnsupportedError, match=KINDS_IN_TIERS):
        check_supported(config, caches(10, 64, kinds, config), "0.32.0")


@pytest.mark.parametrize(
    "kinds",
    [(), ("full", "window"), ("window", "full", "window"), ("full", "mamba align"), ("full", "window", "mamba align")],
    ids="+".join,
)
@pytest.mark.shows("tiers of several groups")
def test_tiers_of_windows_and_states_with_full_attention_are_accepted(tmp_path, kinds):
    config = vllm_config(tmp_path)
    with_tiers(config)
    below = {"disk_folder": "/disk", "manager_url": "http://manager"}
    config.kv_transfer_config.kv_connector_extra_config |= below
    check_supported(config, caches(10, 64, kinds, config), "0.32.0")


def with_larger_chunks(config):
    config.kv_transfer_config.kv_connector_extra_config["block_size"] = 64


def with_drafts(config):
    config.speculative_config = object()


def with_windows_at_intervals(config):
    config.cache_config.prefix_cache_retention_interval = 64


def with_hits_within_blocks(config):
    config.cache_config.prefix_match_unit = 8


CHUNKS_AND_WINDOWS = "chunks of several blocks for a model with sliding windows or with several groups of KV caches"
GROUPS_IN_TIERS = {
    CHUNKS_AND_WINDOWS: (with_larger_chunks,),
    "tiers for a model with several groups of KV caches, with speculative decoding or other ends of cache hits": (
        with_drafts,
        with_windows_at_intervals,
        with_hits_within_blocks,
    ),
}


@pytest.mark.parametrize(
    ("feature", "use"),
    [(feature, use) for feature, uses in GROUPS_IN_TIERS.items() for use in uses],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.shows("refused by configuration")
def test_what_does_not_go_with_tiers_of_several_groups_is_refused_with_them_only(tmp_path, feature, use):
    config = vllm_config(tmp_path)
    with_tiers(config)
    use(config)
    check_supported(config, caches(10))
    with pytest.raises(UnsupportedError) as refusal:
        check_supported(config, caches(10, 64, ("full", "window")), "0.32.0")
    assert f"can't be served with zones: {feature} ({CONFIGURED[feature]}). To run" in str(refusal.value)


@pytest.mark.parametrize("kind", ["window", "chunks"])
def test_larger_chunks_are_refused_where_a_request_lets_go_of_the_beginning_of_one(tmp_path, kind):
    config = vllm_config(tmp_path)
    with_tiers(config)
    check_supported(config, caches(10, 64, (kind,)))
    with_larger_chunks(config)
    check_supported(config, caches(10))
    with pytest.raises(UnsupportedError, match=f"can't be served with zones: {CHUNKS_AND_WINDOWS}"):
        check_supported(config, caches(10, 64, (kind,)))


@pytest.mark.parametrize("version", ["0.31.0", "0.33.0"])
def test_tiers_of_several_groups_are_refused_with_a_vllm_with_which_they_were_not_seen(tmp_path, version):
    config = vllm_config(tmp_path)
    with_tiers(config)
    check_supported(config, caches(10), version)
    with pytest.raises(UnsupportedError, match=f"with vLLM {version} .they were tested together only with vllm==0.32"):
        check_supported(config, caches(10, 64, ("full", "window")), version)


FULL = caches(10).kv_cache_groups[0].kv_cache_spec
CROSS = CrossAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=2, head_size=32, dtype=torch.float32)
MODELS = {
    "models without KV caches": [],
    "hybrid models with other kinds of layers": [FULL, CROSS],
}


def of_groups(specs):
    groups = [KVCacheGroupSpec([f"layer {number}"], spec) for number, spec in enumerate(specs)]
    return KVCacheConfig(10, kv_cache_tensors=[], kv_cache_groups=groups)


@pytest.mark.parametrize("feature", MODELS)
@pytest.mark.shows("refused by configuration")
def test_what_a_model_brings_is_refused_by_name(tmp_path, feature):
    with pytest.raises(UnsupportedError, match=f"{feature} .*; run it in a vLLM without zones"):
        check_supported(vllm_config(tmp_path), of_groups(MODELS[feature]))


DRAFTS_AND_STATES_ON_CPUS = "speculative decoding on CPUs for a model that keeps its states at the ends of blocks"


@pytest.mark.shows("refused by configuration")
def test_drafts_for_a_model_with_states_are_refused_on_cpus_only(tmp_path):
    config = vllm_config(tmp_path)
    config.device_config.device_type = "cpu"
    states, *others = (
        caches(10, 64, kinds, config)
        for kinds in (("full", "mamba align"), (), ("full", "window"), ("full", "mamba none"))
    )
    check_supported(config, states)
    with_drafts(config)
    for each in others:
        check_supported(config, each)
    with pytest.raises(
        UnsupportedError, match=f"{DRAFTS_AND_STATES_ON_CPUS} .vLLM's engine fails at the first request"
    ):
        check_supported(config, states)
    config.device_config.device_type = "cuda"
    check_supported(config, states)


@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
@pytest.mark.shows("several kinds of layers")
def test_hybrid_models_are_accepted(tmp_path, kinds):
    config = vllm_config(tmp_path)
    check_supported(config, caches(10, 64, kinds, config))


def test_a_group_whose_blocks_are_elsewhere_is_refused(tmp_path):
    found = of_groups([FULL, FULL])
    found.kv_cache_groups[1].host_resident = True
    with pytest.raises(UnsupportedError, match="hybrid models with other kinds of layers"):
        check_supported(vllm_config(tmp_path), found)


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        (WEBSOCKET, "/v1/realtime", "it is a session, which keeps its blocks while it waits for its client"),
        ("POST", "/v1/audio/transcriptions", "its body is a form with a file, and the frontend reads JSON"),
        ("POST", "/v1/rerank", "it creates requests from lists that the frontend does not count; use /v1/embeddings"),
        ("POST", "/inference/v1/generate", "disaggregated serving moves blocks that zones do not account for"),
    ],
)
def test_routes_are_refused_with_a_reason(method, path, reason):
    (route,) = RouteTable().at(path)
    assert (route.method, route.access) == (method, Access.REFUSED)
    assert reason in route.reason


@pytest.mark.parametrize("name", get_args(PrefixCachingHashAlgo))
def test_each_hash_of_vllms_is_accepted_if_it_is_sha_256(tmp_path, name):
    config = vllm_config(tmp_path)
    config.cache_config.prefix_caching_hash_algo = name
    if name in ("sha256", "sha256_cbor"):
        check_supported(config, caches(10))
        check(["model", "--prefix-caching-hash-algo", name], {})
    else:
        with pytest.raises(UnsupportedError, match="set --prefix-caching-hash-algo to sha256_cbor"):
            check_supported(config, caches(10))


def test_vllms_own_default_is_accepted():
    assert CacheConfig.prefix_caching_hash_algo == "sha256"
