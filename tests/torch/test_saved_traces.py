"""Tests that a step which was traced before is found in the cache, is the same step, and is found for the same step alone."""

from __future__ import annotations

import itertools
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from steps import bits_of
from torch import Tensor, fx, nn
from torch._inductor.decomposition import decompositions
from torch.nn import functional
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import reprise
from reprise.native import _torch
from reprise.progress import Preparation
from reprise.trace import runtime_metadata, saved_traces
from reprise.trace import step_key as keys
from reprise.trace.joint_graph import FUSED
from reprise.trace.layouts import Layouts
from reprise.trace.runtime_metadata import NoText, from_json, inputs_without_gradients, to_json
from reprise.trace.saved_traces import SavedStep

pytestmark = pytest.mark.usefixtures("one_thread")

Around = Callable[[], AbstractContextManager[Any]]


def in_bfloat16() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16)


class Mixed(nn.Module):
    """Batch norm, dropout, a buffer that is written to, a tied and a frozen weight, and outputs that are views."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.first, self.second, self.frozen = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.calls += 1
        y = functional.dropout(self.norm(self.conv(x)).relu(), 0.5).flatten(2)
        hidden = self.frozen(self.second(self.first(y).tanh()))
        return hidden.square().mean(), hidden.transpose(0, 1), hidden, self.first.bias.view(4, 4), y.detach()


def batch() -> Tensor:
    return torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(0))


def made() -> nn.Module:
    torch.manual_seed(0)
    return Mixed()


def trained(model: nn.Module, around: Around = nullcontext) -> tuple[Any, Any]:
    """The bits that two steps with an optimizer leave, and what the outputs are to autograd."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    found: list[Any] = []
    kinds: list[Any] = []
    for _ in range(2):
        with around():
            outputs = model(batch())
        (outputs[0] + outputs[1].float().mean() + outputs[3].mean()).backward()
        kinds += [(t._is_view(), t.requires_grad, type(t.grad_fn).__name__, t.stride()) for t in outputs]
        found += [bits_of(t) for t in (*outputs, *(p.grad for p in model.parameters()))]
        optimizer.step()
        optimizer.zero_grad()
    return [*found, *map(bits_of, model.state_dict().values())], kinds


def planned(around: Around = nullcontext, **options: Any) -> tuple[nn.Module, tuple[Any, Any]]:
    """A model as in a process of its own, and what its steps leave."""
    torch._dynamo.reset()
    model = reprise.compile(made(), "10MB", capture="graph", **options)
    return model, trained(model, around)


class Seen:
    def __init__(self) -> None:
        self.traces = 0
        self.steps: list[SavedStep] = []


