"""Training: what PyTorch builds on top of a process group gives the same parameters on all ranks, and the same as gloo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ranks
import torch

# DistributedDataParallel imports it for its first model, in every process again.
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
STEPS = 5


def network() -> nn.Module:
    """The same at all ranks."""
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def batches(rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A rank's part of the data."""
    random = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        yield torch.randn(8, 12, generator=random), torch.randint(0, 4, (8,), generator=random)


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """A few steps."""
    for given, wanted in batches(rank):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(given), wanted).backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of most of these tests."""
    return torch.optim.SGD(model.parameters(), lr=0.1)


def full(parameters: Iterator[Tensor]) -> list[Tensor]:
    """Parameters, put together where each rank has a part."""
    return [(p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for p in parameters]


def ddp(rank: int, **options: Any) -> list[Tensor]:
    """DistributedDataParallel."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.002, **options)
    fit(model, sgd(model), rank)
    return full(model.parameters())


def ddp_static_graph(rank: int) -> list[Tensor]:
    """With a static graph."""
    return ddp(rank, static_graph=True, gradient_as_bucket_view=True)


def ddp_unused(rank: int) -> list[Tensor]:
    """With parameters that may not be used."""
    return ddp(rank, find_unused_parameters=True)


def ddp_hook(rank: int, hook: Callable[..., Any]) -> list[Tensor]:
    """With a communication hook."""
    # PowerSGD's callbacks call collectives. With several buckets these have no common order at the ranks, whatever the backend.
    model = DistributedDataParallel(network(), bucket_cap_mb=25 if hook is powerSGD_hook.powerSGD_hook else 0.002)
    state = None
    if hook is powerSGD_hook.powerSGD_hook:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, hook)
    fit(model, sgd(model), rank)
    return full(model.parameters())


def ddp_allreduce_hook(rank: int) -> list[Tensor]:
    """The one that does what DistributedDataParallel does anyway."""
    return ddp_hook(rank, default_hooks.allreduce_hook)


def ddp_fp16_hook(rank: int) -> list[Tensor]:
    """Gradients as 16-bit floats."""
    return ddp_hook(rank, default_hooks.fp16_compress_hook)


def ddp_power_sgd(rank: int) -> list[Tensor]:
    """PowerSGD: its callbacks wait for further collectives."""
    return ddp_hook(rank, powerSGD_hook.powerSGD_hook)


def ddp_join(rank: int) -> list[Tensor]:
    """Ranks with different numbers of batches."""
    model = DistributedDataParallel(network())
    optimizer = sgd(model)
    with model.join():
        for _ in range(rank + 1):
            fit(model, optimizer, rank)
    return full(model.parameters())


def zero(rank: int) -> list[Tensor]:
    """ZeRO: each rank has a part of the optimizer's state."""
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    fit(model, optimizer, rank)
    return full(model.parameters())


def fsdp1(rank: int) -> list[Tensor]:
    """FullyShardedDataParallel, the first one."""
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
    fit(model, sgd(model), rank)
    with FullyShardedDataParallel.summon_full_params(model):
        return full(model.parameters())


