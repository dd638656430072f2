"""The contract: the same bits as eager PyTorch and as the plan without recomputation, and the
predicted peak is the allocator's, to the byte. `make matrix` checks all networks, budgets and planners."""

import pytest
import torch
from models.zoo import CASES, Case
from steps import bits_of, compiled, different, model_of, named_by_refusal, run_step, smallest_budget
from training import DEVICE

# Small networks of every kind. Deep ones take minutes to trace, so only the matrix has them.
NAMES = (("unet", 2), ("lstm_cells", 1), ("dropout_mlp", 1), ("dropout_transformer", 1), ("inplace_views", 1), ("hf_gpt2", 2),
         ("hf_bert", 1), ("hf_vit", 1))


@pytest.mark.parametrize(("name", "threads"), NAMES, indirect=["threads"])
def test_training_is_bit_for_bit_the_same_and_the_peak_as_predicted(name: str, threads: int) -> None:
    case = CASES[name]
    model = model_of(case)
    plain = [run_step(m, case) for m in [model_of(case)] for _ in range(2)]
    planned = compiled(model, planning_seconds=1)

    def check(budget: int | None) -> None:
        planned.load_state_dict(model.state_dict())
        planned.plan.set_budget(budget)
        steps = [run_step(planned, case) for _ in range(2)]
        assert [different(a, b) for a, b in zip(plain, steps, strict=True)] == [[], []], f"budget {budget}"
        assert planned.plan.peak_bytes == planned.plan.measured_peak_bytes
        assert budget is None or planned.plan.peak_bytes <= budget

    check(None)
    highest, smallest = planned.plan.peak_bytes, named_by_refusal(planned, case)
    for budget in (max((highest + smallest) // 2, smallest), smallest):
        check(budget)


class Reader(torch.nn.Module):
    """A language model that returns its loss and has far more words than its width."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = torch.nn.Embedding(5000, 8), torch.nn.Linear(8, 5000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.head(self.words(tokens)), tokens)


def test_a_language_models_loss_takes_two_tensors_of_its_logits_and_not_three() -> None:
    case = Case("reader", 512, Reader, lambda count, _: ((torch.arange(count),), {}), torch.Tensor.sum)
    model, logits = model_of(case), 512 * 5000 * 4
    plain, weights = run_step(model_of(case), case), sum(p.nbytes for p in model.parameters())
    smallest = smallest_budget(model, case)
    planned = compiled(model, smallest)
    assert different(plain, run_step(planned, case)) == []
    assert planned.plan.peak_bytes == planned.plan.measured_peak_bytes <= smallest < 2 * weights + 2.1 * logits
    assert plain.peak_bytes > 3 * logits


SHAPES = [((7, 50), 1), ((3, 4000), 1), ((2, 3, 70_000), 2), ((5, 33, 20), 1), ((600, 3, 2), 0), ((9,), 0)]


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax_may_lie_over_its_operands(name: str, dtype: torch.dtype, shape: tuple[int, ...], dim: int) -> None:
    """Plans rely on this, forward and backward."""
    torch.manual_seed(0)
    x, gradient = (torch.randn(shape, dtype=dtype, device=DEVICE) for _ in range(2))
    forward, backward = (getattr(torch.ops.aten, full) for full in (name, f"{name}_backward_data"))
    result = forward(x, dim, False)
    over = x.clone()
    forward.out(over, dim, False, out=over)
    assert bits_of(over) == bits_of(result)

    wanted = backward(gradient, result, dim, dtype)
    target = "grad_input" if name == "_softmax" else "out"
    for place in (0, 1):
        operands = [gradient.clone(), result.clone()]
        backward.out(*operands, dim, dtype, **{target: operands[place]})
        assert bits_of(operands[place]) == bits_of(wanted)


def test_the_meter_agrees_with_what_pytorch_reports() -> None:
    """Compares the counting allocator with PyTorch's own profiler, which it does not use."""
    case = CASES["hf_vit"]
    model = compiled(model_of(case))
    run_step(model, case)
    args, kwargs = case.make_inputs()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        case.loss(model(*args, **kwargs)).backward()
    seen, level, highest = 0, 0, 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            seen += 1
            level += event.nbytes()
            highest = max(highest, level)
    resident = sum(t.untyped_storage().nbytes() for t in [*model.parameters(), *model.buffers(), *kwargs.values()])
    assert seen > 50
    assert model.plan.measured_peak_bytes - resident == pytest.approx(highest, abs=4096)


@pytest.mark.parametrize("name", ["unet", "vgg19"])
def test_backward_of_large_convolutions_in_two_calls_has_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are split on CUDA only. On the CPU this would save no memory, because a call there copies the tensor that stands in
    for the input."""
    case = CASES[name]
    plain = run_step(model_of(case), case)
    whole = compiled(model_of(case))
    run_step(whole, case)

    monkeypatch.setenv("REPRISE_SPLIT_CONVOLUTIONS", "1")
    split = compiled(model_of(case))
    assert different(plain, run_step(split, case)) == []
    assert split.plan.peak_bytes == split.plan.measured_peak_bytes
    graphs = [model.plan.graph for model in (whole, split)]
    counts = [sum(g.op_name(op).startswith("convolution_backward") for op in range(g.num_ops)) for g in graphs]
    assert counts[0] < counts[1] < 2 * counts[0]
    read = [len(set(graphs[1].inputs(op))) for op in range(graphs[1].num_ops)
            if graphs[1].op_name(op).startswith("convolution_backward")]
    assert read.count(2) == counts[1] - counts[0]  # They read the gradient and the weight, but not the input.
