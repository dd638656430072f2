"""The demo in a tiny form: nothing prints twice, every path that it prints is there, and the numbers are what it promises."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from reprise import parse_bytes

DEMO = Path(__file__).resolve().parents[2] / "scripts/demo.py"


def test_what_the_demo_prints_is_true_and_there(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    ran = subprocess.run([sys.executable, DEMO, "--steps", "2", "--batch", "16", "--size", "64", "--share", "0.75", "--out", out],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""  # Progress is for terminals.
    lines = [line for line in ran.stdout.splitlines() if line.strip()]
    assert len(lines) == len(set(lines)), ran.stdout
    assert all(len(line) <= 100 for line in lines if str(tmp_path) not in line), ran.stdout
    named = [Path(line) for line in lines if line.startswith(str(tmp_path))]
    assert [path.name for path in named] == ["resnet50.html", "resnet50.txt", "resnet50.plan.json"]
    assert all(path.stat().st_size > 0 for path in (*named, out / "resnet50.graph.json"))
    assert {path.name for path in out.iterdir()} == {path.name for path in named} | {"resnet50.graph.json"}
    table = {cells[0]: cells for line in lines if len(cells := re.split(r" {2,}", line)) > 2}
    assert table["budget"][-1] == "kept" and table["loss of the last step"][-1] == "the same bits"
    assert parse_bytes(table["peak"][2]) <= parse_bytes(table["budget"][1]) < parse_bytes(table["peak"][1])
    assert json.loads(named[2].read_text())["peak_bytes"] > 0
