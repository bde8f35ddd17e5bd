"""Configs of the models that vLLM's tests name, where vLLM looks for what it has downloaded: no hub is asked.

The tests schedule; they need a model's shape, and no weights. The numbers are the models' own.
"""

import json
from pathlib import Path
from typing import Any

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
    "Qwen/Qwen3-0.6B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "vocab_size": 151936,
        "eos_token_id": 151645,
    },
}


def make(home: Path) -> None:
    """Write the configs into a folder that ``HF_HOME`` is to name."""
    for name, config in CONFIGS.items():
        model = home / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = model / "snapshots" / "shape"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(config))
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text(snapshot.name)
