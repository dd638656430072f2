"""What cannot be done inside a budget is refused, with the line, the reason and the way out."""

from __future__ import annotations

import inspect
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, library, nn
from training import Mlp, assert_same, batch, state_of

import reprise

pytestmark = pytest.mark.usefixtures("one_thread")


class Prints(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x)
        print("here", x.shape)
        return self.head(x)


class ReadsNumber(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x)
        return self.head(x).repeat(int(x.sum().item()) % 2 + 1, 1)


class Branches(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x)
        return self.head(x) if x.sum() > 0 else self.head(-x)


class Breaks(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x)
        torch._dynamo.graph_break()
        return self.head(x)


BREAKS = {"print(": Prints, ".item()": ReadsNumber, "if x.sum() > 0": Branches, "graph_break()": Breaks}


@pytest.mark.parametrize("text", BREAKS)
def test_a_graph_break_names_the_line_and_the_reason(text: str) -> None:
    source, begin = inspect.getsourcelines(BREAKS[text])
    line = next(begin + i for i, content in enumerate(source) if text in content)
    model = reprise.compile(BREAKS[text](), capture="graph")
    with pytest.raises(reprise.GraphBreak) as caught:
        model(batch())
    message = str(caught.value)
    assert f"test_refusals.py\", line {line}" in message
    assert "move it out of the model" in message
    assert 'capture="online"' in message


@pytest.mark.parametrize("kind", [Prints, ReadsNumber, Breaks])
def test_plain_torch_compile_does_not_run_in_two_parts(kind: type[nn.Module]) -> None:
    model = torch.compile(kind(), backend="reprise", options={"budget": "1GB"})
    with pytest.raises(Exception, match=r"cannot be captured as one graph: it breaks at .*test_refusals\.py:\d+"):
        model(batch()).sum().backward()


@library.custom_op("reprise_tests::counting_back", mutates_args=())
def counting_back(x: Tensor) -> Tensor:
    return x.clone()


def count_back(_: Any, grad: Tensor) -> Tensor:
    return grad[: int(grad.sum())].sum() * grad


counting_back.register_fake(torch.empty_like)
counting_back.register_autograd(count_back)


class CountsBack(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        return counting_back(super().forward(x))


def test_a_number_that_backward_reads_is_refused_with_the_line(caplog: pytest.LogCaptureFixture) -> None:
    line = "return grad[: int(grad.sum())].sum() * grad"
    with pytest.raises(reprise.GraphBreak, match=re.escape(line)):
        reprise.compile(CountsBack(), "1GiB", capture="graph")(batch())
    model = reprise.compile(CountsBack(), "1GiB")
    model(batch())
    reprise.restore(model)
    assert "depend on a number read out of a tensor" in caplog.text and line in caplog.text


class ScalesByNumber(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x)
        return self.head(x) * x.sum().item()


def test_a_number_that_stays_a_factor_is_no_reason_to_refuse() -> None:
    assert_same(ScalesByNumber(), lambda m: [m(batch(seed=i)).sum().backward() for i in range(2)])


class Applies(Mlp):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers[0](x)) + self.function(self.layers[0](x)).sum()


def set_rows(x: Tensor) -> Tensor:
    x = x * 1
    x[x.sum(1) > 0] = 2.0 * x[0]
    return x


@pytest.mark.parametrize(("function", "said"), [
    (lambda x: x[x > 0], "aten.index.Tensor makes depends on numbers in a tensor"),
    (lambda x: x.masked_select(x > 0).exp(), "Use torch.where or masked_fill"),
    (set_rows, "Use torch.where or masked_fill"),
    (lambda x: x[:, :2].repeat_interleave(torch.tensor([1, 2]), dim=1, output_size=3),
     "how often it repeats each element depends on the numbers in a tensor"),
    (lambda x: torch.cholesky(x[:8, :8] @ x[:8, :8].T), "cannot measure aten::cholesky: it does not run on made-up numbers"),
])
def test_what_depends_on_numbers_is_refused_with_the_reason(function: Any, said: str) -> None:
    with pytest.raises(reprise.Unsupported, match=re.escape(said)):
        reprise.compile(Applies(function), capture="graph")(batch())


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="before, it was traced without its check")
def test_a_check_of_a_result_is_refused_with_the_operator_that_does_without() -> None:
    model = Applies(lambda x: torch.linalg.inv(x.T @ x + torch.eye(x.shape[1])))
    with pytest.raises(reprise.Unsupported, match=r"use torch.linalg.inv_ex, which does not look"):
        reprise.compile(model, capture="graph")(batch())


def test_batch_norm_with_a_cumulative_average_is_a_graph_break() -> None:
    """Exception: it reads its counter out of a tensor."""
    model = reprise.compile(nn.Sequential(nn.BatchNorm1d(16, momentum=None)), capture="graph")
    with pytest.raises(reprise.GraphBreak, match="batchnorm"):
        model(batch())


def test_wrappers_for_several_devices_are_refused() -> None:
    with pytest.raises(reprise.Unsupported, match="Shard the model with fully_shard"):
        reprise.compile(nn.DataParallel(Mlp()))

    class FullyShardedDataParallel(Mlp):
        pass

    with pytest.raises(reprise.Unsupported, match="FSDP1"):
        reprise.compile(nn.Sequential(FullyShardedDataParallel()))


