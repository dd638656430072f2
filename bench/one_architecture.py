"""Trains one architecture of models/architectures inside a budget, and checks it with reprise.verify.

    scripts/python.sh bench/one_architecture.py NAME [--device cuda] [--share 0.6]

prints a row for bench/architectures.py, which starts this in a process of its own.

The budget is what is there before a step (parameters, buffers and inputs) and a share of what a plain step adds to it, its
gradients included. If no plan fits, the row has the refusal and the smallest budget, and that one is used. Three steps of
training with SGD are compared with three plain ones from the same state, so that a decision that was captured although it
changes from step to step shows.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib.util
import json
import logging
import os
import random
import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

import reprise
from reprise import memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.architectures import ARCHITECTURES, Architecture

SHARE, STEPS = 0.6, 3
TRIES = 4  # On a GPU what is allocated beside the step may grow after a refusal, by a workspace of a library.
BLOCKS = 8192  # bytes that the loop holds on a GPU, such as a loss
MORE_SHARES = (0.7, 0.8, 0.9, 1.0)  # for steps that are not planned as a whole, so that no smallest budget is known
Row = dict[str, Any]


class Warnings(logging.Handler):
    """What the logger says while a model trains."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Training:
    def __init__(self, architecture: Architecture, device: torch.device) -> None:
        self.architecture, self.device = architecture, device
        inputs = tree_map_only(Tensor, lambda t: t.to(device), architecture.make_inputs())
        self.args, self.kwargs = inputs

    def model(self) -> nn.Module:
        """The same model whenever it is called."""
        seed(0)
        return self.architecture.make_model().train().to(self.device)

    def step(self, model: nn.Module) -> Tensor:
        loss = self.architecture.loss(model(*self.args, **self.kwargs))
        loss.backward()
        return loss.detach()

    def peak(self) -> tuple[int, int]:
        """What is there before a plain step, and the peak of the step."""
        model = self.model()
        self.step(model)
        model.zero_grad(set_to_none=True)
        gc.collect()
        held = [leaf for leaf in tree_leaves([*model.parameters(), *model.buffers(), self.args, self.kwargs])
                if isinstance(leaf, Tensor)]
        before = memory.storage_bytes(held, self.device)
        _synchronize(self.device)
        memory.reset_peak(self.device)
        entry = memory.allocated_bytes(self.device)
        if self.device.type == "cuda":
            before = entry  # A budget counts everything that is allocated there, such as the workspaces of cuBLAS.
        self.step(model)
        _synchronize(self.device)
        return before, before + memory.peak_bytes(self.device) - entry

    def train(self, model: nn.Module) -> Iterator[Tensor]:
        """Losses of steps with an optimizer that has no state."""
        seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(STEPS):
            yield self.step(model)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def trained(self, model: nn.Module) -> list[str]:
        losses = [digest(loss) for loss in self.train(model)]
        return [*losses, *digests(model)]


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def without_folders(text: str) -> str:
    """Names of files, from the package on, because the folders before are those of this machine."""
    return re.sub(r'File "[^"]*?(?:site-packages/|lib/python[0-9.]+/)([^"]*)"', r'File "\1"', text)


def digest(tensor: Tensor) -> str:
    """Stands for the bits, in memory that no budget counts."""
    return hashlib.sha256(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def digests(model: nn.Module) -> list[str]:
    return [digest(tensor) for tensor in (*model.parameters(), *model.buffers())]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train_inside(training: Training, budget: int, plain: list[str]) -> Row:
    """Trains and verifies. Raises what Reprise raises."""
    said = Warnings()
    logging.getLogger("reprise").addHandler(said)
    model = training.model()
    gc.collect()
    begin = time.perf_counter()
    reprise.compile(model, budget=budget)
    found: list[str] = []
    seconds, peaks = 0.0, []
    for loss in training.train(model):
        found.append(digest(loss))
        if len(found) == 2:
            _synchronize(training.device)
            seconds = time.perf_counter() - begin
        if model.plan.online is None and model.plan.measured_peak_bytes is not None:
            peaks.append(model.plan.measured_peak_bytes)
    online = model.plan.online
    if online is not None:
        peaks.append(online.summary.peak_bytes)
    row: Row = {"mode": "graph" if online is None else "online", "second_step_s": round(seconds, 2)}
    if online is None:
        row["slices"] = model.plan.slices
        row["recompute_percent"] = round(100 * model.plan.recompute_ns / max(1, model.plan.time_ns), 1)
    else:
        row["why_online"] = next((without_folders(line.partition("The reason: ")[2]) for line in said.said
                                  if "The reason: " in line), "")
    reprise.restore(model)
    row["trained_same"] = [*found, *digests(model)] == plain
    del model
    gc.collect()
    seed(1)
    checked = reprise.verify(training.model(), (training.args, training.kwargs), budget, loss=training.architecture.loss)
    logging.getLogger("reprise").removeHandler(said)
    most = max(*peaks, checked.planned_peak_bytes)
    # The first steps of a captured model may run another plan than the one whose peak is predicted.
    measured = most if checked.predicted_peak_bytes is None else checked.planned_peak_bytes
    return row | {
        "budget_bytes": budget, "predicted_bytes": checked.predicted_peak_bytes, "measured_bytes": measured,
        "training_peak_bytes": max(peaks), "inside": most <= budget,
        "same": checked.same, "different": checked.different[:5], "eager_repeats": not checked.unrepeated,
        "plain_s": round(checked.plain_seconds, 4), "planned_s": round(checked.planned_seconds, 4)}


def measure(architecture: Architecture, device: torch.device, share: float = SHARE) -> Row:
    row: Row = {"name": architecture.name, "kind": architecture.kind, "package": architecture.package}
    missing = [each for each in (architecture.package, *architecture.needs) if importlib.util.find_spec(each) is None]
    if missing:
        return row | {"not_here": f"{', '.join(missing)} cannot be imported"}
    memory.install_meter()
    training = Training(architecture, device)
    before, peak = training.peak()
    row |= {"before_bytes": before, "plain_bytes": peak}
    plain = training.trained(training.model())
    row["eager_trains_same"] = plain == training.trained(training.model())
    gc.collect()
    budget = before + int(share * (peak - before))
    row["asked_bytes"] = budget
    for _ in range(TRIES):
        try:
            return row | train_inside(training, budget, plain)
        except reprise.InfeasibleBudget as error:
            row.setdefault("refused", str(error))
            row["smallest_bytes"] = error.smallest_budget_bytes
            budget = error.smallest_budget_bytes + (BLOCKS if device.type == "cuda" else 0)
        except reprise.BudgetExceeded as error:
            row["refused"] = str(error)
            break
        gc.collect()  # The error has held the model.
    else:
        raise RuntimeError(f"every smallest budget that was named was refused in its turn, at last with {row['smallest_bytes']}")
    for more in (each for each in MORE_SHARES if each > share):
        budget = before + int(more * (peak - before))
        try:
            return row | train_inside(training, budget, plain)
        except reprise.BudgetExceeded as error:
            row["refused_last"] = str(error)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=ARCHITECTURES)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.deterministic = True
    print(json.dumps(measure(ARCHITECTURES[options.name], options.device, options.share)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
