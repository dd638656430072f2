"""Networks as chains of layers, in Hong et al.'s sense, and what their formula says about a set of checkpoints.

Layer k makes y_k, of d_k bytes, from y_{k-1}; a convolution or linear layer includes what follows it in place. Everything
between two checkpoints is computed again when backward reaches it. While backward works on the segment from i to j, memory
holds

    checkpoints up to i  +  U(i, j) = d_{i+1} + ... + d_j + max(d_i ... d_{j-1})

docs/algorithms/chain.md explains the formula. Gradients of parameters are counted from the moment backward makes them: a step
begins without gradients here, while the authors had gradients and momentum in memory all the time.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import common  # noqa: F401  It puts the folder of `models` on the path.
from models.resnet import ResNet
from models.unet import UNet
from models.vgg import Vgg19
from models.zoo import cross_entropy
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import reprise
from reprise import _core


class Chain(nn.Module):
    """Layers one after the other, with the loss at the end. `checkpoints` are numbers of layers, counted from 1; None means
    that nothing is computed again. A segment of one layer has nothing to compute again, so it runs without a checkpoint."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.checkpoints: tuple[int, ...] | None = None
        self.after_layer: Callable[[int, Tensor], None] | None = None  # Called in forward, but not when layers run again.

    def forward(self, images: Tensor) -> Tensor:
        x = images
        for first, end in self._segments():
            run = functools.partial(self._run, first, end)
            x = checkpoint(run, x, use_reentrant=False, preserve_rng_state=False) if end - first > 1 else run(x)
        return cross_entropy(x)

    def _segments(self) -> list[tuple[int, int]]:
        count = len(self.layers)
        ends = range(1, count) if self.checkpoints is None else sorted(self.checkpoints)
        return list(pairwise([0, *ends, count]))

    def _run(self, first: int, end: int, x: Tensor) -> Tensor:
        for k in range(first, end):
            x = self.layers[k](x)
            if self.after_layer is not None:
                self.after_layer(k + 1, x)
        return x


class Whole(nn.Module):
    """A network that is not a chain of layers, with its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return cross_entropy(self.network(images))


def grouped(layers: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Groups each pooling layer or layer with parameters with everything that follows it up to the next such layer. Dropout is
    left out, because it would be a layer that the authors do not count."""
    group: list[nn.Module] = []
    for layer in layers:
        starts = isinstance(layer, (nn.Conv2d, nn.Linear, nn.MaxPool2d))
        if starts and any(isinstance(g, (nn.Conv2d, nn.Linear, nn.MaxPool2d)) for g in group):
            yield nn.Sequential(*group)
            group = []
        if not isinstance(layer, nn.Dropout):
            group.append(layer)
    yield nn.Sequential(*group)


def vgg19(tiny: bool) -> nn.Module:
    network = Vgg19(8, 64, 128, 10) if tiny else Vgg19()
    return Chain(grouped([*network.features, nn.Flatten(), *network.classifier]))


def alexnet(tiny: bool) -> nn.Module:
    """A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014."""
    width, hidden, classes = (4, 64, 10) if tiny else (64, 4096, 1000)
    channels = [3, width, 3 * width, 6 * width, 4 * width, 4 * width]
    layers: list[nn.Module] = []
    for i, (kernel, stride, padding, pool) in enumerate(
            [(11, 4, 2, True), (5, 1, 2, True), (3, 1, 1, False), (3, 1, 1, False), (3, 1, 1, True)]):
        layers += [nn.Conv2d(channels[i], channels[i + 1], kernel, stride, padding), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(3, 2)] if pool else []
    layers += [nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(36 * 4 * width, hidden), nn.ReLU(inplace=True),
               nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes)]
    return Chain(grouped(layers))


def resnet(depth: int, tiny: bool) -> nn.Module:
    """Each block is one layer of the chain, because it is the smallest part with one input and one output."""
    network = ResNet(depth, 8, 10) if tiny else ResNet(depth)
    *stem, pool = network.stem
    blocks = [block for stage in network.stages for block in stage]
    return Chain([nn.Sequential(*stem), pool, *blocks, nn.Sequential(network.pool, nn.Flatten(), network.classifier)])


