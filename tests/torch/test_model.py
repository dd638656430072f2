"""A compiled model is still the user's model: names, hooks and copies; and torch.compile's way to compile it."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training import DEVICE, Mlp, allocated, assert_same, batch, state_of

import reprise

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
    assert all(p is q for p, q in zip(parameters, model.parameters(), strict=True))
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
    assert twin.plan is None
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

    assert_same(Mlp(), loop, again=False)


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

    assert_same(Mlp(), loop, again=False)


def test_an_optimizer_step_inside_of_backward() -> None:
    """Post-accumulate hooks update each parameter as its gradient arrives, and drop the gradient."""

    def loop(model: nn.Module) -> Any:
        def update(parameter: Tensor) -> None:
            with torch.no_grad():
                parameter.sub_(parameter.grad, alpha=0.1)
            parameter.grad = None

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        return [step(model, seed) for seed in range(3)]

    assert_same(Mlp(), loop, again=False)


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
    model = reprise.compile(Mlp(), capture="graph")
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
    text = reprise.format_graph(model.plan.graph, model.plan.costs)
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
