"""What two processes do for test_shard.py. Each case returns something that can be compared outside."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from several_processes import RANKS, Training, leave_results, local_of, part_of, raw
from tensor_parallel_cases import actions_of, calls_of, log_of, repeated
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

import reprise
from reprise.api.preflight import question
from reprise.forecast.network import Network
from reprise.planning import ops_in
from reprise.trace import sharding as division
from reprise.trace.gathers import accumulations

WIDTH, WORDS, LENGTH, BATCH = 32, 48, 16, 8
BF16 = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.dropout(nn.functional.gelu(self.up(self.norm(x))), 0.1, self.training))


class Net(nn.Module):
    """Words and head are tied."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(2)))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(words)))


class Odd(nn.Module):
    """Parameters that two does not divide along their first dimension, or not at all; one is frozen, one is first read without
    gradients, and inputs are numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.grow, self.shrink, self.head = nn.Linear(WIDTH, 128), nn.Linear(128, 33), nn.Linear(33, WORDS)
        self.grow.weight.requires_grad_(False)
        self.mix = nn.Linear(33, 33)
        self.scale = nn.Parameter(torch.ones(3, 1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            size = self.shrink.weight.abs().mean()
        x = nn.functional.gelu(self.shrink(nn.functional.gelu(self.grow(x)))) * size
        return self.head(nn.functional.gelu(self.mix(x))) * self.scale[2]


class Thrown(Exception):
    pass


armed: list[str] = []  # if it has something, the operator throws


@torch.library.custom_op("reprise_test::fragile", mutates_args=())
def fragile(x: Tensor) -> Tensor:
    if armed:
        raise Thrown
    return x * 2


@fragile.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


fragile.register_autograd(lambda _, gradient: gradient * 2)


class Fragile(Net):
    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.blocks(fragile(self.words(words))))


class Returning(Net):
    """The caller multiplies with the head."""

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        return self.blocks(self.words(words)), self.head.weight


def whole_of(tensor: Any) -> bytes:
    return raw(tensor.full_tensor() if isinstance(tensor, DTensor) else tensor)


class Sharding(Training):
    micro = 0  # how many micro-batches share a reduction, where that is not each

    def __init__(self, kind: type[nn.Module], mesh: DeviceMesh | None, bits: Callable[[Tensor], bytes] = part_of,
                 clip: bool = True, compiled: bool = False, fsdp2: bool = False, **options: Any) -> None:
        """fsdp2: instead of reprise.shard, as without a mesh."""
        torch.manual_seed(0)
        model = kind()
        if mesh is not None and not fsdp2:
            reprise.shard(model, mesh, **options)
        else:
            for block in getattr(model, "blocks", []):
                fully_shard(block, mesh=mesh, **options)
            fully_shard(model, mesh=mesh, **options)
        super().__init__(model, torch.optim.AdamW(model.parameters(), 1e-2), bits, clip)
        if compiled:
            reprise.compile(model, optimizer=self.optimizer, planning_seconds=0.5)

    def unreduced(self, micro: int = 3) -> list[bytes]:
        """What `train` gives, where gradients are reduced at the last of the micro-batches of each step alone."""
        self.micro = micro
        try:
            return self.train(micro=micro)
        finally:
            self.micro = 0

    def loss(self, step: int = 0) -> Tensor:
        if self.micro > 0:
            self.model.set_requires_gradient_sync(step % 10 == self.micro - 1)
        torch.manual_seed(100 * dist.get_rank() + step)
        words = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
        inputs = torch.randn(BATCH, LENGTH, WIDTH) if isinstance(self.model, Odd) else words[:, :-1]
        output = self.model(inputs)
        logits = nn.functional.linear(*output) if isinstance(self.model, Returning) else output
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), words[:, 1:].flatten())

    def at_budgets(self, expected: list[bytes], *others: str) -> dict[str, Any]:
        """The bits without a budget, at the least and at others, and what they take."""
        plan = self.model.plan
        found: dict[str, Any] = {"none": {"same": self.train() == expected, "recompute_ns": plan.recompute_ns}}
        found["once"] = [(plan.graph.op_name(op), plan.graph.once(op)) for op in range(plan.graph.num_ops)]
        plain, least = plan.peak_bytes, self.least_budget()
        for name in (*others, "least"):
            budget = (least + plain) // 2 if name == "half" else least
            plan.set_budget(budget)
            found[name] = {"same": self.train() == expected, "recompute_ns": plan.recompute_ns, "budget": budget,
                           "predicted": plan.peak_bytes, "measured": self.peaks[-1], "most": max(self.peaks),
                           "plan": actions_of(self), "repeated": repeated(self)}
        return found


def under_way(run: Callable[[], Any]) -> tuple[int, int]:
    """The most collectives that were under way at a time, and the products of matrices that were computed meanwhile."""
    now = most = products = 0
    for name, _ in calls_of(run):
        if name == "_c10d_functional::wait_tensor":
            now = 0
        elif name.startswith("_c10d_functional::"):
            now += 1
            most = max(most, now)
        elif now > 0 and name in ("aten::mm", "aten::addmm"):
            products += 1
    return most, products


def bytes_in_flight(training: Sharding, at: str) -> int:
    """The bytes of results of collectives that are on their way, by the plan, when an op runs."""
    plan, flying = training.model.plan, set()
    sizes = plan.costs.value_bytes
    for op in ops_in(plan.actions.actions):
        if plan.graph.op_name(op) == at:
            return sum(sizes[plan.graph.outputs(start)[0]] for start in flying)
        if plan.graph.stream(op):
            flying.add(op)
        else:
            flying.discard(plan.graph.partner(op))
    raise AssertionError(f"no op is called {at}")


@functools.cache
def fsdp2() -> Sharding:
    return Sharding(Net, None)


@functools.cache
def planned(mesh: DeviceMesh) -> Sharding:
    return Sharding(Net, mesh, compiled=True)


def even(mesh: DeviceMesh) -> dict[str, Any]:
    training = planned(mesh)
    found = training.at_budgets(fsdp2().train(), "half")
    found["log"] = log_of(training.step)
    training.model.plan.set_budget(None)
    found["under way"] = under_way(lambda: training.loss().backward())
    training.optimizer.zero_grad()
    found["exposed"] = training.model.plan.exposed_ns, training.model.plan.time_ns
    found["explained"] = reprise.explain(training.model).communication
    training.model.plan.set_budget(found["half"]["budget"] + sum(map(len, training.beginning)))
    found["sums"] = training.train(micro=2) == fsdp2().train(micro=2)  # of gradients over several backwards
    found["recompute_ns"] = training.model.plan.recompute_ns
    return found


def unreduced(mesh: DeviceMesh) -> dict[str, Any]:
    """Gradients that wait for those of later micro-batches."""
    training = Sharding(Net, mesh, compiled=True)
    model, plan = training.model, training.model.plan
    expected = fsdp2().unreduced()
    found: dict[str, Any] = {"same": training.unreduced() == expected}
    model.set_requires_gradient_sync(False)
    loss = training.loss()  # stays until the next one is there, as in `train`
    found["log"] = [name for name, _ in log_of(loss.backward)]
    found["of optimizer"] = sum(p.grad is not None for p in model.parameters())
    waiting = what_waits(model)
    bits = [raw(tensor) for tensor in waiting]
    least = training.least_budget()
    found |= {"waiting": len(waiting), "is as before": bits == [raw(tensor) for tensor in what_waits(model)]}
    plan.set_budget(None)
    model.set_requires_gradient_sync(True)
    loss = training.loss(1)
    found["log of last"] = [name for name, _ in log_of(loss.backward)]
    alive = [weakref.ref(tensor) for tensor in waiting]
    del waiting, loss
    found["left"] = sum(tensor() is not None for tensor in alive) + len(what_waits(model))
    training.optimizer.zero_grad()
    plan.set_budget(least)
    found["least"] = {"same": training.unreduced() == expected, "recompute_ns": plan.recompute_ns, "budget": least,
                      "predicted": plan.peak_bytes, "measured": training.peaks[-1], "most": max(training.peaks)}
    return found


def what_waits(model: nn.Module) -> list[Tensor]:
    """Whole gradients that were left unreduced."""
    (accumulation,) = accumulations(model)
    return [tensor.grad for tensor in accumulation.tensors if tensor.grad is not None]


def hybrid(*shape: int) -> dict[str, Any]:
    """Parameters that are divided over the second dimension of a mesh and replicated over the first."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards"))
    plain, training = Sharding(Net, mesh, fsdp2=True), Sharding(Net, mesh, compiled=True)
    found = training.at_budgets(plain.train())
    training.model.plan.set_budget(None)
    found["placements"] = str(training.model.blocks[0].up.weight.placements)
    if shape[0] == 1:
        return found
    found["unreduced"] = training.unreduced() == plain.unreduced()
    plain = Sharding(Odd, mesh, whole_of, clip=False, fsdp2=True, mp_policy=MixedPrecisionPolicy(**BF16))
    training = Sharding(Odd, mesh, whole_of, clip=False, compiled=True, **BF16)
    return found | {"odd": training.train() == plain.train()}