# The model, its batch and image sizes, and the batch and image sizes of its tiny form.
NETWORKS: dict[str, tuple[Callable[[bool], nn.Module], int, tuple[int, int, int], int, tuple[int, int, int]]] = {
    "vgg19": (vgg19, 128, (3, 224, 224), 16, (3, 64, 64)),
    "alexnet": (alexnet, 1024, (3, 224, 224), 8, (3, 224, 224)),
    "resnet50": (functools.partial(resnet, 50), 96, (3, 224, 224), 8, (3, 64, 64)),
    "resnet152": (functools.partial(resnet, 152), 48, (3, 224, 224), 8, (3, 64, 64)),
    "unet": (lambda tiny: Whole(UNet(8 if tiny else 64)), 8, (1, 572, 572), 1, (1, 188, 188)),
}
# The sets of checkpoints that the authors' experiments name, for the 24 layers of VGG-19.
NAMED_SETS = {"vgg19": {"{2,6}": (2, 6), "{3,6}": (3, 6), "{3,11}": (3, 11)}}
PLANNERS = {"chen": "Chen et al.'s by size", "chain-static": "Hong et al.'s static", "feng-huang": "Feng & Huang's",
            "chain": "Hong et al.'s in O(n)"}


def sqrt_set(count: int) -> tuple[int, ...]:
    """The first method of Chen et al.: about sqrt(n) segments with equally many layers each."""
    length = math.ceil(count / math.ceil(math.sqrt(count)))
    return tuple(range(length, count, length))


def graph_of(sizes: list[int]) -> tuple[reprise.Graph, reprise.Costs]:
    """The chain as a graph for the planners. sizes[0] is the input, whose bytes do not count, as it is in memory anyway."""
    count = len(sizes) - 1
    ops = [{"name": f"layer {k}", "time_ns": 1, "inputs": [k - 1], "outputs": [k]} for k in range(1, count + 1)]
    return reprise.parse_graph(json.dumps({
        "format": "reprise.graph", "version": 1, "name": "chain", "outputs": [], "ops": ops,
        "values": {"bytes": [0, *sizes[1:]], "arriving": [0]}}))


def planned_set(sizes: list[int], planner: str) -> tuple[int, ...]:
    """The checkpoints that a planner chooses by its own formula, at the smallest budget that the formula allows."""
    chain = graph_of(sizes)
    found = reprise.solve(*chain, planner=planner, judge="formula")
    if not found.found:
        raise ValueError(f"{planner}: {found.status}: {found.message}")
    whole, _ = _core.complete_backward(*chain)
    live: set[int] = set()
    for kind, number in found.plan.actions:
        if kind == reprise.ActionKind.FREE:
            live.discard(number)
        elif number == whole.caller_op:
            break
        else:
            live.update(whole.outputs(number))
    return tuple(sorted(value for value in live if 0 < value < len(sizes) - 1))


def segment_bytes(sizes: list[int], i: int, j: int) -> int:
    return sum(sizes[i + 1:j + 1]) + max(sizes[i:j])


def predicted(sizes: list[int], checkpoints: Iterable[int], weights: list[int], fixed: int) -> dict[str, list[int]]:
    """The bytes in memory while each layer runs forward, and while each runs backward, in the order of the layers. `weights`
    are the bytes of the layers' parameters, and `fixed` is what is in memory before the step."""
    d = [0, *sizes[1:]]
    count = len(d) - 1
    ends = [0, *sorted(checkpoints), count]
    forward = [fixed + d[k - 1] + d[k] + sum(d[c] for c in ends[:-1] if c < k - 1) for k in range(1, count + 1)]
    backward = [0] * count
    for i, j in pairwise(ends):
        kept = sum(d[c] for c in ends if c <= i)
        for k in range(i + 1, j + 1):
            backward[k - 1] = (fixed + sum(weights[k - 1:]) + kept + segment_bytes(d, i, j) - sum(d[k + 1:j + 1]))
    return {"forward": forward, "backward": backward}
