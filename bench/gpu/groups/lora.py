"""LoRA adapters with random weights, for a model of any size, in the form that vLLM loads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

RANK: Final = 8


def make_adapter(folder: Path, model: Mapping[str, Any], *, seed: int) -> None:
    """Write an adapter for the query and value projections of every layer.

    Args:
        folder: a new folder for the adapter.
        model: the content of a Llama's ``config.json``.
        seed: the seed of the random weights, which are large enough to change the model's answers.
    """
    # These packages are slow to import, and only this function needs them.
    import torch
    from safetensors.torch import save_file

    hidden, heads = model["hidden_size"], model["num_attention_heads"]
    head = model.get("head_dim") or hidden // heads
    rows = {"q_proj": heads * head, "v_proj": model.get("num_key_value_heads", heads) * head}
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(model["num_hidden_layers"]):
        for projection, size in rows.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
            weights[f"{name}.lora_A.weight"] = torch.randn(RANK, hidden, generator=generator)
            weights[f"{name}.lora_B.weight"] = torch.randn(size, RANK, generator=generator)
    folder.mkdir(parents=True)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "bench",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": list(rows),
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
