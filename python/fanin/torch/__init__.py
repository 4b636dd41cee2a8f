"""The PyTorch backend: ``torch.distributed.init_process_group("fanin")``.

Nothing needs to be imported for that: PyTorch finds the backend by the entry point ``torch.distributed.backends``. See ``docs/pytorch.md``.

=================  ==============================================================================
``backend``        what PyTorch calls: the collectives of a process group
``elements``       PyTorch's types and operators, and which the communicator knows
``memory``         tensors as stretches of memory: copies where a tensor is not one
``options``        what a program can ask a group for
``bits``           tensors that are negatives or conjugates of what lies in memory
``determinism``    what ``torch.use_deterministic_algorithms`` means for sums
``reports``        how a group's vectors travelled; reductions by operators of one's own
``hooks``          communication hooks that send a byte for each gradient
``e4m3``           the sum of 8-bit floats, as an operator of one's own
``sparse``         sparse tensors as lists of indices and values
``topk``           a communication hook that sends the largest gradients only
``work``           a call that runs: waiting, futures, errors
``meeting``        how the ranks of a group find each other, by the group's store
``forwarding``     what is left to gloo
``profiles``       what PyTorch's profiler is told of collectives
``comms``          the same by torchcomms' names; imported only by that
``errors``         exceptions that are PyTorch's and Fanin's alike
=================  ==============================================================================
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from fanin.torch import bits
from fanin.torch.backend import create
from fanin.torch.errors import CollectiveError, CollectiveTimeoutError
from fanin.torch.options import Options
from fanin.torch.reports import Report, all_reduce, report
from fanin.torch.topk import TopK, topk_hook

__all__ = ["CollectiveError", "CollectiveTimeoutError", "Options", "Report", "TopK", "all_reduce", "register", "report", "topk_hook"]

#: PyTorch's name of the backend.
NAME = "fanin"

#: The oldest PyTorch: in older ones, classes in Python cannot derive from a backend's.
_OLDEST = (2, 14)


def register() -> None:
    """Makes the backend known to PyTorch, once; called by PyTorch itself when a group asks for ``fanin``.

    Raises:
        ImportError: PyTorch is too old.
    """
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _OLDEST:
        raise ImportError(f"fanin.torch: this is PyTorch {torch.__version__}: expected {_OLDEST[0]}.{_OLDEST[1]} or newer")
    if NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    bits.register()


register()
