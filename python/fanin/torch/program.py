"""The calls of one collective of PyTorch, before they are made.

Reductions, broadcasts, reduce-scatters and all-gathers are calls of the communicator; what PyTorch asks for beyond that (lists of tensors,
shares of different lengths, coalesced forms) is put together from them. All ranks put together the same calls: nothing here depends on
where a rank has its tensors or how they lie in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fanin._native import CustomOperator as NativeOperator
from fanin.operators import CustomOperator
from fanin.torch.elements import Elements, copied
from fanin.torch.memory import After, apart, check_output, lent_in_place, lent_input, lent_output, write_back

#: Kind, type, operator, elements, input and output each as address and bytes, root.
Step = tuple[str, str, str | NativeOperator, int, int, int, int, int, int]


class Program:
    """Calls in order, the memory that they use, and what is done with their results."""

    __slots__ = ("after", "keep", "rank", "size", "steps")

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.steps: list[Step] = []
        self.keep: list[Tensor] = []
        self.after: list[After] = []

    def _in_place(self, kind: str, elements: Elements, memory: Tensor, root: int = 0) -> None:
        address, length = memory.data_ptr(), memory.numel()
        dtype, per_element, op = elements
        count = length * memory.itemsize
        self.steps.append((kind, dtype, op, length * per_element, address, count, address, count, root))
        self.keep.append(memory)

    def _apart(self, kind: str, elements: Elements, given: Tensor, got: Tensor, share: int) -> None:
        dtype, per_element, op = elements
        size = given.itemsize
        given_bytes, got_bytes = given.numel() * size, got.numel() * size
        self.steps.append((kind, dtype, op, share * per_element, given.data_ptr(), given_bytes, got.data_ptr(), got_bytes, 0))
        self.keep += (given, got)

    def allreduce(self, tensor: Tensor, elements: Elements, given: Tensor | None = None) -> None:
        """Every rank gets the reduction, in place; ``given`` is what is reduced where that is not the tensor itself."""
        self._in_place("allreduce", elements, self._lent(tensor, given))

    def allreduce_custom(self, tensor: Tensor, op: CustomOperator) -> None:
        """Every rank gets the reduction by an operator of one's own, in place."""
        memory = lent_in_place(tensor, self.after)
        address, size = memory.data_ptr(), memory.nbytes
        self.steps.append(("allreduce", "u8", op.native, size // op.native.element_bytes, address, size, address, size, 0))
        self.keep.append(memory)

    def reduce(self, tensor: Tensor, elements: Elements, root: int, given: Tensor | None = None) -> None:
        """Rank ``root`` gets the reduction in place; the others' tensors stay as they are. ``given`` as for :meth:`allreduce`."""
        memory = self._lent(tensor, given) if self.rank == root else lent_input(tensor if given is None else given)
        self._in_place("reduce", elements, memory, root)

    def _lent(self, tensor: Tensor, given: Tensor | None) -> Tensor:
        if given is None:
            return lent_in_place(tensor, self.after)
        check_output(tensor)
        copy = lent_input(given)
        self.after.append(write_back(tensor, copy))
        return copy

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Every rank gets rank ``root``'s tensor."""
        memory = lent_input(tensor) if self.rank == root else lent_output(tensor, self.after)
        self._in_place("broadcast", copied(tensor.dtype), memory, root)

    def barrier(self) -> None:
        """All ranks wait for each other."""
        self.steps.append(("barrier", "u8", "max", 0, 0, 0, 0, 0, 0))

    def all_gather_single(self, output: Tensor, given: Tensor) -> None:
        """Every rank gets all inputs, one behind the other; a rank's input may be its part of the output."""
        share = given.numel()
        if output.numel() != share * self.size or output.dtype != given.dtype:
            raise ValueError(
                f"all_gather: the output has {output.numel()} elements of {output.dtype},"
                f" expected {share * self.size} of {given.dtype}: {share} of each of {self.size} ranks"
            )
        room = lent_output(output, self.after)
        memory = lent_input(given)
        self._apart("all_gather", copied(given.dtype), apart(memory, room, self._part(room, share)), room, share)

    def all_gather(self, outputs: Sequence[Tensor], given: Tensor) -> None:
        """Every rank gets all inputs, each in a tensor of its own; they may be of different lengths."""
        if len(outputs) != self.size:
            raise ValueError(f"all_gather: {len(outputs)} outputs, expected one for each of {self.size} ranks")
        if any(output.dtype != given.dtype for output in outputs) or outputs[self.rank].numel() != given.numel():
            raise ValueError(f"all_gather: outputs {[tuple(output.shape) for output in outputs]} do not fit the input {tuple(given.shape)}")
        share = given.numel()
        if any(output.numel() != share for output in outputs):
            check_output(outputs[self.rank])
            outputs[self.rank].copy_(given.reshape(outputs[self.rank].shape))
            for root, output in enumerate(outputs):
                self.broadcast(output, root)
            return
        for output in outputs:
            check_output(output)
        room = torch.empty(share * self.size, dtype=given.dtype, pin_memory=given.device.type != "cpu")
        self._apart("all_gather", copied(given.dtype), lent_input(given), room, share)
        self.after += [_copy(output, room, rank * share) for rank, output in enumerate(outputs)]

    def reduce_scatter_single(self, output: Tensor, given: Tensor, elements: Elements) -> None:
        """A rank gets its part of the reduction; the output may be the rank's part of the input."""
        share = output.numel()
        if given.numel() != share * self.size or output.dtype != given.dtype:
            raise ValueError(
                f"reduce_scatter: the input has {given.numel()} elements of {given.dtype},"
                f" expected {share * self.size} of {output.dtype}: {share} for each of {self.size} ranks"
            )
        memory = lent_input(given)
        room = lent_output(output, self.after)
        self._apart("reduce_scatter", elements, self._unless_own(memory, room, share), room, share)

    def reduce_scatter(self, output: Tensor, given: Sequence[Tensor], elements: Elements) -> None:
        """A rank gets its part of the reduction, where each part is a tensor of its own; they may be of different lengths."""
        if len(given) != self.size:
            raise ValueError(f"reduce_scatter: {len(given)} inputs, expected one for each of {self.size} ranks")
        if any(part.dtype != output.dtype for part in given) or given[self.rank].numel() != output.numel():
            raise ValueError(f"reduce_scatter: inputs {[tuple(part.shape) for part in given]} do not fit the output {tuple(output.shape)}")
        share = output.numel()
        if any(part.numel() != share for part in given):
            check_output(output)
            for root, part in enumerate(given):
                copy = part.clone()
                self.reduce(copy, elements, root)
                if root == self.rank:
                    self.after.append(_copy_all(output, copy))
            return
        flat = torch.cat([part.reshape(-1) for part in given])
        self._apart("reduce_scatter", elements, lent_input(flat), lent_output(output, self.after), share)

    def _part(self, whole: Tensor, share: int) -> Tensor:
        return whole.view(-1).narrow(0, self.rank * share, share)

    def _unless_own(self, whole: Tensor, part: Tensor, share: int) -> Tensor:
        """``whole``, or a copy of it where ``part`` overlaps it in another way than as this rank's part."""
        if part.data_ptr() == self._part(whole, share).data_ptr():
            return whole
        return apart(whole, part, None)


def _copy(output: Tensor, room: Tensor, start: int) -> After:
    part = room.narrow(0, start, output.numel())
    return lambda: output.copy_(part.view(output.shape), non_blocking=True)


def _copy_all(output: Tensor, copy: Tensor) -> After:
    return lambda: output.copy_(copy.view(output.shape), non_blocking=True)
