"""Writes training steps of eight layers of a Llama of 8 billion parameters whose parameters are sharded over many ranks.

    python3 data/steps/sharded_llama.py [--out FOLDER]

The steps are written down op by op, and nothing is captured or run: the ops of eager PyTorch in bfloat16 with a fused attention
and a fused loss. Each parameter is a shard in fp32. It is cast to bf16 and gathered before it is read, by a gather of its own,
which may run again; its gradient is cast to fp32 and reduced to the shards, once. All collectives are on one communicator.
Forward gathers each weight once and keeps it, so that the step as it stands is ZeRO-2, waiting for every collective at once.

Times are a roofline of an H100: the larger of operations / 400 TFLOP/s, bytes / 2.5 TB/s and 3 microseconds. A collective takes
20 microseconds, and its bytes, less the part that is there, over the bandwidth. NCCL holds no memory beside operands and results.
"""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path

LAYERS, WIDTH, KEYS, INNER, HEADS, WORDS = 8, 4096, 1024, 14336, 32, 128256
FLOPS, BYTES_PER_S, LEAST_S, LATENCY_S = 400e12, 2.5e12, 3e-6, 20e-6
BF16, FP32, INT64 = 2, 4, 8
Op = dict[str, object]


@dataclass
class Setting:
    sequences: int
    length: int
    ranks: int
    gb_per_s: int

    @property
    def tokens(self) -> int:
        return self.sequences * self.length

    @property
    def name(self) -> str:
        return f"8 layers of Llama 8B, {self.sequences} x {self.length} on {self.ranks} ranks at {self.gb_per_s} GB/s"


SETTINGS = {"sharded_llama_64_ranks": Setting(2, 8192, 64, 50), "sharded_llama_8_ranks": Setting(1, 4096, 8, 250)}


@dataclass
class Weight:
    """A parameter: the number of its elements, its shard, and the value of its last gather."""

    elements: int
    shard: int
    scope: str
    gathered: int = -1


