"""Runs cases and pages in two processes that train together, or in as many as REPRISE_TEST_RANKS says."""

from __future__ import annotations

import os
import re
import runpy
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import reprise

RANKS = int(os.environ.get("REPRISE_TEST_RANKS", "2"))
SECONDS = 900  # far more than it takes, so that a process that waits for another one ends
PAGES = Path(__file__).resolve().parents[2] / "docs" / "training"

Results = list[dict[str, Any]]


def local_of(tensor: Any) -> Any:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def raw(tensor: Tensor) -> bytes:
    """In memory that no budget counts."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def part_of(tensor: Tensor) -> bytes:
    return raw(local_of(tensor))


class Training:
    """A model that is trained several times from the same beginning. `bits` is how tensors are compared."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, bits: Callable[[Tensor], bytes] = part_of,
                 clip: bool = False) -> None:
        self.model, self.optimizer, self.bits, self.clip = model, optimizer, bits, clip
        self.beginning = [part_of(tensor) for tensor in model.parameters()]
        self.peaks: list[int] = []

    def loss(self, step: int = 0) -> Tensor:
        raise NotImplementedError

    def step(self, step: int = 0, micro: int = 1) -> list[bytes]:
        """Loss and gradients."""
        left = []
        for part in range(micro):
            loss = self.loss(10 * step + part)
            loss.backward()
            left.append(raw(loss))
            if plan := getattr(self.model, "plan", None):
                self.peaks.append(plan.measured_peak_bytes)
        if self.clip:
            left.append(self.bits(nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)))
        left += [self.bits(p.grad) for p in self.model.parameters() if p.grad is not None]
        self.optimizer.step()
        self.optimizer.zero_grad()
        return left

    def train(self, steps: int = 3, micro: int = 1) -> list[bytes]:
        """Everything that has to be the same."""
        for tensor, bits in zip(self.model.parameters(), self.beginning, strict=True):
            local = local_of(tensor)
            local.detach().copy_(torch.frombuffer(bytearray(bits), dtype=local.dtype).view(local.shape))
        self.optimizer.state.clear()
        self.peaks.clear()
        left = [part for step in range(steps) for part in self.step(step, micro)]
        return left + [self.bits(tensor) for tensor in self.model.parameters()]

    def least_budget(self) -> int:
        self.model.plan.set_budget(1)
        try:
            self.loss()
        except reprise.InfeasibleBudget as error:
            return error.smallest_budget_bytes
        raise AssertionError("a budget of one byte was enough")


def in_processes(run: Callable[..., None], *arguments: Any) -> None:
    """Runs it in each process with its rank and the arguments. The processes begin soon: what they import is there."""
    torch.multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "reprise.api.compiled_model",
         "transformers.models.gpt2.modeling_gpt2"])
    started = torch.multiprocessing.start_processes(_run, (dict(os.environ), run, arguments), nprocs=RANKS, join=False,
                                                    start_method="forkserver")
    end = time.monotonic() + SECONDS
    try:
        while not started.join(max(0.0, end - time.monotonic())):  # True once all have ended
            assert time.monotonic() < end, "the processes wait for one another"
    finally:
        for process in started.processes:
            process.kill()


def _run(rank: int, environment: dict[str, str], run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """In one of the processes, whose environment is that of the first that were started."""
    os.environ.clear()
    os.environ.update(environment)
    run(rank, *arguments)


def results_of(run: Callable[..., None], folder: Path, *more: Any) -> Results:
    """What each process has left."""
    in_processes(run, str(folder), *more)
    return [torch.load(folder / f"results{rank}.pt", weights_only=False) for rank in range(RANKS)]


def leave_results(rank: int, folder: str, results: Callable[[], dict[str, Any]]) -> None:
    """In one of the processes: makes the process group, and writes what was found to a file."""
    os.environ["REPRISE_CACHE_DIR"] = f"{folder}/cache{rank}"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=dist.FileStore(f"{folder}/store", RANKS),
                            timeout=timedelta(seconds=SECONDS))
    try:
        torch.save(results(), Path(folder) / f"results{rank}.pt")
    finally:
        dist.destroy_process_group()


def run_page(name: str, folder: Path, planned: str = "model", change: tuple[str, str] = ("", "")) -> None:
    """Its code trains inside the budget in each of two processes. planned: what has the plan. change: what the page says has to
    be written in another place of its code."""
    text = (PAGES / f"{name}.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert all(part in text for part in change) and change[0] in code
    script = folder / "train.py"
    script.write_text(code.replace(*change) if change[0] else code)
    with script.open("a") as file:
        file.write(f"assert {planned}.plan.measured_peak_bytes <= {planned}.plan.budget_bytes\n"
                   f"assert {planned}.plan.recompute_ns > 0\n"
                   "import os, pathlib\n"
                   f"pathlib.Path({str(folder)!r}, 'ended.' + os.environ['RANK']).touch(exist_ok=False)\n")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    in_processes(_run_script, str(script), store.port)
    assert sorted(path.name for path in folder.glob("ended.*")) == [f"ended.{rank}" for rank in range(RANKS)]


def _run_script(rank: int, script: str, port: int) -> None:
    """In one of the processes: runs it with the variables that torchrun sets, and with a store in the parent, as there."""
    like_torchrun(rank, port)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    torch.set_num_threads(1)
    os.chdir(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def like_torchrun(rank: int, port: int) -> None:
    """Sets the variables by which libraries find out that they run in one of several processes."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
    os.environ.update({name: str(value) for name, value in ranks.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test"})
