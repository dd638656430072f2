"""A compiled model is still the user's model: names, hooks, copies, and the other way to compile it."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training import DEVICE, Mlp, allocated, assert_same, batch, state_of

import reprise
from reprise.tracing import Trace

pytestmark = pytest.mark.usefixtures("one_thread")


def step(model: nn.Module, seed: int = 0) -> Tensor:
    loss = model(batch(seed=seed)).square().mean()
    loss.backward()
    return loss.detach()


def test_class_names_parameters_and_modules_stay() -> None:
    plain, model = Mlp(), Mlp()
    parameters = list(model.parameters())
    assert reprise.compile(model) is model
    step(model)
    assert type(model) is Mlp
    assert list(model.state_dict()) == list(plain.state_dict())
    assert all(p is q for p, q in zip(parameters, model.parameters()))
    assert [n for n, _ in model.named_modules()] == [n for n, _ in plain.named_modules()]
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]


def test_a_state_dict_may_be_loaded_between_steps() -> None:
    def loop(model: nn.Module) -> Any:
        saved = copy.deepcopy(model.state_dict())
        torch.optim.SGD(model.parameters(), lr=1.0)
        first = step(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
        second = step(model)
        model.load_state_dict(saved)
        return first, second, step(model)

    assert_same(Mlp(), loop)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_a_copy_is_a_plain_model(clone: Any) -> None:
    model = reprise.compile(Mlp(), "1GB")
    step(model)
    twin = clone(model)
    assert twin._compiled_call_impl is None
    assert not twin.plan.ready
    assert torch.equal(twin(batch()), model(batch()))
    reprise.compile(twin, "1GB")
    twin.zero_grad()
    step(twin)
    assert twin.plan.ready


def test_saving_the_whole_model_gives_a_plain_one() -> None:
    model = reprise.compile(Mlp(), "1GB")
    step(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.load(file, weights_only=False)._compiled_call_impl is None


def test_changes_to_the_model_between_steps_are_seen() -> None:
    def loop(model: nn.Module) -> Any:
        losses = [step(model)]
        model.head.weight = nn.Parameter(torch.ones(4, 16, device=DEVICE))
        losses.append(step(model))
        model.layers[1] = nn.Linear(16, 16, bias=False)
        losses.append(step(model))
        model.layers[2].forward = lambda x: x * 2
        losses.append(step(model))
        del model.layers[2].forward
        losses.append(step(model))
        return losses

    assert_same(Mlp(), loop, budget="10MB")


def test_a_model_may_change_its_type() -> None:
    def loop(model: nn.Module) -> Any:
        step(model)
        model.zero_grad()
        model.double()
        model(batch().double()).square().mean().backward()

    assert_same(Mlp(), loop, budget="10MB")


def test_a_step_may_run_in_another_thread() -> None:
    def loop(model: nn.Module) -> Any:
        losses = [step(model)]
        thread = threading.Thread(target=lambda: losses.append(step(model)))
        thread.start()
        thread.join()
        return losses

    assert_same(Mlp(), loop, budget="10MB")


def test_restore_gives_the_plain_model_back() -> None:
    model = reprise.compile(Mlp(), "1GB")
    step(model)
    reprise.restore(model)
    assert model._compiled_call_impl is None
    assert not hasattr(model, "plan")
    step(model)


def test_compiling_again_takes_the_new_budget() -> None:
    model = reprise.compile(Mlp(), "1GB")
    step(model)
    reprise.compile(model, 1)
    with pytest.raises(reprise.InfeasibleBudget):
        step(model)
    reprise.compile(model, "2GB")
    step(model)
    assert model.plan.budget_bytes == 2_000_000_000


def test_forward_hooks_of_the_model_and_of_its_parts_run_once() -> None:
    def loop(model: nn.Module) -> Any:
        model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model.register_forward_hook(lambda module, args, output: output + 1)
        model.layers[1].register_forward_pre_hook(lambda module, args: (args[0].abs(),))
        model.layers[2].register_forward_hook(lambda module, args, output: output.clamp(-0.5, 0.5))
        return step(model), step(model)

    assert_same(Mlp(), loop)


@pytest.mark.parametrize("part", ["", "layers.1"])
def test_hooks_may_come_and_go_between_steps(part: str) -> None:
    def loop(model: nn.Module) -> Any:
        losses = [step(model)]
        hooks = [model.get_submodule(part).register_forward_hook(lambda module, args, output: output * 3)]
        losses.append(step(model))
        hooks.append(model.get_submodule(part).register_forward_pre_hook(lambda module, args: (args[0] - 1,)))
        losses.append(step(model))
        for hook in hooks:
            hook.remove()
        losses.append(step(model))
        return losses

    assert_same(Mlp(), loop, budget="10MB")


def test_hooks_of_parameters() -> None:
    def halve(parameter: Tensor) -> None:
        parameter.grad.mul_(0.5)

    def loop(model: nn.Module) -> Any:
        seen = []
        model.head.weight.register_hook(lambda gradient: gradient * 3)
        model.layers[0].bias.register_hook(lambda gradient: seen.append("bias"))
        model.layers[0].weight.register_post_accumulate_grad_hook(halve)
        step(model)
        step(model)
        return seen

    assert_same(Mlp(), loop)


def test_an_optimizer_step_inside_of_backward() -> None:
    """Post-accumulate hooks that update and drop each gradient as it arrives."""

    def loop(model: nn.Module) -> Any:
        def update(parameter: Tensor) -> None:
            with torch.no_grad():
                parameter.sub_(parameter.grad, alpha=0.1)
            parameter.grad = None

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        return [step(model, seed) for seed in range(3)]

    assert_same(Mlp(), loop)


def test_hooks_on_the_output_and_its_gradient() -> None:
    def loop(model: nn.Module) -> Any:
        for seed in range(2):
            output = model(batch(seed=seed))
            output.register_hook(lambda gradient: gradient * 2)
            output.retain_grad()
            output.square().sum().backward()
        return output.grad

    assert_same(Mlp(), loop)


@pytest.mark.parametrize("part", ["", "layers.1"])
def test_backward_hooks_of_modules_are_refused(part: str) -> None:
    """Exception: torch.compile cannot capture them without compiled autograd."""
    model = reprise.compile(Mlp())
    model.get_submodule(part).register_full_backward_hook(lambda module, given, got: None)
    with pytest.raises(reprise.GraphBreak, match="hooks"):
        step(model)


def test_the_backend_of_torch_compile_works_the_same() -> None:
    plain, model = Mlp(), Mlp()
    model.load_state_dict(plain.state_dict())
    compiled = torch.compile(model, backend="reprise", options={"budget": "10MB"}, fullgraph=True, dynamic=False)
    for seed in range(2):
        assert torch.equal(step(plain, seed), step(compiled, seed))
    assert state_of(plain) == state_of(model)


def test_the_backend_of_torch_compile_keeps_the_budget() -> None:
    model = Mlp()
    compiled = torch.compile(model, backend="reprise", options={"budget": 1}, fullgraph=True, dynamic=False)
    with pytest.raises(Exception, match="smallest budget found") as caught:
        step(compiled)
    error = caught.value
    inner = getattr(error, "inner_exception", error)
    assert isinstance(inner, reprise.InfeasibleBudget)


def test_an_unknown_option_of_the_backend_is_refused() -> None:
    compiled = torch.compile(Mlp(), backend="reprise", options={"bugdet": "1GB"}, fullgraph=True)
    with pytest.raises(Exception, match="unknown option bugdet"):
        step(compiled)


def test_a_forward_without_backward_leaves_nothing_behind() -> None:
    model = reprise.compile(Mlp(), "10MB")
    for _ in range(3):
        step(model)
    model.zero_grad()
    x = batch()
    before = allocated()
    for _ in range(5):
        output = model(x)
        assert allocated() > before
        del output
    assert allocated() == before
    step(model)


def test_a_compiled_model_may_be_part_of_a_larger_one() -> None:
    def loop(model: nn.Module) -> Any:
        x = batch().requires_grad_()
        for _ in range(2):
            model(x.tanh()).tanh().sum().backward()
        return x.grad

    assert_same(Mlp(), loop)


def test_the_plan_names_the_modules_of_the_user() -> None:
    model = reprise.compile(Mlp(layers=2))
    step(model)
    text = model.plan.graph.format()
    assert "layers.0" in text
    assert "head" in text
    assert "__self__" not in text


def test_a_model_that_is_no_more_takes_its_memory_along() -> None:
    def train() -> None:
        model = reprise.compile(Mlp(256).to(DEVICE), "2GiB")
        model(batch(width=256)).square().mean().backward()

    train()
    gc.collect()
    before = allocated()
    for _ in range(3):
        train()
    gc.collect()
    assert allocated() - before < 3 * 256 * 256 * 4


class _Asking(nn.Module):
    """Goes another way when it is exported or compiled, as libraries do that make no mask otherwise."""

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
    """Asks as libraries do: without CUDA the question itself fails."""

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
    """The operators that see attention's mask, and whether the loss has the bits of eager's."""
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
    _attention_of_gpt2()  # by now its functions are ours
    masks = pytest.importorskip("transformers.masking_utils")
    compiled = torch.compile(lambda x: x + (1 if masks.is_tracing() else -1), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 1 and not masks.is_tracing()
    positions = torch.arange(4).expand(2, 4)
    assert masks.find_packed_sequence_indices(positions) is None
    assert torch.compile(masks.find_packed_sequence_indices, backend="eager", fullgraph=True)(positions) is not None


class _Packed(nn.Module):
    """Two sequences in one row, whose positions are made in the forward pass."""

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
    """Looks at its mask, which cannot be traced, unless it is compiled."""

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
    """Reads a number, which Reprise refuses, unless it is compiled."""

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
    """While a captured step runs in another thread, and after that."""
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


class _Scatter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, where: Tensor) -> Tensor:
        return torch.zeros(8, 4).index_put((where,), self.layer(x), accumulate=True).tanh()


def test_what_several_threads_add_up_in_any_order_is_computed_once() -> None:
    model = reprise.compile(_Scatter())
    model(torch.rand(16, 4), torch.arange(16) % 8).sum().backward()
    graph = model.plan.graph
    put = [op for op in range(graph.num_ops) if graph.op_name(op).startswith("index_put")]
    assert put and all(graph.once(op) for op in put)
