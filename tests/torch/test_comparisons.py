"""Tests the comparisons of bench/gpu in their tiny form on the CPU: the commands work, and compare what they say."""

import argparse
import concurrent.futures
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import batch_sizes  # noqa: E402
import captured  # noqa: E402
import chains  # noqa: E402
import hong  # noqa: E402
import kusumoto  # noqa: E402
import rival_ways  # noqa: E402
import rivals  # noqa: E402
from captured import NetworkStep  # noqa: E402
from children import Children, clock, compile_beside, device_alone  # noqa: E402
from common import CPU, Training, alone, facts  # noqa: E402
from measure import Rows, Way  # noqa: E402

import reprise  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

# The layers of VGG-19 at batch 128, in MiB.
VGG19 = [0, 1568, 1568, 392, 784, 784, 196, 392, 392, 392, 392, 98, 196, 196, 196, 196, 49, 49, 49, 49, 49, 12, 2, 2, 1]


class Calls(TorchDispatchMode):
    """Counts the calls of an operator."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.count = name, 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += op.name().startswith(self.name)
        return op(*args, **(kwargs or {}))


def calls_of(way: Way, name: str) -> int:
    way.begin()
    with Calls(name) as calls:
        way.step()
    way.end()
    return calls.count


@pytest.mark.parametrize(("case", "operator"), [
    ("resnet50_96", "aten::convolution"), ("densenet161_128", "aten::convolution"), ("convnext_base_128", "aten::addmm"),
    ("gpt2_medium_8x1024", "aten::addmm")])
def test_checkpoints_repeat_what_selective_ones_keep(case: str, operator: str) -> None:
    training = Training(case, "fp32", CPU, tiny=True)
    plain = calls_of(Way(training), operator)
    assert calls_of(rival_ways.Blocks(training), operator) > plain
    assert calls_of(rival_ways.Selective(training), operator) == plain
    assert calls_of(Way(training), operator) == plain  # they are gone again


def test_reprise_gets_the_peak_of_each_rival_as_its_budget(tmp_path: Path) -> None:
    output = tmp_path / "rows"
    subprocess.run([sys.executable, str(ROOT / "bench/gpu/rivals.py"), "--cpu", "--cases", "gpt2_medium_8x1024", "--kinds",
                    "checkpoint,selective,reprise", "--jobs", "2", "--samples", "1", "-o", str(output)],
                   check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = {(row["kind"], row["point"]): row for row in rivals.rows_in(output).rows}
    assert found.keys() == {("checkpoint", ""), ("selective", ""), ("reprise", "checkpoint"), ("reprise", "selective")}
    rows = rivals.rows_in(output)  # it is all there, so the next run has nothing to do
    for kind in ("checkpoint", "selective"):
        theirs, ours = found[kind, ""], found["reprise", kind]
        assert ours["budget_bytes"] == theirs["peak_bytes"]
        assert ours["peak_bytes"] <= theirs["peak_bytes"] < theirs["eager_peak_bytes"]
        assert {"machine", "torch", "date", "command"} <= ours["facts"].keys()
        assert rows.find(case="gpt2_medium_8x1024", dtype="fp32", kind=kind, point="") is not None
    assert rivals.targets_of(rows, "gpt2_medium_8x1024", "fp32", ["reprise"]) == []


def test_rows_of_two_types_stand_beside_each_other(tmp_path: Path) -> None:
    """Those that say none are of bf16."""
    old = {"case": "net", "kind": "compile", "point": "1.0", "peak_bytes": 10, "facts": facts("")}
    rows = rivals.rows_in(tmp_path)
    for row in (old, old | {"dtype": "fp32", "peak_bytes": 20}):
        rows.add(row)
    assert rows.find(case="net", dtype="bf16", kind="compile", point="1.0") == old
    assert rivals.targets_of(rows, "net", "bf16", ["reprise"]) == [("reprise", "compile 1.0", 10)]
    assert rivals.targets_of(rows, "net", "fp32", ["fused"]) == [("fused", "below compile", 16), ("fused", "compile 1.0", 20)]
    rows.add(old | {"dtype": "bf16", "peak_bytes": 30})
    assert [row["peak_bytes"] for row in rivals.rows_in(tmp_path).rows] == [30, 20]


def test_networks_in_bf16_have_no_fp32_rows() -> None:
    for dtype, cpu, found in (("bf16", False, True), ("fp32", False, False), ("fp32", True, True)):
        options = argparse.Namespace(cases="resnet50_96,llama_1b_4x2048", dtype=dtype, cpu=cpu)
        assert ("llama_1b_4x2048" in rivals.cases_of(options)) is found
        assert "resnet50_96" in rivals.cases_of(options)


def test_cudnn_chooses_when_the_compiled_step_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn, seen = torch.backends.cudnn, []
    monkeypatch.setattr(cudnn, "benchmark", True)
    monkeypatch.setattr(rival_ways, "compile_beside", lambda *_: seen.append((cudnn.benchmark, cudnn.deterministic)))
    rival_ways.Compiled(Training("vgg19_64", "fp32", CPU, tiny=True), "1.0").compile(None)
    assert seen == [(False, True)]
    assert (cudnn.benchmark, cudnn.deterministic) == (True, False)


def test_graphs_of_torch_compile_can_be_left_out() -> None:
    from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

    manager = argparse.Namespace(ids_to_funcs={3: argparse.Namespace(model=sum)})
    with rival_ways.unrecorded():
        assert CUDAGraphTreeManager._run(manager, [1, 2], 3) == 3
    with pytest.raises(AttributeError):
        CUDAGraphTreeManager._run(manager, [1, 2], 3)


def test_budgets_are_kept_and_not_measured_twice(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench/gpu/budget.py"), "--cpu", "--cases", "vgg19_64", "--budgets", "3",
               "-o", str(tmp_path)]
    first = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert first.stdout == "vgg19_64: 3 of 3 inside\n"
    row, = json.loads((tmp_path / "vgg19_64.json").read_text())["results"]
    assert [step["budget"] for step in row["rows"]][::2] == [row["plain_bytes"], row["smallest_bytes"]]
    assert row["facts"]["command"] == "python bench/gpu/budget.py --cases vgg19_64"
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == ""


def test_a_child_that_takes_too_long_is_stopped_but_may_wait(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import time; print('{\"waiting\": true}', flush=True); time.sleep(5)\n"
                      "print('{\"waiting\": false}\\n{\"case\": 1}', flush=True); time.sleep(60)")
    taken: list[Any] = []
    with Children(str(script)) as children:
        assert children.run([], 4, taken.append) == "stopped after 4 s"
    assert taken == [{"case": 1}]


def test_waiting_for_the_device_is_told_and_not_timed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with device_alone(None):
        assert capfd.readouterr().out == ""
    with device_alone(tmp_path / "lock"):
        assert capfd.readouterr().out == '{"waiting": true}\n{"waiting": false}\n'
    assert clock() < time.perf_counter()


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import os, time; print(f'{{\"case\": {os.getpid()}}}', flush=True); time.sleep(60)")
    pids: list[int] = []

    def take(row: Any) -> None:
        pids.append(row["case"])
        if len(pids) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with Children(str(script), jobs=2) as children, pytest.raises(SystemExit):
        children.each(lambda _: children.run([], 60, take) is None, range(3))
    assert len(pids) == 2  # The third had to wait for a place, and is not started any more.
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_holders_of_a_lock_exclude_each_other(tmp_path: Path) -> None:
    inside = 0

    def hold(_: int) -> int:
        nonlocal inside
        with alone(tmp_path / "lock"):
            inside += 1
            time.sleep(0.02)
            most = inside
            inside -= 1
        return most

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert set(pool.map(hold, range(8))) == {1}


noted: list[tuple[str, bool]] = []  # what ran, and whether the lock was held
is_held: Any = None


@torch.library.custom_op("reprise_tests::noting", mutates_args=())
def noting(x: torch.Tensor) -> torch.Tensor:
    noted.append(("call", is_held()))
    return x.clone()


@noting.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    noted.append(("capture", is_held()))
    return torch.empty_like(x)


noting.register_autograd(lambda ctx, gradient: noting(gradient))


class Noting:
    """A training whose model notes when it is captured and when it runs."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 4)
        self.model.register_forward_hook(lambda model, args, output: noting(output))

    def step(self, call: Any = None) -> None:
        self.model(torch.rand(2, 4)).sum().backward()


