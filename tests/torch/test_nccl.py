"""Every way to train in several processes, in one process: under NCCL where there is a GPU, and under gloo on the CPU. The rows
are those of bench/modes.py, which starts a process for each way, because peaks count everything that a process allocates."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import modes
from modes import DDP, SHARD, STAGE, TENSOR, UNITS

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="NCCL needs a GPU")
SECONDS = 900  # far more than it takes


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), pytest.param("cuda", "nccl", marks=NEEDS_GPU)])
@pytest.mark.parametrize("part", [DDP, UNITS, SHARD, TENSOR, STAGE])
def test_a_way_has_its_bits_inside_the_budget(part: str, device: str, backend: str) -> None:
    rows = modes.found_by(argparse.Namespace(device=device, samples=1, seconds=SECONDS), f"{part}:1")
    assert [row["error"] for row in rows if "error" in row] == []
    free, tight = rows
    for row in rows:
        assert row["same"] and row["backend"] == backend
        assert row["ratio_to_alone"] > 0 and row["vote_us"] > 0
    assert tight["measured_bytes"] <= tight["budget_bytes"] < free["measured_bytes"]
    assert free["recomputation_percent"] == 0 < tight["recomputation_percent"]
    assert tight["same_plan"] == (part == DDP)


def row(way: str, budget: str | None, **facts: Any) -> dict[str, Any]:
    return {"way": way, "ranks": 1, "machine": "m", "gpu": None, "torch": "2", **facts, **({"budget": budget} if budget else {})}


def test_rows_of_earlier_runs_stay_until_newer_ones_replace_them() -> None:
    before = [row("ddp", "none", ms=1), row("ddp", "none", ms=2, gpu="H200"), row("shard", None, error="not done"),
              row("units", "none", ms=3)]
    new = [row("ddp", "none", ms=4), row("shard", "none", ms=5), row("units", None, error="not done")]
    assert modes.joined(before, new) == [before[1], before[3], *new]
