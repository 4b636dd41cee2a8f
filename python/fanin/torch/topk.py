"""A communication hook for DistributedDataParallel that sends the largest gradients only, and remembers the others.

    model.register_comm_hook(TopK(0.01, warmup_steps=100), topk_hook)

Of every bucket a rank sends the given share of elements with the largest magnitude. What it does not send it keeps, and adds it to the next
step's gradients: *error feedback*, without which elements that are never among the largest are never learned.
"""

# No annotations as text here: DistributedDataParallel looks at those of a hook.
import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

__all__ = ["TopK", "topk_hook"]


class TopK:
    """What the hook keeps from step to step, at one rank."""

    def __init__(
        self,
        ratio: float,
        *,
        warmup_steps: int = 0,
        error_feedback: bool = True,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        """
        Args:
            ratio: Share of a bucket's elements that is sent, above 0 and up to 1; at least one element.
            warmup_steps: For so many steps gradients are sent as they are, since they change quickly at first.
            error_feedback: Whether what was not sent is added to the next step's gradients.
            process_group: The model's group, where that is not the default one.

        Raises:
            ValueError: An argument is out of its range.
        """
        if not 0.0 < ratio <= 1.0:
            raise ValueError(f"ratio = {ratio}: expected above 0, up to 1")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps = {warmup_steps}: expected 0 or more")
        self.ratio = ratio
        self.warmup_steps = warmup_steps
        self.error_feedback = error_feedback
        self.process_group = process_group
        #: Steps that have ended.
        self.steps = 0
        #: What was not sent of each parameter's gradient: DistributedDataParallel puts parameters into other buckets after the first step.
        self._kept: dict[Tensor, Tensor] = {}
        self._buckets: dict[tuple[int, ...], Tensor] = {}

    def kept(self, parameter: Tensor) -> Tensor | None:
        """What was not sent yet of a parameter's gradient, flat; ``None`` before its first step without everything."""
        return self._kept.get(parameter)

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """What goes on after a restart: the number of steps, and copies of what this rank has not sent, by the names of ``model``'s
        parameters. Each rank has its own.
        """
        kept = {name: self._kept[parameter].clone() for name, parameter in model.named_parameters() if parameter in self._kept}
        return {"steps": self.steps, "kept": kept}

    def load_state_dict(self, model: nn.Module, state: Mapping[str, Any]) -> None:
        """Goes on from what :meth:`state_dict` gave at this rank. Nothing changes where that does not fit ``model``.

        Raises:
            ValueError: A parameter is not there, or has another number of elements.
        """
        parameters = dict(model.named_parameters())
        kept: dict[Tensor, Tensor] = {}
        for name, residual in state["kept"].items():
            parameter = parameters.get(name)
            if parameter is None:
                raise ValueError(f"kept[{name!r}]: the model has no such parameter; it has {', '.join(parameters)}")
            if residual.numel() != parameter.numel():
                raise ValueError(f"kept[{name!r}] has {residual.numel()} elements: expected {parameter.numel()}, as the parameter has")
            # Of the type of its gradients.
            kept[parameter] = residual.reshape(-1).to(parameter.device, parameter.dtype, copy=True)
        self.steps, self._kept, self._buckets = int(state["steps"]), kept, {}

    def __getstate__(self) -> dict[str, object]:
        raise TypeError("a TopK belongs to the parameters of one process: keep its state_dict(model), and load that into a new one")

    def select(self, bucket: dist.GradBucket) -> tuple[Tensor, Tensor]:
        """Indices and values that are sent of a bucket; the rest is kept. Sent and kept together are the gradient and what was kept."""
        gradient = bucket.buffer()
        count = min(gradient.numel(), max(1, math.ceil(self.ratio * gradient.numel())))
        if not self.error_feedback:
            indices = largest(gradient, count)
            return indices, gradient[indices]
        residual = self._residual(bucket.parameters(), gradient)
        residual += gradient
        indices = largest(residual, count)
        values = residual[indices]
        residual[indices] = 0.0
        return indices, values

    def _residual(self, parameters: list[Tensor], gradient: Tensor) -> Tensor:
        """What was kept of a bucket; its elements are those of its parameters, one behind the other."""
        name = tuple(id(parameter) for parameter in parameters)
        known = self._buckets.get(name)
        if known is not None:
            return known
        residual, start = torch.zeros_like(gradient), 0
        for parameter in parameters:
            part = residual[start : start + parameter.numel()]
            start += parameter.numel()
            # From another bucket, where it was in one.
            before = self._kept.get(parameter)
            if before is not None:
                part.copy_(before)
            self._kept[parameter] = part
        moved = set(name)
        self._buckets = {other: kept for other, kept in self._buckets.items() if not moved.intersection(other)}
        self._buckets[name] = residual
        return residual


def largest(vector: Tensor, count: int) -> Tensor:
    """Indices of the ``count`` elements with the largest magnitude, in ascending order; what is no number is among them."""
    if count == vector.numel():
        return torch.arange(count, device=vector.device)
    return torch.topk(vector.abs(), count, sorted=False).indices.sort().values


def topk_hook(state: TopK, bucket: dist.GradBucket) -> Future[Tensor]:
    """The mean over all ranks of the largest gradients of each, for ``DistributedDataParallel.register_comm_hook``.

    With ``ratio`` 1 it is the mean of all gradients, as without a hook. It works with every backend that reduces sparse tensors.
    """
    group = state.process_group or dist.group.WORLD
    assert group is not None
    gradient, world = bucket.buffer(), group.size()
    is_dense = state.steps < state.warmup_steps
    if bucket.is_last():
        state.steps += 1
    if is_dense:
        work = dist.all_reduce(gradient.div_(world), group=group, async_op=True)
        return work.get_future().then(lambda future: _checked(future, gradient))
    indices, values = state.select(bucket)
    # As DistributedDataParallel does it, each rank divides before the sum.
    sparse = torch.sparse_coo_tensor(indices[None, :], values.div_(world), gradient.shape, is_coalesced=True, check_invariants=False)
    work = dist.all_reduce(sparse, group=group, async_op=True)
    return work.get_future().then(lambda future: _spread(future, sparse, gradient))


def _checked(future: Future[list[Tensor]], gradient: Tensor) -> Tensor:
    future.value()
    return gradient


def _spread(future: Future[list[Tensor]], sparse: Tensor, gradient: Tensor) -> Tensor:
    """The bucket's gradients, where the sum is there; raises what has gone wrong."""
    future.value()
    gradient.zero_()
    gradient[sparse._indices()[0]] = sparse._values()
    return gradient
