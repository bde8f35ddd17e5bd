"""Makes tiny models of each kind with random weights, in the format that vLLM loads.

Each model has only the layers that define its kind, in the same order as in real models. Tokens are words, so a prompt
of n words has n tokens. The seed is fixed, so the weights are the same on each machine.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.end_to_end.model import LONGEST, word_tokenizer

IMAGE_PIXELS: Final = 112
"""Side length of pictures in pixels, which gives 64 tokens with patches of 14 pixels."""
_PATCH_PIXELS: Final = 14
WINDOW: Final = 128
"""Size of a sliding window and of an attention chunk, in tokens."""
_SPREAD: Final = 0.3
"""Standard deviation of the weights; with the usual 0.02, such small models repeat the same few tokens."""
_CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %} {{ part.text }}{% endif %}{% endfor %}{% endfor %}"
)
"""Chat template. It iterates over message parts, from which vLLM detects that it needs messages as lists of parts."""

_SIZES: Final[Mapping[str, Any]] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": LONGEST,
    "initializer_range": _SPREAD,
}


def full_attention(folder: Path, **sizes: Any) -> None:
    """Llama: each layer attends to all tokens. `sizes` replace fields of its config."""
    _save("Llama", folder, {**_SIZES, **sizes})


def sliding_window(folder: Path) -> None:
    """Mistral: each layer attends to the last tokens only."""
    _save("Mistral", folder, {**_SIZES, "sliding_window": WINDOW})


def gemma3(folder: Path, **sizes: Any) -> None:
    """Gemma 3: of six layers, five attend to the last tokens only. `sizes` replace fields of its config."""
    layers = ["sliding_attention"] * 5 + ["full_attention"]
    config = {**_SIZES, "query_pre_attn_scalar": 32, **sizes, "num_hidden_layers": len(layers)}
    _save("Gemma3", folder, {**config, "layer_types": layers, "sliding_window": WINDOW}, "TextConfig")


def gpt_oss(folder: Path) -> None:
    """GPT-OSS: every other layer attends to the last tokens only; experts, and a sink for attention."""
    layers = ["sliding_attention", "full_attention"]
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    _save("GptOss", folder, {**_SIZES, **experts, "layer_types": layers, "sliding_window": WINDOW})


def qwen3_moe(folder: Path) -> None:
    """Qwen3 MoE: each layer attends to all tokens; experts."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    _save("Qwen3Moe", folder, {**_SIZES, **experts})


def llama4(folder: Path) -> None:
    """Llama 4: of four layers, three attend to the tokens of their own chunk only."""
    layers = ["chunked_attention"] * 3 + ["full_attention"]
    sizes = {**_SIZES, "num_hidden_layers": len(layers), "intermediate_size_mlp": 256, "attention_chunk_size": WINDOW}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 1}
    _save("Llama4", folder, {**sizes, **experts, "layer_types": layers}, "TextConfig")


def latent_attention(folder: Path) -> None:
    """DeepSeek V3: keys and values of all heads are kept as one latent vector."""
    latent = {
        "kv_lora_rank": 512, "q_lora_rank": 64, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    }  # fmt: skip
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    sizes = {**_SIZES, "num_key_value_heads": 4, "moe_intermediate_size": 128, "first_k_dense_replace": 2}
    del sizes["head_dim"]
    _save("DeepseekV3", folder, {**sizes, **latent, **experts})


def granite4(folder: Path) -> None:
    """Granite 4: of four layers, three are of Mamba 2."""
    layers = ["mamba"] * 3 + ["attention"]
    sizes = {**_SIZES, "num_hidden_layers": len(layers), "shared_intermediate_size": 256}
    del sizes["head_dim"]
    mamba = {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_chunk_size": 32}
    _save("GraniteMoeHybrid", folder, {**sizes, **mamba, "num_local_experts": 0, "layer_types": layers})


def jamba(folder: Path) -> None:
    """Jamba: of four layers, three are of Mamba 1."""
    sizes = {**_SIZES, "num_hidden_layers": 4}
    del sizes["head_dim"]
    order = {"attn_layer_period": 4, "attn_layer_offset": 3}
    experts = {"num_experts": 1, "num_experts_per_tok": 1}
    _save("Jamba", folder, {**sizes, **order, **experts, "use_mamba_kernels": False})


def qwen3_next(folder: Path) -> None:
    """Qwen3-Next: of four layers, three are of gated delta nets, a linear attention."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 128}
    # vLLM has CPU kernels for heads of this size only.
    linear = {
        "linear_num_key_heads": 1, "linear_num_value_heads": 2,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    }  # fmt: skip
    experts = {
        "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    }  # fmt: skip
    _save("Qwen3Next", folder, {**_SIZES, **heads, **linear, **experts, "num_hidden_layers": 4})


def mamba2(folder: Path) -> None:
    """Mamba 2 in each layer."""
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "initializer_range": _SPREAD}
    heads = {"num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 1, "chunk_size": 32}
    _save("Mamba2", folder, {**sizes, **heads})


def llava(folder: Path, *, vision_layers: int = 2, vision_width: int = 128) -> None:
    """LLaVA: a vision transformer makes tokens of a picture, which a Llama reads."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    tokenizer = word_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    vision = CLIPVisionConfig(
        hidden_size=vision_width,
        intermediate_size=4 * vision_width,
        num_hidden_layers=vision_layers,
        num_attention_heads=vision_width // 32,
        image_size=IMAGE_PIXELS,
        patch_size=_PATCH_PIXELS,
        initializer_range=_SPREAD,
    )
    text = LlamaConfig(vocab_size=len(tokenizer), **_SIZES, **_ends(tokenizer))
    image = tokenizer.convert_tokens_to_ids("<image>")
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=image)
    _seed()
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    _name_as_vllm_does(folder / "model.safetensors")
    side = {"height": IMAGE_PIXELS, "width": IMAGE_PIXELS}
    pictures = LlavaImageProcessorPil(size={"shortest_edge": IMAGE_PIXELS}, crop_size=side)
    LlavaProcessor(
        pictures,
        tokenizer,
        patch_size=_PATCH_PIXELS,
        vision_feature_select_strategy="default",
        chat_template=_CHAT_TEMPLATE,
        num_additional_image_tokens=1,
    ).save_pretrained(folder)


def _name_as_vllm_does(weights: Path) -> None:
    """Give the vision tower's weights the names of LLaVA's own checkpoints, which vLLM reads."""
    from safetensors.torch import load_file, save_file

    named = {
        name.replace("vision_tower.", "vision_tower.vision_model."): each for name, each in load_file(weights).items()
    }
    save_file(named, weights, metadata={"format": "pt"})


def _save(family: str, folder: Path, sizes: Mapping[str, Any], config: str = "Config") -> None:
    import transformers

    tokenizer = word_tokenizer()
    made = getattr(transformers, family + config)(vocab_size=len(tokenizer), **sizes, **_ends(tokenizer))
    _seed()
    getattr(transformers, f"{family}ForCausalLM")(made).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _ends(tokenizer: Any) -> dict[str, int]:
    return {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}


def _seed() -> None:
    # torch is slow to import, and needed only to make a model.
    import torch

    torch.manual_seed(0)