def fsdp1_hybrid(rank: int) -> list[Tensor]:
    """Shards within groups, copies between them."""
    mesh = init_device_mesh("cpu", (2, WORLD // 2) if WORLD > 2 else (1, 2))
    model = FullyShardedDataParallel(
        network(), device_id=torch.device("cpu"), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD
    )
    fit(model, sgd(model), rank)
    with FullyShardedDataParallel.summon_full_params(model):
        return full(model.parameters())


def fsdp2(rank: int) -> list[Tensor]:
    """``fully_shard``."""
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    fit(model, sgd(model), rank)
    return full(model.parameters())


def hsdp(rank: int) -> list[Tensor]:
    """``fully_shard`` over a mesh of two dimensions: shards in one, copies in the other."""
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    model = network()
    fully_shard(model, mesh=mesh)
    fit(model, sgd(model), rank)
    return full(model.parameters())


#: Ways to train, ranks, and how far from gloo's parameters the result may be: sums are in another order.
WAYS: list[tuple[Callable[[int], list[Tensor]], int]] = [
    (ddp, WORLD),
    (ddp_static_graph, WORLD),
    (ddp_unused, WORLD),
    (ddp_allreduce_hook, WORLD),
    (ddp_fp16_hook, WORLD),
    (ddp_power_sgd, WORLD),
    (ddp_join, WORLD),
    (zero, WORLD),
    (fsdp1, WORLD),
    (fsdp1_hybrid, WORLD),
    (fsdp2, WORLD),
    (hsdp, 4),
]


def trained(rank: int, way: Callable[[int], list[Tensor]]) -> list[Any]:
    """Parameters as numpy arrays, which need nothing of the process that they come from."""
    return [parameter.numpy() for parameter in way(rank)]


@pytest.mark.parametrize(("way", "world"), WAYS, ids=[way.__name__ for way, _ in WAYS])
def test_training(way: Callable[[int], list[Tensor]], world: int) -> None:
    """All ranks have the same bits, and gloo's values."""
    ours = ranks.run(world, trained, way)
    # gloo has no mean, which FSDP asks for: it is computed in another way there.
    theirs = ranks.run(world, trained, way, backend="gloo")
    start = [parameter.detach().numpy() for parameter in network().parameters()]
    assert any((mine != begin).any() for mine, begin in zip(ours[0], start, strict=False))
    for other in ours[1:]:
        assert all((a == b).all() for a, b in zip(ours[0], other, strict=True))
    for mine, wanted in zip(ours[0], theirs[0], strict=True):
        torch.testing.assert_close(torch.from_numpy(mine), torch.from_numpy(wanted), rtol=1e-4, atol=1e-5)


def functional(rank: int) -> None:
    """Functional collectives, which tensors that are compiled or distributed use."""
    import torch.distributed._functional_collectives as functions

    group = dist.group.WORLD
    ones = torch.full((4,), rank + 1.0)
    assert functions.all_reduce(ones, "sum", group).tolist() == [3.0] * 4
    assert functions.all_reduce(ones, "avg", group).tolist() == [1.5] * 4
    assert functions.all_gather_tensor(ones[:1], 0, group).tolist() == [1.0, 2.0]
    assert functions.reduce_scatter_tensor(ones, "sum", 0, group).tolist() == [3.0] * 2
    assert functions.broadcast(ones, 1, group).tolist() == [2.0] * 4
    several = functions.all_reduce_coalesced([ones, ones[:1]], "sum", group)
    assert [tensor.tolist() for tensor in several] == [[3.0] * 4, [3.0]]


def test_functional_collectives() -> None:
    """Each of them."""
    ranks.run(WORLD, functional)


def compiled(rank: int) -> list[Any]:
    """A compiled function with a collective inside, and DistributedDataParallel around a compiled model."""
    import torch.distributed._functional_collectives as functions

    def summed(given: Tensor) -> Tensor:
        return functions.all_reduce(given * 2, "sum", dist.group.WORLD) + 1

    # The graph is what is tested, not the code that a C++ compiler makes of it.
    got = torch.compile(summed, backend="aot_eager", fullgraph=True)(torch.full((4,), rank + 1.0))
    assert got.tolist() == [7.0] * 4
    model = DistributedDataParallel(network())
    fit(torch.compile(model, backend="aot_eager"), sgd(model), rank)  # type: ignore[arg-type]
    return [parameter.numpy() for parameter in full(model.parameters())]


def test_compiled_models() -> None:
    """The same as without the compiler."""
    with_compiler = ranks.run(WORLD, compiled)
    without = ranks.run(WORLD, trained, ddp)
    for rank in range(WORLD):
        for mine, wanted in zip(with_compiler[rank], without[0], strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), torch.from_numpy(wanted))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_tensors_on_a_gpu() -> None:
    """They travel through pinned memory of the host."""
    ranks.run(WORLD, on_gpu)


def on_gpu(rank: int) -> None:
    """Values, in the order of streams."""
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    for length in (1, 1_000, 1_000_003):
        tensor = torch.full((length,), rank + 1.0, device=device)
        dist.all_reduce(tensor)
        assert tensor.eq(3.0).all()
        work = dist.all_reduce(tensor.mul_(2.0), async_op=True)
        work.wait()
        assert tensor.eq(12.0).all()
        future = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True).get_future()
        assert future.wait()[0].eq(12.0).all()
        gathered = torch.empty(2 * length, device=device)
        dist.all_gather_into_tensor(gathered, torch.full((length,), float(rank), device=device))
        assert gathered.sum().item() == length
        part = torch.empty(length, device=device)
        dist.reduce_scatter_tensor(part, torch.cat([torch.zeros(length, device=device), torch.ones(length, device=device)]))
        assert part.eq(2.0 * rank).all()
        dist.broadcast(part, src=1)
        assert part.eq(2.0).all()
    model = network().to(device)
    wrapped = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = sgd(wrapped)
    for given, wanted in batches(rank):
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(given.to(device)), wanted.to(device)).backward()
        optimizer.step()
    gathered_all = [torch.empty_like(model[0].weight) for _ in range(WORLD)]
    dist.all_gather(gathered_all, model[0].weight.detach())
    assert torch.equal(gathered_all[0], gathered_all[1])
