"""What PyTorch's profiler is told of collectives: what its own backends tell it, by the same names.

An event ``fanin:all_reduce`` stands where the collective begins, with PyTorch's words for what it is (``Collective name``,
``In msg nelems``, ``dtype``, ``Process Group Ranks`` and so on) as its arguments; the span of the same name is as long as the collective
runs. The profiler writes arguments only with ``record_shapes=True``. The name is not ``record_param_comms``, under which PyTorch expects a
note that only C++ can leave.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fanin.torch.program import Program

#: PyTorch's name of what its own backends record.
PYTORCH = "record_param_comms"

#: By the names of events: what PyTorch's own backends call the collective.
_NAMES = {
    "fanin:all_reduce": "allreduce",
    "fanin:all_reduce_custom": "allreduce",
    "fanin:all_reduce_coalesced": "allreduce_coalesced",
    "fanin:reduce": "reduce",
    "fanin:broadcast": "broadcast",
    "fanin:barrier": "barrier",
    "fanin:all_gather": "all_gather",
    "fanin:all_gather_coalesced": "all_gather_into_tensor_coalesced",
    "fanin:all_gather_into_tensor": "_allgather_base",
    "fanin:all_gather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "fanin:reduce_scatter": "reduce_scatter",
    "fanin:reduce_scatter_tensor": "_reduce_scatter_base",
    "fanin:reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced",
}

#: PyTorch's names of types, where they are not those of Python with a capital.
_TYPES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


class Group:
    """What is the same in all collectives of a group."""

    def __init__(self, name: str, ranks: Sequence[int]) -> None:
        """``ranks`` are the members', in the default group."""
        self.size = len(ranks)
        self._words = {"Process Group Name": name, "Process Group Ranks": json.dumps(list(ranks)), "Group size": len(ranks)}

    def note(self, event: str, program: Program, sequence: int) -> None:
        """Tells the profiler of a collective that is about to begin, where one runs."""
        if not profiler._is_profiler_enabled:
            return
        memory = program.keep[0] if program.keep else None
        size = memory.itemsize if memory is not None else 1
        words: dict[str, Any] = {
            "Collective name": _NAMES.get(event, event.removeprefix("fanin:")),
            # A step's bytes of input and output.
            "In msg nelems": sum(step[5] for step in program.steps) // size,
            "Out msg nelems": sum(step[7] for step in program.steps) // size,
            "dtype": "Byte" if memory is None else _TYPES.get(memory.dtype, str(memory.dtype).removeprefix("torch.")),
            "Seq": sequence,
            **self._words,
        }
        if event in ("fanin:broadcast", "fanin:reduce"):
            # PyTorch's word for the root.
            words["Rank"] = program.steps[0][8]
        with _RecordFunctionFast(event, [], words):
            pass


def as_pytorch(trace: str | Path, to: str | Path) -> int:
    """Writes a trace of the profiler (``export_chrome_trace``, or of an ``ExecutionTraceObserver``) with this backend's collectives by the
    name that PyTorch's own have, ``record_param_comms``, which other tools look for.

    Returns:
        How many events there were.

    Raises:
        ValueError: the file is no such trace.
    """
    document = json.loads(Path(trace).read_text())
    events = document if isinstance(document, list) else document.get("traceEvents", document.get("nodes"))
    if not isinstance(events, list):
        raise ValueError(f"{trace}: expected a trace, with `traceEvents` or `nodes`")
    count = 0
    for event in events:
        name = event.get("name", "")
        is_described = "Collective name" in (event.get("args") or {}) or ("nodes" in document and name.startswith("fanin:"))
        if name in _NAMES and is_described:
            event["name"] = PYTORCH
            count += 1
    Path(to).write_text(json.dumps(document))
    return count
