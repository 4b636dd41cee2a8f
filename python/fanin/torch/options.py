"""What a program can ask a group for: ``pg_options`` of ``init_process_group`` and ``new_group``, by name."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
from torch._C._distributed_c10d import Backend

from fanin.errors import ConfigurationError
from fanin.operators import CustomOperator

_log = logging.getLogger("fanin.torch")

#: The longest timeout that the communicator takes: a hundred years, which nobody tells from a longer one.
TIMEOUT_MAX = timedelta(days=36_500)

#: What each takes: the types of its values, and what was expected, in words. What makes no sense beyond that the communicator refuses.
_KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "reproducible": ((bool, str), "True, False, 'element', 'block' or 'tree'"),
    "fixed_point": ((bool,), "True or False"),
    "transport": ((str,), "'auto', 'udp' or 'shm'"),
    "sparse": ((str,), "'auto', 'switch' or 'lists'"),
    "token": ((str,), "a token, or '@FILE'"),
    "tls": ((str,), "the file of a CA, or 'sha256:FINGERPRINT'"),
    "tls_name": ((str,), "the name in the switch's certificate"),
    "tls_cert": ((str,), "the file of a certificate"),
    "tls_key": ((str,), "the file of its private key"),
    "nan": ((str,), "'ignore' or 'propagate'"),
    "wait": ((str,), "'adaptive' or 'busy'"),
    "payload": ((int,), "a number of bytes"),
    "window": ((int,), "a number of packets"),
    "switch": ((str,), "'HOST:PORT' of a switch"),
    "fabric": ((str,), "'HOST:PORT' of the manager of a fabric"),
    "fabric_host": ((str,), "the name of a host of the fabric"),
    "system": ((str,), "'auto', 'switchml', 'canary' or 'tree', or in a fabric (FANIN_FABRIC) the name of a system"),
    "fallback": ((str,), "'ring' or 'error'"),
    "bind": ((str,), "an IP address of this host"),
    "stall_notice": ((int, float), "a number of seconds"),
    "timeout": ((int, float, timedelta), "a number of seconds above 0, or a timedelta"),
    "operators": ((tuple, list), "a tuple of up to four fanin.CustomOperator"),
}

#: Values that are words, where the communicator does not check them.
_WORDS: dict[str, tuple[bool | str, ...]] = {
    "reproducible": (True, False, "element", "block", "tree"),
    "nan": ("ignore", "propagate"),
    "fallback": ("ring", "error"),
}

#: The systems that one switch reduces by.
_AT_SWITCH = ("auto", "switchml", "canary", "tree", "atp", "a2tp")

#: What a rank may have for itself; all others must be the same at all ranks.
_OF_A_RANK = {"wait", "bind", "stall_notice", "timeout", "fabric_host", "tls_cert", "tls_key"}

#: What is PyTorch's to say, and how.
_OF_PYTORCH = {
    "rank": "ranks are those of the group",
    "world": "ranks are those of the group",
    "job": "a group's name is made by Fanin (FANIN_JOB begins it)",
    "rendezvous": "ranks meet by the group's store; FANIN_SWITCH or `switch` name a switch",
    "notices": "notices go to the logger `fanin.torch`",
}

#: How many operators of its own a job may have.
_OPERATORS_MAX = 4

#: Variables that mean something for communicators and nothing here, and what does instead.
_VOID = {
    "FANIN_TIMEOUT": "timeouts are those of init_process_group and new_group",
    "FANIN_RENDEZVOUS": "ranks meet by PyTorch's store",
}
_told: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a group is asked for, as ``pg_options`` of ``init_process_group`` and ``new_group``.

    What is ``None`` comes from the environment. Nothing is ignored: what a group cannot do is an error where the options are made, or at
    all ranks where the group is.

    Raises:
        ConfigurationError: Names the option, its value, and what was expected.
    """

    #: Floats are reduced to the same bits in every run. ``True`` is ``"element"``: bits depend on the element at all ranks alone. With
    #: ``"block"`` they depend on the bucket as well, and small values beside large ones are lost. With ``"tree"`` switches of a fabric add
    #: floats as they are, in a fixed order (``system="flare"`` or ``"tree"``): bits depend on where ranks are.
    reproducible: bool | Literal["element", "block", "tree"] | None = None
    #: Sums of float32 as block fixed point, as hardware switches have them.
    fixed_point: bool | None = None
    #: The system that sums: in a fabric any one that sums dense vectors, as ``"canary"`` or ``"rina"``; at one switch ``"switchml"``,
    #: ``"canary"``, ``"tree"``, ``"atp"`` or ``"a2tp"`` (which mean ``transport="udp"``), or what the transport has.
    system: str | None = None
    #: What becomes of a job that the switches of a fabric do not take: a ring of hosts runs it, or it fails.
    fallback: Literal["ring", "error"] | None = None
    #: How vectors travel.
    transport: Literal["auto", "udp", "shm"] | None = None
    #: How sparse vectors are summed over UDP.
    sparse: Literal["auto", "switch", "lists"] | None = None
    #: What gives the right to join, where the switch asks for it: a token, or ``"@FILE"``.
    token: str | None = dataclasses.field(default=None, repr=False)
    #: By what the switch is known, and then control connections are TLS: the file of its CA, or ``"sha256:FINGERPRINT"``.
    tls: str | None = None
    #: The name that the switch's certificate must have; by default the host that is gone to.
    tls_name: str | None = None
    #: The file of this rank's certificate, where the switch asks for one or rank 0 runs it.
    tls_cert: str | None = None
    #: The file of its private key.
    tls_key: str | None = None
    #: Whether MIN and MAX of a NaN and a number are the number or the NaN.
    nan: Literal["ignore", "propagate"] | None = None
    #: How this rank waits.
    wait: Literal["adaptive", "busy"] | None = None
    #: Bytes of elements in a packet.
    payload: int | None = None
    #: Packets in flight.
    window: int | None = None
    #: ``HOST:PORT`` of a switch.
    switch: str | None = None
    #: ``HOST:PORT`` of the manager of a fabric of several switches, in place of one.
    fabric: str | None = None
    #: The host of the fabric that this rank is.
    fabric_host: str | None = None
    #: The IP address of this host to send from.
    bind: str | None = None
    #: After how many seconds without progress the log says why.
    stall_notice: float | None = None
    #: How long this rank waits, in seconds or as a ``timedelta``; comes before the ``timeout`` of ``init_process_group`` and ``new_group``.
    timeout: float | timedelta | None = None
    #: Operators of one's own for :func:`fanin.torch.all_reduce`, at most four: the same at all ranks, in the same order.
    operators: tuple[CustomOperator, ...] | None = None

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> dict[str, Any]:
        """What was given, checked, by name."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _settings({key: value for key, value in given.items() if value is not None}, "Options: {}")


def read(options: object) -> dict[str, Any]:
    """The settings in ``pg_options``.

    Raises:
        ConfigurationError: Names the option, its value, and what was expected.
    """
    if options is None:
        return {}
    if type(options) is Backend.Options:
        # PyTorch's own: the timeout alone, which it gives by itself as well.
        return {}
    if isinstance(options, Options):
        return options.settings()
    if not isinstance(options, Mapping):
        kind = f"{type(options).__module__}.{type(options).__qualname__}"
        raise ConfigurationError(
            f"pg_options = {options!r} (of type {kind}): expected a dict or fanin.torch.Options with some of {', '.join(_KEYS)}"
        )
    return _settings({key: value for key, value in options.items() if value is not None or key not in _KEYS}, "pg_options[{!r}]")


def _settings(given: Mapping[Any, Any], form: str) -> dict[str, Any]:
    settings = {key: _checked(key, value, form.format(key)) for key, value in given.items()}
    if settings.get("fabric") and settings.get("switch"):
        raise ConfigurationError(
            f"{form.format('switch')} = {settings['switch']!r}: expected none beside a fabric: ranks meet at one place"
        )
    if fabric_of(settings):
        return settings
    system = settings.get("system", "auto")
    if system not in _AT_SWITCH:
        raise ConfigurationError(f"{form.format('system')} = {system!r}: expected {_KEYS['system'][1]}")
    if system != "auto":
        transport = settings.setdefault("transport", "udp")
        if transport != "udp":
            raise ConfigurationError(f"{form.format('transport')} = {transport!r}: expected 'udp' where system = {system!r}")
    return settings


def _checked(key: object, value: object, name: str) -> Any:
    if not isinstance(key, str) or key not in _KEYS:
        if isinstance(key, str) and key in _OF_PYTORCH:
            raise ConfigurationError(f"{name} = {value!r}: not for a group of PyTorch: {_OF_PYTORCH[key]}")
        raise ConfigurationError(f"{name} = {value!r}: there is no such option; expected some of {', '.join(_KEYS)}")
    types, expected = _KEYS[key]
    # True is a number for Python, but none of bytes.
    wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
    wrong = wrong or (key in _WORDS and value not in _WORDS[key])
    if wrong:
        raise ConfigurationError(f"{name} = {value!r}: expected {expected}")
    if key == "timeout":
        assert isinstance(value, int | float | timedelta)
        return _timeout(value, name, expected)
    if key == "operators":
        assert isinstance(value, tuple | list)
        if len(value) > _OPERATORS_MAX or not all(isinstance(each, CustomOperator) for each in value):
            raise ConfigurationError(f"{name} = {value!r}: expected {expected}")
        return tuple(value)
    return value


def _timeout(value: float | timedelta, name: str, expected: str) -> timedelta:
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not 0 < seconds < math.inf:
        raise ConfigurationError(f"{name} = {value!r}: expected {expected}")
    return timedelta(seconds=min(seconds, TIMEOUT_MAX.total_seconds()))


def fabric_of(settings: Mapping[str, Any]) -> str | None:
    """Where the manager of the group's fabric is; a switch that the group is given comes before the environment's fabric."""
    fabric = settings.get("fabric")
    if fabric is None and "switch" not in settings:
        fabric = os.environ.get("FANIN_FABRIC") or None
    return fabric


def is_set(variable: str) -> bool:
    """Whether a variable of the environment that is 0 or 1 says yes; the communicator refuses what is neither."""
    return os.environ.get(variable) == "1"


def reproducible_by(settings: Mapping[str, Any]) -> Literal["element", "block", "tree"] | None:
    """What reproducible sums depend on, where sums are reproducible: the element alone, its block, or the order in a fabric's tree."""
    asked = settings.get("reproducible")
    if asked is None:
        asked = os.environ.get("FANIN_REPRODUCIBLE") or False
    if asked in ("element", "1", True):
        return "element"
    if asked == "tree":
        return "tree"
    return "block" if asked == "block" else None


