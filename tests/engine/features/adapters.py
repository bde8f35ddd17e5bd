"""LoRA adapters for the tiny model, each with its own random weights, in the form that vLLM loads."""

import json
from pathlib import Path

RANK = 4
HIDDEN = 64
LAYERS = 2


def make_adapter(folder: Path, *, seed: int) -> None:
    """Writes an adapter into a folder: strong enough to change the model's answers."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int):
        return torch.randn(*shape, generator=generator)

    weights = {}
    for layer in range(LAYERS):
        for part in ("q_proj", "v_proj"):
            name = f"base_model.model.model.layers.{layer}.self_attn.{part}"
            weights[f"{name}.lora_A.weight"] = random(RANK, HIDDEN)
            weights[f"{name}.lora_B.weight"] = random(HIDDEN, RANK)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "tiny",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
