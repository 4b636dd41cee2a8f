"""Arrays as memory: where their elements lie, and what type they have. Nothing is copied that lies contiguously."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fanin import _native
from fanin.errors import ArgumentError

#: Element types of the engine by their names in numpy, ml_dtypes and PyTorch.
ENGINE_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
}

#: Types that the engine does not know but whose results have the same bits as those of another type, and the operators for which that is
#: so: sums and products wrap, and a complex number is two real ones.
_ALIKE: dict[str, tuple[str, int, frozenset[str]]] = {
    "bool": ("u8", 1, frozenset({"min", "max", "minimum", "maximum", "and", "or", "xor"})),
    "uint16": ("i16", 1, frozenset({"sum", "prod", "and", "or", "xor"})),
    "uint32": ("i32", 1, frozenset({"sum", "prod", "and", "or", "xor"})),
    "uint64": ("i64", 1, frozenset({"sum", "prod", "and", "or", "xor"})),
    "complex64": ("f32", 2, frozenset({"sum", "avg"})),
    "complex128": ("f64", 2, frozenset({"sum", "avg"})),
}


# Not frozen: that would make a small call half as slow again.
@dataclass(slots=True)
class View:
    """Memory of an array."""

    #: What the caller gets back, and what owns the memory.
    array: Any
    address: int
    bytes: int
    #: Name of the element type, as numpy has it.
    dtype: str
    shape: tuple[int, ...]
    writable: bool
    #: The element type as an object, where it is one of numpy's.
    native_type: np.dtype[Any] | None
    #: Makes an array of the same kind and type, with another shape and with any content.
    empty: Callable[[tuple[int, ...]], Any]

    @property
    def elements(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count


def element_type(view: View, op: str | None) -> tuple[str, int]:
    """The engine's type for the elements of ``view``, and how many of it each one is. ``op`` is ``None`` where elements are only copied.

    Raises:
        ArgumentError: There is no such reduction.
    """
    known = ENGINE_TYPES.get(view.dtype)
    if known is not None:
        return known, 1
    if op is None:
        count = view.elements
        return "u8", view.bytes // count if count else 1
    name, each, operators = _ALIKE.get(view.dtype, ("", 0, frozenset()))
    if op in operators:
        return name, each
    if operators:
        raise ArgumentError(f"no {op} of {view.dtype}: there are {', '.join(sorted(operators))}")
    types = ", ".join([*ENGINE_TYPES, *_ALIKE])
    raise ArgumentError(f"elements of type {view.dtype} cannot be reduced: there are {types}")


def view_input(array: Any) -> View:
    """The memory of what a rank contributes; a copy where it does not lie contiguously.

    Raises:
        ArgumentError: It is no array, or its elements are elsewhere.
    """
    tensor = _as_tensor(array)
    if tensor is not None:
        # What lies there need not be its elements: bits of the tensor may say that these are its negatives or conjugates.
        plain = tensor.resolve_conj().resolve_neg().contiguous()
        return _view_tensor(plain.clone() if plain._is_zerotensor() else plain)
    ndarray = _as_ndarray(array)
    return _view_ndarray(ndarray if ndarray.flags.c_contiguous else np.ascontiguousarray(ndarray))


def view_indices(array: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices as 64-bit numbers, in memory that lies contiguously; a copy where they are not.

    Raises:
        ArgumentError: They are no list of whole numbers, or one of them is negative.
    """
    tensor = _as_tensor(array)
    ndarray = _as_ndarray(array) if tensor is None else tensor.resolve_neg().numpy()
    # A list without elements has no type of its own.
    if ndarray.ndim != 1 or (ndarray.dtype.kind not in "iu" and ndarray.size > 0):
        raise ArgumentError(f"indices are of shape {ndarray.shape} and type {ndarray.dtype}: expected a list of whole numbers")
    if ndarray.size > 0 and ndarray.dtype.kind == "i" and ndarray.min() < 0:
        at = int(np.argmax(ndarray < 0))
        raise ArgumentError(f"indices[{at}] = {ndarray[at]}: expected 0 or more")
    return np.ascontiguousarray(ndarray.astype(np.uint64, copy=False)).view(np.int64)


