"""Training loops that no capture can take as they are, and random programs, for the online mode."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from training import DEVICE

import reprise
from reprise.native import _torch

Bits = dict[str, tuple]
TELLS_OF_ACCESS = torch.__version__ >= "2.13"  # Before that, taking the address of a result is an error.


def allocated() -> int:
    gc.collect()
    return _torch.allocated_bytes(DEVICE)


def peak_of(run: Callable[[], object]) -> int:
    """The meter's peak above what was there before, of a call."""
    before = allocated()
    _torch.reset_peak(DEVICE)
    run()
    return _torch.peak_bytes(DEVICE) - before


def bits_of(tensor: Tensor) -> tuple:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    on_host = torch.empty(flat.shape, dtype=torch.uint8, device="cpu").copy_(flat)  # not a result that could be taken away
    return tuple(tensor.shape), str(tensor.dtype), on_host.numpy().tobytes()


def generators() -> Bits:
    """Where the random numbers of all devices are."""
    states = {"generator": bits_of(torch.get_rng_state())}
    return states if DEVICE.type == "cpu" else states | {"CUDA's generator": bits_of(torch.cuda.get_rng_state(DEVICE))}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.first_norm, self.second_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu_(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        y += x
        return torch.relu_(y)


class ResNet(nn.Module):
    """Batch norm, ReLU and addition in place, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(*(Block(8) for _ in range(5)))
        self.dropout, self.head = nn.Dropout(0.3), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(torch.relu(self.stem(x)))
        return self.head(self.dropout(y).mean((2, 3)))


class Breaks(nn.Module):
    """Masks, shapes and branches that depend on numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = torch.tanh(layer(x))
            if y.mean().item() > 0:
                y = y * 2
            chosen = y[y.sum(1) > 0]
            x = F.gelu(y) + (chosen.mean(0) if len(chosen) else 0)
        return x


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
                                    for _ in range(4))
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Tree(nn.Module):
    """A recursive network, with a new tree in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf, self.join = nn.Linear(32, 32), nn.Linear(64, 32)

    def forward(self, x: Tensor, depth: int, choose: random.Random) -> Tensor:
        if depth == 0 or choose.random() < 0.2:
            return torch.sigmoid(self.leaf(x))
        sides = self(x, depth - 1, choose), self(x * 0.5, depth - 1, choose)
        return torch.tanh(self.join(torch.cat(sides, 1)))


Step = Callable[[nn.Module, int], Tensor]


def image_loss(model: nn.Module, step: int) -> Tensor:
    return F.cross_entropy(model(torch.randn(8, 3, 24, 24)), torch.randint(0, 4, (8,)))


def plain_step(model: nn.Module, step: int) -> Tensor:
    loss = image_loss(model, step)
    loss.backward()
    return loss


def accumulating_step(model: nn.Module, step: int) -> Tensor:
    losses = [image_loss(model, step) / 3 for _ in range(1)]
    losses[0].backward()
    for _ in range(2):
        losses.append(image_loss(model, step) / 3)
        losses[-1].backward()
    return torch.stack([loss.detach() for loss in losses]).sum()


def breaking_step(model: nn.Module, step: int) -> Tensor:
    loss = model(torch.randn(1024, 64)).pow(2).mean()
    loss.backward()
    return loss


def token_step(model: nn.Module, step: int) -> Tensor:
    tokens = torch.randint(0, 50, (8, (24, 40, 32)[step % 3]))
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    return loss


def autocast_step(model: nn.Module, step: int) -> Tensor:
    with torch.autocast(DEVICE.type, torch.bfloat16):
        tokens = torch.randint(0, 50, (24, 32))
        loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
    loss.backward()
    return loss


def penalty_step(model: nn.Module, step: int) -> Tensor:
    """A gradient penalty: backward through backward."""
    x = torch.randn(1024, 64, requires_grad=True)
    value = model(x).pow(2).mean()
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    loss = value + slope.pow(2).sum()
    loss.backward()
    return loss


def two_losses_step(model: nn.Module, step: int) -> Tensor:
    y = model(torch.randn(1024, 64))
    first, second = y.pow(2).mean(), y.abs().mean()
    first.backward(retain_graph=True)
    second.backward()
    return first.detach() + second.detach()


def tree_step(model: nn.Module, step: int) -> Tensor:
    loss = model(torch.randn(256, 32), 5, random.Random(step)).pow(2).mean()
    loss.backward()
    return loss


class Smooth(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*(layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Softplus())))


@dataclass(frozen=True)
class Loop:
    name: str
    make_model: Callable[[], nn.Module]
    step: Step
    shares: tuple[float, ...] = (0.8, 0.6, 0.5, 0.4)  # of what plain training takes


LOOPS = [
    Loop("resnet", ResNet, plain_step),
    Loop("accumulation", ResNet, accumulating_step),
    Loop("graph breaks", Breaks, breaking_step, (0.8, 0.6, 0.5)),
    Loop("three lengths", Transformer, token_step),
    Loop("autocast", Transformer, autocast_step, (0.8, 0.6, 0.5)),
    Loop("gradient penalty", Smooth, penalty_step, (0.8, 0.6)),
    Loop("two losses", Breaks, two_losses_step, (0.8, 0.6)),
    Loop("new tree", Tree, tree_step),
]


def shares_of(loop: Loop, plain_bytes: int) -> tuple[float, ...]:
    """Shares of what plain training takes. On other devices kernels need more at once, and a library has a workspace for each
    thread that has used it, which calls that are made again may be the first to do."""
    if DEVICE.type == "cpu":
        return loop.shares
    with contextlib.suppress(reprise.BudgetExceeded), reprise.online(allocated() + int(0.95 * plain_bytes), smallest=4096):
        train(loop)
    return 0.95, *loop.shares


def train(loop: Loop, steps: int = 3) -> Bits:
    """Trains from the same beginning and returns everything that has to be the same."""
    torch.manual_seed(7)
    model = loop.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    bits = {}
    for step in range(steps):
        optimizer.zero_grad()
        bits[f"loss {step}"] = bits_of(loop.step(model, step))
        optimizer.step()
    bits |= {f"state {name}": bits_of(tensor) for name, tensor in model.state_dict().items()}
    bits |= {f"gradient {name}": bits_of(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    return bits | generators()


def inside(share: float, plain_bytes: int, smallest: int = 4096, planning_seconds: float = 0) -> reprise.online:
    return reprise.online(allocated() + int(share * plain_bytes), smallest=smallest, most_recomputation=None,
                          planning_seconds=planning_seconds)


def train_inside_budgets(loop: Loop, look: Callable[[reprise.online], None], steps: int = 3, most: int | None = None,
                         planning_seconds: float = 0) -> None:
    """Trains inside several budgets, with the bits of plain training, and leaves nothing behind. `look` sees the mode at the end
    of each training."""
    expected = train(loop, steps)
    plain = peak_of(lambda: train(loop, steps))
    kept = 0
    for share in shares_of(loop, plain)[:most]:
        before = allocated()
        with inside(share, plain, planning_seconds=planning_seconds) as mode:
            _torch.reset_peak(DEVICE)
            try:
                bits = train(loop, steps)
            except reprise.BudgetExceeded:
                if DEVICE.type == "cpu":
                    raise
                continue  # Kernels of other devices need more at once.
            kept += 1
            assert _torch.peak_bytes(DEVICE) <= mode.budget_bytes, share
            look(mode)
        assert [name for name in expected if expected[name] != bits[name]] == [], share
        assert allocated() == before
    assert kept > 0


# Random programs

Values = list[Tensor]


def _unary(values: Values, choose: random.Random) -> Tensor:
    operator = choose.choice([torch.tanh, torch.sigmoid, torch.relu, F.gelu, torch.exp, lambda x: x * 1.5, lambda x: -x,
                              lambda x: x.softmax(-1), lambda x: x.cumsum(0), torch.clone, torch.zeros_like,
                              lambda x: F.layer_norm(x, x.shape[-1:])])
    return operator(choose.choice(values))


def _binary(values: Values, choose: random.Random) -> Tensor:
    operator = choose.choice([torch.add, torch.mul, torch.sub, torch.maximum,
                              lambda a, b: torch.where(a > b, a, b), lambda a, b: a @ b.t() @ b / 16,
                              lambda a, b: torch.cat([a, b])[::2], lambda a, b: torch.stack([a, b]).mean(0)])
    return operator(choose.choice(values), choose.choice(values))


def _view(values: Values, choose: random.Random) -> Tensor:
    x = choose.choice(values)
    n = x.shape[0]
    return choose.choice([lambda: x.t() if x.shape[0] == x.shape[1] else x.view(x.shape), lambda: x.flip(0),
                          lambda: x.reshape(-1).view(n, -1), lambda: x[: n // 2].repeat(2, 1) if n % 2 == 0 else x,
                          lambda: x.detach() * 0.5, lambda: x.expand(2, *x.shape)[1]])()


def _write(values: Values, choose: random.Random) -> Tensor:
    """Writes over a copy of a value, or over a part of it."""
    x = choose.choice(values).clone(memory_format=torch.contiguous_format)
    y = choose.choice(values)
    for _ in range(choose.randrange(1, 4)):
        choose.choice([lambda: x.mul_(0.9), lambda: x.add_(y.detach()), lambda: x[1].copy_(y[0]), x[:, ::2].zero_,
                       lambda: x.view(-1)[3:9].add_(1), lambda: x.index_add_(0, torch.tensor([0, 2]), y[:2].detach())])()
    return choose.choice([lambda: x, x.relu_, x.sigmoid_])()  # Autograd keeps what these return.


def _random(values: Values, choose: random.Random) -> Tensor:
    x = choose.choice(values)
    return choose.choice([lambda: F.dropout(x, 0.4), lambda: x + torch.randn_like(x), lambda: x * torch.rand(x.shape),
                          lambda: F.dropout(x.clone(), 0.2, inplace=True),
                          lambda: x * torch.empty_like(x).uniform_(0.5, 1)])()


def _several(values: Values, choose: random.Random) -> Tensor:
    x = choose.choice(values)
    return choose.choice([lambda: x.sort(0)[0], lambda: torch.cat(x.chunk(2)[::-1]), lambda: x.max(0, keepdim=True)[0] + x,
                          lambda: torch.var_mean(x, 0)[0] * x, lambda: x.unbind(0)[0] + x])()


def _by_number(values: Values, choose: random.Random) -> Tensor:
    """What depends on numbers."""
    x = choose.choice(values)
    if x.sum().item() > 0:
        return x * 0.5
    rows = x[x.mean(1) > 0]
    return x + (rows.mean(0) if len(rows) else 1)


PARTS = (_unary, _unary, _binary, _binary, _view, _write, _random, _several, _by_number)


def random_program(seed: int, operators: int = 30, rows: int = 16) -> Bits:
    """A forward of so many operators on leaves, a backward, sometimes a second one, and an update of the leaves."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    leaves = [torch.randn(rows, rows, requires_grad=True) for _ in range(3)]
    bits: Bits = {}
    for step in range(2):
        values: Values = [*leaves, torch.randn(rows, rows)]
        for _ in range(operators):
            values.append(choose.choice(PARTS)(values, choose))
            if len(values) > 10 and choose.random() < 0.7:
                values.pop(choose.randrange(3, len(values)))  # The program lets go of it.
        total = torch.stack([value.tanh().sum() for value in values]).sum()
        create = choose.random() < 0.3
        keep = create or choose.random() < 0.3
        gradients = torch.autograd.grad(total, leaves, create_graph=create, retain_graph=keep, allow_unused=True)
        if keep:
            again = total if not create else total + sum(g.pow(2).sum() for g in gradients if g is not None)
            again.backward()
        bits[f"total {step}"] = bits_of(total)
        bits |= {f"value {step} {i}": bits_of(v) for i, v in enumerate(values)}
        bits |= {f"gradient {step} {i}": bits_of(g) for i, g in enumerate(gradients) if g is not None}
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients, strict=True):
                if gradient is not None:
                    leaf.add_(gradient.nan_to_num(0, 0, 0).clamp(-1, 1), alpha=-0.1)
                leaf.grad = None
        bits |= {f"kept {step} {i}": bits_of(v) for i, v in enumerate(values)}  # computed from leaves that have changed
    return bits | generators()
