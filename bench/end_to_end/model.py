"""The model that the engines serve: a Llama with random weights, made on the spot.

Its tokens are words. So a prompt of n tokens that the benchmark draws at random is n tokens again when an engine reads
its text: all engines get the very same work.
"""

from pathlib import Path
from typing import Any

LONGEST = 2048
"""Tokens, prompt and answer together."""

_WORDS = 4096


def make(folder: Path) -> None:
    """Write the model and its tokenizer into a folder, in the form that vLLM loads; the same weights each time."""
    # Slow to import, and not wanted in this process before its cores are set.
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = word_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LONGEST,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def word_tokenizer(size: int = _WORDS) -> Any:
    """A tokenizer whose tokens are words, ``w0`` and so on, with whitespace between them.

    Args:
        size: the number of tokens, with three special ones.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = ["<s>", "</s>", "<unk>", *(f"w{number}" for number in range(size - 3))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
