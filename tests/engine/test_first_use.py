"""Sampling kernels are compiled before the first request, and not by it."""

from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.utils import counters
from vllm.v1.executor.abstract import Executor
from vllm.v1.sample.sampler import Sampler

from tenantzone_runtime.engine.patches import first_use

VOCABULARY = 128


class Worker:
    """A worker of vLLM with its own sampler."""

    def __init__(self):
        self.model_runner = SimpleNamespace(
            sampler=Sampler(),
            model_config=SimpleNamespace(get_vocab_size=lambda: VOCABULARY),
            device=torch.device("cpu"),
            dtype=torch.float32,
        )


@pytest.fixture
def last_stage(monkeypatch):
    """A pipeline of one stage."""
    monkeypatch.setattr("vllm.distributed.parallel_state.get_pp_group", lambda: SimpleNamespace(is_last_rank=True))


def compiled():
    return counters["stats"]["unique_graphs"]


@pytest.mark.compiled
def test_no_kind_of_sampling_compiles_anything_after_the_warm_up(last_stage):
    torch._dynamo.reset()
    counters.clear()
    worker = Worker()
    first_use.warm_up_sampling(worker)
    assert compiled() > 0, "log probabilities compile something"
    before = compiled()
    sampler = worker.model_runner.sampler
    with torch.inference_mode():
        for rows in (1, 2, 7, 64):
            for metadata in first_use._kinds_of_sampling(rows, VOCABULARY, torch.device("cpu")):
                sampler(logits=torch.randn(rows, VOCABULARY), sampling_metadata=metadata)
            logprobs = sampler.compute_logprobs(torch.randn(rows, VOCABULARY))
            sampler.gather_logprobs(logprobs, 3, torch.zeros(rows, dtype=torch.int64))
    assert compiled() == before


def test_a_warm_up_that_fails_leaves_the_engine_to_start(last_stage, caplog):
    worker = Worker()
    worker.model_runner.model_config = None
    first_use.warm_up_sampling(worker)
    assert "could not be warmed up" in caplog.text


@pytest.mark.parametrize("sampler", [None, object()])
def test_a_worker_without_vllms_sampler_is_left_alone(sampler, caplog):
    worker = Worker()
    worker.model_runner.sampler = sampler
    first_use.warm_up_sampling(worker)
    assert not caplog.records


def test_executors_warm_up_sampling_once_the_model_is_warm(monkeypatch):
    done = []

    class Stock(Executor):
        def _init_executor(self):
            pass

        def collective_rpc(self, method, *args, **kwargs):
            done.append(method)
            return []

        check_health = None

    monkeypatch.setattr(Executor, "compile_or_warm_up_model", Executor.compile_or_warm_up_model)
    first_use.warm_up_sampling_at_start()
    first_use.warm_up_sampling_at_start()
    Stock.compile_or_warm_up_model(object.__new__(Stock))
    assert done == ["compile_or_warm_up_model", first_use.warm_up_sampling]
