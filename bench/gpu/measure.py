"""How the comparisons measure: files of rows to which later runs add, peaks, and times in turns.

Each row says where it comes from: `facts` has the machine, the versions, the flags, the date and the command. A row with an
`error` (a crash, or the time limit) is measured again by the next run; a row that was `refused` is a result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from children import Children, Row
from common import SAME, Training, facts, synchronize
from torch.utils._pytree import tree_leaves

import reprise
from reprise import memory

WARM_STEPS = 6  # More than the first steps of a plan, in which Reprise measures and resets the allocator's peak.
STEPS_IN_A_ROW = 3


class Rows:
    """A folder with a file for each case, in it a row for each key. Saved after each row, which may come from any thread.
    `meant` has the parts of a key that older rows do not say."""

    def __init__(self, folder: Path, keys: Sequence[str], again: bool = False, meant: Mapping[str, str] | None = None) -> None:
        self.folder, self.keys, self.meant = folder, keys, meant or {}
        self._adding = threading.Lock()
        self.rows: list[Row] = [row for path in sorted(folder.glob("*.json")) for row in _rows_in(path)]
        here = facts("")
        self._old = {self.key(row) for row in self.rows if again or any(
            row["facts"].get(key) != here.get(key) for key in SAME if key != "command")}

    def key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row.get(key, self.meant.get(key, ""))) for key in self.keys)

    def find(self, **key: Any) -> Row | None:
        """The row with this key, if it was measured on this machine with these versions and is not an error."""
        wanted = self.key(key)
        return next((row for row in self.rows if self.key(row) == wanted and wanted not in self._old
                     and "error" not in row), None)

    def add(self, row: Row) -> None:
        key = self.key(row)
        with self._adding:
            self._old.discard(key)
            self.rows = sorted([*(r for r in self.rows if self.key(r) != key), row], key=self.key)
            self._save(row["case"])
            print(summary(row, self.keys), flush=True)

    def _save(self, case: str) -> None:
        """Replaces the file of a case in one piece, so that an interruption loses only the new row."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{case}.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"results": [row for row in self.rows if row["case"] == case]}, indent=1) + "\n")
        new.replace(path)


def _rows_in(path: Path) -> list[Row]:
    try:
        return json.loads(path.read_text())["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} has no rows ({error!r}): give a folder of its own with -o, or take the file away") from None


def fill(children: Children, rows: Rows, wanted: Iterable[Row], arguments: Callable[[Row], list[str]], seconds: float) -> int:
    """Starts a process for each wanted key whose row is missing. The process prints that row last. Returns how many failed."""
    missing = [key for key in wanted if rows.find(**key) is None]
    return children.each(lambda key: fill_one(children, rows, key, arguments(key), seconds), missing)


def fill_cases(script: str, options: argparse.Namespace, keys: Sequence[str], last: str) -> int:
    """Starts a process for each case that has no row of the kind `last`, which is the one that a process prints last. Returns
    the exit code of the comparison."""
    rows = Rows(options.output, keys, options.again)
    extra = ["--samples", str(options.samples), *(["--cpu"] if options.cpu else [])]
    wanted = [{"case": case, "kind": last} for case in options.cases.split(",")]
    with Children(script, options.jobs, options.lock) as children:
        return 1 if fill(children, rows, wanted, lambda key: ["--one", key["case"], *extra], options.seconds) else 0


def fill_one(children: Children, rows: Rows, key: Row, arguments: list[str], seconds: float) -> int:
    """Runs a process; if it fails, its error becomes the row of this key. Returns how many failed."""
    error = children.run(arguments, seconds, rows.add)
    if error:
        rows.add(key | {"error": error, "facts": {}})
    return 1 if error else 0


