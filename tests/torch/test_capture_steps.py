"""Tests the command that captures the steps of data/steps, on the tiny forms of its networks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from models.steps import STEPS

import reprise

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "data" / "steps" / "capture.py"
sys.path.insert(0, str(COMMAND.parent))

import capture as command  # noqa: E402


def capture(out: Path, *options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, COMMAND, "--tiny", "--out", out, "--jobs", "1", *options]
    return subprocess.run(call, capture_output=True, text=True, check=False, env=os.environ | (env or {}))


def graph(path: Path) -> tuple[reprise.Graph, reprise.Costs]:
    return reprise.parse_graph(path.read_text(), source=path.name)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one step, measured and estimated."""
    folder = tmp_path_factory.mktemp("steps")
    for device in ("cpu", "none"):
        done = capture(folder, "--device", device, "--steps", "vgg19_64", env={"REPRISE_CACHE_DIR": str(folder / "cache")})
        assert done.returncode == 0, done.stderr
    return folder


def test_measured_and_estimated_costs_are_of_the_same_step(captured: Path) -> None:
    measured, costs = graph(captured / "vgg19_64.cpu.graph.json")
    estimated, estimates = graph(captured / "vgg19_64.graph.json")
    assert measured.name == STEPS["vgg19_64"].title
    assert [measured.inputs(op) for op in range(measured.num_ops)] == [
        estimated.inputs(op) for op in range(estimated.num_ops)]
    assert measured.num_ops == estimated.num_ops and costs.time_ns != estimates.time_ns
    assert not any(estimates.workspace_bytes)
    facts = json.loads((captured / "facts.json").read_text())
    assert facts["vgg19_64.cpu"]["measured_on"]["device"] == "cpu"
    assert facts["vgg19_64.cpu"]["ops"] == facts["vgg19_64"]["ops"] == measured.num_ops


def test_what_is_there_is_left_and_what_fails_is_told_at_the_end(captured: Path, tmp_path: Path) -> None:
    shutil.copytree(captured, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "vgg19_64.graph.json").stat().st_mtime_ns
    (tmp_path / "vit_large_64.graph.json").mkdir()  # A folder of this name keeps the file from being written.
    second = capture(tmp_path, "--device", "none", "--steps", "vgg19_64,vit_large_64,gpt2_medium_8x1024",
                     "--pack", str(tmp_path / "all.tar.gz"))
    assert second.returncode == 1
    assert "1 of 3 are there already" in second.stdout
    assert "vit_large_64:" in second.stderr
    assert (tmp_path / "vgg19_64.graph.json").stat().st_mtime_ns == before
    assert graph(tmp_path / "gpt2_medium_8x1024.graph.json")[0].num_ops > 100


@pytest.mark.parametrize("wrong", [["--steps", "nothing"], ["--device", "abacus"]])
def test_wrong_options_are_named(tmp_path: Path, wrong: list[str], monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(COMMAND), "--tiny", "--out", str(tmp_path), *wrong])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2 and wrong[1] in capsys.readouterr().err
