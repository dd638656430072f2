"""bench/gpu/tables.py, on rows that were made up."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
FACTS = {"machine": "x86_64", "torch": "2.11.0", "gpu": "a card", "cuda": "13.0", "cudnn": 9, "tf32": True, "date": "2026-01-01"}


def row(kind: str, point: str, gib: float, ratio: float, **more: Any) -> dict[str, Any]:
    return {"case": "net", "kind": kind, "point": point, "peak_bytes": int(gib * 2**30), "reserved_bytes": int(gib * 2**30),
            "ms": 100 * ratio, "spread_ms": [99 * ratio, 101 * ratio], "eager_ms": 100.0, "ratio": ratio, "facts": FACTS} | more


RIVALS = [row("eager", "", 8, 1.0), row("compile", "0.4", 4, 1.25), row("reprise", "eager", 8, 0.99),
          row("reprise", "compile 0.4", 3.9, 1.1)]


def tables(folder: Path, *pages: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench/gpu/tables.py"), *pages, "--results", str(folder), "-o", str(folder / "docs")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = folder / f"{name}-cuda" / "net.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"results": rows}))


def rivals_page(folder: Path, rows: list[dict[str, Any]]) -> str:
    put(folder, "rivals", rows)
    done = tables(folder, "rivals")
    assert done.returncode == 0, done.stderr
    return (folder / "docs/tables/rivals.md").read_text()


def test_says_that_no_rival_is_ahead(tmp_path: Path) -> None:
    page = rivals_page(tmp_path, RIVALS)
    assert "No point of the others is better than Reprise" in page
    assert "| torch.compile 0.4 | 4.00 | 4.00 | 125.0 | 123.8 to 126.2 | 1.25 | 1.10 <sub>3.90</sub> | not measured |" in page
    picture = ElementTree.parse(tmp_path / "docs/pictures/rivals-net.svg")
    circles = picture.getroot().iter("{http://www.w3.org/2000/svg}circle")
    assert len(list(circles)) == len(RIVALS) + 3  # one of each kind is in the legend


@pytest.mark.parametrize(("rows", "said"), [
    ([*RIVALS[:3], row("reprise", "compile 0.4", 3.9, 1.3)],
     "Better than Reprise in both time and memory: compile 0.4 (4.00 GiB at 1.250 of eager's time; Reprise 1.300)"),
    ([*RIVALS[:3], {"case": "net", "kind": "reprise", "point": "compile 0.4", "refused": "no plan", "facts": FACTS}],
     "Reprise has no plan there"),
    ([*RIVALS[:3], row("reprise", "compile 0.4", 3.9, 1.26)], "No point of the others is better than Reprise"),
    ([*RIVALS, row("reprise_graphs", "eager", 8, 0.9)], "Reprise was not measured at the peak of compile 0.4"),
    (RIVALS[:3], "Reprise was not measured at the peak of compile 0.4: nothing is said about who is ahead"),
])
def test_says_where_a_rival_is_ahead(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    assert said in rivals_page(tmp_path, rows)


def test_tells_of_failures_and_of_another_machine(tmp_path: Path) -> None:
    failed = {"case": "net", "kind": "selective", "point": "", "error": "Traceback\nValueError: too small", "facts": {}}
    page = rivals_page(tmp_path, [*RIVALS, failed, row("checkpoint", "", 5, 1.3, facts=FACTS | {"torch": "2.13.0"})])
    assert "selective checkpoints failed: ValueError: too small" in page
    assert "not all of one machine" in page
    assert "not all of one machine" not in rivals_page(tmp_path, RIVALS)


def test_without_rows_there_is_no_page(tmp_path: Path) -> None:
    done = tables(tmp_path)
    assert done.returncode == 1
    for name in ("rivals", "kusumoto", "hong"):
        assert f"{name}: {tmp_path}/{name}-cuda has no rows: run python bench/gpu/{name}.py" in done.stderr
    assert not (tmp_path / "docs").exists()


def test_refuses_a_page_that_it_does_not_know(tmp_path: Path) -> None:
    done = tables(tmp_path, "rivalz")
    assert done.returncode == 2
    assert "there is no page 'rivalz': choose of rivals" in done.stderr


def test_says_what_forbids_the_reduction_of_the_paper(tmp_path: Path) -> None:
    at_peak = {"op": "convolution_backward", "module": "features.2", "workspace_bytes": 2**30, "reads_bytes": 2**31,
               "writes_bytes": 2**30, "resident_bytes": 2**30, "largest": [[2**31, "relu of features.1"]]}
    rows = [row("eager", "", 8, 1.0, reduction_percent=0.0, paper_reduction_percent=36),
            row("chen", "", 6, 1.4, reduction_percent=25.0), row("auto=chen", "", 6, 1.2, reduction_percent=25.0),
            row("auto-least", "", 5.6, 1.3, reduction_percent=30.0, at_peak=at_peak),
            {"case": "net", "kind": "auto-paper", "refused": "no plan was found", "facts": FACTS}]
    put(tmp_path, "kusumoto", rows)
    assert tables(tmp_path, "kusumoto").returncode == 0
    page = (tmp_path / "docs/tables/kusumoto-gpu.md").read_text()
    assert "-25 %, 1.40 <sub>auto 1.20</sub>" in page
    assert "| net | -36 % | no plan | -30 %, 1.30 |" in page
    assert "5.60 GiB, is during `convolution_backward` of `features.2`" in page
    assert "2.00 GiB relu of features.1" in page


def test_draws_prediction_and_allocation_of_each_layer(tmp_path: Path) -> None:
    curve = {"forward": [[2**30, 2**30, 2**31]] * 3, "backward": [[2**30, 2**30, 2**31]] * 3}
    rows = [row("plain", "", 8, 1.0), row("auto={3,11}", "", 5, 1.1),
            row("{3,11}", "", 6, 1.3, predicted_bytes=5 * 2**30, allocated_between_layers_bytes=5 * 2**30, curve=curve)]
    put(tmp_path, "hong", rows)
    assert tables(tmp_path, "hong").returncode == 0
    assert "| {3,11} | 5.00 | 5.00 | 6.00 | 1.30 | 5.00 | 1.10 |" in (tmp_path / "docs/tables/hong-gpu.md").read_text()
    assert ElementTree.parse(tmp_path / "docs/pictures/hong-net-3-11.svg").getroot().tag.endswith("svg")


def test_tells_the_largest_batches(tmp_path: Path) -> None:
    fits = {"plain": {"batch": 10, "predicted_bytes": 1}, "planned": {"batch": 30, "predicted_bytes": 1, "measured_bytes": 2**33}}
    rows = [{"case": "net", "budget_bytes": 2**34, "facts": FACTS} | fits]
    put(tmp_path, "largest-batches", rows)
    assert tables(tmp_path, "largest").returncode == 0
    assert "| net | 10, 30 <sub>50.0 %</sub> |" in (tmp_path / "docs/tables/largest-batches.md").read_text()
