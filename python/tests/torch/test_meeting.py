"""All ranks of a list hear the same of their group, whoever says it, and in whatever order they speak."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random

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
    assert follower._follow(follower._differs()) == place
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


def test_who_was_first_has_died_before_it_said_anything() -> None:
    """The next one says it, and all hear that."""
    store = dist.HashStore()
    leader, follower = meets(store, 1, AGREED), meets(store, 2, AGREED)
    follower._say()
    store.add(f"told/{leader._me.list_name}/1", 1)
    place = outcome(leader)
    assert isinstance(place, Place) and follower._follow(None) == place
    HOSTING.close(place)


class Interrupted:
    """A store in which something happens before a key is set."""

    def __init__(self, store: dist.Store, key: str, action: Callable[[], object]) -> None:
        self._store, self._key, self._action = store, key, action

    def set(self, key: str, value: str) -> None:
        """As the store does."""
        if key == self._key:
            self._action()
        self._store.set(key, value)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_all_that_wait_for_a_rank_hear_of_its_other_list() -> None:
    """Rank 2 waits for rank 1, which has found another conflict first, as has rank 0: rank 1 tells it all the same."""
    store = dist.HashStore()
    whole, waiting = meets(store, 0, (0, 1, 2)), meets(store, 2, AGREED)
    conflicts: list[Place | None] = []

    def waits() -> None:
        waiting._say()
        conflicts.append(waiting._differs())

    # When rank 2 looks, rank 1 has not come yet; its claim is behind that of rank 1 in the order of claims.
    between_both = Interrupted(store, "claimed/1", waits)
    whole._say()
    told = [outcome(Meeting(between_both, Member(1, (0, 1)), PATIENCE))]  # type: ignore[arg-type]
    assert conflicts == [None]
    begin = time.monotonic()
    for action in (whole._lead, lambda: waiting._follow(None)):
        with pytest.raises(CollectiveError) as raised:
            action()
        told.append(str(raised.value))
    assert time.monotonic() - begin < 10
    for text in told:
        assert isinstance(text, str) and "expected the same list at all ranks" in text, text


class Dawdling:
    """A store at which each call may take a while, for one rank."""

    def __init__(self, store: dist.Store, random: Random) -> None:
        self._store, self._random = store, random

    def __getattr__(self, name: str) -> object:
        if self._random.random() < 0.3:
            time.sleep(self._random.random() * 0.002)
        return getattr(self._store, name)


def dawdle(rank: int, store: dist.Store, ranks: tuple[int, ...], seed: float) -> str | Place:
    """One rank's meeting."""
    slow = Dawdling(store, Random(seed))
    return outcome(Meeting(slow, Member(ranks.index(rank), ranks), PATIENCE))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_nobody_waits_in_vain_whatever_the_lists_and_the_order(seed: int) -> None:
    """Four ranks with lists of their own: where one has another list than a rank of its list, all that have this list are told, at once."""
    random = Random(seed)
    for _ in range(50):
        store = dist.HashStore()
        lists: dict[int, tuple[int, ...]] = {}
        for rank in range(4):
            others = [other for other in range(4) if other != rank and random.random() < 0.5]
            ranks = [rank, *(others or [(rank + 1) % 4])]
            random.shuffle(ranks)
            # Two in three have the list of one before, where they are in it.
            known = [known for known in lists.values() if rank in known]
            lists[rank] = random.choice(known) if known and random.random() < 0.7 else tuple(ranks)
        seeds = [random.random() for _ in lists]

        begin = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            ends = list(pool.map(dawdle, lists, [store] * 4, lists.values(), seeds))
        assert time.monotonic() - begin < PATIENCE.total_seconds() / 2, (lists, ends)
        for rank, end in enumerate(ends):
            same = [ends[other] for other in lists[rank] if lists[other] == lists[rank]]
            if isinstance(end, Place):
                assert len(same) == len(lists[rank]) and all(other == end for other in same), (lists, ends)
            else:
                assert "expected the same list at all ranks" in end, (lists, ends)
                assert not any(isinstance(other, Place) for other in same), (lists, ends)
        for place in {end.rendezvous: end for end in ends if isinstance(end, Place)}.values():
            HOSTING.close(place)
