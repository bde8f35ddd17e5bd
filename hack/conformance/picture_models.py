"""The models that read pictures: a scheduler asks theirs how many tokens the greatest picture is.

vLLM's own modules for them import torchvision, which the tests' environment has not (`hack.locked`).
"""

from typing import Any

_LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "torch_dtype": "float16",
    "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
        "projection_dim": 768,
    },
}
_QWEN = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128000,
    "vocab_size": 151936,
    "eos_token_id": 151645,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "tokens_per_second": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
}
_PIXELS = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}

READ_PICTURES: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, str]]] = {
    "llava-hf/llava-1.5-7b-hf": (
        _LLAVA,
        {
            "preprocessor_config.json": {
                "image_processor_type": "CLIPImageProcessor",
                "crop_size": {"height": 336, "width": 336},
                "size": {"shortest_edge": 336},
            },
            "processor_config.json": {
                "processor_class": "LlavaProcessor",
                "image_token": "<image>",
                "num_additional_image_tokens": 1,
                "patch_size": 14,
                "vision_feature_select_strategy": "default",
            },
        },
        {"image_token_index": "<image>"},
    ),
    "Qwen/Qwen2.5-VL-3B-Instruct": (
        _QWEN,
        {
            "preprocessor_config.json": {
                "image_processor_type": "Qwen2VLImageProcessor",
                "processor_class": "Qwen2_5_VLProcessor",
                **_PIXELS,
            },
            "video_preprocessor_config.json": {"video_processor_type": "Qwen2VLVideoProcessor", **_PIXELS},
        },
        {
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "vision_start_token_id": "<|vision_start|>",
            "vision_end_token_id": "<|vision_end|>",
        },
    ),
}
"""Of each its config, what turns pictures into numbers, and the tokens that stand for them, by the field of the config
that has their number."""
