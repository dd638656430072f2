"""Where the time goes from reprise.compile to the end of the second step, with empty and with full caches.

    python bench/first_steps.py [--device cuda] [--cases resnet50,gpt2_medium] [--share 0.5] [-o FILE]

Each case runs in two processes that share a cache folder of their own: the first has to measure and to plan, the second
finds both done. "Importing" is that of torch.compile's own modules, where nothing has imported them before. "Rest" is
what is not preparation: the two steps themselves, and torch's guards.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PHASES = ("importing", "tracing", "joint graph", "lowering", "capturing", "profiling", "planning", "first forward")


def make(name: str, device: str):  # type: ignore[no-untyped-def]
    """A model, its inputs, and what makes a loss of its output."""
    import torch
    from models import huggingface as hf
    from models.recurrent import UnrolledLanguageModel
    from models.zoo import CASES, FULL_CASES

    if name == "gpt2_medium":
        size = (8, 1024) if device == "cuda" else (1, 128)
        return hf.gpt2(24, 1024, 50257, 1024), (torch.randint(50257, size),), {}, _language_loss
    if name == "unrolled":  # about 20,000 calls
        return UnrolledLanguageModel(64, 32), (torch.randint(64, (4, 256)),), {}, _language_loss
    if name == "resnet50_96":
        case = FULL_CASES["resnet50"]
        return case.make_model(), (torch.randn(32, 3, 96, 96),), {}, case.loss
    case = (FULL_CASES if device == "cuda" else CASES)[name]
    return case.make_model(), *case.make_inputs(), case.loss


def _language_loss(output):  # type: ignore[no-untyped-def]
    import torch

    logits = getattr(output, "logits", output).flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, torch.arange(logits.shape[0], device=logits.device) % logits.shape[1])


def run(name: str, device: str, share: float) -> dict[str, object]:
    import torch

    import reprise

    torch.manual_seed(0)
    model, args, kwargs, loss = make(name, device)
    model.to(device).train()
    args = [a.to(device) for a in args]
    kwargs = {key: value.to(device) for key, value in kwargs.items()}
    model_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    budget = _budget(model, args, kwargs, loss, device, model_bytes, share)
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    reprise.compile(model, budget)
    imported = time.perf_counter() - begin
    seconds = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        loss(model(*args, **kwargs)).backward()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    plan = model.plan
    spent = {"importing": imported, **plan.preparation_seconds}
    return {"case": name, "device": device, "ops": plan.graph.num_ops, "budget_bytes": budget, "first_s": seconds[0],
            "second_s": seconds[1], "recomputation": plan.recompute_ns / (plan.time_ns - plan.recompute_ns),
            "phases": {phase: spent.get(phase, 0.0) for phase in PHASES}, "rest_s": seconds[1] - sum(spent.values())}


def _budget(model, args, kwargs, loss, device, model_bytes, share):  # type: ignore[no-untyped-def]
    """A share of what a plain step takes."""
    import torch

    from reprise.native import _torch

    if share >= 1:
        return None
    where = torch.device(device)
    _torch.install_meter()
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        before = _torch.allocated_bytes(where)
        _torch.reset_peak(where)
        loss(model(*args, **kwargs)).backward()
        peak = _torch.peak_bytes(where) - before
    model.zero_grad(set_to_none=True)
    return int(share * (peak + (model_bytes if device == "cpu" else before)))


def row_text(row: dict) -> str:  # type: ignore[type-arg]
    phases = "".join(f"{row['phases'][phase]:>{len(phase) + 2}.2f}" for phase in PHASES)
    return f"{row['case']:<14}{row['caches']:<6}{row['ops']:>6}{row['second_s']:>8.1f}{phases}{row['rest_s']:>7.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", default="resnet50,gpt2_medium")
    parser.add_argument("--share", type=float, default=0.5, help="of a plain step's peak, for the budget")
    parser.add_argument("--case", help="run this one here and print JSON")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run(options.case, options.device, options.share)))
        return 0
    print(f"{'case':<14}{'cache':<6}{'ops':>6}{'total':>8}" + "".join(f"  {phase}" for phase in PHASES) + "   rest", flush=True)
    rows = []
    for name in options.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            for caches in ("empty", "full"):
                command = [sys.executable, __file__, "--case", name, "--device", options.device, "--share", str(options.share)]
                done = subprocess.run(command, env={**os.environ, "REPRISE_CACHE_DIR": folder},
                                      stdout=subprocess.PIPE, check=True, text=True)
                rows.append({"caches": caches, **json.loads(done.stdout.splitlines()[-1])})
                print(row_text(rows[-1]), flush=True)
    if options.output:
        import torch

        machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
        options.output.write_text(json.dumps({
            "command": f"python bench/first_steps.py --device {options.device} --cases {options.cases}", "machine": machine,
            "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__, "results": rows},
            indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
