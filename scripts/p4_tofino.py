"""What the compiler for Tofino makes of the programs in TNA: whether it places them, in how many stages, and with what of each.

`dataplanes/p4/tna/resources.json` has what it said. The compiler is p4c's Tofino back end, `p4c-barefoot`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent.parent / "dataplanes" / "p4" / "tna"
KEPT = PROGRAMS / "resources.json"
COMPILER = "p4c-barefoot"
#: By name: program, target, sizes. 4,096 places of 256 elements each are 512 KiB of 32-bit words in each pipeline and pass.
BUILDS: dict[str, tuple[str, str, Sequence[str]]] = {
    "switchml": ("switchml", "tofino", ("SWITCHML_CELLS=4096",)),
    "switchml on Tofino 2": ("switchml", "tofino2", ("SWITCHML_CELLS=4096",)),
    "canary": ("canary", "tofino", ("CANARY_PLACE_BITS=12",)),
    "canary as the prototype": ("canary", "tofino", ("CANARY_PLACE_BITS=15", "PASSES=1")),
    "atp": ("atp", "tofino", ()),
    "rina": ("rina", "tofino", ()),
}
#: Of a stage: blocks of SRAM and TCAM, stateful units, gateways, instructions, bits of hashes, bytes of the match crossbars, tables.
OF_STAGE = {
    "sram": 80, "tcam": 24, "stateful_units": 4, "gateways": 16, "instructions": 32, "hash_bits": 416, "exact_bytes": 128,
    "ternary_bytes": 66, "tables": 16,
}  # fmt: skip


class UnplacedError(Exception):
    """The compiler refuses a program."""


def obstacle() -> str | None:
    """Why programs in TNA cannot be compiled here."""
    return None if shutil.which(COMPILER) else f"{COMPILER} is not on PATH: docs/p4.md says how to build it"


def include() -> list[str]:
    """Where the architecture's headers are, if that is said."""
    folder = os.environ.get("P4C_TNA_INCLUDE_PATH")
    return ["-I", folder] if folder else []


def compiled(name: str, folder: Path) -> Path:
    """The compiler's report on a build."""
    program, target, defines = BUILDS[name]
    out = folder / name.replace(" ", "-").replace(",", "")
    architecture = {"tofino": "tna", "tofino2": "t2na"}[target]
    command = [COMPILER, "--target", target, "--arch", architecture, *include(), *(f"-D{each}" for each in defines), "-g", "-o", str(out)]
    done = subprocess.run([*command, str(PROGRAMS / f"{program}.p4")], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnplacedError(f"{name}: {COMPILER} refuses it:\n{done.stderr[-3000:]}")
    return out / "pipeline" / "logs" / "resources.json"


def used(stage: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """What a stage has in use."""
    yield "sram", len(stage["rams"]["srams"])
    yield "tcam", len(stage["tcams"]["tcams"])
    yield "stateful_units", len(stage["meter_alus"]["meters"])
    yield "gateways", len(stage["gateways"]["gateways"])
    yield "instructions", len(stage["vliw"]["instructions"])
    yield "hash_bits", len(stage["hash_bits"]["bits"])
    kinds = [each["byte_type"] for each in stage["xbar_bytes"]["bytes"]]
    yield "exact_bytes", kinds.count("exact")
    yield "ternary_bytes", kinds.count("ternary")
    yield "tables", len(stage["logical_tables"]["ids"])


def resources(name: str, report: Path) -> dict[str, Any]:
    """What a build takes: stages of those that there are, and by kind the number in use and its share of all, in percent."""
    pipeline = json.loads(report.read_text())["resources"]["mau"]
    program, target, defines = BUILDS[name]
    stages = pipeline["nStages"]
    if len(pipeline["mau_stages"]) > stages:
        # The compiler goes on; its assembler would not.
        raise UnplacedError(f"{name}: needs {len(pipeline['mau_stages'])} stages of {stages}")
    found: dict[str, Any] = {"program": program, "target": target, "defines": list(defines)}
    found |= {"stages_needed": len(pipeline["mau_stages"]), "stages": stages}
    for kind, each in OF_STAGE.items():
        count = sum(dict(used(stage))[kind] for stage in pipeline["mau_stages"])
        found[kind] = {"used": count, "percent": round(100 * count / (each * stages), 2)}
    return found


def differences(kept: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What is not as it was."""
    return [f"{name}: {key} was {kept.get(name, {}).get(key)}, is {value}" for name, build in found.items() for key, value in build.items()
            if kept.get(name, {}).get(key) != value]  # fmt: skip


def table(found: dict[str, Any]) -> str:
    """A table for docs/p4.md."""
    lines = [f"| | target | stages | {' | '.join(OF_STAGE)} |".replace("_", " "), f"|{'---|' * (len(OF_STAGE) + 3)}"]
    for name, build in found.items():
        cells = " | ".join(f"{build[kind]['percent']:.2f} %" for kind in OF_STAGE)
        lines.append(f"| {name} | {build['target']} | {build['stages_needed']} of {build['stages']} | {cells} |")
    return "\n".join(lines)
