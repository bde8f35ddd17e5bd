"""The kinds of models and features to try, which differ in their effect on the scheduler."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.kinds import models


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of model or a feature, with the settings of its engines."""

    name: str
    like: str
    """Well-known models of this kind, or the setting that enables the feature."""
    make: Callable[[Path], None]
    """Function that writes the model into a folder."""
    flags: tuple[str, ...] = ()
    """vLLM flags of both engines."""
    make_draft: Callable[[Path], None] | None = None
    """Function that writes the draft model; its folder becomes the ``model`` of `speculation`."""
    speculation: dict[str, object] | None = None
    """Value of vLLM's ``--speculative-config``."""
    pictures: bool = False
    """Whether each question has a different picture."""
    blocks: int = 256
    """Number of blocks in the pool; each token needs a part of a block in each group of layers."""
    flood_blocks: int = 3 * 256
    """Blocks that burst's prompts fill in each group of layers, by default three times a pool of one group."""

    def make_in(self, folder: Path) -> Path:
        """Make the kind's models in a folder; returns the folder of the served model."""
        self.make(folder / "model")
        if self.make_draft is not None:
            self.make_draft(folder / "draft")
        return folder / "model"

    def flags_in(self, folder: Path) -> tuple[str, ...]:
        """Returns the vLLM flags for models in this folder."""
        flags = ("--num-gpu-blocks-override", str(self.blocks), *self.flags)
        if self.speculation is None:
            return flags
        draft = {"model": str(folder / "draft")} if self.make_draft is not None else {}
        return (*flags, "--speculative-config", json.dumps(self.speculation | draft))


# The output of a model with random weights is unpredictable, so these drafts are rejected.
_BY_NGRAMS: Final[dict[str, object]] = {
    "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1,
}  # fmt: skip
# The model is its own draft model, so these drafts are accepted.
_BY_A_MODEL: Final[dict[str, object]] = {"method": "draft_model", "num_speculative_tokens": 4}
_BF16: Final = ("--dtype", "bfloat16")
"""Flags for kinds for which vLLM has only bfloat16 kernels on CPUs."""
_STATES: Final = ("--enable-prefix-caching", "--mamba-cache-mode", "align")
"""Flags without which vLLM does not cache the states of Mamba layers."""

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("full", "Llama, Qwen3", models.full_attention),
        Kind("n-gram", "drafts by n-grams", models.full_attention, speculation=_BY_NGRAMS),
        Kind(
            "draft-model", "drafts by a model", models.full_attention,
            make_draft=models.full_attention, speculation=_BY_A_MODEL,
        ),
        Kind("latent", "DeepSeek V3 (MLA)", models.latent_attention, _BF16),
        # Blocks outside of a prompt's window are reused first, so each prompt takes little of the pool.
        Kind("window", "Mistral 7B: all layers", models.sliding_window, flood_blocks=12 * 256),
        Kind("pictures", "LLaVA", models.llava, pictures=True),
        Kind("gemma3", "Gemma 3: window and full", models.gemma3, blocks=768),
        Kind("gpt-oss", "GPT-OSS: window and full", models.gpt_oss, _BF16, blocks=512),
        Kind("llama4", "Llama 4: chunks and full", models.llama4, blocks=768),
        Kind("granite4", "Granite 4: Mamba 2 and full", models.granite4, _STATES, blocks=768),
        Kind("jamba", "Jamba: Mamba 1 and full", models.jamba, _STATES, blocks=768),
        Kind("qwen3-next", "Qwen3-Next: linear and full", models.qwen3_next, (*_STATES, *_BF16), blocks=768),
        Kind("mamba2", "Mamba 2 alone", models.mamba2, _STATES),
    )
}  # fmt: skip
