"""What PyTorch can hand to a backend: every option is used, or refused by name; so are variables of the environment."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from datetime import timedelta
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist

from fanin.torch import CollectiveError, Options, register, report
from fanin.torch.hooks import e4m3_sum
from fanin.torch.options import _KEYS

WORLD = 3


def backend_of(group: dist.ProcessGroup) -> Any:
    """The backend of a group."""
    return group._get_backend(torch.device("cpu"))


def sums(group: dist.ProcessGroup, rank: int) -> list[str]:
    """The bits of sums of floats that depend on the order of summands, where anything depends on it: each rank comes at other times."""
    random = torch.Generator().manual_seed(rank)
    seen = []
    for turn in range(6):
        mine = torch.randn(50_000, generator=torch.Generator().manual_seed(rank)) * 10.0 ** (rank * 2)
        torch.randn(20_000 * ((rank + turn) % WORLD + 1), generator=random)
        dist.all_reduce(mine, group=group)
        seen.append(str(hash(mine.numpy().tobytes())))
    return seen


def reproducible(rank: int, how: str) -> tuple[int, bool]:
    """The same bits in every turn; products are refused, which shows that the option has arrived."""
    options = {"reproducible": True}
    group = dist.group.WORLD if how == "variable" else dist.new_group(backend="fanin", pg_options=options)
    assert group is not None
    with pytest.raises(ValueError, match="product"):
        dist.all_reduce(torch.ones(3), op=dist.ReduceOp.PRODUCT, group=group)
    other = dist.new_group(backend="fanin")
    plain = torch.full((2,), 3.0)
    if how != "variable":
        dist.all_reduce(plain, op=dist.ReduceOp.PRODUCT, group=other)
        assert plain.tolist() == [27.0, 27.0]
    return len(set(sums(group, rank))), backend_of(group)._comm.transport == "udp"


@pytest.mark.parametrize("how", ["option", "variable"])
def test_reproducible_groups(how: str) -> None:
    """By ``pg_options`` of one group, or by a variable for all."""
    environ = {"FANIN_TRANSPORT": "udp"} | ({"FANIN_REPRODUCIBLE": "1"} if how == "variable" else {})
    assert ranks.run(WORLD, reproducible, how, environ=environ) == [(1, True)] * WORLD


def packed(rank: int, how: str) -> tuple[int, int, bool]:
    """In how many ways 300 small values are summed, alone and in larger tensors beside large values, and whether any vanishes."""
    group = dist.group.WORLD if how.isupper() else dist.new_group(backend="fanin", pg_options=Options(reproducible=how))  # type: ignore[arg-type]
    assert report(group).reproducible == how.lower()
    small = torch.rand(300, generator=torch.Generator().manual_seed(rank)) * 1e-10 + 1e-12
    seen = set()
    for before, after in [(0, 0), (1, 0), (77, 5), (256, 256), (1_000, 1)]:
        bucket = torch.cat([torch.full((before,), 1.0 + rank), small, torch.full((after,), 3.0)])
        dist.all_reduce(bucket, group=group)
        sums = bucket[before : before + 300]
        seen.add(sums.numpy().tobytes())
    return len(seen), rank, bool((sums == 0).any())


@pytest.mark.parametrize("how", ["element", "ELEMENT", "block"])
def test_what_sums_depend_on(how: str) -> None:
    """By element nothing depends on the bucket, and nothing vanishes; by block both. The variable says so as well."""
    environ = {"FANIN_TRANSPORT": "udp"} | ({"FANIN_REPRODUCIBLE": "element"} if how.isupper() else {})
    for ways, _, vanishes in ranks.run(WORLD, packed, how, environ=environ):
        assert (ways, vanishes) == (1, False) if how.lower() == "element" else (ways > 1 and vanishes)


def every_key(rank: int) -> None:
    """Each option changes something, or is refused by the communicator for what it is."""
    taken: dict[str, Any] = {
        "reproducible": True,
        "fixed_point": True,
        "transport": "udp",
        "sparse": "lists",
        "nan": "propagate",
        "wait": "busy",
        "payload": 1_024,
        "window": 16,
        "bind": "127.0.0.1",
        "stall_notice": 2.5,
        "timeout": timedelta(seconds=41),
        "operators": (e4m3_sum(),),
        "system": "switchml",
    }
    # A switch, which may ask for tokens and be known by a certificate, and a fabric are elsewhere, and `test_over_a_fabric` has one.
    assert set(taken) | {"switch", "fabric", "fabric_host", "fallback", "token", "tls", "tls_name", "tls_cert", "tls_key"} == set(_KEYS)
    assert set(_KEYS) == {field.name for field in dataclasses.fields(Options)}
    for key, value in taken.items():
        options = Options(**{key: value}) if key in ("timeout", "system", "nan", "payload") else {key: value}
        group = dist.new_group(backend="fanin", pg_options=options)
        ones = torch.ones(300)
        dist.all_reduce(ones, group=group)
        assert ones.tolist() == [float(WORLD)] * 300, key
        path = backend_of(group)._comm.path
        if key in ("transport", "fixed_point", "system"):
            assert backend_of(group)._comm.transport == "udp", path
        assert backend_of(group)._comm.timeout == (41 if key == "timeout" else 1_800), key
        dist.destroy_process_group(group)
    group = dist.new_group(backend="fanin", pg_options={"transport": "udp", "payload": 1_024})
    assert "1024" in backend_of(group)._comm.path
    group = dist.new_group(backend="fanin", pg_options={"system": "canary"})
    ones = torch.ones(300)
    dist.all_reduce(ones, group=group)
    assert ones.tolist() == [float(WORLD)] * 300
    assert backend_of(group)._comm.path.startswith("canary by UDP from")
    wrong: list[tuple[Any, str]] = [
        ({"reproducable": True}, r"pg_options\['reproducable'\] = True: there is no such option; expected some of reproducible, "),
        ({"reproducible": "yes"}, r"pg_options\['reproducible'\] = 'yes': expected True, False, 'element', 'block' or 'tree'"),
        ({"reproducible": 1}, r"pg_options\['reproducible'\] = 1: expected True, False, 'element', 'block' or 'tree'"),
        ({"payload": True}, r"pg_options\['payload'\] = True: expected a number of bytes"),
        ({"transport": "rdma"}, "transport = rdma: expected auto or udp or shm"),
        ({"transport": 3}, r"pg_options\['transport'\] = 3: expected 'auto', 'udp' or 'shm'"),
        ({"token": "@/nowhere"}, "token = @/nowhere: expected a token, or `@` and a file that can be read"),
        ({"tls": "/nowhere/ca.pem", "tls_cert": "a.pem", "tls_key": "a.key"}, "tls = /nowhere/ca.pem: expected files that can be read"),
        ({"tls_name": "agg"}, "FANIN_TLS is not set, but FANIN_TLS_NAME is"),
        ({"sparse": "hash"}, "sparse = hash: expected auto or switch or lists"),
        ({"nan": "no"}, r"pg_options\['nan'\] = 'no': expected 'ignore' or 'propagate'"),
        ({"bind": "eth0"}, "bind = eth0: expected an IP address"),
        ({"switch": "nowhere"}, "switch = nowhere: expected HOST:PORT"),
        ({"stall_notice": -1}, "stall_notice = -1: expected a time, such as .* of at least 10ms"),
        ({"timeout": 0}, r"pg_options\['timeout'\] = 0: expected a number of seconds above 0, or a timedelta"),
        ({"fallback": True}, r"pg_options\['fallback'\] = True: expected 'ring' or 'error'"),
        ({"system": "rina"}, r"pg_options\['system'\] = 'rina': expected 'auto', 'switchml', 'canary' or 'tree'"),
        ({"system": "canary", "fixed_point": True}, "fixed_point = true: expected false with canary"),
        ({"system": "switchml", "transport": "shm"}, r"pg_options\['transport'\] = 'shm': expected 'udp' where system = 'switchml'"),
        ({"operators": (3,)}, r"pg_options\['operators'\] = \(3,\): expected a tuple of up to four fanin.CustomOperator"),
        ({"world": 3}, "not for a group of PyTorch: ranks are those of the group"),
        ({3: True}, r"pg_options\[3\] = True: there is no such option"),
        ({"reproducible": True, "fixed_point": True}, "fixed_point = true: expected false where sums are reproducible"),
        ("reproducible", r"pg_options = 'reproducible' \(of type builtins.str\): expected a dict"),
    ]
    for options, expected in wrong:
        with pytest.raises(ValueError, match=expected):
            dist.new_group(backend="fanin", pg_options=options)
    with pytest.raises(ValueError, match=r"ProcessGroupGloo._?Options\): expected a dict"):
        dist.new_group(backend="fanin", pg_options=dist.ProcessGroupGloo._Options())  # type: ignore[attr-defined]


def deterministic(rank: int, warn_only: bool) -> None:
    """``torch.use_deterministic_algorithms`` before a group is made, and after."""
    before = dist.group.WORLD
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    assert not report(before).reproducible
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        text = rf"{op.name} of torch.float32 over UDP depends on the order.*give pg_options=fanin.torch.Options\(reproducible=True\)"
        with pytest.warns(UserWarning, match=text) if warn_only else pytest.raises(RuntimeError, match=text):
            dist.all_reduce(torch.ones(3), op=op)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        largest = torch.tensor([float(rank)])
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        assert largest.item() == WORLD - 1
        dist.all_reduce(torch.arange(3))
        group = dist.new_group(backend="fanin")
        assert report(group).reproducible == "element"
        assert len(set(sums(group, rank))) == 1
        # Who says otherwise is taken at their word, until sums are asked for.
        other = dist.new_group(backend="fanin", pg_options=Options(reproducible=False))
        assert not report(other).reproducible
    with pytest.warns(UserWarning) if warn_only else pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(3), group=other)
    torch.use_deterministic_algorithms(False)
    dist.all_reduce(torch.ones(3), group=other)


@pytest.mark.parametrize("warn_only", [False, True])
def test_deterministic_algorithms(warn_only: bool) -> None:
    """They ask for reproducible sums, or the error (or warning) says why a group has none."""
    ranks.run(WORLD, deterministic, warn_only, environ={"FANIN_TRANSPORT": "udp"})


def reports(rank: int) -> None:
    """What a group says of itself."""
    group = dist.new_group(backend="fanin", pg_options=Options(transport="udp"))
    dist.all_reduce(torch.ones(100), group=group)
    dist.all_reduce(torch.ones(50), group=group)
    dist.all_gather([torch.empty(2) for _ in range(WORLD)], torch.ones(2), group=group)
    if rank < 2:
        (dist.send if rank == 0 else dist.recv)(torch.ones(3), 1 - rank, group=group)
    said = report(group)
    assert (said.rank, said.world, said.transport, said.reproducible) == (rank, WORLD, "udp", None)
    assert said.path == backend_of(group)._comm.path
    assert said.calls == {"all_reduce": (2, 600), "all_gather": (1, 8)}
    # Not one packet less than there are sums and gathers.
    assert said.packets_sent - said.packets_retransmitted >= 3
    dist.all_reduce(torch.ones(100_000), group=group)
    later = report(group)
    fresh = (later.packets_sent - later.packets_retransmitted) - (said.packets_sent - said.packets_retransmitted)
    # 400,000 bytes in packets of at most 64 KiB, and of a kilobyte at least.
    assert 6 <= fresh <= 400, fresh
    local = dist.new_group(backend="fanin", pg_options=Options(transport="shm"))
    dist.all_reduce(torch.ones(100), group=local)
    assert (report(local).packets_sent, report(local).packets_retransmitted) == (0, 0)
    assert said.sparse is None
    assert said.gloo == (("send",), ("recv",), ())[rank]
    with pytest.raises(ValueError, match="ProcessGroupGloo: expected fanin"):
        report(dist.new_group(backend="gloo"))


def test_reports() -> None:
    """Transport, calls, bytes and packets, and what gloo has done."""
    ranks.run(WORLD, reports)


def test_an_old_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its version, before anything is registered."""
    monkeypatch.setattr(torch, "__version__", "2.13.1+cpu")
    with pytest.raises(ImportError, match=r"this is PyTorch 2\.13\.1\+cpu: expected 2\.14 or newer"):
        register()
    monkeypatch.setattr(torch, "__version__", "3.0.0")
    register()


