"""Tests the package in the build folder, with the metadata that an installation would have."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import reprise

ROOT = Path(__file__).resolve().parents[2]


def test_version_is_that_of_the_library() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    declared = re.search(r"project\(reprise VERSION ([0-9.]+)", text)
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


def test_demo_compiles_the_package_and_no_tests() -> None:
    recipe = subprocess.run(["make", "-n", "demo"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    build = re.search(r"^scripts/build\.sh release\b(.*)$", recipe, re.MULTILINE)
    assert build is not None
    folder = Path(reprise.__file__).absolute().parents[2]
    listed = subprocess.run(["ninja", "-C", folder, "-t", "inputs", *(build[1].split() or ["all"])],
                            check=True, capture_output=True, text=True).stdout.splitlines()
    compiled = {Path(name).parts[0] for name in listed if name.endswith(".o")}
    assert compiled == {"src", "runtime", "python"}


def test_readme_code_stands_in_an_example_that_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    examples = sorted((ROOT / "examples").glob("*.py"))
    assert blocks and examples
    for block in blocks:
        assert any(block in example.read_text() for example in examples), block
    environment = {**os.environ, "PYTHONPATH": str(Path(reprise.__file__).absolute().parents[1])}
    for example in examples:
        if example.name.startswith("06_"):
            continue  # CTest runs it, before and after the program in C++ that it exports to.
        subprocess.run([sys.executable, example], cwd=tmp_path, env=environment, check=True, timeout=300)
