"""Makes the model that the engines serve, a Llama with random weights.

Its tokens are words, so the text of n random tokens from the benchmark is tokenized into n tokens again. This gives all
engines exactly the same work.
"""

from pathlib import Path
from typing import Any

LONGEST = 2048
"""Maximum length of a prompt and its answer together, in tokens."""

_WORDS = 4096


def make(folder: Path) -> None:
    """Write the model and its tokenizer into a folder, in the form that vLLM loads; the same weights each time."""
    # These packages are slow to import, and must not be imported before the process's cores are set.
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
    """Returns a tokenizer whose tokens are the words ``w0``, ``w1`` and so on, separated by whitespace.

    Args:
        size: the number of tokens, including three special tokens.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = ["<s>", "</s>", "<unk>", *(f"w{number}" for number in range(size - 3))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
