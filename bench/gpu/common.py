"""What the measurements on a GPU share: models with their loss inside, and facts about the machine."""

from __future__ import annotations

import concurrent.futures
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from alone import alone  # noqa: E402, F401
from models.steps import STEPS  # noqa: E402

# Plans are compared here, so every step waits for the plan that the whole search finds.
os.environ.setdefault("REPRISE_WAITING_SECONDS", "1e9")

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
DTYPES = {"fp32": None, "bf16": torch.bfloat16}


def facts(command: str) -> dict[str, Any]:
    known: dict[str, Any] = {
        "command": command, "date": date.today().isoformat(), "machine": platform.machine(),
        "python": platform.python_version(), "torch": torch.__version__,
        "matmul_precision": torch.get_float32_matmul_precision(),
    }
    if torch.cuda.is_available():
        known |= {"gpu": torch.cuda.get_device_name(GPU), "cuda": torch.version.cuda,
                  "cudnn": torch.backends.cudnn.version(), "cudnn_benchmark": torch.backends.cudnn.benchmark,
                  "tf32": torch.backends.cudnn.allow_tf32}
    return known


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Training:
    """A network with its loss inside, on a device, and a batch for it."""

    def __init__(self, name: str, dtype: str, device: torch.device, *, tiny: bool = False, batch: int | None = None) -> None:
        step = STEPS[name]
        torch.manual_seed(0)
        self.device, self.dtype = device, DTYPES[dtype]
        with device:  # A GPU draws a billion random numbers faster than the CPU.
            self.model = step.make_module(tiny=tiny).to(device)
        inputs = (step.tiny if tiny else step.case).make_inputs(batch)
        self.args, self.kwargs = tree_map_only(Tensor, lambda t: t.to(device), inputs)

    def step(self, call: Callable[..., Tensor] | None = None) -> Tensor:
        """Runs forward and backward, starting without gradients."""
        self.model.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype is not None):
            loss = (call or self.model)(*self.args, **self.kwargs)
        loss.backward()
        return loss.detach()


def one_process_each(script: str, names: list[str], extra: list[str], jobs: int,
                     save: Callable[[list[dict[str, Any]]], None]) -> list[dict[str, Any]]:
    """Runs `script --one NAME` for each name, and calls `save` with all results so far after each. A script that fails gives a
    result with its error, which is not saved."""

    def run(name: str) -> dict[str, Any]:
        done = subprocess.run([sys.executable, script, "--one", name, *extra], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            return {"case": name, "error": done.stderr[-3000:] or f"ended with {done.returncode}"}
        return json.loads(done.stdout.splitlines()[-1])

    results: list[dict[str, Any]] = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, name) for name in names]):
            result = done.result()
            print(result.get("summary", f"{result['case']}: failed: {result.get('error', '')}"), flush=True)
            results.append(result)
            save([r for r in results if "error" not in r])
    return results


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes the results. If the file has rows of other cases from the same machine and versions, these stay."""
    if path.exists():
        before = json.loads(path.read_text())
        if all(before.get(key) == content.get(key) for key in SAME):
            new = {_case(row) for row in content["results"]}
            kept = [row for row in before["results"] if _case(row) not in new]
            content = content | {"results": sorted(kept + content["results"], key=_case)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


SAME = ("command", "machine", "torch", "gpu", "cuda", "cudnn", "cudnn_benchmark", "tf32", "matmul_precision")


def _case(row: dict[str, Any]) -> tuple[str, str]:
    return row["case"], row.get("dtype", "")
