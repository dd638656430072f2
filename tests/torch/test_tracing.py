"""Tests which code path a captured model takes: that of eager, or, if that cannot be captured, the one for compilers."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import reprise
from reprise.trace.eager_way import Trace

pytestmark = pytest.mark.usefixtures("one_thread")


class _Asking(nn.Module):
    """A model that takes another path when it is exported or compiled, like libraries that make a mask only then."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.ask = ask

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * (2 if self.ask() else 1)


@pytest.mark.parametrize("ask", [torch.compiler.is_exporting, torch.compiler.is_compiling])
def test_a_captured_model_takes_the_way_of_eager(ask: Callable[[], bool]) -> None:
    model = _Asking(ask)
    x = torch.rand(3, 4)
    expected = model(x)
    assert torch.equal(reprise.compile(model)(x), expected)
    assert not ask()


class _AskingAStream(nn.Module):
    """A model that asks whether a stream is being captured, as libraries do. Without CUDA, the question itself fails."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        try:
            recording = torch.cuda.is_current_stream_capturing()
        except RuntimeError:
            recording = False
        return self.layer(x) * (2 if recording or torch.compiler.is_compiling() else 1)


def test_a_captured_model_takes_the_way_of_no_recording() -> None:
    model = _AskingAStream()
    x = torch.rand(3, 4)
    expected = model(x)
    assert torch.equal(reprise.compile(model)(x), expected)


def _attention_of_gpt2(**positions: Tensor) -> tuple[list[str], bool]:
    """The operators that make the mask of attention, and whether the loss has the bits of eager's."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=32, vocab_size=64, use_cache=False,
                                     resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(64, (2, 16))
    expected = model(tokens, labels=tokens, **positions).loss
    loss = reprise.compile(model)(tokens, labels=tokens, **positions).loss
    names = [model.plan.graph.op_name(op) for op in range(model.plan.graph.num_ops)] if loss.backward() is None else []
    return [name for name in names if name.startswith(("where", "cumsum"))], torch.equal(loss, expected)


def test_positions_that_a_model_makes_itself_need_no_mask() -> None:
    assert _attention_of_gpt2() == ([], True)


def test_other_compilers_find_transformers_as_it_was() -> None:
    _attention_of_gpt2()  # After this, Reprise has replaced functions of transformers.
    masks = pytest.importorskip("transformers.masking_utils")
    compiled = torch.compile(lambda x: x + (1 if masks.is_tracing() else -1), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 1 and not masks.is_tracing()
    positions = torch.arange(4).expand(2, 4)
    assert masks.find_packed_sequence_indices(positions) is None
    assert torch.compile(masks.find_packed_sequence_indices, backend="eager", fullgraph=True)(positions) is not None


class _Packed(nn.Module):
    """A model whose rows hold two sequences each, and which makes their positions in the forward pass."""

    def __init__(self, make: Callable[[int], Tensor]) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        config = transformers.LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, vocab_size=32,
                                          num_attention_heads=2, num_key_value_heads=1, use_cache=False)
        self.model = transformers.LlamaModel(config)
        self.make = make

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, position_ids=self.make(tokens.shape[1])).last_hidden_state.square().mean()


