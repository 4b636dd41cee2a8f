"""What a program can ask a group for: ``pg_options`` of ``init_process_group`` and ``new_group``, by name."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from torch._C._distributed_c10d import Backend

from fanin.errors import ConfigurationError

_log = logging.getLogger("fanin.torch")

#: What each takes: the types of its values, and what was expected, in words. What makes no sense beyond that the communicator refuses.
_KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "reproducible": ((bool,), "True or False"),
    "fixed_point": ((bool,), "True or False"),
    "transport": ((str,), "'auto', 'udp' or 'shm'"),
    "sparse": ((str,), "'auto', 'switch' or 'lists'"),
    "nan": ((str,), "'ignore' or 'propagate'"),
    "wait": ((str,), "'adaptive' or 'busy'"),
    "payload": ((int,), "a number of bytes"),
    "window": ((int,), "a number of packets"),
    "switch": ((str,), "'HOST:PORT' of a switch"),
    "fabric": ((str,), "'HOST:PORT' of the manager of a fabric"),
    "fabric_host": ((str,), "the name of a host of the fabric"),
    "system": ((str,), "'auto', or the name of a system"),
    "fallback": ((str,), "'ring' or 'error'"),
    "bind": ((str,), "an IP address of this host"),
    "stall_notice": ((int, float), "a number of seconds"),
}

#: What a rank may have for itself; all others must be the same at all ranks.
_OF_A_RANK = {"wait", "bind", "stall_notice", "fabric_host"}

#: What is PyTorch's to say, and how.
_OF_PYTORCH = {
    "rank": "ranks are those of the group",
    "world": "ranks are those of the group",
    "job": "a group's name is made by Fanin (FANIN_JOB begins it)",
    "rendezvous": "ranks meet by the group's store; FANIN_SWITCH or `switch` name a switch",
    "timeout": "give `timeout` to init_process_group or new_group",
    "notices": "notices go to the logger `fanin.torch`",
    "operators": "operators of one's own need a fanin.Communicator",
}

#: Variables that mean something for communicators and nothing here, and what does instead.
_VOID = {
    "FANIN_TIMEOUT": "timeouts are those of init_process_group and new_group",
    "FANIN_RENDEZVOUS": "ranks meet by PyTorch's store",
}
_told: set[str] = set()


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
    if not isinstance(options, Mapping):
        kind = f"{type(options).__module__}.{type(options).__qualname__}"
        raise ConfigurationError(f"pg_options = {options!r} (of type {kind}): expected a dict with some of {', '.join(_KEYS)}")
    return {key: _checked(key, value) for key, value in options.items() if value is not None or key not in _KEYS}


def _checked(key: object, value: object) -> Any:
    if not isinstance(key, str) or key not in _KEYS:
        if isinstance(key, str) and key in _OF_PYTORCH:
            raise ConfigurationError(f"pg_options[{key!r}] = {value!r}: not for a group of PyTorch: {_OF_PYTORCH[key]}")
        raise ConfigurationError(f"pg_options[{key!r}] = {value!r}: there is no such option; expected some of {', '.join(_KEYS)}")
    types, expected = _KEYS[key]
    # True is a number for Python, but none of bytes.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise ConfigurationError(f"pg_options[{key!r}] = {value!r}: expected {expected}")
    if key == "nan" and value not in ("ignore", "propagate"):
        raise ConfigurationError(f"pg_options[{key!r}] = {value!r}: expected {expected}")
    return value


def common(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that must be the same at all ranks."""
    return {key: value for key, value in sorted(settings.items()) if key not in _OF_A_RANK}


def of_communicator(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are the communicator's; the others say where it is, or which operators it is asked for."""
    return {key: value for key, value in settings.items() if key not in ("switch", "fabric", "nan")}


def tell_void_variables() -> None:
    """Says once of each variable that it means nothing here."""
    for name, instead in _VOID.items():
        if os.environ.get(name) and name not in _told:
            _told.add(name)
            _log.warning("%s is set, which means nothing for torch.distributed: %s", name, instead)
