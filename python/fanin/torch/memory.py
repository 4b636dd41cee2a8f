"""Tensors as stretches of memory, which is what the communicator takes.

A dense tensor on the CPU is lent as it is. Of anything else a copy is lent, and what comes back is written to the tensor when the call
has ended; for tensors on a GPU the copy is in pinned memory of the host.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fanin.errors import ArgumentError

#: Something to do after the call, before its results are looked at.
After = Callable[[], object]


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is one stretch of memory that the communicator can use as it is: what lies there are its elements."""
    # Bits of a tensor may say that its elements are the negatives or conjugates of what lies there, or that there is no memory.
    return tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor())


def check_output(tensor: Tensor) -> None:
    """Whether each element has a place of its own to be written to.

    Raises:
        ArgumentError: Some share one, as in an expanded tensor.
    """
    if tensor.layout == torch.strided and not tensor.is_contiguous() and _shares_places(tensor):
        raise ArgumentError(
            f"the tensor for a result has shape {tuple(tensor.shape)} and strides {tensor.stride()}, so that some of its elements lie at"
            " the same place: expected a place for each (clone() the tensor)"
        )
    if tensor._is_zerotensor():
        raise ArgumentError(f"the tensor for a result, of shape {tuple(tensor.shape)}, has no memory that can be written to")


def _shares_places(tensor: Tensor) -> bool:
    along = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    if tensor.numel() == 0 or not along:
        return False
    reach = 0
    for stride, size in along:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    # Steps may be interleaved without meeting: only the places themselves tell.
    places = torch.zeros(1, dtype=torch.int64)
    for stride, size in along:
        places = (places[:, None] + torch.arange(size) * stride).reshape(-1)
    return len(places.unique()) < len(places)


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
    check_output(tensor)
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
    check_output(tensor)
    copy = host_room(tensor)
    after.append(write_back(tensor, copy))
    return copy


def overlaps(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors that are plain share memory."""
    start, other_start = tensor.data_ptr(), other.data_ptr()
    return start < other_start + other.nbytes and other_start < start + tensor.nbytes


def apart(tensor: Tensor, other: Tensor, own_part: Tensor | None) -> Tensor:
    """``tensor``, or a copy of it where it overlaps ``other`` in another way than as this rank's part, ``own_part``, of it."""
    if not overlaps(tensor, other):
        return tensor
    if own_part is not None and own_part.data_ptr() == tensor.data_ptr():
        return tensor
    return tensor.clone()


def as_bytes(tensor: Tensor) -> Tensor:
    """A plain tensor of any type as bytes: row by row, so that shares of rows stay what they are."""
    rows = tensor.shape[0] if tensor.dim() else 1
    columns = tensor.numel() // rows if rows else 1
    # A dimension of one element may have any stride.
    return tensor.detach().as_strided((rows, columns), (columns, 1)).view(torch.uint8)
