"""Tensors that are not what lies in their memory: negated and conjugated views, strides, expanded and overlapping tensors; as inputs and
outputs, alone and in lists, of every collective, waited for at once and in the background, against plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import ranks
import torch
import torch.distributed as dist
from torch import Tensor

WORLD = 3
LENGTH = 4


def plain(tensor: Tensor) -> Tensor:
    return tensor


def negated(tensor: Tensor) -> Tensor:
    return torch._neg_view(-tensor)


def conjugated(tensor: Tensor) -> Tensor:
    return torch.conj(torch.conj(tensor).resolve_conj())


def imaginary(tensor: Tensor) -> Tensor:
    """The imaginary part of a conjugated view: negated, and with strides."""
    return torch.conj(torch.complex(torch.zeros_like(tensor), -tensor)).imag


def strided(tensor: Tensor) -> Tensor:
    room = torch.zeros(2 * tensor.numel(), dtype=tensor.dtype)
    return room[::2].copy_(tensor)


def transposed(tensor: Tensor) -> Tensor:
    room = torch.zeros(3, tensor.numel(), dtype=tensor.dtype)
    return room.t()[:, 1].copy_(tensor)


def negated_and_strided(tensor: Tensor) -> Tensor:
    return torch._neg_view(strided(-tensor))


REAL = {
    "plain": plain,
    "negated": negated,
    "imaginary": imaginary,
    "strided": strided,
    "transposed": transposed,
    "both": negated_and_strided,
}
COMPLEX = {"conjugated": conjugated, "negated": negated, "strided": strided}

View = Callable[[Tensor], Tensor]


def of(rank: int, dtype: torch.dtype, length: int = LENGTH, salt: int = 0) -> Tensor:
    """What a rank has."""
    numbers = torch.arange(length) + 10 * rank + 100 * salt + 1
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double() + 0.5).to(dtype)
    return numbers.to(dtype)


def total(dtype: torch.dtype, length: int = LENGTH) -> Tensor:
    """The sum of what all ranks have."""
    return sum((of(rank, dtype, length) for rank in range(WORLD)), torch.zeros(length, dtype=dtype))


def same(got: Tensor, want: Tensor, what: str) -> None:
    assert torch.equal(got.resolve_conj().resolve_neg(), want), f"{what}: {got.tolist()} in place of {want.tolist()}"


class Calls:
    """Makes calls, at once or in the background."""

    def __init__(self, rank: int, view: View, dtype: torch.dtype, async_op: bool) -> None:
        self.rank = rank
        self.view = view
        self.dtype = dtype
        self.async_op = async_op
        self.refused = False

    def mine(self, length: int = LENGTH) -> Tensor:
        return self.view(of(self.rank, self.dtype, length))

    def room(self, length: int = LENGTH) -> Tensor:
        return self.view(torch.zeros(length, dtype=self.dtype))

    def rooms(self) -> list[Tensor]:
        return [self.room() for _ in range(WORLD)]

    def run(self, collective: Callable[..., object], *arguments: object, **named: object) -> None:
        self.refused = False
        try:
            work = collective(*arguments, **named, async_op=self.async_op)
        except RuntimeError as error:
            # PyTorch itself does not look at the real numbers of a conjugated view, in some of its functions.
            if "view_as_real doesn't work on unresolved conjugated tensors" not in str(error):
                raise
            self.refused = True
            return
        if self.async_op:
            assert work is not None
            work.wait()  # type: ignore[attr-defined]

    def reductions(self, what: str) -> None:
        share = LENGTH // 2
        mine = self.mine()
        self.run(dist.all_reduce, mine)
        self.same(mine, total(self.dtype), f"all_reduce {what}")
        mine = self.mine()
        self.run(dist.reduce, mine, dst=1)
        self.same(mine, total(self.dtype) if self.rank == 1 else of(self.rank, self.dtype), f"reduce {what}")
        part = self.room(share)
        sums = total(self.dtype, share * WORLD)[self.rank * share : (self.rank + 1) * share]
        self.run(dist.reduce_scatter_tensor, part, self.mine(share * WORLD))
        self.same(part, sums, f"reduce_scatter_tensor {what}")
        part = self.room(share)
        self.run(dist.reduce_scatter, part, [self.view(piece) for piece in of(self.rank, self.dtype, share * WORLD).split(share)])
        self.same(part, sums, f"reduce_scatter {what}")
        lengths = [1, 3, 2]
        part = self.room(lengths[self.rank])
        self.run(dist.reduce_scatter, part, [self.view(piece) for piece in of(self.rank, self.dtype, 6).split(lengths)])
        self.same(part, total(self.dtype, 6).split(lengths)[self.rank], f"uneven reduce_scatter {what}")
        self.refused = False
        both = [self.mine(), self.mine(2)]
        dist.group.WORLD.allreduce_coalesced(both, dist.AllreduceCoalescedOptions()).wait()  # type: ignore[union-attr]
        self.same(both[0], total(self.dtype), f"allreduce_coalesced {what}")
        self.same(both[1], total(self.dtype, 2), f"allreduce_coalesced {what}")

    def copies(self, what: str) -> None:
        mine = self.mine()
        self.run(dist.broadcast, mine, src=2)
        self.same(mine, of(2, self.dtype), f"broadcast {what}")
        whole = self.room(LENGTH * WORLD)
        self.run(dist.all_gather_into_tensor, whole, self.mine())
        self.same(whole, torch.cat([of(rank, self.dtype) for rank in range(WORLD)]), f"all_gather_into_tensor {what}")
        rooms = self.rooms()
        self.run(dist.all_gather, rooms, self.mine())
        self.check(rooms, f"all_gather {what}")
        uneven = [self.room(rank + 1) for rank in range(WORLD)]
        self.run(dist.all_gather, uneven, self.mine(self.rank + 1))
        for rank, room in enumerate(uneven):
            self.same(room, of(rank, self.dtype, rank + 1), f"uneven all_gather {what}")

    def forwarded(self, what: str) -> None:
        rooms = self.rooms()
        self.run(dist.gather, self.mine(), rooms if self.rank == 1 else None, dst=1)
        if self.rank == 1:
            self.check(rooms, f"gather {what}")
        room = self.room()
        parts = [self.view(of(rank, self.dtype)) for rank in range(WORLD)] if self.rank == 2 else None
        self.run(dist.scatter, room, parts, src=2)
        self.same(room, of(self.rank, self.dtype), f"scatter {what}")
        rooms = self.rooms()
        self.run(dist.all_to_all, rooms, [self.view(of(self.rank, self.dtype, salt=to)) for to in range(WORLD)])
        for rank, got in enumerate(rooms):
            self.same(got, of(rank, self.dtype, salt=self.rank), f"all_to_all {what}")
        whole = self.room(WORLD)
        self.run(dist.all_to_all_single, whole, self.mine(WORLD))
        self.same(whole, torch.stack([of(rank, self.dtype, WORLD)[self.rank] for rank in range(WORLD)]), f"all_to_all_single {what}")
        self.messages(what)

    def messages(self, what: str) -> None:
        self.refused = False
        if self.mine().is_conj():
            # As above.
            return
        ahead, behind = (self.rank + 1) % WORLD, (self.rank - 1) % WORLD
        room = self.room()
        if self.async_op:
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, self.mine(), ahead), dist.P2POp(dist.irecv, room, behind)])
            for work in works:
                work.wait()
        elif self.rank == 0:
            dist.send(self.mine(), ahead)
            dist.recv(room, behind)
        else:
            dist.recv(room, behind)
            dist.send(self.mine(), ahead)
        self.same(room, of(behind, self.dtype), f"send and recv {what}")

    def same(self, got: Tensor, want: Tensor, what: str) -> None:
        if not self.refused:
            same(got, want, what)

    def check(self, rooms: Sequence[Tensor], what: str) -> None:
        for rank, room in enumerate(rooms):
            self.same(room, of(rank, self.dtype), what)


def everything(rank: int, views: dict[str, View], dtypes: Sequence[torch.dtype]) -> int:
    """All collectives with all views."""
    count = 0
    for dtype in dtypes:
        for name, view in views.items():
            for async_op in (False, True):
                calls = Calls(rank, view, dtype, async_op)
                what = f"of a {name} tensor of {dtype}{', in the background' if async_op else ''}"
                calls.reductions(what)
                calls.copies(what)
                calls.forwarded(what)
                count += 1
    return count


FLOATS = [torch.float32, torch.float64]
NARROW = [torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8]


@pytest.mark.parametrize("transport", ["shm", "udp"])
def test_views_of_floats(transport: str) -> None:
    """Negated, imaginary parts of conjugated ones, strided."""
    assert ranks.run(WORLD, everything, REAL, FLOATS, environ={"FANIN_TRANSPORT": transport}) == [24] * WORLD


def test_views_of_other_numbers() -> None:
    """Of every type, also of those that gloo does not know."""
    views = {name: view for name, view in REAL.items() if name not in ("imaginary", "plain")}
    assert ranks.run(WORLD, everything, views, NARROW) == [48] * WORLD


def test_views_of_complex_numbers() -> None:
    """Conjugated and negated."""
    assert ranks.run(WORLD, everything, COMPLEX, [torch.complex64, torch.complex128]) == [12] * WORLD


def shared_places(rank: int) -> None:
    """Tensors whose elements share places: inputs are what they seem to be; results are refused, and the group is as before."""
    expanded = torch.full((1,), rank + 1.0).expand(4)
    windows = torch.arange(6.0).as_strided((2, 3), (1, 1))
    for shared in (expanded, windows):
        for call in (
            lambda shared=shared: dist.all_reduce(shared),
            lambda shared=shared: dist.all_gather([shared] * WORLD, torch.ones(shared.shape)),
            lambda shared=shared: dist.scatter(shared, None if rank else [torch.ones(shared.shape)] * WORLD),
            lambda shared=shared: dist.reduce_scatter_tensor(shared, torch.ones(shared.numel() * WORLD)),
            lambda shared=shared: dist.all_to_all_single(shared, torch.ones(shared.shape)),
        ):
            with pytest.raises(ValueError, match="lie at the same place: expected a place for each"):
                call()
    whole = torch.zeros(4 * WORLD)
    dist.all_gather_into_tensor(whole, expanded)
    assert whole.tolist() == [each + 1.0 for each in range(WORLD) for _ in range(4)]
    room = torch.zeros(2, 3)
    dist.scatter(room, [windows + each for each in range(WORLD)] if rank == 0 else None)
    assert torch.equal(room, torch.arange(6.0).as_strided((2, 3), (1, 1)) + rank)
    # Steps that are interleaved, and meet nowhere.
    interleaved = torch.zeros(8).as_strided((2, 3), (3, 2))
    interleaved.fill_(1.0)
    dist.all_reduce(interleaved)
    assert interleaved.tolist() == [[float(WORLD)] * 3] * 2


def test_elements_that_share_a_place() -> None:
    """What cannot hold a result is refused before anything is sent."""
    ranks.run(WORLD, shared_places)


def over_itself(rank: int) -> None:
    """Results over inputs."""
    both = torch.arange(float(WORLD)) + 10 * rank
    dist.all_to_all_single(both, both)
    assert both.tolist() == [float(10 * each + rank) for each in range(WORLD)]
    whole = torch.zeros(2 * WORLD)
    own = whole[2 * rank : 2 * rank + 2].fill_(rank)
    dist.gather(own, list(whole.split(2)) if rank == 0 else None)
    if rank == 0:
        assert whole.tolist() == [float(each) for each in range(WORLD) for _ in range(2)]


def test_results_over_inputs_of_what_gloo_does() -> None:
    """An input is what it was before the call."""
    ranks.run(WORLD, over_itself)


def sparse_views(rank: int) -> None:
    """Sparse tensors with negated and conjugated values."""
    indices = torch.tensor([[rank, 3]])
    values = torch.tensor([1.0, 2.0])
    tensor = torch.sparse_coo_tensor(indices, torch._neg_view(-values), (5,))
    dist.all_reduce(tensor)
    want = torch.tensor([1.0, 1.0, 1.0, 2.0 * WORLD, 0.0])
    assert torch.equal(tensor.to_dense(), want)
    numbers = torch.tensor([1.0 + 2.0j, 3.0 - 1.0j])
    tensor = torch.sparse_coo_tensor(indices, torch.conj(numbers), (5,))
    dist.group.WORLD.allreduce([tensor]).wait()  # type: ignore[union-attr]
    one = 1.0 - 2.0j
    assert torch.equal(tensor.to_dense(), torch.tensor([one, one, one, WORLD * (3.0 + 1.0j), 0.0]))


def test_sparse_tensors_of_such_values() -> None:
    """Complex ones too."""
    ranks.run(WORLD, sparse_views)


def other_types(rank: int) -> None:
    """What is only copied may be of any type, also where gloo does it."""
    for dtype in (torch.int16, torch.uint16, torch.uint64, torch.float8_e4m3fn, torch.complex64, torch.bool, torch.bfloat16):
        mine = (torch.arange(4) % 2 + rank).to(dtype)
        rooms = [torch.zeros(4, dtype=dtype) for _ in range(WORLD)]
        dist.gather(mine, rooms if rank == 0 else None)
        everywhere = [torch.zeros(4, dtype=dtype) for _ in range(WORLD)]
        dist.all_to_all(everywhere, [mine] * WORLD)
        for got in [rooms, everywhere] if rank == 0 else [everywhere]:
            for each, room in enumerate(got):
                assert torch.equal(room.view(torch.uint8), (torch.arange(4) % 2 + each).to(dtype).view(torch.uint8)), dtype


def test_copies_of_any_type() -> None:
    """By Fanin and by gloo."""
    ranks.run(WORLD, other_types)
