"""Captures the training steps of data/steps and gives every call its time and workspace.

    scripts/python.sh data/steps/capture.py [--device cuda|cpu|none] [--steps NAME,...] [--out FOLDER]

Each network is captured as reprise.compile captures it, with its loss inside. On a device, every kind
of call is measured by itself, and NAME.DEVICE.graph.json has its time and workspace. With --device none,
nothing is measured or allocated: NAME.graph.json has the estimates of runtime/costs/roofline.cc, for the
operators of the CPU at the rates of a GPU, and no workspaces. facts.json says how each file was made.

Each network has a process of its own. --jobs of them capture at the same time, but only one measures.
Files that exist already are left as they are, unless --again is given.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from alone import alone  # noqa: E402
from models.steps import STEPS, Step  # noqa: E402

from reprise import _core  # noqa: E402
from reprise.native import _torch  # noqa: E402
from reprise.trace.step_capture import TracedStep, capture_step  # noqa: E402

FACTS = "facts.json"
NONE = "none"


def captured(step: Step, device: str, *, tiny: bool) -> TracedStep:
    """Captures a step on a device, or, if the device is "none", on fake tensors."""
    case = step.tiny if tiny else step.case
    inputs = case.make_inputs()
    if device != NONE:
        with torch.device(device):
            module = step.make_module(tiny=tiny)
        args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to(device), inputs)
        return capture_step(module, args, kwargs, type(module).__name__)
    # One initialisation looks at the numbers that it has drawn, and fake tensors have no numbers.
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, \
            mock.patch.object(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor):
        module = step.make_module(tiny=tiny)
        args, kwargs = tree_map_only(torch.Tensor, fake.from_tensor, inputs)
    return capture_step(module, args, kwargs, type(module).__name__)


def estimated(program: _torch.Program) -> _core.Costs:
    """Estimated costs of the CPU's operators at the rates of a GPU."""
    bare = _core.Costs.from_capsule(_torch.bare_costs(program))
    return _core.Costs(_torch.roofline_ns(program, "cuda"), bare.workspace_bytes, bare.value_bytes)


def make(step: Step, device: str, out: Path, *, tiny: bool, lock: Path | None) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(0)
    begin = time.monotonic()
    found = captured(step, device, tiny=tiny)
    facts: dict[str, Any] = {"title": step.title, "precision": step.precision, "torch": torch.__version__,
                             "capture_seconds": round(time.monotonic() - begin, 1)}
    if device != NONE:
        with alone(lock):
            begin = time.monotonic()
            costs = found.measure()
        facts |= {"profile_seconds": round(time.monotonic() - begin, 1), "machine": platform.machine(),
                  "measured_on": dict(_torch.environment(torch.device(device)))}
    else:
        costs = estimated(found.captured.program)
    graph = _core.Graph.from_capsule(found.captured.program.graph())
    (out / f"{stem(step.name, device)}.graph.json").write_text(_core.format_graph(graph, costs))
    return facts | {"ops": graph.num_ops, "forward_ops": graph.caller_op}


def stem(name: str, device: str) -> str:
    return name if device == NONE else f"{name}.{device}"


class Run:
    """Captures all networks, each in a process of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.failed: dict[str, str] = {}
        path = options.out / FACTS
        self.facts = json.loads(path.read_text()) if path.exists() else {}

    def todo(self) -> list[str]:
        here = self.options.out
        stems = {name: stem(name, self.options.device) for name in self.options.steps}
        return [name for name, made in stems.items() if self.options.again or made not in self.facts
                or not (here / f"{made}.graph.json").exists()]

    def one(self, name: str, lock: Path) -> str:
        call = [sys.executable, __file__, "--one", name, "--device", self.options.device, "--out", self.options.out,
                "--lock", lock, *(["--tiny"] if self.options.tiny else [])]
        done = subprocess.run(call, capture_output=True, text=True, check=False, env=os.environ)
        if done.returncode != 0:
            self.failed[name] = done.stderr.strip() or f"ended with {done.returncode}"
            return f"failed: {self.failed[name].splitlines()[-1]}"
        facts = json.loads(done.stdout.splitlines()[-1])
        self.facts[stem(name, self.options.device)] = facts
        (self.options.out / FACTS).write_text(json.dumps(dict(sorted(self.facts.items())), indent=1) + "\n")
        profiled = f", profiled in {facts['profile_seconds']} s" if "profile_seconds" in facts else ""
        return f"{facts['ops']} ops captured in {facts['capture_seconds']} s{profiled}"

    def all(self) -> int:
        names = self.todo()
        if left := len(self.options.steps) - len(names):
            print(f"{left} of {len(self.options.steps)} are there already", flush=True)
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, \
                concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            running = {pool.submit(self.one, name, Path(folder) / "lock"): name for name in names}
            for number, done in enumerate(concurrent.futures.as_completed(running), 1):
                print(f"{time.monotonic() - begin:6.0f} s  {number}/{len(names)}  {running[done]}: {done.result()}",
                      flush=True)
        for name, error in self.failed.items():
            print(f"\n{name}:\n{error}", file=sys.stderr)
        return 1 if self.failed else 0


def pack(folder: Path, to: Path) -> None:
    with tarfile.open(to, "w:gz") as archive:
        for path in sorted([*folder.glob("*.graph.json"), folder / FACTS]):
            archive.add(path, path.name)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu", NONE), default="cuda")
    parser.add_argument("--steps", default=",".join(STEPS), help=f"of {', '.join(STEPS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "steps")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4))
    parser.add_argument("--tiny", action="store_true", help="small forms of all networks, to try the command")
    parser.add_argument("--again", action="store_true", help="also what is there already")
    parser.add_argument("--pack", type=Path, help="put all files into this .tar.gz at the end")
    parser.add_argument("--one", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.steps = options.steps.split(",")
    if unknown := sorted(set(options.steps) - STEPS.keys()):
        parser.error(f"unknown step {', '.join(unknown)}; there are {', '.join(STEPS)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("this torch sees no GPU: give --device none for roofline costs alone, or --device cpu")
    options.out.mkdir(parents=True, exist_ok=True)
    return options


def main() -> int:
    options = parsed()
    if options.one:
        print(json.dumps(make(STEPS[options.one], options.device, options.out, tiny=options.tiny, lock=options.lock)))
        return 0
    failed = Run(options).all()
    if options.pack:
        pack(options.out, options.pack)
    return failed


if __name__ == "__main__":
    sys.exit(main())
