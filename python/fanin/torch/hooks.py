"""Communication hooks for DistributedDataParallel that send a byte for each gradient.

    model.register_comm_hook(None, int8_hook)

First the ranks agree on a scale for a bucket, by the largest magnitude at any rank. Then each gradient travels as one byte, and what sums
the group's vectors sums these bytes. A bucket in which a rank has a NaN or an infinity is summed as it is, uncompressed, so that it gives
what it gives without a hook; so is one whose numbers are too small for a scale.
"""

# No annotations as text here: DistributedDataParallel looks at those of a hook.
import math

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from fanin.errors import ArgumentError
from fanin.torch.e4m3 import LARGEST, e4m3_sum
from fanin.torch.reports import all_reduce, backend_of

__all__ = ["FP8_WORLD_MAX", "INT8_WORLD_MAX", "e4m3_sum", "fp8_e4m3_hook", "int8_hook"]

#: The largest number of a signed byte, and so of ranks: of more, sums of ones would not fit.
INT8_WORLD_MAX = 127

#: Of more ranks the error bound of :func:`fp8_e4m3_hook` is above 164 % of the gradients, which is of no use.
FP8_WORLD_MAX = 16

#: How much larger a number can become where it is rounded to three bits behind the point.
_GROWTH = 1.0 + 2.0**-4


def int8_hook(process_group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[Tensor]:
    """The mean of all ranks' gradients, which travel as integers of 8 bits.

    A rank's gradients are rounded to whole steps, of which the largest magnitude at any rank, ``m``, has ``127 // world``: so sums fit into
    a byte, and are exact. The mean is off by at most ``m / (2 * (127 // world))``, and by the rounding of its own type. It works with every
    backend, and in reproducible groups, where integers are always the same.

    Raises:
        ArgumentError: There are more than 127 ranks.
    """
    group, gradient, world = _parts(process_group, bucket)
    levels = INT8_WORLD_MAX // world
    if levels == 0:
        raise ArgumentError(f"int8_hook: {world} ranks: expected at most {INT8_WORLD_MAX}, so that sums fit into 8 bits")
    step = _step(gradient, float(levels), group)
    if step is None:
        return _uncompressed(gradient, world, group)
    if step == 0.0:
        return _zeros(gradient)
    whole = (_wide(gradient) / step).round_().clamp_(-levels, levels).to(torch.int8)
    work = dist.all_reduce(whole, group=group, async_op=True)
    return work.get_future().then(lambda future: _scaled_back(future, whole, step / world, gradient))


def fp8_e4m3_hook(process_group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[Tensor]:
    """The mean of all ranks' gradients, which travel as floats of 8 bits (e4m3), and are summed as such by an operator of one's own.

    The group must have been made with ``pg_options=Options(operators=(e4m3_sum(),))``. Scales are such that no sum exceeds 448.

    With ``a`` the mean of an element's magnitudes, ``m`` the bucket's largest magnitude at any rank and ``g = (17 / 16) ** world``, the
    mean is off by at most ``a * (g - 1) + m * world * g * g / (448 * 1024)``. With more than two ranks its last bits depend on the order of
    contributions: over UDP on that of packets.

    Raises:
        ArgumentError: There are more than 16 ranks, or the group has not got the operator.
    """
    group, gradient, world = _parts(process_group, bucket)
    if world > FP8_WORLD_MAX:
        raise ArgumentError(f"fp8_e4m3_hook: {world} ranks: expected at most {FP8_WORLD_MAX}, since each sum is rounded to four digits")
    operator = e4m3_sum()
    # Before anything is sent: ranks must not wait for one that stops here.
    backend_of(group, "fp8_e4m3_hook").check_operator(operator, "fp8_e4m3_hook")
    step = _step(gradient, LARGEST / (world * _GROWTH**world), group)
    if step is None:
        return _uncompressed(gradient, world, group)
    if step == 0.0:
        return _zeros(gradient)
    small = (_wide(gradient) / step).to(torch.float8_e4m3fn)
    future = all_reduce(small.view(torch.uint8), operator, group)
    return future.then(lambda ended: _scaled_back(ended, small, step / world, gradient))


def _parts(process_group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> tuple[dist.ProcessGroup, Tensor, int]:
    group = process_group if process_group is not None else dist.group.WORLD
    assert group is not None
    return group, bucket.buffer(), group.size()


def _wide(gradient: Tensor) -> Tensor:
    """Gradients in a type that a step can be divided by without being rounded much."""
    return gradient if gradient.dtype == torch.float64 else gradient.to(torch.float32)


def _step(gradient: Tensor, limit: float, group: dist.ProcessGroup) -> float | None:
    """What the bucket's largest magnitude at any rank is divided by to be ``limit``, the same at all ranks.

    It is 0 where all gradients are 0, and ``None`` where there is no such number.
    """
    largest = torch.zeros(1, dtype=torch.float64)
    if gradient.numel():
        largest[0] = gradient.detach().abs().amax().to("cpu", torch.float64)
    # Of a NaN and a number, MAX gives the number.
    largest.nan_to_num_(nan=math.inf, posinf=math.inf)
    # Here and not in a callback: callbacks have no common order at the ranks.
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    step = float(largest) / limit
    if step == 0.0 and float(largest) == 0.0:
        return 0.0
    # In smaller ones, quotients would not have all of their digits.
    is_usable = math.isfinite(step) and step >= torch.finfo(torch.float32).tiny
    return step if is_usable else None


def _uncompressed(gradient: Tensor, world: int, group: dist.ProcessGroup) -> Future[Tensor]:
    """As without a hook: each rank divides before the sum."""
    work = dist.all_reduce(gradient.div_(world), group=group, async_op=True)
    return work.get_future().then(lambda future: _kept(future, gradient))


def _kept(future: Future[list[Tensor]], gradient: Tensor) -> Tensor:
    future.value()
    return gradient


def _zeros(gradient: Tensor) -> Future[Tensor]:
    ended: Future[Tensor] = Future()
    ended.set_result(gradient)
    return ended


def _scaled_back(future: Future[list[Tensor]], total: Tensor, factor: float, gradient: Tensor) -> Tensor:
    """The bucket's gradients, where the sum is there; raises what has gone wrong."""
    future.value()
    wide = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    return gradient.copy_(total.to(wide) * factor)