def test_options_are_checked_where_they_are_made() -> None:
    """With the field, its value and what was expected."""
    with pytest.raises(ValueError, match="Options: reproducible = 'yes': expected True, False, 'element', 'block' or 'tree'"):
        Options(reproducible="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Options: system = 'rina': expected 'auto', 'switchml', 'canary' or 'tree'"):
        Options(system="rina")
    with pytest.raises(ValueError, match="Options: fallback = 'tree': expected 'ring' or 'error'"):
        Options(fallback="tree")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Options: switch = 's:1': expected none beside a fabric"):
        Options(fabric="m:1", switch="s:1")
    assert Options(fabric="manager:7701", system="rina", fallback="error").settings()["system"] == "rina"


def test_every_option() -> None:
    """Used or refused, with the option, its value and what was expected."""
    ranks.run(WORLD, every_key)


def one_is_wrong(rank: int, what: str) -> tuple[str, int | None]:
    """A rank has other options than the others."""
    mine: dict[str, Any] = {"reproducible": False}
    if rank == 1:
        mine = {"reproducible": True} if what == "other" else {"reproducible": "perhaps"}
    with pytest.raises((CollectiveError, ValueError)) as raised:
        dist.new_group(backend="fanin", pg_options=mine)
    if rank != 1 or what == "other":
        assert isinstance(raised.value, dist.DistBackendError)
    return str(raised.value), getattr(raised.value, "cause", None)


