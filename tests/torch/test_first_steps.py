"""bench/first_steps.py: which ways are measured, and with which caches."""

import argparse
import sys

import first_steps
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
    rows = [two_steps.run(case, torch.device("cpu"), 2.0, way) for way in (("engine", "eager"), ("rival", "aot_eager"))]
    assert [(row["way"], row.get("engine"), row.get("backend")) for row in rows] == [
        ("reprise", "eager", None), ("torch.compile", None, "aot_eager")]
    assert rows[0]["phases"].keys() == {*two_steps.PHASES} and rows[1]["phases"].keys() == {"importing"}
    for row in rows:
        assert 0 < row["rest_s"] < row["second_s"] and row["first_s"] < row["second_s"]
        assert first_steps.row_text(row | {"caches": "empty"}).startswith(f"dropout_mlp   {row['way']} ")
