"""Which models train inside a budget: every architecture of models/architectures, at 60 % of what its step adds.

    scripts/python.sh bench/architectures.py [--device cuda] [--only bert,mixtral] [--jobs 8] [--again] [--json FILE]

Each runs in a process of its own (bench/one_architecture.py), with empty caches and one thread. A crash or the time limit is a
row, too. Rows are saved after each one, and those that are in the file already, from the same versions, are not measured
again unless they are errors or --again is given. Models whose package cannot be imported are not here, and count nowhere. At
the end docs/tables/architectures.md is written, if the rows went to their usual place.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "documents")]

from architectures_page import line_of, passed, summary, write_page  # noqa: E402
from models.architectures import ARCHITECTURES  # noqa: E402

Row = dict[str, Any]
SMALL_WORKSPACES = ":16:8"  # of cuBLAS, which are otherwise larger than what a step of these models adds
PACKAGES = ("torch", "transformers", "timm", "torchvision")


def facts(device: str) -> Row:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    machine = torch.cuda.get_device_name(0) if device == "cuda" else platform.machine()
    return {"machine": machine, "device": device, "python": platform.python_version(), **versions}


def run(name: str, options: argparse.Namespace) -> Row:
    """The row that the process prints, or what went wrong with it."""
    row = {"name": name, "kind": ARCHITECTURES[name].kind, "package": ARCHITECTURES[name].package}
    command = [sys.executable, str(Path(__file__).with_name("one_architecture.py")), name, "--device", options.device]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"CUBLAS_WORKSPACE_CONFIG": SMALL_WORKSPACES} | os.environ | {
            "REPRISE_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            return row | {"error": f"stopped after {options.seconds:g} s"}
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr, flush=True)
        return row | {"error": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]}
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


class Rows:
    """The rows of a file, in the order of the list."""

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.facts = path, facts(device)
        self.rows: dict[str, Row] = {}
        self._adding = threading.Lock()
        if path.exists():
            before = json.loads(path.read_text())
            if all(before[key] == value for key, value in self.facts.items()):
                self.rows = {row["name"]: row for row in before["rows"]}

    def missing(self, names: list[str], again: bool) -> list[str]:
        return [name for name in names if again or name not in self.rows
                or not {"error", "not_here"}.isdisjoint(self.rows[name])]

    def add(self, row: Row) -> None:
        with self._adding:
            self.rows[row["name"]] = row
            command = f"scripts/python.sh bench/architectures.py --device {self.facts['device']}"
            content = {"command": command, "date": date.today().isoformat(), **self.facts,
                       "rows": [self.rows[name] for name in ARCHITECTURES if name in self.rows]}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(content, indent=1) + "\n")
            new.replace(self.path)
            print(line_of(row), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run at a time")
    parser.add_argument("--seconds", type=float, default=300, help="the time limit for each process")
    parser.add_argument("--again", action="store_true", help="also measure what is in the file already")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(ARCHITECTURES)
    if unknown := [name for name in names if name not in ARCHITECTURES]:
        parser.error(f"not in the list: {', '.join(unknown)}")
    usual = ROOT / "bench" / "results" / f"architectures-{options.device}.json"
    rows = Rows(options.json or usual, options.device)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run, name, options) for name in rows.missing(names, options.again)]
        for done in concurrent.futures.as_completed(running):
            rows.add(done.result())
    measured = [rows.rows[name] for name in names]
    print(summary(measured))
    if options.json is None:
        write_page(ROOT)
    return 0 if all(passed(row) or "not_here" in row for row in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
