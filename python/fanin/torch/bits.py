"""Tensors with a negative or conjugate bit reach the backend as they are.

Such a bit says that a tensor's elements are the negatives or conjugates of what lies in memory. Where an operation does not know of that,
PyTorch gives it a copy. That is right for what an operation reads; but a result that PyTorch's collectives write to a copy is lost, since
their declarations do not say that they write. So for groups of this backend, which knows of such bits, they are passed on. Other backends
get copies, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import ProcessGroup

from fanin.torch.backend import FaninBackend

_KEYS = (torch._C.DispatchKey.Negative, torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.ZeroTensor)

#: Those that take tensors and write results.
_OPERATIONS = (
    "_allgather_base_",
    "_reduce_scatter_base_",
    "allgather_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "broadcast_",
    "gather_",
    "gather_into_tensor_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
)

#: They are registered for as long as this lives.
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Makes PyTorch ask which backend a group has, where a tensor has such a bit; once."""
    if _libraries:
        return
    for key in _KEYS:
        library = torch.library.Library("c10d", "IMPL", key.name)
        for name in _OPERATIONS:
            library.impl(name, _passing(name), with_keyset=True)
        _libraries.append(library)


def _passing(name: str) -> Callable[..., Any]:
    operation = getattr(torch.ops.c10d, name).default

    def passing(keys: Any, *arguments: Any) -> Any:
        if not _is_ours(arguments):
            return operation(*map(_resolved, arguments))
        for key in _KEYS:
            keys = keys.remove(key)
        return operation.redispatch(keys, *arguments)

    return passing


def _is_ours(arguments: Sequence[Any]) -> bool:
    tensor = next(filter(None.__ne__, map(_first, arguments)), None)
    for argument in arguments:
        if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
            backend: Any = ProcessGroup.unbox(argument)._get_backend(tensor.device if tensor is not None else torch.device("cpu"))
            # With TORCH_DISTRIBUTED_DEBUG=DETAIL it is behind one that looks at calls.
            return isinstance(getattr(backend, "wrapped_pg", backend), FaninBackend)
    return False


def _first(argument: Any) -> Tensor | None:
    if isinstance(argument, Tensor):
        return argument
    if isinstance(argument, list | tuple):
        return next(filter(None.__ne__, map(_first, argument)), None)
    return None


def _resolved(argument: Any) -> Any:
    """As PyTorch gives it to operations that do not know of such bits; it does not look into lists of lists."""
    if isinstance(argument, Tensor):
        plain = argument.resolve_conj().resolve_neg()
        return plain.clone() if plain._is_zerotensor() else plain
    if isinstance(argument, list | tuple) and all(isinstance(each, Tensor) for each in argument):
        return [_resolved(each) for each in argument]
    return argument