def view_output(array: Any, what: str = "out") -> View:
    """The memory of an array that takes a result.

    Raises:
        ArgumentError: It cannot be written to as it is.
    """
    tensor = _as_tensor(array)
    if tensor is not None:
        if tensor.is_neg() or tensor.is_conj() or tensor._is_zerotensor():
            raise ArgumentError(
                f"{what} is a view with negated or conjugated elements: resolve_neg() and resolve_conj() give what can be written to"
            )
        contiguous, view = tensor.is_contiguous(), _view_tensor(tensor, owner=array)
    else:
        if not (isinstance(array, np.ndarray) or _is_buffer(array) or hasattr(array, "__dlpack__")):
            raise ArgumentError(f"{what} is of type {type(array).__name__}: expected an array that can be written to")
        ndarray = _as_ndarray(array)
        contiguous, view = ndarray.flags.c_contiguous, _view_ndarray(ndarray, owner=array)
    if not view.writable:
        raise ArgumentError(f"{what} is read-only: expected an array that can be written to")
    if not contiguous:
        raise ArgumentError(f"{what} is not contiguous: give a contiguous array, or leave it out and assign the result")
    return view


def sparse_arrays(result: _native.SparseResult, given: View) -> tuple[Any, Any]:
    """Indices and values of a result, of the same kind as ``given``: tensors or numpy arrays."""
    count = result.entries
    values = view_output(given.empty((count,)))
    indices = np.empty(count, np.int64)
    result.write(indices.ctypes.data, indices.nbytes, values.address, values.bytes)
    if isinstance(values.array, np.ndarray):
        return indices, values.array
    return sys.modules["torch"].from_numpy(indices), values.array


def _as_tensor(array: Any) -> Any | None:
    """The array, if it is a PyTorch tensor in the memory of this process."""
    # Where there is a tensor, somebody has imported PyTorch already; importing it takes seconds.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return None
    if array.device.type != "cpu":
        raise ArgumentError(f"the tensor is on {array.device}: move it to the CPU, or use the backend for torch.distributed (fanin.torch)")
    if array.layout != torch.strided:
        raise ArgumentError(f"the tensor is {array.layout}: expected a dense one")
    return array.detach()


def _view_tensor(tensor: Any, owner: Any = None) -> View:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return View(
        array=tensor if owner is None else owner,
        address=tensor.data_ptr(),
        bytes=tensor.numel() * tensor.element_size(),
        dtype=dtype,
        shape=tuple(tensor.shape),
        writable=True,
        native_type=None,
        empty=lambda shape: tensor.new_empty(shape),
    )


def _as_ndarray(array: Any) -> np.ndarray[Any, Any]:
    if isinstance(array, np.ndarray):
        return array
    try:
        if not _is_buffer(array) and hasattr(array, "__dlpack__"):
            return np.from_dlpack(array)
        return np.asarray(array)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise ArgumentError(f"{type(array).__name__} is not understood as an array: {error}") from error


def _is_buffer(array: Any) -> bool:
    try:
        memoryview(array)
    except (TypeError, ValueError, BufferError):
        return False
    return True


@functools.lru_cache(maxsize=256)
def _name(dtype: np.dtype[Any]) -> str:
    """The name of a type of elements that can be sent; numpy takes its time to find it."""
    if dtype.hasobject:
        raise ArgumentError(f"an array of Python objects ({dtype}): expected numbers")
    if not dtype.isnative:
        raise ArgumentError(f"elements of type {dtype} have their bytes in another order than this machine's")
    return dtype.name


def _view_ndarray(ndarray: np.ndarray[Any, Any], owner: Any = None) -> View:
    return View(
        array=ndarray if owner is None else owner,
        address=ndarray.__array_interface__["data"][0],
        bytes=ndarray.nbytes,
        dtype=_name(ndarray.dtype),
        shape=ndarray.shape,
        writable=ndarray.flags.writeable,
        native_type=ndarray.dtype,
        empty=lambda shape: np.empty(shape, ndarray.dtype),
    )
