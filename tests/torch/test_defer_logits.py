"""Logits that are never there whole, although the loss is computed outside of the model."""

from __future__ import annotations

import copy
import gc
import logging
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import reprise
import reprise.show.explanation

WORDS = 4001

Loss = Callable[[Tensor, Tensor], Tensor]


class Language(nn.Module):
    """Words in, logits out; few layers and many words."""

    def __init__(self, dropout: float = 0.1, bias: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        self.layer = nn.Linear(32, 32)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(32, WORDS, bias=bias)

    def forward(self, words: Tensor) -> Tensor:
        x = self.norm(self.layer(self.embed(words.flatten())))
        return self.head(self.drop(functional.gelu(x)).view(*words.shape, -1))


def batch(seed: int, length: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, WORDS, (4, length), generator=generator)
    labels = words.clone()
    labels[:, -3:] = -100
    return words, labels


def shifted(logits: Tensor, labels: Tensor) -> Tensor:
    """As models of transformers compute it."""
    logits = logits[..., :-1, :].contiguous()
    return functional.cross_entropy(logits.view(-1, WORDS), labels[..., 1:].contiguous().view(-1))


def of_rows(logits: Tensor, labels: Tensor, **options: object) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), **options)


def steps(model: nn.Module, loss_of: Loss, count: int = 3) -> list[Tensor]:
    """Losses, parameters, gradients, buffers and the generator after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    losses = []
    for seed in range(count):
        words, labels = batch(seed)
        optimizer.zero_grad()
        logits = model(words)
        loss = loss_of(logits, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        del loss, logits
    return [*losses, *(p.detach() for p in model.parameters()), *(p.grad for p in model.parameters()), *model.buffers(),
            torch.get_rng_state()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def pair(**options: object) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    plain = Language(**options)
    return plain, copy.deepcopy(plain)


def smallest(model: nn.Module, loss_of: Loss, **settings: object) -> int:
    reprise.compile(model, budget=1, planning_seconds=1, **settings)
    words, labels = batch(0)
    with pytest.raises(reprise.InfeasibleBudget) as refused:
        loss_of(model(words), labels)
    reprise.restore(model)
    return refused.value.smallest_budget_bytes


def peaks(model: nn.Module, loss_of: Loss) -> tuple[int, int]:
    """The predicted and the measured peak of a step that runs with the plan that the search ends with."""
    assert model.plan.peak_bytes > 0  # waits for the end of the search
    model.zero_grad()
    words, labels = batch(0)
    loss_of(model(words), labels).backward()
    model.zero_grad()
    return model.plan.peak_bytes, model.plan.measured_peak_bytes


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "reprise")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "reprise"]


LOSSES: dict[str, Loss] = {
    "shifted": shifted,
    "of rows": of_rows,
    "module": lambda logits, labels: nn.CrossEntropyLoss(ignore_index=7)(logits.reshape(-1, WORDS), labels.clamp(min=0).view(-1)),
    "sum": lambda logits, labels: of_rows(logits, labels, reduction="sum"),
    "of each row": lambda logits, labels: of_rows(logits, labels, reduction="none").square().mean(),
    "weights": lambda logits, labels: of_rows(logits, labels, weight=torch.linspace(0.5, 2, WORDS)),
    "smoothed": lambda logits, labels: of_rows(logits, labels, label_smoothing=0.1),
    "classes second": lambda logits, labels: functional.cross_entropy(logits.transpose(1, 2), labels),
    "in two calls": lambda logits, labels: functional.nll_loss(
        functional.log_softmax(logits.view(-1, WORDS), -1), labels.view(-1)),
    "scaled": lambda logits, labels: of_rows(logits / 2.0, labels),
    "in double": lambda logits, labels: of_rows(logits.double(), labels),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_outside_runs_with_the_model_and_has_the_bits_of_eager(name: str, lines: Callable[[], list[str]]) -> None:
    plain, model = pair(bias=name == "sum")
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    assert same(steps(model, LOSSES[name]), steps(plain, LOSSES[name]))
    assert model.plan.graph.num_ops > 0
    assert any("softmax" in model.plan.graph.op_name(op) for op in range(model.plan.graph.num_ops))  # the loss is inside
    assert lines() == []


def inside_an_impossible_budget(loss_of: Loss) -> tuple[int, int, int]:
    """Trains with the bits of eager inside a budget that no plan without slices keeps. Returns the budget, the predicted and
    the measured peak."""
    plain, model = pair()
    logits_bytes = batch(0)[1].numel() * WORDS * 4
    outside, inside = smallest(copy.deepcopy(plain), loss_of), smallest(model, loss_of, defer_logits=True)
    assert inside < outside - 2 * logits_bytes
    budget = inside * 21 // 20
    assert budget < smallest(copy.deepcopy(plain), loss_of, defer_logits=True, slices=False)
    reprise.compile(model, budget=budget, planning_seconds=1, defer_logits=True)
    assert same(steps(model, loss_of), steps(plain, loss_of))
    assert model.plan.slices > 1
    plain.zero_grad()  # which would count beside the step
    return budget, *peaks(model, loss_of)


@pytest.mark.parametrize("loss_of", [of_rows, lambda logits, labels: of_rows(logits.float(), labels)])
def test_a_budget_that_is_impossible_without_slices_is_kept(loss_of: Loss) -> None:
    budget, predicted, measured = inside_an_impossible_budget(loss_of)
    assert measured == predicted <= budget


def test_shifted_logits_run_in_slices() -> None:
    budget, predicted, measured = inside_an_impossible_budget(shifted)
    # The labels are made for the loss alone, and are not there any more when backward runs.
    assert predicted - 4 * 63 * 8 <= measured <= predicted <= budget


CUTS: dict[str, Loss] = {
    "last rows": lambda logits, labels: functional.cross_entropy(
        logits[:, :-1].float().reshape(-1, WORDS), labels[:, 1:].flatten()),
    "cast first": lambda logits, labels: functional.cross_entropy(
        logits.double()[..., 1:, :].reshape(-1, WORDS), labels[:, 1:].flatten(), reduction="sum"),
    "batch": lambda logits, labels: functional.cross_entropy(
        logits[1:].flatten(0, 1), labels[1:].flatten().clamp(min=0), ignore_index=0),
    "both": lambda logits, labels: functional.cross_entropy(
        logits[1:3, 2:-5].flatten(0, 1), labels[1:3, 2:-5].flatten().clamp(min=0), ignore_index=int(labels[1, 3])),
    "none left": lambda logits, labels: functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), torch.full((4 * 63,), -100), reduction="sum"),
    "scaled": lambda logits, labels: functional.cross_entropy(
        (logits[:, :-1] * 1.0).flatten(0, 1), labels[:, 1:].flatten()),  # not of this kind
}


@pytest.mark.parametrize("name", CUTS)
def test_a_loss_of_some_rows_has_the_bits_of_eager(name: str) -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    assert same(steps(model, CUTS[name]), steps(plain, CUTS[name]))
    names = {model.plan.graph.op_name(op) for op in range(model.plan.graph.num_ops)}
    assert ("nan_to_num" in names) == (name != "scaled")


def test_a_loss_without_an_end_stays_one() -> None:
    plain, model = pair(bias=True)
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    words, labels = batch(0)
    for one in (plain, model):
        with torch.no_grad():
            one.head.bias[int(labels[0, 1])] = -torch.inf
        assert shifted(one(words), labels) == torch.inf


@pytest.mark.parametrize("loss_in_autocast", [True, False])
def test_autocast_around_the_model_alone_or_around_both(loss_in_autocast: bool) -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)

    def step(of: nn.Module) -> list[Tensor]:
        torch.manual_seed(1)
        words, labels = batch(0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = of(words)
            if loss_in_autocast:
                loss = of_rows(logits.float(), labels)
        if not loss_in_autocast:
            loss = of_rows(logits.float(), labels)
        words_found = logits.argmax(-1)
        assert logits.dtype is torch.bfloat16
        loss.backward()
        return [loss.detach(), words_found, *(p.grad for p in of.parameters()), *of.buffers()]

    assert same(step(model), step(plain))


def test_a_model_in_bfloat16() -> None:
    plain, model = pair(dropout=0.0)
    plain.bfloat16(), model.bfloat16()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    loss_of = lambda logits, labels: of_rows(logits.float(), labels)  # noqa: E731
    assert same(steps(model, loss_of), steps(plain, loss_of))


def test_words_after_the_loss_are_those_of_eager(lines: Callable[[], list[str]]) -> None:
    plain, model = pair(bias=True)
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    found: dict[nn.Module, list[Tensor]] = {plain: [], model: []}
    for one in found:
        torch.manual_seed(5)
        for seed in range(3):
            one.zero_grad()
            words, labels = batch(seed)
            logits = one(words)
            rows = logits[:, :-1].reshape(-1, WORDS)
            loss = functional.cross_entropy(rows, labels[:, 1:].flatten())
            found[one] += [logits.argmax(-1), rows.detach().clone()]  # before backward
            loss.backward()
            found[one] += [loss.detach(), logits.detach().clone(), logits.topk(3).indices]  # and after it
            found[one] += [p.grad.clone() for p in one.parameters()]
    assert same(found[model], found[plain])
    assert [line for line in lines() if "computed again without gradients, because of argmax after the loss" in line]
    assert len(lines()) == 1


def test_words_before_the_loss_make_the_logits_whole(lines: Callable[[], list[str]]) -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    found: list[Tensor] = []

    def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            found.append(logits.argmax(-1))
        return shifted(logits, labels)

    assert same(steps(model, loss_of), steps(plain, loss_of))
    assert same(found[:3], found[3:])
    assert len(lines()) == 1
    assert "made whole, because of argmax before the loss" in lines()[0]


def test_logits_after_the_weights_have_changed_are_refused() -> None:
    _, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words, labels = batch(0)
    logits = model(words)
    of_rows(logits, labels).backward()
    optimizer.step()
    with pytest.raises(reprise.ModifiedInPlace, match="Use the logits before that"):
        logits.argmax(-1)


def test_a_second_loss_is_refused_before_a_gradient_is_lost() -> None:
    _, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    words, labels = batch(0)
    logits = model(words)
    loss = of_rows(logits, labels) + of_rows(logits, labels.flip(0))
    with pytest.raises(reprise.Unsupported, match="in one loss"):
        loss.backward()
    with pytest.raises(reprise.Unsupported, match="Call it before the loss"):
        logits.register_hook(print)


class _Mine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, logits: Tensor) -> Tensor:
        return logits.square().sum()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return torch.ones(4, 64, WORDS)


def test_code_that_differentiates_by_itself_is_refused() -> None:
    _, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    with pytest.raises(reprise.Unsupported, match=r"logits\.clone\(\)"):
        _Mine.apply(model(batch(0)[0])).backward()
    _Mine.apply(model(batch(0)[0]).clone()).backward()
    assert model.head.weight.grad is not None


def test_gradients_of_several_batches_add_up() -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    for one in (plain, model):
        torch.manual_seed(2)
        for seed in range(3):
            words, labels = batch(seed)
            (shifted(one(words), labels) / 3).backward()
    assert same([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])
    assert same([*model.buffers()], [*plain.buffers()])


def test_a_call_whose_outputs_are_dropped_has_its_effects() -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    states = []
    for one in (plain, model):
        torch.manual_seed(2)
        one(batch(0)[0])
        gc.collect()
        states.append([torch.get_rng_state(), *one.buffers()])
    assert same(*states)


def test_two_calls_before_their_losses_run_in_the_order_of_eager() -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    found = []
    for one in (plain, model):
        torch.manual_seed(2)
        (words, labels), (others, other_labels) = batch(0), batch(1)
        a, b = one(words), one(others)
        second = of_rows(b, other_labels)
        first = of_rows(a, labels)
        first.backward()
        second.backward()
        found.append([first.detach(), second.detach(), *one.buffers(), *(p.grad for p in one.parameters()),
                      torch.get_rng_state()])
    assert same(*found)


def test_what_would_be_computed_from_other_numbers_than_in_eager_is_refused() -> None:
    _, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    words, labels = batch(0)
    logits = model(words)
    words[0, 0] += 1
    with pytest.raises(reprise.ModifiedInPlace, match="Change it after the loss"):
        of_rows(logits, labels)
    logits = model(words)
    torch.rand(3)
    with pytest.raises(reprise.RepriseError, match="Eager draws them in the other order"):
        of_rows(logits, labels)
    _, model = pair(dropout=0.0)
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    logits = model(words)
    torch.rand(3)
    of_rows(logits, labels).backward()  # this model draws nothing


def test_calls_without_gradients_return_plain_logits() -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    words, labels = batch(0)
    plain.eval(), model.eval()
    with torch.no_grad():
        assert type(model(words)) is Tensor
        assert torch.equal(model(words), plain(words))
    logits = model(words)
    with torch.no_grad():
        assert torch.equal(of_rows(logits, labels), of_rows(plain(words), labels))
    logits = model(words)
    with torch.inference_mode():
        assert torch.equal(logits.softmax(-1), plain(words).softmax(-1))
    of_rows(logits, labels).backward()
    assert model.head.weight.grad is not None


def test_what_can_be_asked_without_numbers() -> None:
    _, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    words, _ = batch(0)
    logits = model(words)
    assert logits.shape == (4, 64, WORDS) and logits.size(-1) == WORDS and logits.dim() == 3 and len(logits) == 4
    assert logits.dtype is torch.float32 and logits.device == torch.device("cpu") and logits.is_contiguous()
    assert logits.requires_grad and isinstance(logits, Tensor) and logits in {logits: 1}
    assert logits[:, :-1].stride() == (64 * WORDS, WORDS, 1)
    assert logits.view(-1, WORDS).half().dtype is torch.float16
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        logits.view(-1, 7)
    assert not model.plan.ready
    assert "tensor(" in repr(logits)
    assert model.plan.ready


class Outputs(Language):
    """With more than one output, as a dict."""

    def forward(self, words: Tensor, labels: Tensor | None = None) -> dict[str, Tensor | None]:
        hidden = self.drop(functional.gelu(self.layer(self.embed(words))))
        logits = self.head(hidden)
        loss = None if labels is None else of_rows(logits, labels)
        return {"loss": loss, "logits": logits, "hidden": hidden}


@pytest.mark.parametrize("first", ["hidden", "logits"])
def test_other_outputs_take_part(first: str) -> None:
    torch.manual_seed(0)
    plain = Outputs()
    model = reprise.compile(copy.deepcopy(plain), planning_seconds=1, defer_logits=True)
    found = []
    for one in (plain, model):
        torch.manual_seed(1)
        words, labels = batch(0)
        output = one(words)
        if first == "hidden":
            loss = output["hidden"].square().mean() + of_rows(output["logits"], labels)
        else:
            loss = of_rows(output["logits"], labels) + output["hidden"].square().mean()
        loss.backward()
        found.append([loss.detach(), output["hidden"].detach(), *(p.grad for p in one.parameters() if p.grad is not None)])
    assert same(*found)


def test_a_loss_inside_of_the_model_leaves_the_logits_out(lines: Callable[[], list[str]]) -> None:
    torch.manual_seed(0)
    plain = Outputs()
    model = copy.deepcopy(plain)

    def loss_of(one: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
        torch.manual_seed(1)
        output = one(*batch(0))
        output["loss"].backward()
        return output["loss"].detach(), output

    budgets = []
    for settings in ({}, {"defer_logits": True}):
        reprise.compile(model, budget=1, planning_seconds=1, **settings)
        with pytest.raises(reprise.InfeasibleBudget) as refused:
            loss_of(model)
        budgets.append(refused.value.smallest_budget_bytes)
    assert budgets[1] < budgets[0] - 4 * 64 * WORDS * 4 // 2
    reprise.compile(model, budget=budgets[1] * 21 // 20, planning_seconds=1, defer_logits=True)
    loss, output = loss_of(model)
    expected, expected_output = loss_of(plain)
    assert torch.equal(loss, expected)
    assert same([p.grad for p in model.parameters() if p.grad is not None],
                [p.grad for p in plain.parameters() if p.grad is not None])
    assert model.plan.slices > 1
    assert lines() == []
    assert torch.equal(output["logits"].argmax(-1), expected_output["logits"].argmax(-1))


def test_a_model_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True))
    model = copy.deepcopy(plain)
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    found = []
    for one in (plain, model):
        words, labels = batch(0)
        output = one(input_ids=words)
        loss = shifted(output.logits.float(), labels)
        loss.backward()
        found.append([loss.detach(), output.logits.argmax(-1), output.past_key_values.layers[0].keys.detach(),
                      *(p.grad for p in one.parameters())])
    assert same(*found)


def test_a_model_without_a_head_is_not_deferred(lines: Callable[[], list[str]]) -> None:
    torch.manual_seed(0)
    model = reprise.compile(nn.Sequential(nn.Linear(8, 100), nn.Tanh()), planning_seconds=1, defer_logits=True)
    for _ in range(2):
        assert type(model(torch.randn(4, 8))) is Tensor
    assert len(lines()) == 1
    assert "defer_logits has no effect" in lines()[0]


def test_two_ways_to_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        reprise.compile(Language(), loss=of_rows, defer_logits=True)


def test_verify_compares_it_with_eager() -> None:
    _, model = pair()
    words, labels = batch(0)
    budget = smallest(model, of_rows, defer_logits=True) * 21 // 20
    verified = reprise.verify(model, words, budget, loss=lambda logits: of_rows(logits, labels), planning_seconds=1,
                              defer_logits=True)
    assert verified.ok, str(verified)
    assert verified.slices > 1


def test_explain_says_what_the_loss_outside_takes() -> None:
    plain, model = pair()
    words, labels = batch(0)
    logits_bytes = labels.numel() * WORDS * 4

    def taken(one: nn.Module, **settings: object) -> int:
        reprise.compile(one, planning_seconds=1, **settings)
        for _ in range(2):  # the first step is planned for a guess
            logits = one(words)  # held until backward has returned
            of_rows(logits, labels).backward()
            del logits
            one.zero_grad()
        return reprise.show.explanation.outside_loss_bytes(one.plan.graph, one.plan.costs)

    assert 2.9 * logits_bytes < taken(model) < 3.2 * logits_bytes
    saved = model.plan.smallest_budget_bytes(1) - smallest(copy.deepcopy(plain), of_rows, defer_logits=True)
    assert abs(saved - taken(model)) < logits_bytes / 2  # slices take a part of what they save
    explained = [line for line in str(reprise.explain(model)).splitlines() if line.startswith("  loss, outside")]
    assert len(explained) == 1
    assert "beside the gradient of its logits" in explained[0] and "defer_logits=True" in explained[0]
    assert reprise.format_bytes(taken(model)) in explained[0]

    assert taken(model, defer_logits=True) == 0
    assert "loss, outside" not in str(reprise.explain(model))
    model(words).softmax(-1).square().sum().backward()
    assert "before the loss" in reprise.explain(model).loss
    torch.manual_seed(0)
    narrow = reprise.compile(nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4)))
    narrow(torch.randn(256, 8)).square().sum().backward()
    assert reprise.explain(narrow).loss == ""


def test_the_online_mode_returns_plain_logits() -> None:
    plain, model = pair()
    reprise.compile(model, "1GiB", defer_logits=True, capture="online")
    assert same(steps(model, of_rows), steps(plain, of_rows))
    assert type(model(batch(0)[0])) is Tensor
    reprise.restore(model)


def test_several_shapes_have_steps_of_their_own() -> None:
    plain, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    for one in (plain, model):
        torch.manual_seed(4)
        for length in (64, 20, 33, 64):
            words, labels = batch(length, length)
            shifted(one(words), labels).backward()
    assert same([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])
    assert len(model.plan.sessions) == 3


def test_a_model_is_freed_with_its_steps() -> None:
    _, model = pair()
    reprise.compile(model, planning_seconds=1, defer_logits=True)
    words, labels = batch(0)
    of_rows(model(words), labels).backward()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