def thrown(mesh: DeviceMesh) -> dict[str, Any]:
    """An operator throws while weights are gathered, and the next steps are as ever."""
    training = Sharding(Fragile, mesh, clip=False, compiled=True)
    expected = training.train()
    found: dict[str, Any] = {"in flight": bytes_in_flight(training, "fragile")}
    armed.append("now")
    try:
        training.loss()
        raise AssertionError("the operator does not throw")
    except Thrown:
        armed.clear()
    return found | {"same": training.train() == expected}


def returned(mesh: DeviceMesh) -> dict[str, Any]:
    """A model that returns a whole parameter."""
    return Sharding(Returning, mesh, compiled=True).at_budgets(fsdp2().train())


def described(graph: reprise.Graph, costs: reprise.Costs) -> dict[str, Any]:
    """A step, without times and what the caller needs."""
    workspaces = costs.workspace_bytes
    workspaces[graph.caller_op] = 0
    return {"ops": [(graph.op_name(op), graph.scope_name(op), graph.once(op), graph.inputs(op), graph.outputs(op))
                    for op in range(graph.num_ops)],
            "values": [(graph.residence(value), graph.held(value), graph.overwrites(value), size)
                       for value, size in enumerate(costs.value_bytes)], "workspaces": workspaces}


def forecast(mesh: DeviceMesh, kind: type[nn.Module], **options: Any) -> dict[str, Any]:
    """What a process by itself says of the step of a rank, and what that step is."""
    torch.manual_seed(0)
    plain = kind()
    inputs = torch.randn(BATCH, LENGTH, WIDTH) if kind is Odd else torch.randint(0, WORDS, (BATCH, LENGTH))
    training = Sharding(kind, mesh, compiled=True, **options)
    plan, model = training.model.plan, training.model
    output = model(inputs)
    step = described(plan.graph, plan.costs)
    peak = plan.peak_bytes  # before anything is known of the caller
    output.float().sum().backward()
    found = {"measured": plan.measured_peak_bytes, "peak": peak, "step": step}
    optimizer = torch.optim.AdamW(plain.parameters(), 1e-2)
    answer = reprise.preflight(plain, inputs, "1GiB", optimizer=optimizer, largest=False, planning_seconds=0.5, ranks=RANKS,
                               bandwidth="1GB", **options)
    asked = question(plain, inputs, "1GiB", device=None, optimizer=optimizer, reserve=0, planner="auto", planning_seconds=2,
                     profile="known", network=Network(division.Sharding(("ranks", RANKS), **options), 10**9))
    graph, costs, beside, _ = asked.step()
    whole = reprise.solve(graph, costs, planner="none").simulation.peak_bytes + beside  # without a budget, as above
    found |= {"forecast step": described(graph, costs), "forecast": whole,
              "estimated": answer.counts.estimated}
    plan.set_budget(answer.exchange.smallest_budget_bytes)
    del output
    for _ in range(2):
        training.optimizer.zero_grad()
        model(inputs).float().sum().backward()
    training.optimizer.step()
    state = sum(local_of(kept).nbytes for kept in tree_leaves(list(training.optimizer.state.values())))
    return found | {"state": state, "smallest": answer.exchange.smallest_budget_bytes, "measured in it": plan.measured_peak_bytes,
                    "predicted in it": plan.peak_bytes, "recompute_ns": plan.recompute_ns}


