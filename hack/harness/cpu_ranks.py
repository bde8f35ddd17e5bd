"""Communication of data-parallel ranks on CPUs, where vLLM's own communicator lacks two of its calls.

It has whole tensors gathered and reduced, of one size on all ranks, and these are made of that: so real engines with
several ranks run where there is no GPU. For tests only.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

_NAME = "cpu_ranks"


def write_plugin(folder: Path) -> None:
    """Write what makes a vLLM that has this folder, and the repository, in its ``PYTHONPATH`` call `register`."""
    about = folder / f"{_NAME}-0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{_NAME} = {__name__}:{register.__name__}\n")


def register() -> None:
    """Give vLLM's communicator the calls that it lacks; vLLM calls this in each of its processes."""
    # Imported here: it imports vLLM, which is still being imported where plugins are called first.
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    CpuCommunicator.all_gatherv = _all_gatherv
    CpuCommunicator.reduce_scatterv = _reduce_scatterv


def _all_gatherv(
    self: Any, input_: torch.Tensor | list[torch.Tensor], dim: int = 0, sizes: Sequence[int] | None = None
) -> torch.Tensor | list[torch.Tensor]:
    """Returns the rows of all ranks, one rank after the other; `sizes` has each rank's number of rows."""
    assert dim == 0
    if isinstance(input_, list):
        return [self.all_gatherv(each, dim, sizes) for each in input_]
    rows = sizes or [len(input_)] * self.world_size
    padded = input_.new_zeros((max(rows), *input_.shape[1:]))
    padded[: len(input_)] = input_
    parts = [torch.empty_like(padded) for _ in rows]
    distributed.all_gather(parts, padded, group=self.device_group)
    return torch.cat([part[:count] for part, count in zip(parts, rows, strict=True)])


def _reduce_scatterv(
    self: Any, input_: torch.Tensor, dim: int = -1, sizes: Sequence[int] | None = None
) -> torch.Tensor:
    """Returns this rank's rows of the sum over all ranks."""
    assert dim == 0
    whole = input_.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(whole, group=self.device_group)
    rows = sizes or [len(input_) // self.world_size] * self.world_size
    first = sum(rows[: self.rank_in_group])
    return whole[first : first + rows[self.rank_in_group]]
