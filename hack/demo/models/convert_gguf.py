"""Converts a quantized GGUF file to a float32 model folder that vLLM's CPU engine can load.

It runs as a separate process, because the packages that read GGUF are in the cache folder and not in the environment:
``python -m hack.demo.models.convert_gguf FILE FOLDER``.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(file: Path, folder: Path) -> None:
    """Convert a GGUF file into a model folder with float32 weights and the tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # The weights are plain floats now, so remove the quantization settings, which would be saved with the model.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