@dataclass
class Step:
    setting: Setting
    sizes: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    arriving: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    overwrites: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    phase: str = "forward"

    def value(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def op(self, name: str, scope: str, reads: list[int], sizes: list[int], *, flops: float = 0, over: int | None = None,
           workspace: int = 0, **more: object) -> list[int]:
        """Adds an op that makes values of these sizes, the first one over another value if one is named."""
        made = [self.value(size) for size in sizes]
        if over is not None:
            self.overwrites.append((made[0], over))
        moved = sum(self.sizes[v] for v in [*reads, *made])
        time = max(flops / FLOPS, moved / BYTES_PER_S, LEAST_S)
        if scope not in self.scopes:
            self.scopes.append(scope)
        op: Op = {"name": f"{name}_{len(self.ops)}", "scope": self.scopes.index(scope), "phase": self.phase,
                  "time_ns": round(time * 1e9), "workspace_bytes": workspace, "inputs": reads, "outputs": list(made)}
        self.ops.append(op | more)
        return made

    def collective(self, name: str, scope: str, operand: int, size: int, moved: int, once: bool) -> int:
        ranks = self.setting.ranks
        time = LATENCY_S + moved * (ranks - 1) / ranks / (self.setting.gb_per_s * 1e9)
        result, = self.op(name, scope, [operand], [size], once=once, stream=1, time_ns=round(time * 1e9))
        arrived, = self.op("wait_tensor", scope, [result, operand], [size], over=result, once=once, time_ns=0)
        return arrived

    def weight(self, scope: str, elements: int) -> Weight:
        shard = self.value(elements // self.setting.ranks * FP32)
        self.resident.append(shard)
        return Weight(elements, shard, scope)

    def gather(self, weight: Weight) -> int:
        if weight.gathered < 0:
            half, = self.op("to", weight.scope, [weight.shard], [self.sizes[weight.shard] // 2])
            whole = weight.elements * BF16
            weight.gathered = self.collective("all_gather_into_tensor", weight.scope, half, whole, whole, once=False)
        return weight.gathered

    def reduce(self, weight: Weight, gradient: int) -> None:
        whole, = self.op("to", weight.scope, [gradient], [weight.elements * FP32])
        shard = self.sizes[weight.shard]
        reduced = self.collective("reduce_scatter_tensor", weight.scope, whole, shard, weight.elements * FP32, once=True)
        self.outputs.append(reduced)

    # The operators of the network, on a row of numbers per token.
    def rows(self, width: int, bytes_each: int = BF16) -> int:
        return self.setting.tokens * width * bytes_each

    def linear(self, scope: str, x: int, weight: Weight, width: int) -> int:
        y, = self.op("mm", scope, [x, self.gather(weight)], [self.rows(width)],
                     flops=2. * self.setting.tokens * weight.elements)
        return y

    def linear_backward(self, scope: str, x: int, weight: Weight, dy: int) -> int:
        flops = 2. * self.setting.tokens * weight.elements
        dx, = self.op("mm", scope, [dy, self.gather(weight)], [self.sizes[x]], flops=flops)
        dw, = self.op("mm", scope, [dy, x], [weight.elements * BF16], flops=flops)
        self.reduce(weight, dw)
        return dx

    def norm(self, scope: str, x: int, weight: Weight) -> tuple[int, int]:
        y, scale = self.op("rms_norm", scope, [x, self.gather(weight)], [self.rows(WIDTH), self.rows(1, FP32)])
        return y, scale

    def norm_backward(self, scope: str, x: int, scale: int, weight: Weight, dy: int) -> int:
        reads = [dy, x, scale, self.gather(weight)]
        dx, dw = self.op("rms_norm_backward", scope, reads, [self.rows(WIDTH), weight.elements * BF16])
        self.reduce(weight, dw)
        return dx

    def pointwise(self, name: str, scope: str, reads: list[int], over: int | None = None) -> int:
        y, = self.op(name, scope, reads, [self.sizes[reads[0]]], over=over)
        return y


class Layer:
    """One layer: forward notes what backward reads."""

    def __init__(self, step: Step, number: int) -> None:
        self.step, self.scope = step, f"layers.{number}"
        sizes = {"norm1": WIDTH, "q": WIDTH * WIDTH, "k": WIDTH * KEYS, "v": WIDTH * KEYS, "o": WIDTH * WIDTH,
                 "norm2": WIDTH, "gate": WIDTH * INNER, "up": WIDTH * INNER, "down": WIDTH * INNER}
        self.weights = {name: step.weight(f"{self.scope}.{name}", size) for name, size in sizes.items()}
        self.kept: dict[str, int] = {}

    def of(self, name: str) -> tuple[str, Weight]:
        return f"{self.scope}.{name}", self.weights[name]

    @property
    def attention_flops(self) -> float:
        return 2. * self.step.setting.tokens * self.step.setting.length * WIDTH  # two products, half of them masked

    def forward(self, x: int) -> int:
        step, kept = self.step, self.kept
        kept["x"] = x
        kept["h"], kept["scale1"] = step.norm(f"{self.scope}.norm1", x, self.weights["norm1"])
        for name, width in (("q", WIDTH), ("k", KEYS), ("v", KEYS)):
            kept[name] = step.linear(f"{self.scope}.{name}", kept["h"], self.weights[name], width)
        for name in "qk":
            kept[name] = step.pointwise("rotary", f"{self.scope}.{name}", [kept[name]])
        qkv = [kept[name] for name in "qkv"]
        kept["a"], kept["sums"] = step.op("attention", f"{self.scope}.attention", qkv, [step.rows(WIDTH), step.rows(HEADS, FP32)],
                                          flops=self.attention_flops)
        o = step.linear(f"{self.scope}.o", kept["a"], self.weights["o"], WIDTH)
        kept["x2"] = step.pointwise("add", self.scope, [o, x])
        kept["h2"], kept["scale2"] = step.norm(f"{self.scope}.norm2", kept["x2"], self.weights["norm2"])
        for name in ("gate", "up"):
            kept[name] = step.linear(f"{self.scope}.{name}", kept["h2"], self.weights[name], INNER)
        kept["silu"] = step.pointwise("silu", self.scope, [kept["gate"]])
        kept["m"] = step.pointwise("mul", self.scope, [kept["silu"], kept["up"]])
        y = step.linear(f"{self.scope}.down", kept["m"], self.weights["down"], WIDTH)
        return step.pointwise("add", self.scope, [y, kept["x2"]])

    def backward(self, dx: int) -> int:
        step, kept = self.step, self.kept
        dm = step.linear_backward(f"{self.scope}.down", kept["m"], self.weights["down"], dx)
        dup = step.pointwise("mul", self.scope, [dm, kept["silu"]])
        dsilu = step.pointwise("mul_", self.scope, [dm, kept["up"]], over=dm)
        dgate = step.pointwise("silu_backward", self.scope, [dsilu, kept["gate"]], over=dsilu)
        dh = step.linear_backward(f"{self.scope}.up", kept["h2"], self.weights["up"], dup)
        more = step.linear_backward(f"{self.scope}.gate", kept["h2"], self.weights["gate"], dgate)
        dh = step.pointwise("add_", self.scope, [dh, more], over=dh)
        dx2 = step.norm_backward(f"{self.scope}.norm2", kept["x2"], kept["scale2"], self.weights["norm2"], dh)
        dx2 = step.pointwise("add_", self.scope, [dx2, dx], over=dx2)
        da = step.linear_backward(f"{self.scope}.o", kept["a"], self.weights["o"], dx2)
        qkv = [kept[name] for name in "qkv"]
        gradients = step.op("attention_backward", f"{self.scope}.attention", [da, *qkv, kept["a"], kept["sums"]],
                            [step.sizes[v] for v in qkv], flops=2.5 * self.attention_flops, workspace=step.rows(WIDTH, FP32))
        for i, name in enumerate("qk"):
            gradients[i] = step.pointwise("rotary_", f"{self.scope}.{name}", [gradients[i]], over=gradients[i])
        dh = -1
        for name, gradient in zip("qkv", gradients, strict=True):
            more = step.linear_backward(f"{self.scope}.{name}", kept["h"], self.weights[name], gradient)
            dh = more if dh < 0 else step.pointwise("add_", self.scope, [dh, more], over=dh)
        dx1 = step.norm_backward(f"{self.scope}.norm1", kept["x"], kept["scale1"], self.weights["norm1"], dh)
        return step.pointwise("add_", self.scope, [dx1, dx2], over=dx1)


def training_step(setting: Setting) -> Step:
    step = Step(setting)
    words = step.weight("embedding", WORDS * WIDTH)
    layers = [Layer(step, i) for i in range(LAYERS)]
    last, head = step.weight("norm", WIDTH), step.weight("head", WORDS * WIDTH)
    tokens, targets = (step.value(setting.tokens * INT64) for _ in range(2))
    step.arriving += [tokens, targets]

    x, = step.op("embedding", "embedding", [tokens, step.gather(words)], [step.rows(WIDTH)])
    step.ops[-1]["time_ns"] = round(3 * step.rows(WIDTH) / BYTES_PER_S * 1e9)  # it reads the rows of these words alone
    for layer in layers:
        x = layer.forward(x)
    h, scale = step.norm("norm", x, last)
    logits = step.linear("head", h, head, WORDS)
    loss, sums = step.op("cross_entropy", "loss", [logits, targets], [FP32, step.rows(1, FP32)])
    step.held.append(loss)

    step.phase = "caller"
    seed, = step.op("caller", "loss", [loss], [FP32], time_ns=0)
    step.held.append(seed)

    step.phase = "backward"
    dlogits, = step.op("cross_entropy_backward", "loss", [seed, logits, sums, targets], [step.sizes[logits]])
    if step.sizes[dlogits] == step.sizes[logits]:
        step.overwrites.append((dlogits, logits))
    dh = step.linear_backward("head", h, head, dlogits)
    dx = step.norm_backward("norm", x, scale, last, dh)
    for layer in reversed(layers):
        dx = layer.backward(dx)
    dwords, = step.op("embedding_backward", "embedding", [dx, tokens], [words.elements * BF16])
    step.reduce(words, dwords)
    return step


DEFAULTS: Op = {"phase": "forward", "time_ns": 0, "workspace_bytes": 0, "once": False, "stream": 0}
KEYS_IN_ORDER = ("name", "scope", "phase", "time_ns", "workspace_bytes", "once", "stream", "inputs", "outputs")


def graph_text(step: Step) -> str:
    """As the core writes it (docs/formats.md)."""
    def text(what: object) -> str:
        return json.dumps(what, separators=(",", ":"))

    ops = [text({key: op[key] for key in KEYS_IN_ORDER if key in op and op[key] != DEFAULTS.get(key)}) for op in step.ops]
    values = {"bytes": step.sizes, "resident": step.resident, "arriving": step.arriving, "held": sorted(step.held),
              "overwrites": sorted(step.overwrites)}
    lines = ",\n".join(f"{text(key)}:{text(list_)}" for key, list_ in values.items())
    return (f'{{\n"format":"reprise.graph","version":2,\n"name":{text(step.setting.name)},\n"scopes":{text(step.scopes)},\n'
            f'"values":{{\n{lines}}},\n"outputs":{text(sorted(step.outputs))},\n"ops":[\n' + ",\n".join(ops) + "\n]\n}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().out
    for name, setting in SETTINGS.items():
        (folder / f"{name}.graph.json").write_text(graph_text(training_step(setting)))
