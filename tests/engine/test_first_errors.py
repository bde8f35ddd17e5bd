"""An invalid body costs as much as its first mistake, whatever comes after it."""

import subprocess
import sys

import pytest

pytest.importorskip("vllm")

LOOK = """
import pydantic
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from tenantzone_runtime.engine.plugin import register

BODIES = [
    (ResponsesRequest, {"input": [{}] * 50}),
    (ResponsesRequest, {"input": [{"role": "user", "content": [{}] * 50}]}),
    (ChatCompletionRequest, {"messages": [{}] * 50}),
    (CompletionRequest, {"prompt": [["a"] * 50] * 50}),
    (CompletionRequest, {"prompt": "a", "vllm_xargs": {str(number): {} for number in range(50)}}),
]

def mistakes(model, body):
    try:
        model.model_validate({"model": "m", **body})
    except pydantic.ValidationError as error:
        return error.error_count()

before = [mistakes(*body) for body in BODIES]
register()
register()
after = [mistakes(*body) for body in BODIES]
one = [mistakes(*body) for body in [
    (ResponsesRequest, {"input": [{}]}),
    (ResponsesRequest, {"input": [{"role": "user", "content": [{}]}]}),
    (ChatCompletionRequest, {"messages": [{}]}),
    (CompletionRequest, {"prompt": [["a"]]}),
    (CompletionRequest, {"prompt": "a", "vllm_xargs": {"0": {}}}),
]]
assert all(many > 4 * few for many, few in zip(before, one)), (before, one)
assert after == one, (after, one)
good = ResponsesRequest.model_validate({"model": "m", "input": [{"role": "user", "content": "a"}] * 3})
assert len(good.input) == 3
print("as it should be")
"""


def test_a_list_is_looked_at_no_further_than_its_first_bad_member():
    """In its own process, because the changes to the models stay."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("as it should be\n"), done.stderr[-2000:]
