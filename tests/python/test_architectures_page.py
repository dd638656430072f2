"""The page about models, on rows that are made up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "documents"))

from architectures_page import line_of, passed, summary, write_page  # noqa: E402

MIB = 1 << 20
GOOD = {"name": "good", "kind": "decoder", "package": "transformers", "mode": "graph", "second_step_s": 3.0, "same": True,
        "trained_same": True, "eager_repeats": True, "eager_trains_same": True, "inside": True, "before_bytes": MIB,
        "plain_bytes": 11 * MIB, "asked_bytes": 7 * MIB, "budget_bytes": 7 * MIB, "predicted_bytes": 6 * MIB,
        "measured_bytes": 6 * MIB, "different": []}
ONLINE = GOOD | {"name": "online", "mode": "online", "predicted_bytes": None, "why_online": "it prints", "budget_bytes": 9 * MIB}
OTHER = GOOD | {"name": "other", "same": False, "different": ["loss"], "predicted_bytes": 5 * MIB}
LATER = GOOD | {"name": "later", "trained_same": False}
OUTSIDE = GOOD | {"name": "outside", "inside": False}
DRIFTS = OTHER | {"name": "drifts", "eager_repeats": False}
KNOWN = OTHER | {"name": "known", "exception": "it is traced as its parts"}
FAILED = {"name": "failed", "kind": "decoder", "package": "transformers", "error": "a\nKeyError: 3"}
ABSENT = {"name": "absent", "kind": "decoder", "package": "timm", "not_here": "timm cannot be imported"}
ROWS: list[dict[str, Any]] = [GOOD, ONLINE, OTHER, LATER, OUTSIDE, DRIFTS, KNOWN, FAILED, ABSENT]


def test_who_passes() -> None:
    assert [row["name"] for row in ROWS if passed(row)] == ["good", "online", "drifts", "known"]


def test_lines_say_what_is_wrong() -> None:
    lines = {row["name"]: line_of(row) for row in ROWS}
    assert "60%" in lines["good"] and lines["good"].endswith("bits same")
    assert "80%" in lines["online"]
    assert "DIFFER: loss" in lines["other"] and "predicted 5.00" in lines["other"]
    assert "DIFFER: after three steps" in lines["later"]
    assert "OUTSIDE" in lines["outside"]
    assert "eager does not repeat its own" in lines["drifts"]
    assert lines["known"].endswith("last bits: it is traced as its parts")
    assert lines["failed"].endswith("failed: KeyError: 3")
    assert lines["absent"].endswith("not here: timm cannot be imported")


def test_the_summary_counts_what_is_here() -> None:
    text = summary(ROWS)
    assert text.startswith("4 of 8 models train inside their budget (6 as a graph, 1 online)")
    assert "6 at 60 % of what the step adds, 1 at more" in text
    assert "the measured one in 3 of 6 graphs" in text and "1 are not here" in text


def test_the_page_has_a_row_for_each_model_and_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no rows"):
        write_page(tmp_path)
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "tables").mkdir(parents=True)
    content = {"device": "cpu", "machine": "a machine", "date": "2026-01-01", "torch": "2", "transformers": "5", "timm": None,
               "torchvision": None, "rows": ROWS}
    (tmp_path / "bench" / "results" / "architectures-cpu.json").write_text(json.dumps(content))
    text = write_page(tmp_path).read_text()
    assert text.count("\n| ") == 1 + 8
    assert "- online: it prints" in text and "not counted: absent." in text
    assert "a machine, torch 2, transformers 5, 2026-01-01." in text


def test_the_page_in_the_documents_is_made_of_the_rows(tmp_path: Path) -> None:
    (tmp_path / "docs" / "tables").mkdir(parents=True)
    (tmp_path / "bench").symlink_to(ROOT / "bench")
    assert write_page(tmp_path).read_text() == (ROOT / "docs" / "tables" / "architectures.md").read_text()
