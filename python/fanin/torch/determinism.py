"""What ``torch.use_deterministic_algorithms(True)`` means for sums: where they depend on who comes first, that is an error or a warning."""

from __future__ import annotations

import warnings

import torch
from torch.distributed import ReduceOp

#: Reductions of floats that round, so that their bits depend on the order.
_ROUNDED = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.PREMUL_SUM)

#: A sum of two is the same in both orders.
_ANY_ORDER_WORLD = 2


def check(dtype: torch.dtype, op: ReduceOp.RedOpType, *, transport: str, world: int, reproducible: bool) -> None:
    """Looks at a reduction that is about to run.

    Ranks that share memory are summed in the order of ranks, which is always the same. At switches contributions are summed as they come.

    Raises:
        RuntimeError: PyTorch was asked for deterministic algorithms, and the bits of this reduction would depend on the order of packets.
    """
    in_order = transport in ("shm", "alone") or world <= _ANY_ORDER_WORLD
    if reproducible or in_order or not torch.are_deterministic_algorithms_enabled():
        return
    if op not in _ROUNDED or not (dtype.is_floating_point or dtype.is_complex):
        return
    path = "UDP" if transport == "udp" else "a fabric"
    text = (
        f"fanin: {op.name} of {dtype} over {path} depends on the order of packets, but torch.use_deterministic_algorithms(True) is"
        " set: this group was made without reproducible sums (set it before the group is made, or give"
        " pg_options=fanin.torch.Options(reproducible=True))"
    )
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(text)
    warnings.warn(text, UserWarning, stacklevel=3)