def test_a_capture_needs_no_lock_and_its_first_step_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lock_is_held() -> bool:
        with (tmp_path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    monkeypatch.setattr(sys.modules[__name__], "is_held", lock_is_held)
    training = Noting()
    reprise.compile(training.model, planning_seconds=0.5)
    compile_beside(training, tmp_path / "lock")
    assert set(noted) == {("capture", False), ("call", True)}
    assert not lock_is_held()
    assert all(parameter.grad is None for parameter in training.model.parameters())


def test_a_process_that_dies_lets_go_of_the_lock(tmp_path: Path) -> None:
    script = tmp_path / "holds.py"
    script.write_text(f"import os, sys; sys.path.insert(0, {str(ROOT / 'bench')!r})\n"
                      "from pathlib import Path; from alone import alone\n"
                      "with alone(Path(sys.argv[-1])): os.kill(os.getpid(), 9) if sys.argv[1] == 'dies' else None")
    with Children(str(script), jobs=2) as children:
        assert children.run(["dies"], 30, print) == "ended with -9"
        assert children.run(["lives"], 30, print) is None


def test_rows_with_errors_are_tried_again(tmp_path: Path) -> None:
    here = facts("")
    rows = Rows(tmp_path, ("case",))
    rows.add({"case": "a", "facts": here})
    rows.add({"case": "b", "error": "broken", "facts": here})
    rows.add({"case": "c", "facts": here | {"torch": "1.0"}})
    again = Rows(tmp_path, ("case",))
    assert [again.find(case=case) is not None for case in "abc"] == [True, False, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "c.json"]
    assert Rows(tmp_path, ("case",), again=True).find(case="a") is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kusumoto, "SWEEP", 2)
    monkeypatch.setattr(captured, "WARM_STEPS", 2)
    for module in (captured, kusumoto):
        monkeypatch.setattr(module, "PLANNING_SECONDS", 0.5)


