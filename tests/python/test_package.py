"""The package as the build lays it out, and as an installation would tell of it."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import reprise

ROOT = Path(__file__).resolve().parents[2]


def test_version_is_that_of_the_library() -> None:
    declared = re.search(r"project\(reprise VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert declared is not None
    assert reprise.__version__ == declared[1] == importlib.metadata.version("reprise")


def test_planner_imports_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import reprise._core"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_build_declares_the_backend_of_an_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["torch_dynamo_backends"]
    found = importlib.metadata.entry_points(group="torch_dynamo_backends")
    assert {point.name: point.value for point in found if point.name == "reprise"} == declared
