"""Every way to train in several processes, in one process: under NCCL where there is a GPU, and under gloo on the CPU. The rows
are those of bench/modes.py."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import modes
from modes import DDP, SHARD, STAGE, TENSOR, UNITS
from processes import Process

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="NCCL needs a GPU")
pytestmark = pytest.mark.usefixtures("one_thread", "deterministic")


@pytest.fixture(scope="module", params=["gloo", pytest.param("nccl", marks=NEEDS_GPU)])
def process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    device = torch.device("cuda", 0) if request.param == "nccl" else torch.device("cpu")
    store = dist.FileStore(str(tmp_path_factory.mktemp("process") / "store"), 1)
    dist.init_process_group(request.param, rank=0, world_size=1, store=store)
    yield Process(0, device, {"backend": request.param, "ranks": 1})
    dist.destroy_process_group()


@pytest.mark.parametrize("part", [DDP, UNITS, SHARD, TENSOR, STAGE])
def test_a_way_has_its_bits_inside_the_budget(process: Process, part: str) -> None:
    gc.collect()
    free, tight = modes.rows_of(process, part, samples=1)
    for row in (free, tight):
        assert row["same"] and row["backend"] == process.known["backend"]
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