@pytest.mark.parametrize("what", ["other", "wrong"])
def test_options_of_one_rank(what: str) -> None:
    """All ranks hear of it at once, by name."""
    for rank, (text, cause) in enumerate(ranks.run(WORLD, one_is_wrong, what)):
        if what == "other":
            assert "pg_options differ: rank 1 has {'reproducible': True} and rank 0 {'reproducible': False}" in text
            assert cause == 1
        else:
            assert "pg_options['reproducible'] = 'perhaps': expected True, False, 'element', 'block' or 'tree'" in text
            assert cause == (1 if rank != 1 else None)


def variables(rank: int, folder: str) -> tuple[str, list[str]]:
    """A group of its own in a process whose variables mean nothing."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("fanin.torch").addHandler(handler)
    try:
        dist.init_process_group("fanin", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=30))
    except (ValueError, dist.DistBackendError) as error:
        return str(error), lines
    dist.barrier()
    return "", lines


def test_variables_that_mean_nothing(tmp_path: object) -> None:
    """A misspelt one is an error; of others the log says so."""
    for text, _ in ranks.run(2, variables, f"{tmp_path}", backend="", environ={"FANIN_REPRODUCABLE": "1"}):
        assert "FANIN_REPRODUCABLE is set, which nothing reads: is FANIN_REPRODUCIBLE meant?" in text
    environ = {"FANIN_TIMEOUT": "3", "FANIN_RENDEZVOUS": "127.0.0.1:9", "FANIN_FAVOURITE_COLOUR": "blue"}
    for text, lines in ranks.run(2, variables, f"{tmp_path}", backend="", environ=environ):
        assert text == ""
        said = "\n".join(lines)
        assert "FANIN_TIMEOUT is set, which means nothing for torch.distributed: timeouts are those of init_process_group" in said
        assert "FANIN_RENDEZVOUS is set, which means nothing for torch.distributed" in said
        assert "FANIN_FAVOURITE_COLOUR is set, which nothing reads" in said


def inherited(rank: int) -> None:
    """A group that is split off has its parent's options."""
    group = dist.new_group(backend="fanin", pg_options={"reproducible": True})
    child = dist.split_group(group, split_ranks=[[0, 1], [2]])
    if rank < 2:
        with pytest.raises(ValueError, match="product"):
            dist.all_reduce(torch.ones(3), op=dist.ReduceOp.PRODUCT, group=child)
        dist.all_reduce(torch.ones(3), group=child)


