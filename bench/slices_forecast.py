"""What slices would reach on a GPU, as reprise.preflight and reprise.curve predict it from fake tensors: nothing runs.

    scripts/python.sh bench/slices_forecast.py [-o bench/results/slices-forecast.json] [--models llama-4-layers,vgg19]

For each model, the smallest budget whole, in slices and in close slices; and for budgets, plans with the least time: how many
slices they have, and how much they compute again. Times are a roofline's, and workspaces are not known.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch

import reprise

sys.path.insert(0, str(Path(__file__).resolve().parent))
from slices import MODELS

KINDS: dict[str, bool | str] = {"whole": False, "slices": True, "close": "close"}
GIB = 1 << 30
# Budgets that are asked about: GiB above the parameters.
ABOVE = {"llama-4-layers": (7.8, 4.0, 2.8), "llama-1.2b": (7.8, 4.0)}


def at_budget(curve: Any, budget: int) -> dict[str, Any]:
    point = curve.at(budget)
    if point is None:
        return {"feasible": False}
    return {"feasible": True, "slices": point.slices, "peak_bytes": point.peak_bytes,
            "recompute_share": round(point.recompute_ns / (point.time_ns - point.recompute_ns), 4),
            "time_to_plain": round(point.time_ns / curve.points[-1].time_ns, 4)}


def forecast(name: str, seconds: float) -> dict[str, Any]:
    make_model, make_batch = MODELS[name]
    with torch.device("meta"):
        model = make_model()
    inputs = make_batch()
    asked = {"device": "cuda", "profile": "roofline", "planning_seconds": seconds}
    parameters = sum(p.nbytes for p in model.parameters())
    row: dict[str, Any] = {"name": name, "shape": list(inputs.shape), "parameter_bytes": parameters, "seconds": seconds}
    plain = None
    for kind, slices in KINDS.items():
        found = reprise.preflight(model, inputs, 1, largest=False, slices=slices, **asked)
        plain = plain or found.plain.peak_bytes
        row |= {"plain_peak_bytes": plain, "notes": found.notes}
        row.setdefault("least_bytes", {})[kind] = found.planned.peak_bytes
        least = found.planned.peak_bytes
        print(f"{name:16} {kind:8} least {least / GIB:6.2f} GiB, {(least - parameters) / GIB:5.2f} beside the parameters",
              flush=True)
    budgets = [parameters + int(above * GIB) for above in ABOVE.get(name, ())]
    row["budgets"] = []
    for kind, slices in KINDS.items() if budgets else ():
        curve = reprise.curve(model, inputs, slices=slices, **asked)
        row["budgets"] += [{"budget_bytes": budget, "kind": kind} | at_budget(curve, budget) for budget in budgets]
        print("\n".join(f"{name:16} {json.dumps(each)}" for each in row["budgets"] if each["kind"] == kind), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="a file whose other models stay")
    parser.add_argument("--models", default="llama-4-layers,llama-1.2b,qwen-1.5b,vgg19", help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--seconds", type=float, default=5.0, help="of planning")
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": platform.machine(), "torch": torch.__version__, "models": []}
    if options.output and options.output.exists():
        result["models"] = json.loads(options.output.read_text())["models"]
    for name in options.models.split(","):
        others = [row for row in result["models"] if row["name"] != name]
        result["models"] = [*others, forecast(name, options.seconds)]
        if options.output:
            options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