def with_determinism(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that ask for reproducible sums where ``torch.use_deterministic_algorithms`` does and nobody has said otherwise."""
    said = "reproducible" in settings or os.environ.get("FANIN_REPRODUCIBLE")
    other = settings.get("fixed_point", is_set("FANIN_FIXED_POINT"))
    if said or other or not torch.are_deterministic_algorithms_enabled():
        return dict(settings)
    return {**settings, "reproducible": True}


def tls_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """What a switch in this process is known by, and knows ranks by."""
    return {key: str(settings[key]) for key in ("tls", "tls_name", "tls_cert", "tls_key") if settings.get(key) is not None}


def common(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that must be the same at all ranks."""
    shared = {key: value for key, value in sorted(settings.items()) if key not in _OF_A_RANK}
    if "operators" in shared:
        shared["operators"] = [f"{operator.name} ({operator.digest})" for operator in shared["operators"]]
    return shared


def of_communicator(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are the communicator's; the others say where it is, or which operators it is asked for."""
    of_it = {key: value for key, value in settings.items() if key not in ("switch", "fabric", "nan", "timeout", "operators")}
    return {**of_it, "operators": [operator.native for operator in settings.get("operators", ())]}


def tell_void_variables() -> None:
    """Says once of each variable that it means nothing here."""
    for name, instead in _VOID.items():
        if os.environ.get(name) and name not in _told:
            _told.add(name)
            _log.warning("%s is set, which means nothing for torch.distributed: %s", name, instead)
