"""``fanin.advise``: what to buy."""

from __future__ import annotations

from pathlib import Path

import pytest

import fanin

NETWORKS = Path(__file__).resolve().parents[2] / "examples" / "networks"


def test_what_is_bought_is_named_with_its_gain_and_written(tmp_path: Path) -> None:
    advice = fanin.advise(NETWORKS / "racks.toml", NETWORKS / "jobs.toml", budget=4, systems=["ring", "tree"], out=tmp_path)
    assert not advice.buys_nothing
    assert (advice.system, advice.switches, advice.price) == ("tree", ["core0"], 1.0)
    mean, least, most = advice.gain
    assert least <= mean <= most
    assert mean > 0.3
    assert str(advice).startswith("Buy core0")
    assert "tree" in repr(advice)
    assert {"index.html", "advice.json", "step-1.toml", "plan-1.toml"} <= {path.name for path in tmp_path.iterdir()}


def test_no_money_buys_nothing() -> None:
    advice = fanin.advise(NETWORKS / "racks.toml", NETWORKS / "jobs.toml", budget=0, systems=["ring", "tree"])
    assert advice.buys_nothing
    assert advice.switches == []


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(fanin.PlanError, match="expected ring"):
        fanin.advise(NETWORKS / "racks.toml", NETWORKS / "jobs.toml", systems=["nobody"])
    with pytest.raises(fanin.PlanError, match="cannot be read"):
        fanin.advise("nowhere.toml", NETWORKS / "jobs.toml")