def _by_writing(length: int) -> Tensor:
    positions = torch.arange(length).unsqueeze(0)
    positions[:, length // 2:] -= length // 2
    return positions


def _by_joining(length: int) -> Tensor:
    return torch.cat([torch.arange(length // 2)] * 2).unsqueeze(0)


@pytest.mark.parametrize("make", [_by_writing, _by_joining])
def test_positions_of_packed_sequences_keep_their_mask(make: Callable[[int], Tensor]) -> None:
    model, tokens = _Packed(make), torch.randint(32, (1, 16))
    expected = model(tokens)
    one_sequence = _Packed(lambda length: torch.arange(length).unsqueeze(0))(tokens)
    assert not torch.equal(expected, one_sequence)
    assert torch.equal(reprise.compile(model)(tokens), expected)


def test_positions_that_are_given_are_looked_at_in_every_step() -> None:
    masks, same = _attention_of_gpt2(position_ids=torch.arange(16).expand(2, 16).contiguous())
    assert masks and same


class _Looking(nn.Module):
    """A model that looks at its mask, which cannot be traced, unless it is being compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and mask.all():
            return self.layer(x)
        return torch.where(mask, self.layer(x), 0.0)


def test_what_eager_looks_at_is_captured_by_the_way_for_compilers() -> None:
    model = _Looking()
    x, mask = torch.rand(3, 4), torch.tensor([True, False, True, True])
    expected = model(x, mask)
    compiled = reprise.compile(model)
    assert torch.equal(compiled(x, mask), expected)
    compiled(x, mask).sum().backward()
    assert model.layer.weight.grad is not None


def test_a_way_that_was_tried_holds_nothing() -> None:
    model = reprise.compile(_Looking())

    def step() -> Any:
        output = model(torch.rand(3, 4), torch.ones(4, dtype=torch.bool))
        return weakref.ref(output)

    gc.collect()
    gc.disable()
    try:
        assert step()() is None
    finally:
        gc.enable()


def test_an_error_that_the_caller_handles_keeps_its_traceback() -> None:
    model = reprise.compile(_Looking())

    def fail() -> None:
        raise ValueError("the caller's")

    try:
        fail()
    except ValueError as error:
        model(torch.rand(3, 4), torch.ones(4, dtype=torch.bool))
        assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "fail"


class _Reading(nn.Module):
    """A model that reads a number out of a tensor, which Reprise refuses, unless it is being compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            x = x + torch.empty(int(x.sum().item()) % 3 + 1).fill_(0).sum()
        return self.layer(x)


def test_what_is_refused_is_captured_by_the_way_for_compilers() -> None:
    model = _Reading()
    x = torch.rand(3, 4)
    assert torch.equal(reprise.compile(model)(x), model.layer(x))


def test_other_compilers_hear_what_they_heard_before() -> None:
    """This must hold while a step is captured in another thread, and after that."""
    inside, outside = threading.Event(), threading.Event()
    trace = Trace()

    def wait() -> None:
        inside.set()
        outside.wait(60)

    thread = threading.Thread(target=trace, args=(wait,))
    thread.start()
    inside.wait(60)
    heard = []
    for _ in range(2):
        torch._dynamo.reset()
        heard.append(torch.compile(lambda x: x + (1 if torch.compiler.is_compiling() else -1), backend="eager",
                                   fullgraph=True)(torch.zeros(1)).item())
        outside.set()
        thread.join()
    assert heard == [1, 1]


class _Resizing(nn.Module):
    """A model that resizes its values, as segmentation and diffusion models do."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(nn.functional.interpolate(self.narrow(x).relu(), size=(17, 19), mode=self.mode)).square().mean()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_resizing_runs_as_in_eager(mode: str) -> None:
    model, x = _Resizing(mode), torch.rand(2, 3, 12, 11)
    operator = torch.ops.aten.upsample_bilinear2d.vec
    kernels = dict(operator.py_kernels)
    model(x).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    reprise.compile(model)(x).backward()
    graph = model.plan.graph
    names = [graph.op_name(op) for op in range(graph.num_ops)]
    assert sum("upsample" in name for name in names) == 2  # One is forward and one is backward; neither was taken apart.
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))
    assert operator.py_kernels == kernels  # Other compilers find the operator as it was.


class _Applying(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(6, 6), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x)).square().sum()


@pytest.mark.parametrize("function", [
    # torch.compile would replace the next five by several operators each.
    lambda x: torch.addcdiv(x, x, x.detach() + 9, value=0.37),
    lambda x: x.clone().addcdiv_(x, x.detach() + 9, value=0.37),
    lambda x: x.clone().addcmul_(x, x.detach() + 9, value=0.37),
    lambda x: x.clone().add_(x, alpha=0.37),
    lambda x: nn.functional.softshrink(x, 0.1),
    lambda x: torch.view_as_real(torch.polar(x, x)),  # Its gradient is multiplied by 1j.
    lambda x: torch.linalg.slogdet(x)[1],  # Its pivots are counted from one.
    lambda x: torch.linalg.eigh(x[:0, :0])[0].sum() + x,  # The matrix is empty.
    lambda x: nn.functional.pad(x[None, :0], (1, 2), mode="circular").sum() + x,
    lambda x: nn.functional.pad(x[None, None], (1, 2, 0, 1), mode="circular"),
])
def test_operators_run_as_in_eager(function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    model, x = _Applying(function), torch.rand(6, 6)
    model(x).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    reprise.compile(model)(x).backward()
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))


class _Turned(nn.Module):
    """Batch norm over a transposed tensor: the CPU's kernel lays out its result in another way than AOTAutograd expects."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x).transpose(1, 2)).transpose(1, 2))).square().mean()


def test_a_view_that_the_device_does_not_have_is_a_copy_as_in_eager() -> None:
    torch.manual_seed(0)
    plain, model = _Turned(), _Turned()
    model.load_state_dict(plain.state_dict())
    reprise.compile(model, planning_seconds=1)
    for length in (6, 9, 11):
        x = torch.rand(4, length, 8)
        for _ in range(2):
            gc.collect()  # Garbage that is collected inside of a step leaves it a lower peak than was predicted.
            for each in (plain, model):
                each.zero_grad()
                each(x).backward()
            assert all(torch.equal(p.grad, m.grad) for p, m in zip(plain.parameters(), model.parameters(), strict=True))
        assert model.plan.measured_peak_bytes == model.plan.peak_bytes
    assert torch.equal(plain.norm.running_var, model.norm.running_var)


class NoisyByNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.from_numpy(np.random.rand(8).astype("float32"))
        return self.linear(x * noise).square().sum()


def test_numbers_that_a_model_draws_from_numpy_are_numpys() -> None:
    """torch.compile would draw them from torch's generator."""
    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(0)
        model = NoisyByNumpy()
        if compiled:
            reprise.compile(model, budget="1GiB")
        np.random.seed(0)
        found = [model(torch.ones(4, 8)) for _ in range(3)]
        reprise.restore(model)
        return [float(loss) for loss in found]

    assert losses(compiled=True) == losses(compiled=False)


def test_a_model_of_transformers_that_returns_hidden_states_is_captured() -> None:
    """It installs hooks in its first call, under a lock."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                      num_attention_heads=2, use_cache=False, output_hidden_states=True)
    words = torch.arange(24).view(2, 12)

    def gradients(compiled: bool) -> tuple[int, list[Tensor | None]]:
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config)
        if compiled:
            reprise.compile(model, "1GiB", capture="graph")
        output = model(words, labels=words)
        output.loss.backward()
        return len(output.hidden_states), [p.grad for p in model.parameters()]

    (count, found), (expected_count, expected) = gradients(compiled=True), gradients(compiled=False)
    assert count == expected_count == 2
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


class WrongForCompilers(nn.Module):
    """Its code for torch.compile fails, and its own looks at numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if torch.compiler.is_compiling():
            return (y + torch.ones(3)).sum()
        return (2 * y if y.sum() > 0 else y).sum()


def test_an_error_in_the_code_for_compilers_is_no_error_of_the_model() -> None:
    with pytest.raises(reprise.GraphBreak, match="Data-dependent branching"):
        reprise.compile(WrongForCompilers(), "1GiB", capture="graph")(torch.ones(4, 8))
    assert reprise.verify(WrongForCompilers(), torch.ones(4, 8), "1GiB").planner == "online"