def test_a_folder_with_other_files_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"notes\.json has no rows .*-o"):
        Rows(tmp_path, ("case",))


@pytest.mark.usefixtures("quick")
def test_auto_is_measured_within_the_peaks_of_the_papers_planners() -> None:
    step = NetworkStep(Training("vgg19_64", "fp32", CPU, tiny=True))
    kusumoto.add_theirs(step, "vgg19_64")
    kusumoto.add_ours(step, "vgg19_64")
    rows = {row["kind"]: row for row in step.measure(samples=1)}
    assert {"eager", *kusumoto.THEIRS, "auto-least", "auto-paper", "auto-1/2"} <= rows.keys()
    for kind in kusumoto.THEIRS:
        same = rows[f"auto={kind}"]
        assert same["peak_bytes"] <= same["budget_bytes"] == rows[kind]["predicted_bytes"]
        assert same["recompute_percent"] <= rows[kind]["recompute_percent"]
    assert all(row["peak_bytes"] == row["predicted_bytes"] for row in rows.values() if "predicted_bytes" in row)
    at_peak = rows["auto-least"]["at_peak"]
    assert at_peak["op"].startswith("convolution_backward")
    assert at_peak["reads_bytes"] + at_peak["writes_bytes"] + at_peak["workspace_bytes"] > 0


def test_where_exact_planners_give_up_they_plan_the_papers_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused:
        rows: dict[str, Any] = {}

        def add_theirs(self, kind: str) -> None:
            self.rows[kind] = {"refused": "stopped: too many"}

    monkeypatch.setattr(kusumoto, "THEIRS", {"exact-mc": captured.THEIRS["exact-mc"]})
    kusumoto.add_theirs(Refused(), "vgg19_64")
    # The paper's Table 1 says 4.5 GB.
    assert Refused.rows["exact-mc"]["papers_graph"]["peak_gb"] == pytest.approx(4.5, abs=0.1)


@pytest.mark.usefixtures("quick")
def test_a_figure_has_the_same_step_at_several_sizes_inside_a_card(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sizes, "CARD_BYTES", 11_000_000)
    options = argparse.Namespace(batch=4, cpu=True, lock=None, samples=1)
    batch_sizes.one_size("resnet152_48", options)
    rows = {row["kind"]: row for row in map(json.loads, capfd.readouterr().out.splitlines())}
    assert rows.keys() == {"eager", "chen", "approx-tc", "approx-mc", "auto"}
    assert rows["auto"]["peak_bytes"] <= 11_000_000 < rows["eager"]["peak_bytes"]


def test_formula_of_a_chain_gives_the_authors_numbers() -> None:
    sizes = [size * 2**20 for size in VGG19]
    assert chains.planned_set(sizes, "chain-static") == (3, 11)
    assert chains.planned_set(sizes, "feng-huang") == (3, 6)
    assert chains.sqrt_set(24) == (5, 10, 15, 20)
    none = [0] * 24
    # The authors give 4704 and 5292 MiB for the segments that end at layers 2 and 6, and measured 4703 and 5291 MiB.
    backward = chains.predicted(sizes, (2, 6), none, 0)["backward"]
    assert [backward[1] >> 20, backward[5] >> 20] == [4704, 5292]
    assert max(chains.predicted(sizes, chains.planned_set(sizes, "chain"), none, 0)["backward"]) >> 20 == 4704


def test_segments_give_the_gradients_of_the_plain_chain() -> None:
    training = hong.ChainTraining("alexnet", CPU, tiny=True)
    plain = training.step()
    expected = [parameter.grad for parameter in training.model.parameters()]
    way = hong.Segments(training, (2, 4, 9))
    way.begin()
    assert torch.equal(training.step(), plain)
    way.end()
    assert all(torch.equal(p.grad, e) for p, e in zip(training.model.parameters(), expected, strict=True))
    assert training.model.checkpoints is None


def test_curve_of_a_chain_has_every_layer_both_ways() -> None:
    training = hong.ChainTraining("vgg19", CPU, tiny=True)
    count = len(training.model.layers)
    assert count == 24
    plain, segments = (hong.Segments(training, checkpoints).curve() for checkpoints in (None, (3, 11)))
    for curve in (plain, segments):
        assert len(curve["forward"]) == len(curve["backward"]) == count
        assert all(0 < allocated <= highest for allocated, highest in curve["forward"] + curve["backward"])
    assert segments["forward"][-1][0] < plain["forward"][-1][0] / 2  # The values between checkpoints have been freed.
    sizes, fixed = hong.layer_bytes(training), plain["fixed"]
    predicted = chains.predicted(sizes, (3, 11), [0] * count, fixed)
    assert segments["forward"][2][0] == fixed + sizes[3]
    assert predicted["forward"][2] == fixed + sizes[2] + sizes[3]
