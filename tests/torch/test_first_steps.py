"""bench/first_steps.py: which ways are measured, and with which caches."""

import argparse
import sys
from collections.abc import Callable

import first_steps
import pytest
import torch
import two_steps

# Says whether each folder of caches was there, and makes it.
SCRIPT = """
import json, os, pathlib
folders = [pathlib.Path(os.environ[name]) for name in ("REPRISE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
print(json.dumps({"there": [folder.exists() for folder in folders], "folders": [str(folder) for folder in folders]}))
for folder in folders:
    folder.mkdir()
"""


def test_two_processes_share_caches_that_nobody_else_has() -> None:
    (empty, full), other = (list(first_steps.rows_of([sys.executable, "-c", script])) for script in (
        SCRIPT.replace("mkdir()", "mkdir(exist_ok=True)"), SCRIPT.replace("folder.mkdir()", "pass")))
    assert [row["caches"] for row in (empty, full)] == ["empty", "full"]
    assert (empty["there"], full["there"]) == ([False] * 3, [True] * 3)
    assert empty["folders"] == full["folders"] and not {*empty["folders"]} & {*other[0]["folders"]}


def test_an_engine_is_measured_unless_rivals_alone_are_asked_for() -> None:
    for engine, traced, rival, found in (
            ([], [], [], [("engine", "eager")]), ([], [], ["inductor"], [("rival", "inductor")]),
            ([], ["eager"], [], [("traced", "eager")]),
            (["fused"], ["fused"], ["aot_eager"], [("engine", "fused"), ("traced", "fused"), ("rival", "aot_eager")])):
        assert first_steps.ways_of(argparse.Namespace(engine=engine, traced=traced, rival=rival)) == found


def test_rows_say_their_way() -> None:
    case = two_steps.cases(on_gpu=False)["dropout_mlp"]
    ways = ("engine", "eager"), ("rival", "aot_eager")
    budget = two_steps.budget_of(case, torch.device("cpu"), 2.0)
    rows = [two_steps.run(case, torch.device("cpu"), budget, way, begins=begins)
            for way, begins in zip(ways, two_steps.BEGINS, strict=True)]
    assert [row["begins"] for row in rows] == ["compile", "import"] and rows[0]["budget_bytes"] == budget
    assert [(row["way"], row.get("engine"), row.get("backend")) for row in rows] == [
        ("reprise", "eager", None), ("torch.compile", None, "aot_eager")]
    assert rows[0]["phases"].keys() == {*two_steps.PHASES} and rows[1]["phases"].keys() == {"importing"}
    for row in rows:
        assert 0 < row["rest_s"] < row["second_s"] and row["first_s"] < row["second_s"]
        assert first_steps.row_text(row | {"caches": "empty"}).startswith(f"dropout_mlp   {row['way']} ")


def test_the_clock_can_begin_before_anything_is_imported() -> None:
    command = [sys.executable, first_steps.__file__, "--case", "dropout_mlp", "--budget", "100000000", "--clock", "processor"]
    imported, ready = (next(first_steps.rows_of([*command, "--begins", begins])) for begins in ("import", "compile"))
    assert imported["imported_before"] == [] and ready["imported_before"] == ["torch._dynamo"]
    assert imported["phases"]["importing"] > 2 * ready["phases"]["importing"]


def test_bytecode_is_written_before_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ("import json, os, pathlib; print(json.dumps({'prefix': os.environ.get('PYTHONPYCACHEPREFIX'), "
              "'old': pathlib.Path(os.environ['REPRISE_CACHE_DIR']).exists()})); "
              "pathlib.Path(os.environ['REPRISE_CACHE_DIR']).mkdir(exist_ok=True)")
    prefixes = []
    for is_there, processes in ((True, 2), (False, 3)):
        monkeypatch.setattr(first_steps, "has_bytecode", lambda is_there=is_there: is_there)
        runs: list[object] = []
        with monkeypatch.context() as patch:
            patch.setattr(first_steps.subprocess, "run", _counted(first_steps.subprocess.run, runs))
            rows = list(first_steps.rows_with_bytecode([sys.executable, "-c", script]))
        assert len(runs) == processes and [row["old"] for row in rows] == [False, True]
        prefixes.append({row["prefix"] for row in rows})
    assert len(prefixes[1]) == 1 and prefixes[1] != prefixes[0]


def _counted(run: Callable[..., object], runs: list[object]) -> Callable[..., object]:
    def counted(*args: object, **kwargs: object) -> object:
        runs.append(args)
        return run(*args, **kwargs)

    return counted
