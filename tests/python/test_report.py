"""Tests the page of the report in a browser: it shows the data, and it works with a mouse and with a keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest

import reprise
from reprise import _core

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="there is no chromium")


def chain(layers: int) -> tuple[_core.Graph, _core.Costs]:
    """A chain of layers with two ops each, in modules such as body.0.3, forward and backward."""
    scopes, ops, sizes = [], [], [1 << 20]
    values = [0]
    for i in range(layers):
        scopes.append(f"body.{i // 10}.{i % 10}")
        for kind in ("linear", "relu"):
            sizes.append((1 << 20) + 1024 * (i % 7))
            ops.append({"name": f"{kind}_{i}", "scope": i, "time_ns": 9000 if kind == "linear" else 1000,
                        "inputs": [values[-1]], "outputs": [len(sizes) - 1]})
            values.append(len(sizes) - 1)
    sizes.append(4)
    ops.append({"name": "caller", "phase": "caller", "inputs": [values[-1]], "outputs": [len(sizes) - 1]})
    gradient = len(sizes) - 1
    for i in reversed(range(2 * layers)):
        sizes.append(1 << 20)
        ops.append({"name": f"backward_{i}", "scope": i // 2, "phase": "backward", "time_ns": 9000,
                    "inputs": sorted([gradient, values[i]]), "outputs": [len(sizes) - 1]})
        gradient = len(sizes) - 1
    return _core.parse_graph(json.dumps({
        "format": "reprise.graph", "version": 1, "name": "chain <of> layers", "scopes": scopes,
        "values": {"bytes": sizes, "resident": [], "arriving": [0], "held": [], "overwrites": []},
        "outputs": [gradient], "ops": ops}))


def report_of(step: tuple[_core.Graph, _core.Costs], share: float, **more: Any) -> str:
    plain = reprise.solve(*step, planner="none").simulation.peak_bytes
    found = reprise.solve(*step, planner="chen", budget_bytes=int(share * plain))
    assert found.found
    points = _core.curve(*step, planner="chen").points
    return _core.report_json(*step, found.plan, planner="chen", budget_bytes=int(share * plain) + 4096,
                             outside_bytes=4096, curve=points, **more)


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    with browser.Browser() as started:
        yield started
    assert not started.errors


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    step = chain(40)
    found = json.loads(report_of(step, 0.5))
    plan = reprise.solve(*step, planner="chen", budget_bytes=found["budget_bytes"] - 4096).plan
    times = _core.timeline(*step, plan)
    measured = ([b + 4096 for b in times.during_bytes], [b + 4096 for b in times.after_bytes])
    text = report_of(step, 0.5, measured=measured, facts={"device": "a test"})
    path = tmp_path_factory.mktemp("report") / "plan.html"
    path.write_text(_core.report_page(text))
    return path, json.loads(text)


def shown(chromium: browser.Browser, key: str, row: str = "") -> list[int]:
    """The numbers that the page shows under a key, only in the named row of a table if there is a name."""
    within = f'tr[data-row="{row}"] ' if row else ""
    return [int(n) for n in chromium.value(
        f"""[...document.querySelectorAll('{within}[data-key="{key}"]')].map(e => e.dataset.value)""")]


def test_it_shows_the_data_and_loads_nothing(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    path, data = page
    chromium.requests.clear()
    chromium.open(path)
    assert json.loads(chromium.value("document.getElementById('data').textContent")) == data
    for key in ("plain.peak_bytes", "planned.peak_bytes", "plain.time_ns", "planned.time_ns", "plain.kept_bytes",
                "planned.kept_bytes"):
        step, name = key.split(".")
        assert set(shown(chromium, key)) == {data[step][name]}
    for key in ("budget_bytes", "measured_peak_bytes", "resident_bytes"):
        assert shown(chromium, key) == [data[key]]
    assert data["measured_peak_bytes"] == data["planned"]["peak_bytes"]
    assert "to the byte" in chromium.value("document.getElementById('tiles').textContent")
    budget = _core.format_bytes(data["budget_bytes"])
    assert chromium.value("document.title") == f"chain <of> layers inside {budget} · Reprise"
    assert {url for url in chromium.requests if not url.startswith("data:")} == {path.resolve().as_uri()}


def test_bytes_are_written_as_the_library_writes_them(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    chromium.open(page[0])
    pairs = chromium.value("[...document.querySelectorAll('[data-key$=peak_bytes]')].slice(0, 3)"
                           ".map(e => [Number(e.dataset.value), e.textContent])")
    assert pairs and all(text == _core.format_bytes(number) for number, text in pairs)


def test_the_curves_are_the_datas(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    path, data = page
    chromium.open(path, width=3000)  # The page is so wide that every run has pixels of its own.
    highest = chromium.value("""(() => { const top = (key) => Math.min(...document.querySelector(
        `[data-curve="${key}"]`).getAttribute("d").match(/[\\d.]+ [\\d.]+/g).map(p => Number(p.split(" ")[1])));
        const y = (selector) => Number(document.querySelector(selector).getAttribute("d").split(" ")[1].split("H")[0]);
        return [top("plain"), top("planned"), top("measured"), y("[data-budget]")]; })()""")
    plain, planned, measured, budget = highest
    assert plain < budget <= planned == measured  # A smaller coordinate is further up.
    zero = chromium.value("Number(document.querySelector('[data-resident]').getAttribute('d').match(/V([\\d.]+)/)[1])")
    assert (zero - planned) / (zero - plain) == pytest.approx(
        data["planned"]["peak_bytes"] / data["plain"]["peak_bytes"], abs=0.002)


@pytest.mark.parametrize(("least", "beyond"), [(0.2, False), (0.0, True)])
def test_time_against_memory_shows_what_its_text_says(chromium: browser.Browser, tmp_path: Path, least: float,
                                                      beyond: bool) -> None:
    step = chain(14)
    plain = reprise.solve(*step, planner="none").simulation
    points = [p for p in _core.curve(*step, planner="auto").points
              if p.simulation.peak_bytes >= least * plain.peak_bytes]
    chosen = next(p for p in points if p.simulation.peak_bytes > 0.3 * plain.peak_bytes)
    data = _core.report_json(*step, chosen.plan, curve=points, budget_bytes=chosen.simulation.peak_bytes)
    path = tmp_path / "curve.html"
    path.write_text(_core.report_page(data))
    more = 100 * (points[0].simulation.time_ns / plain.time_ns - 1)
    assert json.loads(data)["floor_bytes"] is not None and more > 55 and (more > 150) == beyond
    for width in (375, 1000):
        chromium.open(path, width=width)
        top, texts, above, left, right = chromium.value("""(() => {
            const box = (e) => e.getBoundingClientRect(), chart = box(document.getElementById("front"));
            const all = [...document.querySelectorAll("#front text")];
            const above = [...document.querySelectorAll("[data-above]")];
            return [document.querySelector("[data-front]").getBBox().y, all.map(e => e.textContent),
                above.map(e => e.getBBox().y + e.getBBox().height),
                Math.min(...all.map(e => box(e).left)) - chart.left,
                chart.right - Math.max(...all.map(e => box(e).right))]; })()""")
        assert (top < 0) == beyond  # The curve leaves the picture only if the text says so.
        assert any(f"up to +{more:.1f}" in text for text in texts) == beyond
        halos = chromium.value("[...document.querySelectorAll('[data-beyond], #chart [data-budget] + text')]"
                               ".map(e => getComputedStyle(e).paintOrder.startsWith('stroke'))")
        assert halos == [True] * (1 + beyond)  # These texts can be read even if lines pass behind them.
        assert len(above) == 2 and max(above) <= 0  # These texts are above the picture, where there is no curve.
        assert left >= 0 and right >= 0
        sizes = [text for text in texts if text.endswith("iB") and "below" not in text]
        assert sizes and all(float(text.split()[0]) % 1 == 0 for text in sizes)  # The numbers are round: 5 MiB, 10 MiB.


def test_modules_add_up(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    path, data = page
    chromium.open(path)
    chromium.value("document.getElementById('unfold').click()")
    for key, column in data["by_module"].items():
        assert shown(chromium, f"by_module.{key}", "total") == [sum(column)]
        of = dict(zip(data["modules"], column, strict=True))
        assert shown(chromium, f"by_module.{key}", "body.2.3") == [of["body.2.3"]]
        assert shown(chromium, f"by_module.{key}", "body.2") == [sum(of[f"body.2.{i}"] for i in range(10))]


def test_every_choice_has_a_row(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    path, data = page
    chromium.open(path)
    chromium.value("document.querySelector('#again-rows [data-more]').click()")
    rows = data["recomputed"]
    assert len(rows["op"]) > 14
    for i, op in enumerate(rows["op"]):
        for key in ("runs", "cost_ns", "not_held_bytes", "peak_if_kept_bytes"):
            assert shown(chromium, f"recomputed.{key}", str(op)) == [rows[key][i]]
    assert sum(shown(chromium, "at_peak.bytes")) <= data["planned"]["peak_bytes"]
    chromium.value("document.querySelector('#peak-rows [data-more]')?.click()")
    assert sum(shown(chromium, "at_peak.bytes")) == data["planned"]["peak_bytes"]


def test_the_chart_by_keyboard(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    path, data = page
    chromium.open(path)
    runs = data["planned_runs"]

    def read() -> tuple[int, str]:
        return (int(chromium.value("document.getElementById('readout').dataset.run")),
                chromium.value("document.getElementById('readout').textContent"))

    assert read()[0] == data["at_peak"]["run"]  # The page starts at the peak.
    chromium.value("document.getElementById('chart').focus()")
    chromium.press("Home", "ArrowRight", "ArrowRight")
    run, text = read()
    assert run == 2 and _core.format_bytes(runs["during_bytes"][2]) in text and "body.0.1" in text and "linear" in text
    chromium.press("ArrowRight", shift=True)
    assert read()[0] == 22
    chromium.press("p")
    assert read()[0] == data["at_peak"]["run"]
    whole = chromium.value("document.querySelector('[data-curve=planned]').getAttribute('d')")
    chromium.press("+", "+")
    assert chromium.value("document.querySelector('[data-curve=planned]').getAttribute('d')") != whole
    chromium.press("0")
    assert chromium.value("document.querySelector('[data-curve=planned]').getAttribute('d')") == whole


def test_the_chart_by_mouse(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    chromium.open(page[0])
    x, y = chromium.value("(() => { const b = document.getElementById('chart').getBoundingClientRect();"
                          "return [b.left + b.width / 2, b.top + b.height / 2]; })()")
    chromium.point(x, y)
    tip = chromium.value("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    assert "body." in tip and "MiB while it runs" in tip


def test_memory_by_address(chromium: browser.Browser, page: tuple[Path, dict], tmp_path: Path) -> None:
    chromium.open(page[0])
    assert chromium.value("document.getElementById('arena').hidden"), "this plan has no addresses"
    runs = page[1]["planned_runs"]["op"]
    arena = {"arena_bytes": 8 << 20, "load_bytes": 7 << 20, "begin": [0, 1, len(runs) // 2], "end": [4, 2, len(runs)],
             "offset": [0, 2 << 20, 6 << 20], "bytes": [2 << 20, 1 << 20, 2 << 20],
             "op": [runs[0], runs[1], runs[len(runs) // 2]], "kind": [0, 1, 2]}
    path = tmp_path / "addresses.html"
    path.write_text(_core.report_page(json.dumps(page[1] | {"arena": arena})))
    chromium.open(path)
    chromium.value("document.getElementById('addresses').scrollIntoView({block: 'center'})")
    assert shown(chromium, "arena.arena_bytes") == [8 << 20] and shown(chromium, "arena.load_bytes") == [7 << 20]
    boxes = chromium.value("[...document.querySelectorAll('#addresses [data-life]')].map(e => {"
                           "const b = e.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; })")
    bottom, height = boxes[0][3], boxes[0][3] - boxes[0][2]
    for i, (_, _, high, low) in enumerate(boxes):
        assert bottom - low == pytest.approx(arena["offset"][i] / (2 << 20) * height, abs=0.3)
        assert low - high == pytest.approx(arena["bytes"][i] / (2 << 20) * height, abs=0.3)
    assert boxes[0][0] < boxes[1][0] < boxes[1][1] < boxes[0][1] < boxes[2][0] < boxes[2][1]
    chromium.point(boxes[2][0] + 20, (boxes[2][2] + boxes[2][3]) / 2)
    tip = chromium.value("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    assert "stays after the step" in tip and "2.00 MiB at 6.00 MiB" in tip
    chromium.value("document.getElementById('addresses').focus()")
    chromium.press("Home")
    assert "2.00 MiB at 0 B, from run 1" in chromium.value("document.getElementById('arena-readout').textContent")


def test_search_by_keyboard(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    chromium.open(page[0])
    chromium.press("/")
    assert chromium.value("document.activeElement.id") == "search"
    chromium.press(*"body.3.1")
    chromium.value("new Promise(done => setTimeout(done, 150))")
    rows = chromium.value("[...document.querySelectorAll('#module-rows tr[data-row]')].map(e => e.dataset.row)")
    assert rows == ["total", "body", "body.3", "body.3.1"]
    assert chromium.value("document.querySelectorAll('[data-lane=hit]').length") == 1
    assert chromium.value("document.getElementById('found').textContent").endswith("runs")
    chromium.press("Escape")
    chromium.value("new Promise(done => setTimeout(done, 150))")
    assert chromium.value("document.querySelectorAll('#module-rows tr[data-row]').length") > 4


def test_enter_goes_from_hit_to_hit(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    path, data = page
    chromium.open(path)
    module = data["modules"].index("body.3.1")
    hits = [i for i, op in enumerate(data["planned_runs"]["op"]) if data["ops"]["module"][op] == module]
    assert len(hits) > 2
    chromium.press("/", *"body.3.1")  # The next keys come at once, without waiting for the search.

    def run_after(key: str, shift: bool = False) -> int:
        chromium.press(key, shift=shift)
        return int(chromium.value("document.getElementById('readout').dataset.run"))

    assert [run_after("Enter") for _ in hits] == hits
    assert chromium.value("document.getElementById('found').textContent") == f"{len(hits)} of {len(hits)} runs"
    assert run_after("Enter") == hits[0]  # After the last hit, the first one comes again.
    assert run_after("Enter", shift=True) == hits[-1]
    assert chromium.value("document.activeElement.id") == "search"


def test_ticks_keep_inside_the_picture(chromium: browser.Browser, tmp_path: Path) -> None:
    step = chain(50)  # It takes 1.4 ms, so the last tick is at the very end of the axis.
    path = tmp_path / "plain.html"
    path.write_text(_core.report_page(_core.report_json(*step, reprise.solve(*step, planner="none").plan)))
    for width in (375, 1000):
        chromium.open(path, width=width)
        ends, end = chromium.value("[[...document.querySelectorAll('#chart text')].map(e => "
                                   "e.getBoundingClientRect().right), "
                                   "document.getElementById('chart').getBoundingClientRect().right]")
        assert max(ends) < end


def test_a_table_that_is_cut_off_says_so(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    cut = {}
    for width in (240, 1280):
        chromium.open(page[0], width=width)
        cut[width] = chromium.value("[...document.querySelectorAll('.scroll')].map(e => ["
                                    "e.scrollWidth > e.clientWidth, e.tabIndex === 0, "
                                    "getComputedStyle(e).backgroundImage.includes('gradient')])")
    assert cut[240] == [[True, True, True]] * 3
    assert cut[1280] == [[False, False, False]] * 3


def test_no_amount_breaks_across_lines(chromium: browser.Browser, page: tuple[Path, dict]) -> None:
    chromium.open(page[0], width=375)
    for text in ("summary", "tiles", "curve-text"):
        assert " %" not in chromium.value(f"document.getElementById('{text}').textContent")
    assert chromium.value("[...document.querySelectorAll('[data-key]')].every(e => e.getClientRects().length < 2)")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_light_and_dark_on_phone_and_desk(chromium: browser.Browser, page: tuple[Path, dict], tmp_path: Path,
                                          dark: bool, width: int) -> None:
    chromium.open(page[0], width=width, dark=dark)
    assert chromium.value("document.documentElement.scrollWidth") == width  # Nothing is wider than the page.
    red, green, blue = chromium.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red + green + blue < 150) == dark
    chromium.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_five_thousand_ops_are_drawn_with_few_elements(chromium: browser.Browser, tmp_path: Path) -> None:
    """How long a page takes to open depends on the machine, but it grows with what is drawn, which does not."""
    step = chain(1250)
    assert step[0].num_ops > 5000
    path = tmp_path / "large.html"
    path.write_text(_core.report_page(report_of(step, 0.3)))
    chromium.open(path)
    assert chromium.value("document.querySelectorAll('*').length") < 1500
    lengths = "[...document.querySelectorAll('path')].map(path => path.getAttribute('d').length)"
    assert 100_000 < chromium.value(f"{lengths}.reduce((a, b) => a + b)") < 500_000