def summary(row: Row, keys: Sequence[str]) -> str:
    name = " ".join(str(row[key]) for key in keys if row.get(key) not in (None, ""))
    for bad in ("error", "refused"):
        if bad in row:
            return f"{name}: {bad}: {row[bad].strip().splitlines()[-1] if row[bad].strip() else ''}"
    text = f"{name}:"
    if "peak_bytes" in row:
        text += f" peak {reprise.format_bytes(row['peak_bytes'])}"
    for kind in ("plain", "planned"):
        if row.get(kind):
            text += f" {kind} {row[kind]['batch']}"
    if "inside" in row:
        text += f" {row['inside']} of {len(row['rows'])} inside"
    if "ratio" in row:
        text += f", {row['ms']:.2f} ms, {row['ratio']:.3f} of eager"
    return text


def pools_hidden_bytes() -> int:
    """The bytes in the pools of CUDA graphs that every replay uses and that the allocator does not count as allocated."""
    return sum(segment["total_size"] - segment["allocated_size"] for segment in torch.cuda.memory_snapshot()
               if tuple(segment["segment_pool_id"]) != (0, 0))


def own_bytes(training: Training) -> int:
    every = tree_leaves([*training.model.parameters(), *training.model.buffers(), training.args, training.kwargs])
    return memory.storage_bytes([leaf for leaf in every if isinstance(leaf, torch.Tensor)], training.device)


def step_peak(training: Training, step: Callable[[], Any]) -> dict[str, int]:
    """The peak of one step, which starts without gradients and ends when backward returns: everything that is allocated on the
    device, including parameters and pools of CUDA graphs; and what the allocator has taken from the device for it."""
    device = training.device
    training.model.zero_grad(set_to_none=True)
    if device.type == "cpu":
        memory.install_meter()
        there = own_bytes(training)
        memory.reset_peak(device)
        entry = memory.allocated_bytes(device)
        step()
        peak = there + memory.peak_bytes(device) - entry
        return {"peak_bytes": peak, "reserved_bytes": peak}
    synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    step()
    synchronize(device)
    return {"peak_bytes": torch.cuda.max_memory_allocated(device) + pools_hidden_bytes(),
            "reserved_bytes": torch.cuda.max_memory_reserved(device)}


class Way:
    """A way to run the step. `begin` installs it and `end` removes it; both are cheap from the second time on."""

    def __init__(self, training: Training) -> None:
        self.training = training

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def step(self) -> None:
        """Runs the plain model, even if it has been compiled."""
        self.training.step(self.training.model._call_impl)

    def run(self, steps: int) -> None:
        self.begin()
        for _ in range(steps):
            self.step()
        self.end()

    def peak(self) -> dict[str, int]:
        self.begin()
        found = step_peak(self.training, self.step)
        self.end()
        return found

    def sample(self, steps: int = STEPS_IN_A_ROW) -> float:
        """The milliseconds of a step: the average of a few in a row, as in training, with the device idle at both ends."""
        self.begin()
        synchronize(self.training.device)
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize(self.training.device)
        seconds = time.perf_counter() - begin
        self.end()
        self.training.model.zero_grad(set_to_none=True)
        return 1e3 * seconds / steps


class AsCompiled(Way):
    """The model as reprise.compile left it."""

    def step(self) -> None:
        self.training.step()

    def peak(self) -> dict[str, int]:
        found = super().peak()
        if self.training.device.type == "cpu":  # On the CPU, Reprise resets the counter in every step.
            found = dict.fromkeys(found, self.training.model.plan.measured_peak_bytes)
        return found


def in_turns(ways: dict[str, Way], samples: int) -> dict[str, list[float]]:
    """The samples of all ways, taken in turns. A first round does not count: in it, the allocator takes back memory from the
    device that it has been made to give away."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(samples + 1):
        for name, way in ways.items():
            found[name].append(way.sample())
    return {name: taken[1:] for name, taken in found.items()}


def times(samples: list[float], eager: list[float]) -> Row:
    ms, eager_ms = statistics.median(samples), statistics.median(eager)
    return {"samples_ms": [round(sample, 3) for sample in samples], "ms": round(ms, 3),
            "spread_ms": [round(min(samples), 3), round(max(samples), 3)],
            "eager_ms": round(eager_ms, 3), "eager_spread_ms": [round(min(eager), 3), round(max(eager), 3)],
            "ratio": round(ms / eager_ms, 4)}
