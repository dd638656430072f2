"""Checkpoints on chains, after Hong et al.: what the formula predicts for each layer, and what the allocator says.

    scripts/python.sh bench/gpu/hong.py [--cases vgg19,alexnet,...] [--jobs 5] [--seconds 240] [--again] [-o FOLDER]

VGG-19 trains at batch 128 with sets of checkpoints: the authors' {2,6}, {3,6} and {3,11}, Chen's, and those of the chain
planners. AlexNet and the ResNets, whose layers are blocks, train with Chen's and the planners' sets. The sets run as segments
of torch.utils.checkpoint. `auto=SET` is a plan of auto within the peak that the set reached, run by Reprise's executor.
`captured KIND` is the plan of a chain planner for the captured step; a U-Net, which is not a chain of layers, has only these.
In a row, `way` says whether torch.utils.checkpoint or Reprise's executor ran it. Everything is in fp32 and is timed in turns
with the plain step.

A curve has three numbers for every layer, forward and backward: the prediction, what was allocated when the layer was done, and
the highest amount in between. Backward of a segment's last layer includes the second run of the segment's forward.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from captured import PLANNING_SECONDS, OwnPlan, recompute_percent
from chains import NAMED_SETS, NETWORKS, PLANNERS, Chain, planned_set, predicted, sqrt_set
from children import clock, command_line, compile_beside, device_alone, give
from common import CPU, GPU
from measure import WARM_STEPS, Row, Way, fill_cases, in_turns, own_bytes, times
from torch import Tensor

import reprise
from reprise import memory, planning

KEYS = ("case", "kind")
CAPTURED = ("chen", "chain-static", "chain", "rotor")
LONGEST_CURVE = 600  # Curves of plans with more actions are not saved.
COMMAND = "python bench/gpu/hong.py"
CHECKPOINT, EXECUTOR = "torch.utils.checkpoint", "Reprise's executor"


class ChainTraining:
    """The same as common.Training, for a network of chains.py."""

    def __init__(self, name: str, device: torch.device, tiny: bool) -> None:
        make, batch, image, tiny_batch, tiny_image = NETWORKS[name]
        torch.manual_seed(0)
        self.device = device
        with device:
            self.model = make(tiny).to(device).train()
        self.args = (torch.randn(tiny_batch if tiny else batch, *(tiny_image if tiny else image), device=device),)
        self.kwargs: dict[str, Any] = {}

    def step(self, call: Callable[..., Tensor] | None = None) -> Tensor:
        self.model.zero_grad(set_to_none=True)
        loss = (call or self.model)(*self.args)
        loss.backward()
        return loss.detach()


class Segments(Way):
    """The chain with a set of checkpoints."""

    def __init__(self, training: ChainTraining, checkpoints: tuple[int, ...] | None) -> None:
        super().__init__(training)
        self.checkpoints = checkpoints

    def begin(self) -> None:
        self.training.model.checkpoints = self.checkpoints

    def end(self) -> None:
        self.training.model.checkpoints = None

    def curve(self) -> dict[str, Any]:
        """For each layer, forward and backward: the bytes that are allocated when it is done, and the most since the layer
        before it was done."""
        training, device = self.training, self.training.device
        model, count = training.model, len(training.model.layers)
        training.model.zero_grad(set_to_none=True)
        memory.install_meter()
        base = own_bytes(training) - memory.allocated_bytes(device) if device.type == "cpu" else 0
        found: dict[str, Any] = {"fixed": base + memory.allocated_bytes(device),
                                 "forward": [[0, 0]] * count, "backward": [[0, 0]] * count}

        def note(phase: str, layer: int) -> None:
            found[phase][layer - 1] = [base + memory.allocated_bytes(device), base + memory.peak_bytes(device)]
            memory.reset_peak(device)

        def after_layer(layer: int, output: Tensor) -> None:
            note("forward", layer)
            if layer < count:  # The gradient of y_k is known when backward of layer k + 1 is done.
                output.register_hook(lambda _: note("backward", layer + 1))

        def call(*args: Tensor) -> Tensor:
            model.after_layer = after_layer
            loss = model._call_impl(*args)
            model.after_layer = None
            return loss

        self.begin()
        memory.reset_peak(device)
        training.step(call)
        note("backward", 1)
        self.end()
        return found


def layer_bytes(training: ChainTraining) -> list[int]:
    """The bytes of the input, and of the output of each layer."""
    sizes = [training.args[0].nbytes]
    training.model.after_layer = lambda _, output: sizes.append(output.nbytes)
    with torch.no_grad():
        training.model._call_impl(*training.args)
    training.model.after_layer = None
    return sizes


class Case:
    def __init__(self, name: str, device: torch.device, tiny: bool) -> None:
        self.name = name
        self.training = ChainTraining(name, device, tiny)
        self.ways: dict[str, Way] = {"plain": Way(self.training)}
        self.rows: dict[str, Row] = {"plain": {"way": "PyTorch as it is"}}

    def sets(self) -> None:
        """Runs the named sets of checkpoints and those of the planners, and compares the prediction for each layer with what
        was allocated."""
        sizes = layer_bytes(self.training)
        count = len(sizes) - 1
        weights = [sum(p.nbytes for p in layer.parameters()) for layer in self.training.model.layers]
        named: dict[str, tuple[int, ...] | None] = {"plain": None, **NAMED_SETS.get(self.name, {}),
                                                    "sqrt": sqrt_set(count)}
        for planner in PLANNERS:
            named[planner] = planned_set(sizes, planner)
        for kind, checkpoints in named.items():
            way = Segments(self.training, checkpoints)
            way.run(1)
            measured = way.curve()
            kept = range(1, count) if checkpoints is None else checkpoints
            fixed = sum(weights) + sum(b.nbytes for b in self.training.model.buffers()) + sizes[0]
            formula = predicted(sizes, kept, weights, fixed)
            self.rows.setdefault(kind, {"way": CHECKPOINT, "checkpoints": checkpoints})
            self.rows[kind] |= {
                "layers": count, "fixed_bytes": measured["fixed"], "predicted_fixed_bytes": fixed,
                "predicted_bytes": max(formula["forward"] + formula["backward"]),
                "allocated_between_layers_bytes": max(m[0] for m in measured["forward"] + measured["backward"]),
                "curve": {phase: [[p, *m] for p, m in zip(formula[phase], measured[phase], strict=True)]
                          for phase in ("forward", "backward")}}
            if kind != "plain":
                self.ways[kind] = way

    def peaks(self) -> None:
        for kind, way in self.ways.items():
            way.run(WARM_STEPS)
            self.rows[kind] |= way.peak()

    def capture(self, lock: Path | None) -> None:
        reprise.compile(self.training.model, cuda_graphs=False, planning_seconds=PLANNING_SECONDS)
        compile_beside(self.training, lock)

    def warm_up(self) -> None:
        self.ways["plain"].run(WARM_STEPS)
        for _ in range(WARM_STEPS):
            self.training.step()
        self.training.model.zero_grad(set_to_none=True)

    def plan(self) -> None:
        """Plans the captured step with the chain planners, and with auto within the peaks of the sets. Needs no device."""
        targets = {f"auto={kind}": self.rows[kind]["peak_bytes"] for kind in self.ways if kind != "plain"}
        plan = self.training.model.plan
        graph, costs, outside = plan.graph, plan.costs, plan.outside_bytes
        for planner in CAPTURED:
            found = reprise.solve(graph, costs, planner=planner, judge="formula")
            kind = f"captured {planner}"
            self.rows[kind] = {"way": EXECUTOR, "message": found.message}
            if found.found:
                way = self.ways[kind] = OwnPlan(self.training, found.plan, planner)
                targets[f"auto={kind}"] = way.simulation.peak_bytes + outside
            else:
                self.rows[kind]["refused"] = f"{found.status}: {found.message}"
        targets["auto-least"] = outside + planning.smallest_budget_bytes(graph, costs, planning.AUTO, PLANNING_SECONDS)
        for kind, budget in targets.items():
            found = planning.find(graph, costs, max(0, budget - outside), planning.AUTO, PLANNING_SECONDS)
            self.rows[kind] = {"way": EXECUTOR, "budget_bytes": budget}
            if found.plan is None:
                self.rows[kind]["refused"] = f"the smallest budget known is {found.smallest_budget_bytes + outside} bytes"
            else:
                self.ways[kind] = OwnPlan(self.training, found.plan, found.planner)

    def run_plans(self) -> None:
        for kind, way in self.ways.items():
            if isinstance(way, OwnPlan):
                self._run(kind, way)

    def _run(self, kind: str, way: OwnPlan) -> None:
        """Runs a plan and compares the prediction for each of its actions with the allocator's count."""
        way.run(WARM_STEPS)
        plan = self.training.model.plan
        line = [b + plan.outside_bytes for b in reprise.timeline(plan.graph, plan.costs, way.plan).during_bytes]
        measured = plan.measured_bytes()[0]
        worst = max(abs(m / p - 1) for p, m in zip(line, measured, strict=True))
        self.rows[kind] |= way.peak() | {
            "predicted_bytes": plan.peak_bytes, "worst_step_percent": round(100 * worst, 3),
            "recompute_percent": recompute_percent(way.simulation)}
        if len(line) <= LONGEST_CURVE:
            self.rows[kind]["curve"] = {"steps": [list(pair) for pair in zip(line, measured, strict=True)]}

    def measure(self, samples: int) -> list[Row]:
        found = in_turns(self.ways, samples)
        plain = self.rows["plain"]["peak_bytes"]
        for kind, taken in found.items():
            self.rows[kind] |= times(taken, found["plain"]) | {
                "reduction_percent": round(100 * (1 - self.rows[kind]["peak_bytes"] / plain), 1)}
        last = sorted(self.rows, key="plain".__eq__)  # "plain" comes last: with its row, the case counts as complete.
        return [{"case": self.name, "kind": kind, "eager_peak_bytes": plain} | self.rows[kind] for kind in last]


def one(name: str, options: argparse.Namespace) -> None:
    begin = clock()
    case = Case(name, CPU if options.cpu else GPU, options.cpu)
    case.capture(options.lock)
    with device_alone(options.lock):
        case.warm_up()
        if isinstance(case.training.model, Chain):
            case.sets()
        case.peaks()
    case.plan()
    with device_alone(options.lock):
        case.run_plans()
        set_up = round(clock() - begin, 1)
        rows = case.measure(options.samples)
    for row in rows:
        give(row | {"set_up_seconds": set_up}, f"{COMMAND} --cases {name}")


def main() -> int:
    options = command_line(__doc__, "hong-cuda", NETWORKS, 240, samples=5, one=NETWORKS).parse_args()
    if not options.one:
        return fill_cases(__file__, options, KEYS, "plain")
    one(options.one, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