@functools.cache
def expected_of_odd() -> tuple[list[bytes], list[bytes]]:
    training = Sharding(Odd, None, whole_of, clip=False, mp_policy=MixedPrecisionPolicy(**BF16))
    return training.train(), training.unreduced()


def odd(mesh: DeviceMesh, placement: str) -> dict[str, Any]:
    """Compares whole tensors, because FSDP2 divides them in other ways."""
    training = Sharding(Odd, mesh, whole_of, clip=False, compiled=True, placement=placement, **BF16)
    expected, expected_unreduced = expected_of_odd()
    found = training.at_budgets(expected)
    training.model.plan.set_budget(None)
    found["unreduced"] = training.unreduced() == expected_unreduced
    return found | {"placements": [str(p.placements[0]) for p in training.model.parameters()],
                    "frozen": [not p.requires_grad for p in training.model.parameters()]}


def whole(model: nn.Module) -> list[bytes]:
    return [whole_of(tensor) for tensor in model.state_dict().values()]


def saved(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    states = get_state_dict(model, optimizer)
    dcp.save(dict(zip(("model", "optimizer"), states, strict=True)), checkpoint_id=folder)


def loaded(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])


def checkpoints(mesh: DeviceMesh, folder: Path) -> dict[str, Any]:
    """From sharded parameters to FSDP2 and to a model that nobody sharded, and back."""
    training, other = planned(mesh), fsdp2()
    training.model.plan.set_budget(None)
    training.train(2)
    saved(training.model, training.optimizer, folder / "sharded")
    torch.manual_seed(1)
    plain = Net()
    loaded(plain, torch.optim.AdamW(plain.parameters(), 1e-2), folder / "sharded")
    loaded(other.model, other.optimizer, folder / "sharded")
    found = {"plain": whole(plain) == whole(training.model), "fsdp2": training.step(2) == other.step(2)}

    torch.manual_seed(2)
    plain = Net()
    optimizer = torch.optim.AdamW(plain.parameters(), 1e-2)
    saved(plain, optimizer, folder / "plain")
    loaded(training.model, training.optimizer, folder / "plain")
    return found | {"back": whole(plain) == whole(training.model)}