@pytest.mark.skipif(not ranks.SPLITS, reason="before 2.15, PyTorch splits groups of GPUs only")
def test_options_of_groups_that_are_split_off() -> None:
    """They are the parent's."""
    ranks.run(WORLD, inherited)


def nans(rank: int) -> None:
    """A NaN that one rank has, in each type of floats and each collective that reduces."""
    for options, expected in [(None, [4.0, 4.0]), ({"nan": "ignore"}, [4.0, 4.0]), ({"nan": "propagate"}, [float("nan"), 4.0])]:
        group = dist.new_group(backend="fanin", pg_options=options)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
                given = torch.tensor([float("nan") if rank == 1 else 4.0, 4.0], dtype=dtype)
                wanted = torch.tensor(expected, dtype=dtype)
                everywhere, parts = given.clone(), torch.empty(2, dtype=dtype)
                dist.all_reduce(everywhere, op=op, group=group)
                dist.reduce_scatter_tensor(parts, given.repeat(WORLD), op=op, group=group)
                for got in (everywhere, parts):
                    torch.testing.assert_close(got, wanted, equal_nan=True, rtol=0, atol=0)
        whole = torch.tensor([rank, 7])
        dist.all_reduce(whole, op=dist.ReduceOp.MAX, group=group)
        assert whole.tolist() == [WORLD - 1, 7]
        dist.destroy_process_group(group)


def test_nans_as_a_group_wants_them() -> None:
    """``MIN`` and ``MAX`` of a NaN and a number."""
    ranks.run(WORLD, nans)
