"""The models that vLLM's tests name, in the place where vLLM looks for downloads: no hub is accessed.

Most tests only schedule: they need a model's shape, and no weights. The numbers are the models' own. Some tests run a
model, and any will do: a tiny one with random weights gets the name.
"""

import json
from pathlib import Path
from typing import Any

from hack.conformance.picture_models import READ_PICTURES
from hack.demo.models import tiny_model

_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "torch_dtype": "float16",
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "facebook/opt-125m": _OPT
    | {
        "hidden_size": 768,
        "word_embed_proj_dim": 768,
        "ffn_dim": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
    "facebook/opt-350m": _OPT
    | {
        "hidden_size": 1024,
        "word_embed_proj_dim": 512,
        "ffn_dim": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "do_layer_norm_before": False,
    },
    "Qwen/Qwen1.5-7B": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "torch_dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "vocab_size": 151936,
        "eos_token_id": 151643,
    },
}

RUN = {
    # As many heads and positions as it has itself: tests that run nothing divide them among ranks.
    "Qwen/Qwen3-0.6B": {
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 32,
        "max_position_embeddings": 40960,
    },
    "hmellor/tiny-random-LlamaForCausalLM": {},
}
"""The models that are run, with the values that replace a tiny model's sizes."""


def make(home: Path) -> None:
    """Write them into a folder that ``HF_HOME`` is to name."""
    for name, config in CONFIGS.items():
        (_snapshot(home, name) / "config.json").write_text(json.dumps(config))
    for name, sizes in RUN.items():
        tiny_model.make(_snapshot(home, name), **sizes)
    for name in READ_PICTURES:
        _make_reader(_snapshot(home, name), *READ_PICTURES[name])


def _make_reader(
    folder: Path, config: dict[str, Any], processors: dict[str, dict[str, Any]], tokens: dict[str, str]
) -> None:
    tokenizer = tiny_model.byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens.values())})
    tokenizer.save_pretrained(folder)
    numbers = {field: tokenizer.convert_tokens_to_ids(token) for field, token in tokens.items()}
    for file, content in {"config.json": config | numbers, **processors}.items():
        (folder / file).write_text(json.dumps(content))


def _snapshot(home: Path, name: str) -> Path:
    """Returns the folder for a model's files."""
    model = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / "made"
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(snapshot.name)
    return snapshot
