"""The package's build backend (PEP 517): maturin, and before it the program.

maturin builds one crate at a time. The native module is that crate; the `fanin` program is built here and laid where maturin takes the
wheel's scripts from. Run as a program it does only that, for whoever calls maturin without pip.

FANIN_PROFILE names the Cargo profile of both; `release` by default, `dist` for what is handed out.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

#: The repository, or what an sdist has of it.
ROOT = Path(__file__).resolve().parents[2]
#: As in pyproject.toml.
DATA = ROOT / "target" / "wheel"

#: Told by pip and others with `--config-settings`, for maturin.
Settings = dict[str, Any] | None


def stage_program() -> None:
    """Builds the program and lays it into the wheel's scripts."""
    profile = os.environ.get("FANIN_PROFILE", "release")
    command = ["cargo", "build", "--locked", "--profile", profile, "--package", "fanin", "--bin", "fanin"]
    command += ["--message-format", "json-render-diagnostics", *_target()]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    programs = [message["executable"] for message in messages if message.get("executable")]
    if len(programs) != 1:
        raise RuntimeError(f"`{shlex.join(command)}` has built {programs or 'no program'}, expected one program")
    scripts = DATA / "scripts"
    # Nothing of an earlier build may get into the wheel.
    shutil.rmtree(DATA, ignore_errors=True)
    scripts.mkdir(parents=True)
    shutil.copy2(programs[0], scripts / "fanin")
    if profile in ("release", "dist"):
        # Names and line numbers for backtraces are half of the program; who wants them builds it with Cargo.
        subprocess.run(["strip", "--strip-debug", scripts / "fanin"], check=False)


def _target() -> list[str]:
    """The target that is compiled for, where that is not this machine's: cross-compiling tools say it like that."""
    target = os.environ.get("CARGO_BUILD_TARGET")
    return ["--target", target] if target else []


def _maturin(settings: Settings) -> Any:
    """maturin's own backend, told the profile."""
    import maturin

    profile = os.environ.get("FANIN_PROFILE")
    if profile and "MATURIN_PEP517_ARGS" not in os.environ and not (settings or {}).get("build-args"):
        os.environ["MATURIN_PEP517_ARGS"] = f"--locked --profile {shlex.quote(profile)}"
    # Also for the hooks that build nothing: maturin looks whether it is there.
    DATA.mkdir(parents=True, exist_ok=True)
    return maturin


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return list(_maturin(config_settings).get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return list(_maturin(config_settings).get_requires_for_build_editable(config_settings))


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return list(_maturin(config_settings).get_requires_for_build_sdist(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    return str(_maturin(config_settings).prepare_metadata_for_build_wheel(metadata_directory, config_settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    stage_program()
    return str(_maturin(config_settings).build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    stage_program()
    return str(_maturin(config_settings).build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    return str(_maturin(config_settings).build_sdist(sdist_directory, config_settings))


if __name__ == "__main__":
    stage_program()
    print(DATA / "scripts" / "fanin", file=sys.stderr)
