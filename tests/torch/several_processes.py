"""Runs cases and pages in two processes that train together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

RANKS = 2
SECONDS = 900  # far more than it takes, so that a process that waits for another one ends
PAGES = Path(__file__).resolve().parents[2] / "docs" / "training"

Results = list[dict[str, Any]]


def results_of(run: Callable[[int, str], None], folder: Path) -> Results:
    """What each process has left."""
    started = torch.multiprocessing.spawn(run, (str(folder),), nprocs=RANKS, join=False)
    try:
        while not started.join(SECONDS):
            pass
    finally:
        for process in started.processes:
            process.kill()
    return [torch.load(folder / f"results{rank}.pt", weights_only=False) for rank in range(RANKS)]


def leave_results(rank: int, folder: str, results: Callable[[], dict[str, Any]]) -> None:
    """In one of the processes: makes the process group, and writes what was found to a file."""
    os.environ["REPRISE_CACHE_DIR"] = f"{folder}/cache{rank}"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=dist.FileStore(f"{folder}/store", RANKS))
    try:
        torch.save(results(), Path(folder) / f"results{rank}.pt")
    finally:
        dist.destroy_process_group()


def run_page(name: str, folder: Path) -> None:
    """Its code trains inside the budget in each of two processes."""
    script = folder / "train.py"
    text = (PAGES / f"{name}.md").read_text()
    script.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)) +
                      "assert model.plan.measured_peak_bytes <= model.plan.budget_bytes\n"
                      "assert model.plan.recompute_ns > 0\n"
                      "import os, sys\n"
                      "open(f'{sys.argv[1]}.{os.environ[\"RANK\"]}', 'x').close()\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(script),
               str(folder / "ended")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False,
                           env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert sorted(path.name for path in folder.glob("ended.*")) == [f"ended.{rank}" for rank in range(RANKS)]
