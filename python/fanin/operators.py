"""Operators that a job brings along, as WebAssembly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fanin import _native
from fanin._arrays import View
from fanin.errors import ArgumentError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["CustomOperator"]


class CustomOperator:
    """A reduction of one's own: a WebAssembly module, given to :func:`fanin.init` as one of its ``operators`` and to calls as ``op``.

    It is run in a sandbox, by the switch or by ranks that share memory. It must be commutative and associative: contributions are combined
    in the order in which they arrive. What a module exports is in ``docs/operators.md``.
    """

    def __init__(self, native: _native.CustomOperator, module: bytes, dtype: np.dtype[Any]) -> None:
        self._native = native
        self._module = module
        self._dtype = dtype

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._module, self._dtype, self.name)

    @classmethod
    def from_wasm(cls, module: str | os.PathLike[str] | bytes, dtype: npt.DTypeLike, *, name: str | None = None) -> CustomOperator:
        """Checks and compiles a module.

        Args:
            module: The module's file, or its bytes.
            dtype: The type of the arrays that it reduces, as numpy has it: ``"complex64"``, or a structure. As long as what the module
                takes for an element; a subarray, as in ``("u1", 64)``, is one element.
            name: For messages; by default that of the file.

        Raises:
            ArgumentError: It is no operator, or one of elements of another length.
            OSError: The file cannot be read.
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise ArgumentError(f"dtype = {kind}: expected a type without Python objects")
        if isinstance(module, bytes):
            content, found = module, "operator"
        else:
            content, found = Path(module).read_bytes(), Path(module).stem
        return cls(_native.CustomOperator(found if name is None else name, content, kind.itemsize), content, kind)

    @property
    def native(self) -> _native.CustomOperator:
        """The native operator."""
        return self._native

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self._native.name

    @property
    def digest(self) -> str:
        """The SHA-256 of the module, in hexadecimal digits: what ranks must agree on."""
        return self._native.digest

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the arrays that it reduces."""
        return self._dtype

    def __repr__(self) -> str:
        return f"<fanin.CustomOperator {self.name!r} of {self.dtype}, sha256 {self.digest[:16]}..>"

    def elements_of(self, view: View) -> int:
        """How many elements an array is.

        Raises:
            ArgumentError: It is of another type.
        """
        base, shape = self._dtype.subdtype or (self._dtype, ())
        fits = np.dtype(view.native_type) == base if view.native_type is not None else view.dtype == base.name
        if not fits or (shape and view.shape[-len(shape) :] != shape):
            raise ArgumentError(f"elements of type {view.dtype}, shape {view.shape}: operator {self.name!r} reduces {self._dtype}")
        return view.bytes // self._dtype.itemsize


def _again(module: bytes, dtype: np.dtype[Any], name: str) -> CustomOperator:
    """An operator that was sent to another process."""
    return CustomOperator.from_wasm(module, dtype, name=name)
