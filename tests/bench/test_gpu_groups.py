"""The further groups of the GPU bench: their pure parts, and all of them on real engines on this machine's CPUs."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import engines
from bench.gpu.answers import Answer
from bench.gpu.compare import cached_share, first_token, same
from bench.gpu.engines import Engine, EngineError, EngineSpec
from bench.gpu.groups import GROUPS, graphs
from bench.gpu.groups.graphs import Way
from bench.gpu.groups.lora import RANK, make_adapter
from bench.gpu.groups.metrics import total
from bench.gpu.results import Run, read
from bench.gpu.shapes import SHAPES
from tests.waiting import await_that

ROOT = Path(__file__).parents[2]
FURTHER = GROUPS[1:]
PHASES = [phase.name for group in FURTHER for phase in group.phases]
LLAMA = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}


def answer(tokens=(1, 2), cached=0, seconds=0.5):
    return Answer(tuple(tokens), (), prompt_tokens=100, cached_tokens=cached, first_token_seconds=seconds)


class TestFigures:
    def test_answers_are_the_same_only_if_all_tokens_are(self):
        assert same([answer((1, 2)), answer((1, 3))], [answer((1, 2)), answer((1, 2))]) == 1

    def test_the_cached_share_is_of_all_prompts(self):
        assert cached_share([answer(cached=100), answer(cached=0)]) == 0.5

    def test_the_first_token_is_the_median(self):
        assert first_token([answer(seconds=each) for each in (0.1, 0.2, 9.0)]) == 0.2


class TestMetrics:
    TEXT = '# TYPE moved counter\nmoved_total{to="cpu",of="acme"} 3\nmoved_total{to="cpu",of="burst"} 4\n'

    def test_series_add_up(self):
        assert total(self.TEXT, "moved_total") == 7

    def test_only_series_with_the_labels_count(self):
        assert total(self.TEXT, "moved_total", of="acme") == 3

    def test_a_metric_that_is_not_there_is_0(self):
        assert total(self.TEXT, "lost_total") == 0


class TestWays:
    def test_vllms_default_needs_no_flag(self):
        assert Way("default").flags == ()

    def test_another_configuration_is_json(self):
        flag, value = Way("decode", {"mode": 0}).flags
        assert (flag, json.loads(value)) == ("--compilation-config", {"mode": 0})

    def test_ways_that_do_not_start_end_within_the_limit(self):
        (phase,) = graphs.GROUP.phases
        assert len(graphs._ON_A_GPU) * (graphs._START_SECONDS + engines._ABORT_SECONDS) < phase.limit_seconds


class TestAdapters:
    @pytest.mark.parametrize(("fields", "head"), [({}, 16), ({"head_dim": 32}, 32)])
    def test_weights_fit_the_models_projections(self, tmp_path, fields, head):
        from safetensors.torch import load_file

        make_adapter(tmp_path / "adapter", {**LLAMA, **fields}, seed=0)
        weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
        assert {name.split("self_attn.")[1]: tuple(each.shape) for name, each in weights.items()} == {
            "q_proj.lora_A.weight": (RANK, 64),
            "q_proj.lora_B.weight": (4 * head, RANK),
            "v_proj.lora_A.weight": (RANK, 64),
            "v_proj.lora_B.weight": (2 * head, RANK),
        }

    def test_seeds_give_different_weights(self, tmp_path):
        for seed in (0, 1):
            make_adapter(tmp_path / str(seed), LLAMA, seed=seed)
        first, second = ((tmp_path / str(seed) / "adapter_model.safetensors").read_bytes() for seed in (0, 1))
        assert first != second


class TestStarts:
    async def test_an_engine_that_is_not_healthy_in_time_shows_its_stacks(self, tmp_path):
        # A verbose interpreter logs what it imports. After this module, faulthandler lists modules, too.
        spec = EngineSpec("stock", None, variables={"PYTHONVERBOSE": "1"})
        imported = "import 'numpy._core._multiarray_umath'"
        engine = Engine(spec, SHAPES["nano"], tmp_path / "model", tmp_path)
        try:
            await asyncio.to_thread(await_that, lambda: imported in engine.log.read_text(errors="replace"), imported)
            with pytest.raises(EngineError, match="most recent call first") as raised:
                await engine.wait_ready(0.0, print)
            assert "Extension modules:" in engine.log.read_text(errors="replace")
            assert "Extension modules:" not in str(raised.value)
        finally:
            await engine.stop()


@pytest.fixture(scope="module")
def run(request, tmp_path_factory) -> Run:
    """Runs all further groups, once. They take minutes and both cores, so they run only where this file is named."""
    if not any(Path(__file__).name in argument for argument in request.config.args):
        pytest.skip("takes up to ten minutes; `make test-all` names this file and runs it alone")
    file = tmp_path_factory.mktemp("gpu-groups") / "run.json"
    names = [group.name for group in FURTHER]
    command = [sys.executable, "-m", "bench.gpu", "--shape", "nano", "--seeds", "1", "--json", str(file), "--phases"]
    done = subprocess.run([*command, *names], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert file.exists(), done.stderr
    return read(file)


@pytest.mark.compiled
@pytest.mark.timeout(2400)  # all groups run before the first test
class TestOnEngines:
    @pytest.fixture
    def rows(self, run):
        def of(name):
            (phase,) = (phase for phase in run["phases"] if phase["name"] == name)
            assert phase["status"] == "done", phase["why"]
            return phase["results"]["rows"]

        return of

    @pytest.mark.parametrize("name", PHASES)
    def test_each_phase_has_rows_of_both_engines(self, rows, name):
        assert {row["engine"] for row in rows(name)} == {"stock", "zones"}

    @pytest.mark.parametrize(
        ("name", "columns"),
        [
            ("graphs", ["same as stock"]),
            ("adapters", ["same as stock"]),
            ("draft", ["same as stock"]),
            ("hybrid", ["same as stock, cold", "same as stock, cached"]),
            ("smollm2", ["same as stock, cold", "same as stock, cached"]),
            ("tier", ["same as stock"]),
        ],
    )
    def test_zones_answer_as_stock_does(self, rows, name, columns):
        for row in rows(name):
            assert {column: row[column] for column in columns} == dict.fromkeys(columns, row["answers"])

    def test_a_prompt_comes_back_from_the_tier(self, rows):
        (row,) = (row for row in rows("tier") if row["cache"] == "in tier")
        assert row["cached"] > 0.8
        assert row["load, MiB"] > 0

    def test_a_flood_stores_only_with_offloading(self, rows):
        stored = {row["offload"]: row["store, MiB"] for row in rows("tier-flood")}
        assert stored[None] == stored["Never"] == 0
        assert stored["All"] > 0

    def test_blocks_are_scrubbed_only_where_zones_say_so(self, rows):
        scrubbed = {row["scrub"]: row["scrubbed blocks"] for row in rows("scrub")}
        assert scrubbed[""] == scrubbed["Never"] == 0
        assert scrubbed["OnTransfer"] > 0

    def test_zones_keep_a_hybrid_models_cache_in_a_flood(self, rows):
        after = {row["engine"]: row["cached after the flood"] for row in rows("hybrid")}
        before = {row["engine"]: row["cached"] for row in rows("hybrid")}
        assert after["zones"] == before["zones"] > 0
        assert after["stock"] < before["stock"]

    def test_drafts_are_accepted(self, rows):
        assert all(row["accepted"] > 0.5 for row in rows("draft"))

    def test_steps_are_predicted(self, rows):
        (row,) = (row for row in rows("steps") if row["engine"] == "zones")
        assert row["predicted steps"] > 0
        assert row["prediction error"] > 0

    def test_the_schedulers_steps_are_timed_with_no_zone_one_and_many(self, rows):
        assert [(row["engine"], row["zones"]) for row in rows("scheduler")] == [
            ("stock", 0),
            ("zones", 0),
            ("zones", 1),
            ("zones", 1000),
        ]
        assert all(0 < row["step, median, s"] <= row["step, p99, s"] for row in rows("scheduler"))

    def test_the_real_model_is_named_with_its_weights(self, run):
        (phase,) = (phase for phase in run["phases"] if phase["name"] == "smollm2")
        assert phase["results"]["model"] == {"name": "smollm2", "weights": "real"}