def test_retain_graph_is_refused_with_advice_and_the_next_step_works() -> None:
    model = reprise.compile(Mlp())
    for retain in ({"retain_graph": True}, {"create_graph": True}):
        with pytest.raises(reprise.Unsupported, match="Add the losses up"):
            model(batch()).sum().backward(**retain)
        assert all(p.grad is None for p in model.parameters())
    model(batch()).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_grad_with_create_graph_is_refused() -> None:
    model = reprise.compile(Mlp())
    x = batch().requires_grad_()
    with pytest.raises(reprise.Unsupported, match="create_graph"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)


def test_autograd_grad_works_without_it() -> None:
    plain, model = Mlp(), Mlp()
    model.load_state_dict(plain.state_dict())
    reprise.compile(model)
    x = batch().requires_grad_()
    wanted = torch.autograd.grad(plain(x).sum(), [x, plain.head.weight])
    got = torch.autograd.grad(model(x).sum(), [x, model.head.weight])
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))


def test_backward_twice_is_autograd_s_error() -> None:
    model = reprise.compile(Mlp())
    loss = model(batch()).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("what", ["parameter", "input"])
def test_a_change_in_place_between_forward_and_backward_is_refused(what: str) -> None:
    model = reprise.compile(Mlp())
    x = batch()
    model(x).sum().backward()
    model.zero_grad()
    output = model(x)
    loss = output.sum()
    with torch.no_grad():
        {"parameter": model.layers[1].weight, "input": x}[what].add_(1)
    with pytest.raises(reprise.ModifiedInPlace, match="modified by an inplace operation"):
        loss.backward()
    assert all(p.grad is None for p in model.parameters())
    model(batch()).sum().backward()


def test_an_optimizer_step_between_forward_and_backward_is_refused() -> None:
    model = reprise.compile(Mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(batch()).sum().backward()
    loss = model(batch()).sum()
    optimizer.step()
    with pytest.raises(reprise.ModifiedInPlace, match="modified by an inplace operation"):
        loss.backward()


class Scaled(Mlp):
    """Its numbers depend on the size in a way that no family has."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * x.shape[0] ** 0.5


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(16, 8).requires_grad_(False)], ids=["no parameters", "frozen"])
@pytest.mark.parametrize("ask", [reprise.preflight, reprise.verify, reprise.curve,
                                 lambda model, x, *_: reprise.export(model, lambda called, x: called(x).sum(), (x,),
                                                                   "frozen.program.json")],
                         ids=["preflight", "verify", "curve", "export"])
def test_what_cannot_be_trained_is_one_error_wherever_it_is_asked(model: torch.nn.Module, ask: Callable[..., Any]) -> None:
    with pytest.raises(reprise.RepriseError, match=r"cannot be trained: nothing that it returns requires a gradient"):
        ask(model, batch(), *(["1GiB"] if ask is reprise.preflight else []))


def test_more_shapes_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_MOST_SHAPES", "2")
    model = reprise.compile(Scaled(layers=1))
    for rows in (3, 4, 3):
        model(batch(rows)).sum().backward()
    with pytest.raises(reprise.RepriseError, match=r"more than 2 different shapes.*pad the inputs"):
        model(batch(5))
    model(batch(4)).sum().backward()


def test_the_limit_of_shapes_is_per_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_MOST_SHAPES", "1")
    for _ in range(3):
        reprise.compile(Mlp(layers=1))(batch()).sum().backward()


def test_another_torch_than_it_was_built_for_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "reprise"
    shutil.copytree(Path(reprise.__file__).parent, package, symlinks=False,
                    ignore=shutil.ignore_patterns("__pycache__"))
    (package / "_built_for.py").write_text("__version__ = '1.0.0'\n")
    program = "import reprise; print(reprise.parse_bytes('1kB')); reprise.compile"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
                         capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "1000"  # Planning works without torch.
    assert ran.returncode != 0
    assert "ImportError: reprise was built for torch 1.0.0, but torch" in ran.stderr
    assert "Build it again" in ran.stderr
    (package / "_built_for.py").unlink()
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
                         capture_output=True, text=True, check=False)
    assert "built without its torch extension" in ran.stderr


GARBAGE = ["", "{", "[]", "17", '{"calls": 3}', '{"calls": {}, "layouts": []}', "\x00\xff", '{"calls": {"a": 1}, "layouts": {}}']


@pytest.mark.parametrize("content", [*GARBAGE, "spoiled"], ids=repr)
def test_spoiled_cache_files_are_ignored(content: str, own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain, model = Mlp(layers=2), Mlp(layers=2)
    model.load_state_dict(plain.state_dict())
    plain(batch()).sum().backward()

    def train() -> Any:
        model.zero_grad()
        reprise.compile(model, "1GB")(batch()).sum().backward()

    train()
    files = list(own_cache.rglob("*.json"))
    assert len(files) >= 2
    for path in files:
        spoiled = path.read_text()[:-10] if content == "spoiled" else content
        path.write_text(spoiled)
    with caplog.at_level(logging.WARNING, "reprise"):
        train()
    assert state_of(model) == state_of(plain)
    assert "will be made anew" in caplog.text


def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPRISE_CACHE_DIR", str(tmp_path / "file"))
    reprise.compile(Mlp(layers=1), "1GB")(batch()).sum().backward()