def outside(mesh: DeviceMesh) -> dict[str, Any]:
    """What the model looks like when it does not train."""
    model = planned(mesh).model
    torch.manual_seed(2)
    plain = Net()
    words = torch.randint(0, WORDS, (BATCH, LENGTH))
    for each in (model, plain):
        each.eval()
    with torch.no_grad():
        same = torch.equal(model(words), plain(words))
    model.train()
    weight = model.blocks[0].up.weight
    with torch.no_grad():
        nn.init.constant_(model.blocks[0].norm.weight, 3)
    return {"same without gradients": same, "is distributed": isinstance(weight, DTensor) and isinstance(weight, nn.Parameter),
            "whole": tuple(weight.shape), "part": tuple(weight.to_local().shape),
            "takes": local_of(weight).untyped_storage().nbytes(),
            "keys": list(model.state_dict()) == list(plain.state_dict()),
            "tied": model.head.weight is model.words.weight, "class": repr(model) == repr(plain),
            "kinds": all(isinstance(mine, type(theirs)) for mine, theirs in zip(model.modules(), plain.modules(), strict=True)),
            "initialised": bool((model.blocks[0].norm.weight.full_tensor() == 3).all())}


def run(rank: int, folder: str) -> None:
    """All cases in one process group."""
    def results() -> dict[str, Any]:
        mesh = init_device_mesh("cpu", (RANKS,))
        return {"forecasts": [forecast(mesh, Net), forecast(mesh, Odd, **BF16), forecast(mesh, Odd, placement="replicate")],
                "even": even(mesh), "odd": odd(mesh, "shard"), "replicated": odd(mesh, "replicate"),
                "checkpoints": checkpoints(mesh, Path(folder)), "outside": outside(mesh), "thrown": thrown(mesh),
                "returned": returned(mesh), "unreduced": unreduced(mesh),
                "hybrid": [hybrid(1, RANKS), hybrid(RANKS, 1)]}

    leave_results(rank, folder, results)
