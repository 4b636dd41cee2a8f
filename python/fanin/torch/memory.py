"""Tensors as stretches of memory, which is what the communicator takes.

A dense tensor on the CPU is lent as it is. Of anything else a copy is lent, and what comes back is written to the tensor when the call
has ended; for tensors on a GPU the copy is in pinned memory of the host.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Something to do after the call, before its results are looked at.
After = Callable[[], object]


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is one stretch of memory that the communicator can use as it is."""
    return tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_complex() and tensor.is_conj())


def host_copy(tensor: Tensor) -> Tensor:
    """A copy of a tensor in memory that the communicator can use, complete when this returns."""
    if tensor.device.type == "cpu":
        copy = torch.empty(tensor.shape, dtype=tensor.dtype)
        return copy.copy_(tensor)
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.copy_(tensor, non_blocking=True)
    # What has been queued before this call must have been computed; the interpreter's lock is free meanwhile.
    torch.cuda.current_stream(tensor.device).synchronize()
    return copy


def host_room(tensor: Tensor) -> Tensor:
    """Memory as large as a tensor, without its contents."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type != "cpu")


def write_back(tensor: Tensor, copy: Tensor) -> After:
    """Writes what has come back in ``copy`` to the tensor; on a GPU in the order of the stream that is current then."""
    return lambda: tensor.copy_(copy, non_blocking=True)


def lent_in_place(tensor: Tensor, after: list[After]) -> Tensor:
    """Memory that is read and written."""
    if is_plain(tensor):
        return tensor
    copy = host_copy(tensor)
    after.append(write_back(tensor, copy))
    return copy


def lent_input(tensor: Tensor) -> Tensor:
    """Memory that is only read."""
    return tensor if is_plain(tensor) else host_copy(tensor)


def lent_output(tensor: Tensor, after: list[After]) -> Tensor:
    """Memory that is only written."""
    if is_plain(tensor):
        return tensor
    copy = host_room(tensor)
    after.append(write_back(tensor, copy))
    return copy


def apart(tensor: Tensor, other: Tensor, own_part: Tensor | None) -> Tensor:
    """``tensor``, or a copy of it where it overlaps ``other`` in another way than as this rank's part, ``own_part``, of it."""
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    if start >= other.data_ptr() + other.nbytes or other.data_ptr() >= end:
        return tensor
    if own_part is not None and own_part.data_ptr() == start:
        return tensor
    return tensor.clone()
