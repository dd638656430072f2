"""A tenth of the list of bench/architectures.py: each architecture trains inside its budget with the bits of eager."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import reprise

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from models.architectures import ARCHITECTURES  # noqa: E402
from one_architecture import SHARE, Training, measure  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
REPRESENTATIVE = {"mixtral": "online", "switch": "online", "bart": "online", "detr": "online", "wav2vec2": "online",
                  "led": "online", "time-series-transformer": "online", "siglip": "graph", "mamba": "graph",
                  "diffusion-unet": "graph", "squeezebert": "graph", "fnet": "graph", "clip": "graph",
                  "visual-bert": "graph"}


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_it_trains_inside_its_budget(name: str) -> None:
    pytest.importorskip(ARCHITECTURES[name].package)
    training = Training(ARCHITECTURES[name], CPU)
    before, peak = training.peak()
    budget = before + int(SHARE * (peak - before))
    answer = reprise.verify(training.model(), (training.args, training.kwargs), budget, loss=training.architecture.loss,
                            repeats=3, planning_seconds=1)
    assert answer.ok, answer
    assert (answer.planner == "online") == (REPRESENTATIVE[name] == "online")
    assert answer.predicted_peak_bytes in (None, answer.planned_peak_bytes)


def test_layers_that_are_dropped_are_others_in_every_step() -> None:
    """verify begins every step with the same random numbers, and would not see a choice that was captured."""
    training = Training(ARCHITECTURES["bart"], CPU)
    plain = training.trained(training.model())
    model = reprise.compile(training.model(), "1GiB")
    assert training.trained(model) == plain
    reprise.restore(model)


def test_the_list_is_long_and_has_every_kind() -> None:
    assert len([each for each in ARCHITECTURES.values() if each.package == "transformers"]) >= 80
    assert {"mixture of experts", "detection", "speech", "scan or recurrence", "images and text", "segmentation or depth",
            "diffusion", "encoder and decoder"} <= {each.kind for each in ARCHITECTURES.values()}


def test_a_package_that_is_missing_is_no_failure_and_no_success() -> None:
    row = measure(replace(ARCHITECTURES["diffusion-unet"], package="a_package_that_is_not_there"), CPU)
    assert "not_here" in row and "mode" not in row


def test_a_model_that_takes_too_long_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    command = [sys.executable, ROOT / "bench" / "architectures.py", "--only", "siglip,bart", "--seconds", "0.1", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "0 of 2 models train inside their budget" in done.stdout
    assert [row["error"] for row in json.loads(file.read_text())["rows"]] == ["stopped after 0.1 s"] * 2
