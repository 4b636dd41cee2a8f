"""What is installed: versions, the program, types; and that the workflow that releases it fits."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import fanin
from fanin.program import find_program

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parents[2]
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = CARGO["workspace"]["package"]["version"]


def test_there_is_one_version() -> None:
    assert fanin.__version__ == importlib.metadata.version("fanin") == VERSION
    assert "version" not in PYPROJECT["project"]
    assert "version" in PYPROJECT["project"]["dynamic"]
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        assert tomllib.loads(manifest.read_text())["package"]["version"] == {"workspace": True}, manifest
    for command in ([find_program()], [sys.executable, "-m", "fanin"]):
        assert subprocess.check_output([*command, "--version"], text=True) == f"fanin {VERSION}\n"


def test_who_cites_cites_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["license"] == CARGO["workspace"]["package"]["license"]
    assert citation["repository-code"] == CARGO["workspace"]["package"]["repository"]


def test_the_program_is_the_one_that_was_installed() -> None:
    files = importlib.metadata.files("fanin")
    assert files is not None
    assert Path(find_program()).resolve() in {Path(str(file.locate())).resolve() for file in files}
    done = subprocess.run([sys.executable, "-m", "fanin", "sim", "nowhere.toml"], capture_output=True, text=True, check=False)
    assert (done.returncode, "nowhere.toml" in done.stderr) == (2, True)


def test_the_package_says_that_it_is_typed_and_what_pytorch_finds() -> None:
    package = Path(fanin.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_native.pyi").exists()
    (entry,) = [entry for entry in importlib.metadata.entry_points(group="torch.distributed.backends") if entry.name == "fanin"]
    assert entry.value == "fanin.torch:register"
    assert all(hasattr(fanin, name) for name in fanin.__all__)


def workflow() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    return loaded


def test_the_release_builds_wheels_for_the_platforms_that_are_promised() -> None:
    jobs = workflow()["jobs"]
    builds = jobs["wheels"]["strategy"]["matrix"]["include"]
    assert {build["target"] for build in builds} == {"x86_64", "aarch64"}
    steps = [step for job in jobs.values() for step in job["steps"]]
    (build,) = [step for step in jobs["wheels"]["steps"] if str(step.get("uses", "")).startswith("PyO3/maturin-action@")]
    assert build["with"]["manylinux"] == "2_28"
    # maturin builds one crate: the program is staged before it, by the backend that pip uses.
    assert "python/build/fanin_build.py" in build["with"]["before-script-linux"]
    backend = PYPROJECT["build-system"]
    assert (ROOT / backend["backend-path"][0] / f"{backend['build-backend']}.py").exists()
    channel = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    assert build["with"]["rust-toolchain"] == channel
    assert f"FROM rust:{channel}-alpine" in (ROOT / "Dockerfile").read_text()
    assert f"RUSTUP_TOOLCHAIN={channel}\n" in (ROOT / "Dockerfile").read_text()
    for step in steps:
        if "uses" in step:
            assert "@v" in step["uses"] or "@release" in step["uses"], f"{step['uses']} has no version"


def test_a_release_has_programs_an_image_a_bill_of_materials_and_checksums() -> None:
    jobs = workflow()["jobs"]
    assert {build["target"] for build in jobs["programs"]["strategy"]["matrix"]["include"]} == {"x86_64", "aarch64"}
    assert "linux/amd64,linux/arm64" in [step.get("with", {}).get("platforms") for step in jobs["image"]["steps"]]
    publish = jobs["publish"]
    assert set(publish["needs"]) == {"wheels", "programs", "image", "sdist"}
    assert any(str(step.get("uses", "")).startswith("anchore/sbom-action@") for step in publish["steps"])
    assert any("scripts/dist.py --checksums" in step.get("run", "") for step in publish["steps"])


def test_the_release_takes_its_version_from_the_workspace() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert VERSION not in text
    # YAML 1.1 reads the key `on` as true.
    triggers = workflow().get("on", workflow().get(True))
    assert triggers["push"]["tags"] == ["v*"]
    assert "scripts/version.py" in text
    check = [sys.executable, str(ROOT / "scripts" / "version.py")]
    assert subprocess.check_output(check, text=True).strip() == VERSION
    assert subprocess.run([*check, "--tag", f"v{VERSION}"], check=False, stdout=subprocess.PIPE).returncode == 0
    wrong = subprocess.run([*check, "--tag", "v999.0.0"], check=False, capture_output=True, text=True)
    assert wrong.returncode == 1
    assert VERSION in wrong.stderr