@pytest.fixture
def seen(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """How many times a step is traced from now on, and the steps that have a place in the cache, which is empty."""
    seen = Seen()
    trace, begin = saved_traces.trace, SavedStep.__init__

    def counted(*args: Any, **kwargs: Any) -> Any:
        seen.traces += 1
        return trace(*args, **kwargs)

    def noted(self: SavedStep, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        seen.steps.append(self)

    monkeypatch.setattr(saved_traces, "trace", counted)
    monkeypatch.setattr(SavedStep, "__init__", noted)
    return seen


@pytest.mark.parametrize("around", [nullcontext, in_bfloat16], ids=["fp32", "autocast"])
def test_a_step_is_found_with_its_bits_program_and_plan(seen: Seen, around: Around) -> None:
    first, bits = planned(around)
    assert seen.traces == 1
    second, again = planned(around)
    assert seen.traces == 1 and "lowering" not in second.plan.preparation_seconds
    assert again == bits
    assert bits[0] == trained(made(), around)[0]
    one, other = (model.plan.session.runtime for model in (first, second))
    assert one.program.difference(other.program) is None and one.layout_keys == other.layout_keys
    assert first.plan.peak_bytes == second.plan.peak_bytes and first.plan.outside_bytes == second.plan.outside_bytes
    assert first.plan.actions.actions == second.plan.actions.actions


@pytest.mark.parametrize("keeps", [True, False])
def test_the_first_batch_does_not_stay(seen: Seen, monkeypatch: pytest.MonkeyPatch, keeps: bool) -> None:
    monkeypatch.setenv("REPRISE_KEEP_TRACES", str(int(keeps)))
    torch._dynamo.reset()
    model = reprise.compile(made(), "10MB", capture="graph")
    x = batch()
    model(x)[0].backward()
    first = weakref.ref(x)
    del x
    assert seen.traces == 1 and first() is None


def test_the_switch_traces_again(seen: Seen, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_KEEP_TRACES", "0")
    assert planned()[1] == planned()[1] and seen.traces == 2 and not (own_cache / "traces").exists()


def test_what_is_found_is_verified(seen: Seen) -> None:
    planned()
    torch._dynamo.reset()
    result = reprise.verify(made(), batch(), "10MB", loss=lambda outputs: outputs[0], capture="graph")
    assert result.same and seen.traces == 1, str(result)


def test_it_is_traced_when_the_device_lays_out_results_in_another_way(seen: Seen) -> None:
    for _ in range(2):
        planned(in_bfloat16)
    first, second = seen.steps
    known = _torch.CostBook(torch.device("cpu")).layouts
    key = next(key for key in second.capture("Mixed", known).asked if key.startswith("aten.convolution.default"))
    other: Layouts = {key: [("bfloat16", [2, 4, 4, 4], [64, 1, 16, 4], 0, 256, "cpu")]}
    assert seen.traces == 1 and known.get(key) != other[key]
    again = second.capture("Mixed", other)  # outside of autocast, in which the model was called
    assert seen.traces == 2
    traced = first.joint().capture("Mixed", other)
    assert traced.program.difference(again.program) is None and traced.keys == again.keys
    usual = second.capture("Mixed", known)
    assert usual.program.difference(again.program) is not None and seen.traces == 2


def test_it_does_not_matter_that_costs_are_gone(seen: Seen, own_cache: Path) -> None:
    _, bits = planned()
    for path in own_cache.glob("costs-*"):
        path.unlink()
    assert planned()[1] == bits and seen.traces == 1


class Detaches(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y.detach()


def test_inputs_that_get_no_gradient_are_detached(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def noted(backward: fx.GraphModule, metadata: Any) -> list[int]:
        found.append(runtime_metadata.without_gradients(backward, metadata))
        assert inputs_without_gradients(backward, metadata) == found[-1]  # as PyTorch says where it has a function for it
        return found[-1]

    monkeypatch.setattr(saved_traces, "inputs_without_gradients", noted)
    for _ in range(2):
        torch._dynamo.reset()
        model = reprise.compile(Detaches(), "10MB", capture="graph")
        leaf, computed = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True) * 2
        model(leaf, computed).sum().backward()
        assert leaf.grad is not None and leaf.grad.tolist() == [2.0] * 3
        computed.sum().backward()  # Its graph is still there, because no gradient went through it.
    assert [len(each) for each in found] == [1] and seen.traces == 1


class Stop(Exception):
    pass


def stop(_: list[Any]) -> list[Any]:
    raise Stop


def test_a_fused_step_that_is_found_is_traced_as_before_when_it_is_lowered_again(seen: Seen) -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        return saved_traces.find_or_trace(gm, inputs, lambda step: (stop, stop), Preparation(), FUSED, "Mixed")

    for _ in range(2):
        torch._dynamo.reset()
        with in_bfloat16(), pytest.raises(Stop):
            torch.compile(made(), backend=backend, fullgraph=True, dynamic=False)(batch())
    assert seen.traces == 1
    first, second = (step.joint() for step in seen.steps)
    assert seen.traces == 2 and first is not second and first.module.code == second.module.code
    assert seen.steps[0].seed_bytes == seen.steps[1].seed_bytes == second.seed_bytes


def test_regions_are_found(seen: Seen) -> None:
    found, traces = [], []
    for _ in range(2):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(Layer(), Layer())
        reprise.compile(model, "10MB", regions=list(model))
        model(rows()).sum().backward()
        found.append([bits_of(p.grad) for p in model.parameters()])
        traces.append(seen.traces)
    assert found[0] == found[1] and traces == [2, 2]  # The first part reads no gradient, the second one does.


# -- Several processes, and files that are broken.

PROCESS = """
import torch
torch.set_num_threads(1)
import test_saved_traces
print(hash(str(test_saved_traces.planned()[1][0])))
"""


def test_two_processes_at_once_leave_a_step_that_a_third_one_finds(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    script = f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n{PROCESS}"
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = {process.communicate()[0].splitlines()[-1] for process in processes}
    assert len(lines) == 1
    _, (bits, _) = planned()
    assert seen.traces == 0
    assert bits == trained(made())[0]


def test_broken_files_are_traced_again(seen: Seen, own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, bits = planned()
    program, record = sorted((own_cache / "traces").iterdir(), key=lambda path: len(path.name), reverse=True)
    texts = {path: path.read_bytes() for path in (program, record)}
    broken = [(record, texts[record][:-20]), (record, texts[program]), (program, texts[program][:-20]), (program, b"\xff"),
              (program, texts[program].replace(b'"aten::tanh"', b'"aten::sinh"'))]
    for number, (path, text) in enumerate(broken):
        assert text != texts[path]
        path.write_bytes(text)
        assert planned()[1] == bits
        assert seen.traces == 2 + number and path.read_bytes() == texts[path] and path.name in caplog.text
        caplog.clear()


def test_metadata_can_be_read_as_nothing_else() -> None:
    value = {"a": [1, None, True, "b"], "c": (torch.Size([2]), {3}, torch.channels_last, int)}
    assert from_json(to_json(value)) == value
    for harmful in ({"type": "os.system"}, {"data": "subprocess.Popen", "fields": {}},
                    {"data": "builtins.dict", "fields": {}},
                    {"choice": ["torch._functorch._aot_autograd.schemas.InputAliasInfo", "is_leaf"]},
                    {"views": [["eval", []]]}, {"memory_format": "float32"}, {"more": 1}):
        with pytest.raises(NoText):
            from_json(harmful)
    with pytest.raises(NoText):
        to_json(torch.zeros(1))


# -- The key.


def key_of(call: Callable[..., Any], *args: Any, engine: str = "eager", name: str = "Model", dynamic: bool = False,
           inside: Around = nullcontext) -> str:
    """Or why there is none."""
    found: list[str] = []

    def backend(gm: Any, inputs: Any) -> Any:
        try:
            with inside():
                found.append(keys.step_key(gm, inputs, engine, name))
        except keys.NoKey as reason:
            found.append(f"no key: {reason}")
        return gm.forward

    torch._dynamo.reset()
    torch.compile(call, backend=backend, fullgraph=True, dynamic=dynamic)(*args)
    return found[-1]


class Layer(nn.Module):
    def __init__(self, name: str = "part", factor: float = 2.0, bias: bool = True) -> None:
        super().__init__()
        self.name, self.factor = name, factor
        self.add_module(name, nn.Linear(4, 4, bias=bias))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(getattr(self, self.name)(x)) * self.factor


def rows(dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> Tensor:
    return torch.zeros(3, 4, dtype=dtype, requires_grad=requires_grad)


def frozen() -> nn.Module:
    layer = Layer()
    layer.part.bias.requires_grad_(False)
    return layer


def test_a_key_is_of_one_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer()

    def with_code(x: Tensor) -> Tensor:
        return functional.gelu(layer.part(x)) * layer.factor

    found = {"": key_of(layer, rows())}
    assert key_of(Layer(), rows()) == found[""]
    others: dict[str, tuple[Any, ...]] = {
        "code": (with_code, rows()), "number": (Layer(factor=3.0), rows()), "kind of number": (Layer(factor=2), rows()),
        "module": (Layer("other"), rows()), "structure": (Layer(bias=False), rows()), "frozen": (frozen(), rows()),
        "dtype": (Layer().double(), rows(torch.float64)), "shape": (layer, torch.zeros(2, 4)),
        "strides": (layer, torch.zeros(4, 3).t()), "offset": (layer, torch.zeros(13)[1:].view(3, 4)),
        "storage": (layer, torch.zeros(5, 4)[:3]), "input with a gradient": (layer, rows(requires_grad=True)),
        "no leaf": (layer, rows(requires_grad=True) * 1)}
    for what, (call, x) in others.items():
        found[what] = key_of(call, x)
    around: dict[str, Around] = {
        "autocast": in_bfloat16, "other autocast": lambda: torch.autocast("cpu", torch.float16),
        "attention": lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
        "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
        "anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
        "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
        "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        "threads": lambda: setting(torch.set_num_threads, 2, 1),
        "AOTAutograd": lambda: torch._functorch.config.patch(treat_parameters_as_free_to_save=False)}
    for what, context in around.items():
        with context():
            found[what] = key_of(layer, rows())
    found["name"] = key_of(layer, rows(), name="Other")
    found["engine"] = key_of(layer, rows(), engine="fused")
    with torch._inductor.config.patch(epilogue_fusion=False):
        found["Inductor"] = key_of(layer, rows(), engine="fused")
    with monkeypatch.context() as patch:
        patch.setenv("REPRISE_SPLIT_CONVOLUTIONS", "1")
        found["convolutions"] = key_of(layer, rows())
    with monkeypatch.context() as patch:
        patch.setattr(keys, "REPEATABLE", {"aten::relu"})
        found["repeatable"] = key_of(layer, rows())
        patch.setattr(keys, "REPEATABLE", {"mine::relu"})
        assert key_of(Layer(), rows()) == key_of(layer, rows()) == found[""]
    with monkeypatch.context() as patch:
        patch.setattr(keys, "_own_code", lambda: "")
        found["own code"] = key_of(layer, rows())
    assert not [what for what, key in found.items() if key.startswith("no key")], found
    assert not [pair for pair in itertools.combinations(found, 2) if found[pair[0]] == found[pair[1]]]


def setting(set_it: Callable[[Any], Any], value: Any, usual: Any) -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.callback(set_it, usual)
    set_it(value)
    return stack


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


@torch.library.custom_op("reprise_kept::copied", mutates_args=())
def copied(x: Tensor) -> Tensor:
    return x.clone()


copied.register_fake(torch.empty_like)


def test_what_no_text_identifies_has_no_key() -> None:
    x = rows(requires_grad=True)
    layer = Layer()
    whole = torch.zeros(6, 4)
    assert "graphs of its own" in key_of(lambda x: checkpoint(layer, x, use_reentrant=False), x)
    assert key_of(Doubled.apply, x).startswith("no key: ")
    assert "reprise_kept.copied" in key_of(lambda x: copied(x) * layer(x), x)
    assert "share memory" in key_of(lambda a, b: layer(a) + layer(b), whole[:3], whole[3:])
    assert "TwoTensor" in key_of(lambda x: x * 2, TwoTensor(rows(), rows()))
    assert "SymInt" in key_of(lambda x: x * 2, rows(), dynamic=True)
    assert "mode of torch functions" in key_of(layer, x, inside=lambda: torch.device("cpu"))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert key_of(layer, x).startswith("no key: ")
    changed = torch.library.Library("aten", "IMPL")
    try:
        changed.impl("hardswish", lambda x: x, "AutogradCPU")
        assert "aten/hardswish" in key_of(layer, x)
    finally:
        changed._destroy()
    assert not key_of(layer, x).startswith("no key")
    assert not key_of(layer, x, engine="fused").startswith("no key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(decompositions, torch.ops.aten.hardswish.default, lambda x: x)
        assert "taken apart" in key_of(layer, x, engine="fused")
        beside: dict[str, Any] = {}  # a package whose folder begins with "torch"
        exec(compile("def hardswish(x): return x", f"{Path(torch.__file__).parent}vision/ops.py", "exec"), beside)
        patch.setitem(decompositions, torch.ops.aten.hardswish.default, beside["hardswish"])
        assert "taken apart" in key_of(layer, x, engine="fused")
