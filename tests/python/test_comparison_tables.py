"""Tests bench/gpu/tables.py on made-up rows, and README.md on the committed rows."""

import ast
import json
import re
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
    return written(folder, folder, *pages)


def written(results: Path, output: Path, *pages: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench/gpu/tables.py"), *pages, "--results", str(results), "-o", str(output / "docs"),
               "--readme", str(output / "README.md")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = folder / f"{name}-cuda" / "net.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"results": rows}))


def page_of(folder: Path, name: str, rows: list[dict[str, Any]], page: str, file: str) -> str:
    put(folder, name, rows)
    done = tables(folder, page)
    assert done.returncode == 0, done.stderr
    return (folder / "docs/tables" / file).read_text()


def points_in(picture: Path) -> int:
    return sum(node.get("class") == "point" for node in ElementTree.parse(picture).getroot().iter())


def put_budgets(folder: Path) -> None:
    steps = [{"budget": 2**33, "predicted": 2**33, "allocated": 2**33, "recompute_percent": 0.0},
             {"budget": 2**32, "predicted": 2**32, "allocated": 2**32 + 2**24, "reserved_alone": 2**33, "recompute_percent": 4.5}]
    put(folder, "budget", [{"case": "unet_8x572", "plain_bytes": 2**33, "smallest_bytes": 2**32, "rows": steps, "facts": FACTS},
                           {"case": "net", "error": "ended with -9", "facts": {}}])


def rivals_page(folder: Path, rows: list[dict[str, Any]]) -> str:
    return page_of(folder, "rivals", rows, "rivals", "rivals.md")


def test_says_that_no_rival_is_ahead(tmp_path: Path) -> None:
    page = rivals_page(tmp_path, RIVALS)
    assert "No point of the others is better than Reprise" in page
    assert "| torch.compile 0.4 | 4.00 | 4.00 | 125.0 | 123.8 to 126.2 | 1.25 | 1.10 <sub>3.90</sub> |" in page
    assert "CUDA graphs" not in page
    assert points_in(tmp_path / "docs/pictures/rivals-net.svg") == len(RIVALS)


def test_has_a_column_of_cuda_graphs_where_they_were_measured(tmp_path: Path) -> None:
    page = rivals_page(tmp_path, [*RIVALS, row("reprise_graphs", "compile 0.4", 3.95, 1.05)])
    assert "| of eager | Reprise | Reprise, CUDA graphs |" in page
    assert "| 1.25 | 1.10 <sub>3.90</sub> | 1.05 <sub>3.95</sub> |" in page


def test_has_a_column_of_compiled_graphs_where_they_were_measured(tmp_path: Path) -> None:
    assert "least peak measured |\n" in rivals_page(tmp_path, RIVALS)
    rows = [*RIVALS, row("compile_graphs", "1.0", 5, 0.9), row("fused_graphs", "compile_graphs 1.0", 4.9, 0.8)]
    page = rivals_page(tmp_path, rows)
    assert "least peak measured | torch.compile, CUDA graphs |\n" in page
    assert "| 1.25 / **1.10** <sub>4.00</sub> | 0.90 / **0.80** <sub>5.00</sub> |\n" in page
    assert "| torch.compile, CUDA graphs 1.0 | 5.00 | 5.00 | 90.0 | 89.1 to 90.9 | 0.90 | not measured | " \
           "0.80 <sub>4.90</sub> |" in page


def test_has_fp32_beside_bf16_where_it_was_measured(tmp_path: Path) -> None:
    """Rows that say no type are of bf16."""
    fp32 = [one | {"dtype": "fp32", "peak_bytes": 2 * one["peak_bytes"]} for one in RIVALS]
    alone = rivals_page(tmp_path, RIVALS)
    assert rivals_page(tmp_path, [one | {"dtype": "bf16"} for one in RIVALS]) == alone
    assert "fp32" not in alone and not (tmp_path / "docs/pictures/rivals-net-fp32.svg").exists()
    page = rivals_page(tmp_path, [*fp32, *RIVALS])
    bf16, _, rest = page.partition("\n**In fp32.**\n")
    assert "\n**Under bf16 autocast.**\n" in bf16 and "<sub>8.00</sub>" in bf16 and "<sub>16.00</sub>" not in bf16
    assert "| net | 100 ms <sub>16.00</sub> |" in rest
    of_bf16, of_fp32 = rest.split("\n## net")[1:]
    assert of_fp32.startswith(", fp32\n") and "| eager | 16.00 |" in of_fp32 and "| eager | 8.00 |" in of_bf16
    for name in ("net", "net-fp32"):
        assert points_in(tmp_path / f"docs/pictures/rivals-{name}.svg") == len(RIVALS)


def test_begins_with_all_networks(tmp_path: Path) -> None:
    gpt = [one | {"case": "gpt2_medium_8x1024"} for one in [*RIVALS, row("checkpoint", "", 3, 1.2),
           {"case": "", "kind": "reprise", "point": "checkpoint", "refused": "no plan", "facts": FACTS}]]
    page = rivals_page(tmp_path, [*RIVALS, *gpt])
    summary, _, networks = page.partition("\n## ")
    assert "| GPT-2 medium, 8 x 1024 | 100 ms <sub>8.00</sub> | **1.20** / no plan <sub>3.00</sub> | not measured |" in summary
    assert "| 1.25 / **1.10** <sub>4.00</sub> | 1.25 / **1.10** <sub>4.00</sub> |" in summary
    assert "- GPT-2 medium, 8 x 1024: checkpoints of blocks.\n- net: none.\n" in summary
    assert networks.startswith("GPT-2 medium, 8 x 1024\n")


def test_marks_times_whose_samples_are_far_apart(tmp_path: Path) -> None:
    assert "*`" not in rivals_page(tmp_path, RIVALS)
    far = [row("compile", "0.4", 4, 1.25, spread_ms=[124, 137]),
           row("reprise", "compile 0.4", 3.9, 1.1, eager_spread_ms=[95, 106])]
    page = rivals_page(tmp_path, [RIVALS[0], RIVALS[2], *far])
    assert "| 1.25* | 1.10* <sub>3.90</sub> |" in page
    assert "11.0 % at most. `*`: above 10 %" in page


@pytest.mark.parametrize(("rows", "said"), [
    ([*RIVALS[:3], row("reprise", "compile 0.4", 3.9, 1.3)],
     "Better than Reprise in both time and memory: compile 0.4 (4.00 GiB at 1.250 of eager's time; Reprise 1.300)"),
    ([*RIVALS[:3], {"case": "net", "kind": "reprise", "point": "compile 0.4", "refused": "no plan", "facts": FACTS}],
     "Reprise has no plan there"),
    ([*RIVALS[:3], row("reprise", "compile 0.4", 3.9, 1.26)], "No point of the others is better than Reprise"),
    ([*RIVALS, row("reprise_graphs", "eager", 8, 0.9)], "No point of the others is better than Reprise"),  # one kind is enough
    (RIVALS[:3], "Reprise was not measured at the peak of compile 0.4: nothing is said about who is ahead"),
])
def test_says_where_a_rival_is_ahead(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    assert said in rivals_page(tmp_path, rows)


def test_nobody_is_ahead_whose_eager_alone_was_slow(tmp_path: Path) -> None:
    """As multiples of eager's time the two are far apart, but in milliseconds they are not."""
    slow_eager = {"ms": 100.0, "spread_ms": [99, 101], "eager_ms": 200.0}
    ours = rivals_page(tmp_path, [row("compile", "0.4", 4, 1.0), row("reprise", "compile 0.4", 3.9, 0.5, **slow_eager)])
    assert "| 1.00 / 0.50 <sub>4.00</sub> |" in ours
    theirs = rivals_page(tmp_path, [row("compile", "0.4", 4, 0.5, **slow_eager), row("reprise", "compile 0.4", 3.9, 1.0)])
    assert "No point of the others is better than Reprise" in theirs


def test_tells_of_failures_and_of_another_machine(tmp_path: Path) -> None:
    failed = {"case": "net", "kind": "selective", "point": "", "error": "Traceback\nValueError: too small", "facts": {}}
    page = rivals_page(tmp_path, [*RIVALS, failed, row("checkpoint", "", 5, 1.3, facts=FACTS | {"torch": "2.13.0"})])
    assert "selective checkpoints failed: ValueError: too small" in page
    assert "not all of one machine" in page
    assert "not all of one machine" not in rivals_page(tmp_path, RIVALS)


def test_without_rows_there_is_no_page(tmp_path: Path) -> None:
    done = tables(tmp_path)
    assert done.returncode == 1
    for page, script in {"rivals": "rivals", "kusumoto": "kusumoto", "batches": "batch_sizes", "largest": "largest_batches",
                         "hong": "hong", "budgets": "budget", "host-memory": "host_memory",
                         "readme": "rivals"}.items():
        folder = script.replace("_", "-")
        assert f"{page}: {tmp_path}/{folder}-cuda has no rows: run python bench/gpu/{script}.py" in done.stderr
    assert not (tmp_path / "docs").exists()


def test_refuses_a_page_that_it_does_not_know(tmp_path: Path) -> None:
    done = tables(tmp_path, "rivalz")
    assert done.returncode == 2
    assert "there is no page 'rivalz': choose of rivals" in done.stderr


def kusumoto_page(folder: Path, rows: list[dict[str, Any]]) -> str:
    return page_of(folder, "kusumoto", rows, "kusumoto", "kusumoto-gpu.md")


def test_says_what_forbids_the_reduction_of_the_paper(tmp_path: Path) -> None:
    at_peak = {"op": "convolution_backward", "module": "features.2", "workspace_bytes": 2**30, "reads_bytes": 2**31,
               "writes_bytes": 2**30, "resident_bytes": 2**30, "largest": [[2**31, "relu of features.1"]]}
    rows = [row("eager", "", 8, 1.0, reduction_percent=0.0, paper_reduction_percent=36),
            row("chen", "", 6, 1.4, reduction_percent=25.0), row("auto=chen", "", 6, 1.2, reduction_percent=25.0),
            row("auto-least", "", 5.6, 1.3, reduction_percent=30.0, at_peak=at_peak),
            {"case": "net", "kind": "auto-paper", "refused": "no plan was found", "facts": FACTS}]
    page = kusumoto_page(tmp_path, rows)
    assert "-25 %, 1.40 <sub>auto 1.20</sub>" in page
    assert "| net | -36 % | not known | no plan | -30 %, 1.30 <sub>5.60 GiB</sub> |" in page
    assert points_in(tmp_path / "docs/pictures/kusumoto-net.svg") == 4
    assert "5.60 GiB, is during `convolution_backward` of `features.2`" in page
    assert "2.00 GiB relu of features.1" in page


def paper_rows(case: str, **at_paper: Any) -> list[dict[str, Any]]:
    return [one | {"case": case, "paper_reduction_percent": 71} for one in (
        row("eager", "", 8, 1.0, reduction_percent=0.0), row("auto-least", "", 1.2, 1.31, reduction_percent=85.0),
        row("auto-paper", "", 2.3, 1.12, reduction_percent=71.2) | at_paper)]


def test_has_the_paper_beside_and_its_order(tmp_path: Path) -> None:
    page = kusumoto_page(tmp_path, [*paper_rows("googlenet_256"), *paper_rows("densenet161_32"), *paper_rows("pspnet_2")])
    assert "| PSPNet, batch 2 of 713x713 | -71 % | 1.21 <sub>batch 3</sub> | -71 %, 1.12 | " \
           "-85 %, 1.31 <sub>1.20 GiB</sub> |" in page
    assert "| GoogLeNet, batch 256 | -71 % | not known |" in page
    assert "for the others, no time could be found" in page
    assert page.index("| PSPNet") < page.index("| DenseNet161") < page.index("| GoogLeNet")


def test_marks_what_was_planned_on_the_papers_graph(tmp_path: Path) -> None:
    planned = {"lower_sets": 1234, "peak_gb": 2.7, "plain_gb": 9.4, "reduction_percent": 71.3, "forward_again_percent": 28.4}
    exact = {"case": "pspnet_2", "kind": "exact-mc", "facts": FACTS,
             "refused": "stopped: more than 200000 lower sets; use another"}
    page = kusumoto_page(tmp_path, [*paper_rows("pspnet_2"), exact | {"papers_graph": planned}])
    assert "| not measured | -71 % † |" in page
    assert "†: not run." in page
    assert "PSPNet, exact MC: captured step stopped: more than 200000 lower sets; paper's graph, 1234 lower sets: 2.70 GB of " \
           "9.40 GB, forward computed again: 28 %." in page
    assert "No plan:" not in page
    page = kusumoto_page(tmp_path, [*paper_rows("pspnet_2"), exact])
    assert "†" not in page
    assert "No plan:\n\n- PSPNet, exact-mc: stopped: more than 200000 lower sets" in page


def test_shows_time_against_batch_size(tmp_path: Path) -> None:
    at = {"case": "resnet152_48", "card_bytes": 10 * 2**30}
    rows = [row("eager", "", 12, 1.0) | at | {"batch": 80}, row("chen", "", 5, 1.3, paper_ratio=1.32) | at | {"batch": 80},
            row("auto", "", 9.5, 1.05) | at | {"batch": 80},
            at | {"batch": 80, "kind": "approx-tc", "refused": "infeasible: too small", "facts": FACTS},
            {"case": "resnet152_48", "batch": 120, "kind": "eager", "error": "Traceback\nout of time", "facts": {}}]
    page = page_of(tmp_path, "batch-sizes", rows, "batches", "batch-sizes.md")
    assert "## ResNet152\n" in page
    assert "| 80 | 100.0 | 12.00 † | 1.30 <sub>paper 1.32, 5.00</sub> | no plan | not measured | 1.05 <sub>9.50</sub> |" in page
    assert "†: above 10.00 GiB" in page
    assert "- 80, approx. TC: infeasible: too small." in page
    assert "- batch 120, eager failed: out of time" in page
    assert points_in(tmp_path / "docs/pictures/batch-sizes-resnet152_48.svg") == 3


MARKS = "before\n<!-- evidence: written by bench/gpu/tables.py -->\nold\n<!-- evidence end -->\nafter\n"
GPT = [one | {"case": "gpt2_medium_8x1024"} for one in (
    *RIVALS[:3], row("reprise", "compile 0.4", 3.9, 1.3), row("checkpoint", "", 5, 1.2), row("reprise", "checkpoint", 5, 1.1),
    row("selective", "", 6, 1.1), row("reprise", "selective", 6, 1.095))]


def readme_of(folder: Path, rows: list[dict[str, Any]]) -> str:
    put(folder, "rivals", rows)
    put_budgets(folder)
    (folder / "README.md").write_text(MARKS)
    done = tables(folder, "readme")
    assert done.returncode == 0, done.stderr
    return (folder / "README.md").read_text()


def test_writes_its_part_of_the_readme(tmp_path: Path) -> None:
    text = readme_of(tmp_path, GPT)
    assert text.startswith("before\n<!-- evidence") and text.endswith("\n<!-- evidence end -->\nafter\n") and "old" not in text
    assert "| GPT-2 medium, 8 x 1024 | 8.00 GiB, 100 ms | 3.90 GiB (-51 %), 1.30 | 3.90 GiB (-51 %), 1.30 |" in text
    flat = " ".join(text.split())
    assert "1 of 2 budgets were kept by the allocator's own count: 1 networks, each at 2 budgets" in flat
    assert "memory budget: GPT-2 medium 1.25 in 4.00 GiB (eager 1.30). **Ahead of Reprise on GPT-2 medium.**" in flat
    assert "every block: GPT-2 medium 1.20 in 5.00 GiB (eager 1.10). **Behind Reprise on GPT-2 medium.**" in flat
    assert tables(tmp_path, "readme").returncode == 0
    assert (tmp_path / "README.md").read_text() == text


def test_readme_is_about_bf16_and_names_graphs_where_they_were_measured(tmp_path: Path) -> None:
    text = readme_of(tmp_path, GPT)
    assert "reduce-overhead" not in text
    assert readme_of(tmp_path, [*(one | {"dtype": "fp32", "ratio": 0.1} for one in GPT), *GPT]) == text
    more = [one | {"case": "gpt2_medium_8x1024"} for one in (
        row("compile_graphs", "1.0", 5, 0.9), row("fused_graphs", "compile_graphs 1.0", 4.9, 0.8))]
    flat = " ".join(readme_of(tmp_path, [*GPT, *more]).split())
    assert "- `torch.compile(mode=\"reduce-overhead\")`: GPT-2 medium 0.90 in 5.00 GiB (fused 0.80). " \
           "**Behind Reprise on GPT-2 medium.**" in flat


def test_readme_names_who_is_ahead_network_by_network(tmp_path: Path) -> None:
    llama = [one | {"case": "llama_1b_4x2048"} for one in RIVALS]
    resnet = [one | {"case": "resnet50_96"} for one in (*RIVALS[:3], row("reprise", "compile 0.4", 4, 1.26))]
    text = " ".join(readme_of(tmp_path, [*GPT, *llama, *resnet]).split())
    assert "**Ahead of Reprise on GPT-2 medium; behind it on Llama; level with it on ResNet50.**" in text
    assert "every block: ResNet50 not measured, GPT-2 medium 1.20 in 5.00 GiB (eager 1.10), Llama not measured." in text
    assert text.index("| ResNet50") < text.index("| GPT-2 medium") < text.index("| Llama")


def test_readme_has_the_smallest_budgets_and_the_row_nearest_below_half(tmp_path: Path) -> None:
    at = {"case": "gpt2_medium_8x1024"}
    more = [row("reprise", "checkpoint_graph", 4.1, 1.2) | at, row("reprise_graphs", "compile 0.0", 2, 1.6) | at]
    put(tmp_path, "rivals", [*GPT, *more])
    steps = [{"budget": 2**33, "predicted": 2**33, "allocated": 2**33, "recompute_percent": 0.0},
             {"budget": 2**31, "predicted": 2**31, "allocated": 2**31, "recompute_percent": 41.6}]
    put(tmp_path, "budget", [at | {"plain_bytes": 2**33, "smallest_bytes": 2**31, "rows": steps, "facts": FACTS}])
    (tmp_path / "README.md").write_text(MARKS)
    assert tables(tmp_path, "readme").returncode == 0
    assert "| 3.90 GiB (-51 %), 1.30 | 2.00 GiB (-75 %), 1.60 | 2.00 of 8.00 GiB, 42 % |" in (tmp_path / "README.md").read_text()


def test_readme_tells_what_was_not_measured_and_where_there_is_no_plan(tmp_path: Path) -> None:
    at = {"case": "gpt2_medium_8x1024"}
    no_plan = [row("compile", "1.0", 3, 1.2) | at,
               at | {"kind": "reprise", "point": "compile 1.0", "refused": "no plan", "facts": FACTS}]
    text = " ".join(readme_of(tmp_path, [*GPT, *no_plan]).split())
    assert "GPT-2 medium 1.20 in 3.00 GiB (Reprise has no plan). **Ahead of Reprise on GPT-2 medium.**" in text
    text = " ".join(readme_of(tmp_path, [*GPT[:2], GPT[2] | {"peak_bytes": 2**33}]).split())
    assert "| 8.00 GiB, 100 ms | not measured | 8.00 GiB (+0 %), 0.99 | not measured |" in text
    assert "`torch.compile`" not in text


def test_readme_needs_a_network_that_it_shows(tmp_path: Path) -> None:
    put(tmp_path, "rivals", RIVALS)
    put_budgets(tmp_path)
    (tmp_path / "README.md").write_text(MARKS)
    done = tables(tmp_path, "readme")
    assert done.returncode == 1
    assert "has no eager times of resnet50_96, gpt2_medium_8x1024" in done.stderr
    assert (tmp_path / "README.md").read_text() == MARKS


@pytest.mark.parametrize("readme", ["no marks\n", MARKS + MARKS, "<!-- evidence end -->\n" + MARKS.replace("end", "of"), None])
def test_needs_its_marks_in_the_readme(tmp_path: Path, readme: str | None) -> None:
    put(tmp_path, "rivals", GPT)
    put_budgets(tmp_path)
    if readme is not None:
        (tmp_path / "README.md").write_text(readme)
    done = tables(tmp_path, "readme")
    assert done.returncode == 1
    assert f"{tmp_path}/README.md needs each of these lines once" in done.stderr
    assert readme is None or (tmp_path / "README.md").read_text() == readme


def test_readme_is_what_the_rows_give(tmp_path: Path) -> None:
    if not list((ROOT / "bench/results/rivals-cuda").glob("*.json")):
        pytest.skip("bench/results/rivals-cuda has no rows yet")
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    done = written(ROOT / "bench/results", tmp_path, "readme")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text(), "run python3 bench/gpu/tables.py readme"


def constant(path: str, name: str) -> Any:
    """The value of a constant in a module, which is read and not imported, because it may need torch."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{path} has no {name}")


def test_titles_and_the_poster_are_those_of_the_measurements() -> None:
    steps = re.findall(r'(?:pictured|Step)\("(\w+)", "([^"]+)"', (ROOT / "models/steps.py").read_text())
    titles = constant("bench/gpu/pages/shared.py", "TITLES")
    assert titles and titles.items() <= dict(steps).items()
    kinds = constant("bench/gpu/batch_sizes.py", "KINDS")
    for case, known in constant("bench/gpu/batch_sizes.py", "POSTER").items():
        batch, plain, planned = constant("bench/gpu/pages/kusumoto.py", "POSTER")[case]
        assert batch == min(known)
        assert (plain, planned) == (known[batch][kinds.index("eager")], known[batch][kinds.index("approx-mc")])


def test_legend_is_below_the_points_and_nothing_is_cut(tmp_path: Path) -> None:
    kinds = ("eager", "checkpoint", "selective", "checkpoint_graph", "compile", "compile_graphs", "reprise", "reprise_graphs")
    points = {"compile": "0.4", "compile_graphs": "1.0"}
    rivals_page(tmp_path, [row(kind, points.get(kind, ""), 1 + i, 1 + i) for i, kind in enumerate(kinds)])
    drawn = ElementTree.parse(tmp_path / "docs/pictures/rivals-net.svg").getroot()
    width, height = float(drawn.get("width", "")), float(drawn.get("height", ""))

    def places(kind: str) -> list[list[float]]:
        return [[float(n) for n in re.findall(r"[\d.]+", node.get("transform", ""))] for node in drawn.iter()
                if node.get("class") == kind]

    assert len(places("key")) == len(places("point")) == len(kinds)
    assert max(y for _, y in places("point")) + 20 < min(y for _, y in places("key")) < height
    for node in drawn.iter("{http://www.w3.org/2000/svg}text"):
        length = 7.8 * len(node.text or "")
        left = float(node.get("x", "")) - {"end": length, "middle": length / 2}.get(node.get("text-anchor", ""), 0)
        assert left >= 0 and left + length <= width and float(node.get("y", "")) <= height - 4, node.text


def test_draws_prediction_and_allocation_of_each_layer(tmp_path: Path) -> None:
    curve = {"forward": [[2**30, 2**30, 2**31]] * 3, "backward": [[2**30, 2**30, 2**31]] * 3}
    rows = [row("plain", "", 8, 1.0), row("auto={3,11}", "", 5, 1.1),
            {"case": "net", "kind": "rotor", "error": "Traceback\nout of memory", "facts": {}},
            row("{3,11}", "", 6, 1.3, predicted_bytes=5 * 2**30, allocated_between_layers_bytes=5 * 2**30, curve=curve)]
    page = page_of(tmp_path, "hong", rows, "hong", "hong-gpu.md")
    assert "| {3,11} | 5.00 | 5.00 | 6.00 | 1.30 | 5.00 | 1.10 |" in page
    assert "- rotor failed: out of memory" in page
    assert ElementTree.parse(tmp_path / "docs/pictures/hong-net-3-11.svg").getroot().tag.endswith("svg")


def test_tells_the_largest_batches(tmp_path: Path) -> None:
    fits = {"plain": {"batch": 10, "predicted_bytes": 1},
            "planned": {"batch": 30, "predicted_bytes": 2**33 + 2**26, "measured_bytes": 2**33}}
    rows = [{"case": "net", "budget_bytes": 2**34, "facts": FACTS} | fits]
    put(tmp_path, "largest-batches", rows)
    assert tables(tmp_path, "largest").returncode == 0
    page = (tmp_path / "docs/tables/largest-batches.md").read_text()
    assert "1 of 2 predictions were tried; 1 of 1 planned fitted." in page
    assert "Measured peaks against predicted ones: planned -0.8 to -0.8 %." in page
    assert "| net | 10 <sub>not tried</sub>, 30 <sub>50.0 %</sub> |" in page
    rows[0]["plain"]["measured_bytes"] = 2**34 + 3 * 2**20
    page = page_of(tmp_path, "largest-batches", rows, "largest", "largest-batches.md")
    assert "2 of 2 predictions were tried; 0 of 1 plain and 1 of 1 planned fitted." in page
    assert "| net | 10 <sub>over by 3 MiB</sub>, 30 <sub>50.0 %</sub> |" in page


def test_counts_budgets_that_were_kept(tmp_path: Path) -> None:
    put_budgets(tmp_path)
    assert tables(tmp_path, "budgets").returncode == 0
    page = (tmp_path / "docs/tables/budgets.md").read_text()
    assert "**1 of 2 inside**" in page and "to the byte in 1, and off by 0.391 %" in page
    assert "| 8.000 | 8.000 | 8.000 | 0.0 % |" in page  # A column that one row lacks is left out.
    assert "| U-Net | 8.00 | 4.00 | 50 % | 1 of 2 | 0.391 % |" in page
    assert "| 4.000 | 4.000 | 4.016 | 4.5 % |" in page
    assert "- net failed: ended with -9" in page


def test_the_page_on_the_hosts_memory_has_a_row_for_each_way(tmp_path: Path) -> None:
    known = {"dtype": "bf16"}
    planned = known | {"predicted_bytes": 4 * 2**30, "budget_bytes": 4 * 2**30, "lost_percent": 2.5}
    rows = [row("eager", "", 8, 1.0, **known, link={"down_gb_per_s": 50.1, "up_gb_per_s": 49.9, "both_ways": True}),
            row("recomputed", "", 4, 1.1, **planned, host_peak_bytes=0),
            row("stored", "", 4, 1.05, **planned, host_peak_bytes=2**30, measured_wait_percent=0.125),
            known | {"case": "net", "kind": "save_on_cpu", "refused": "out of memory", "facts": FACTS}]
    page = page_of(tmp_path, "host-memory", rows, "host-memory", "host-memory.md")
    assert "to the byte in 2 of 2" in page
    assert "50.1 GB/s down and 49.9 GB/s up" in page
    assert "| with the host's memory | 4.00 | 1.05 | 1.00 | 2.50 % | 0.12 % |" in page
    assert "| recomputation alone | 4.00 | 1.10 |  | 2.50 % |  |" in page
    assert "| `save_on_cpu` | refused |" in page


def test_budgets_that_all_failed_have_no_page(tmp_path: Path) -> None:
    put(tmp_path, "budget", [{"case": "net", "error": "Traceback\nMemoryError: too small", "facts": {}}])
    done = tables(tmp_path, "budgets")
    assert done.returncode == 1
    assert "budgets: every network failed: MemoryError: too small; run python bench/gpu/budget.py" in done.stderr
