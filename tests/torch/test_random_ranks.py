"""bench/random_ranks.py: a few runs of two processes, and that it notices what is wrong."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import random_ranks  # noqa: E402
from processes import Process  # noqa: E402
from random_ranks import BREAK, BUDGET, DDP, KINDS, OPERATOR, SHAPE, SHARD, TENSOR, Case, Tally, case_of, judged  # noqa: E402

GOOD = {"outcome": "trained", "same": True, "inside": True}
REFUSED = {"outcome": "refused", "error": "InfeasibleBudget", "says": "rank 1: the model cannot be trained inside 1000 B"}
THREW, LOST = {"outcome": "threw"}, {"outcome": "lost", "error": "RuntimeError: Connection closed by peer"}


def case(**facts: Any) -> Case:
    return Case(**{"kind": SHARD, "share": 0.5, "anew": False, "ballast": 0.1, "ballast_rank": 0, "ballast_between": True,
                   "error": None, "error_rank": 1, "other_share": 0.5, "throws_at": 0} | facts)


@pytest.mark.parametrize(("facts", "first", "second", "expected"), [
    ({}, GOOD, GOOD, "trained"),
    ({}, GOOD | {"same": False}, GOOD, "wrong"),
    ({}, GOOD, GOOD | {"inside": False}, "wrong"),
    ({"error": BREAK}, GOOD, GOOD, "wrong"),
    ({"error": SHAPE}, GOOD, GOOD, "wrong"),
    ({"error": SHAPE, "kind": DDP}, GOOD, GOOD, "trained"),
    ({}, REFUSED, REFUSED, "refused"),
    ({}, REFUSED, REFUSED | {"says": "rank 0: another one"}, "wrong"),
    ({}, REFUSED, GOOD, "wrong"),
    ({"error": OPERATOR}, LOST, THREW, "ended"),
    ({"error": OPERATOR}, THREW, LOST, "wrong"),  # It throws on the other one.
    ({}, LOST, THREW, "wrong"),
    ({"kind": DDP}, REFUSED, LOST, "wrong"),
    ({}, LOST, LOST, "wrong"),
])
def test_what_is_right(facts: dict[str, Any], first: dict[str, Any], second: dict[str, Any], expected: str) -> None:
    assert judged(case(**facts), first, second) == expected


def test_a_process_that_says_nothing_is_wrong() -> None:
    tally = Tally()
    tally.add(0, case(), [GOOD, {}], None)
    tally.add(1, case(), [{}, {}], "hang")
    assert tally.counts == {"wrong": 1, "hang": 1} and [bad["run"] for bad in tally.bad] == [0, 1]


def test_a_thousand_runs_have_every_kind_of_case() -> None:
    cases = [case_of(0, number) for number in range(1000)]
    assert cases[:10] == [case_of(0, number) for number in range(10)]
    assert {(each.kind, each.error) for each in cases} == {
        (kind, error) for kind in KINDS for error in (None, BREAK, SHAPE, BUDGET, OPERATOR)}
    assert {each.error_rank for each in cases} == {each.ballast_rank for each in cases} == {0, 1}
    assert TENSOR in KINDS and any(each.share < 0 for each in cases) and any(each.share > 1 for each in cases)


def computes(process: Process, options: argparse.Namespace) -> None:
    until = time.monotonic() + 10
    Path(options.folder, f"told{process.rank}.jsonl").write_text('{"run": 0}\n')
    while time.monotonic() < until:
        pass


def hangs(process: Process, options: argparse.Namespace) -> None:
    Path(options.folder, f"told{process.rank}.jsonl").write_text('{"run": 0}\n')
    time.sleep(600)


def test_a_run_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(random_ranks, "run", hangs)
    options = argparse.Namespace(folder=str(tmp_path), ranks=2, device="cpu", seconds=3.0, first=0)
    begin = time.monotonic()
    assert random_ranks.watch(options) == "hang"
    assert time.monotonic() - begin < 240


def test_a_run_that_computes_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(random_ranks, "run", computes)
    assert random_ranks.watch(argparse.Namespace(folder=str(tmp_path), ranks=2, device="cpu", seconds=3.0, first=0)) is None


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    for runs in (2, 3):  # The second time it goes on.
        subprocess.run([sys.executable, str(ROOT / "bench" / "random_ranks.py"), "--runs", str(runs), "-o", str(file)],
                       check=True, timeout=900, capture_output=True)
    found = json.loads(file.read_text())
    assert found["runs"] == 3 == sum(found["counts"].values())
    assert found["counts"]["hang"] == found["counts"]["wrong"] == 0 < found["counts"]["trained"]
