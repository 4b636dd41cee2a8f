"""All ranks of a list hear the same of their group, whoever says it, and in whatever order they speak."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import torch.distributed as dist

from fanin.torch import CollectiveError, meeting
from fanin.torch.meeting import HOSTING, Meeting, Member, Place

PATIENCE = timedelta(seconds=30)
AGREED = (1, 2)


def meets(store: dist.Store, known: int, ranks: tuple[int, ...]) -> Meeting:
    """The meeting of a process, by its rank in the default group."""
    return Meeting(store, Member(ranks.index(known), ranks), PATIENCE)


def outcome(one: Meeting) -> str | Place:
    """The place, or why there is none."""
    try:
        return one.come_together()
    except CollectiveError as error:
        return str(error)


def between(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Does something when rank 0 has found all, and has not said so yet."""
    whole = Meeting._open

    def opened(self: Meeting, hosts: set[str]) -> Place:
        place = whole(self, hosts)
        action()
        return place

    monkeypatch.setattr(meeting.Meeting, "_open", opened)


def test_another_list_is_told_while_rank_0_opens_its_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 does not say afterwards that all is well: its follower has heard that it is not."""
    store = dist.HashStore()
    leader, follower, other = meets(store, 1, AGREED), meets(store, 2, AGREED), meets(store, 0, (0, 1))
    told: list[str | Place] = []
    between(monkeypatch, lambda: told.extend([outcome(other), outcome(follower)]))
    # The follower has claimed its place before.
    follower._say()
    monkeypatch.setattr(follower, "_say", lambda: None)
    told.append(outcome(leader))
    assert len(told) == 3
    for text in told:
        assert isinstance(text, str) and "expected the same list at all ranks" in text, text
    assert not HOSTING._hosts


@pytest.mark.parametrize("ranks", [(0, 1), (2, 0), (0, 2)], ids=str)
def test_another_list_comes_when_the_ranks_have_met(ranks: tuple[int, ...]) -> None:
    """Their group is made, at all of them; whoever has the other list is told."""
    store = dist.HashStore()
    leader, follower = meets(store, 1, AGREED), meets(store, 2, AGREED)
    follower._say()
    place = outcome(leader)
    assert isinstance(place, Place) and place.failure is None
    # Before the follower has looked.
    other = Meeting(store, Member(ranks.index(0), ranks), timedelta(milliseconds=200))
    text = outcome(other)
    assert isinstance(text, str) and "expected the same list at all ranks" in text, text
    assert follower._follow() == place
    HOSTING.close(place)


@pytest.mark.parametrize("first", ["leader", "follower"])
def test_another_list_came_before(first: str) -> None:
    """All of the list are told, also where a follower finds it before its rank 0 has come."""
    store = dist.HashStore()
    leader, follower = meets(store, 1, AGREED), meets(store, 2, AGREED)
    meets(store, 0, (2, 0))._say()
    for one in [leader, follower] if first == "leader" else [follower, leader]:
        text = outcome(one)
        assert isinstance(text, str) and "expected the same list at all ranks" in text, text
