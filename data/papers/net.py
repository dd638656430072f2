"""A network that is written down layer by layer.

Every call on a Net records one op and returns its output, whose shape follows from the layer; nothing is computed. One op has
one output, so op 12 makes value 12. Inputs, labels and parameters are not recorded.

    net = Net("tiny", batch=32)
    x = net.input(3, 224)
    with net.scope("stem"):
        x = net.relu(net.conv(x, 64, kernel=7, stride=2, pad=3))
    net.softmax_ce(net.linear(x, 10))

The conventions are Chainer's, because the paper's graphs were traced with it: a Reshape comes before a Linear that reads an
image, and poolings round their output size up unless told otherwise.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

CONV_TIME = 10  # every other op takes 1
ITEM_BYTES = 4  # float32


@dataclass(frozen=True)
class Tensor:
    """The output of an op, or an input of the network, which is not a value."""

    shape: tuple[int, ...]
    value: int | None = None

    @property
    def channels(self) -> int:
        return self.shape[1]

    @property
    def size(self) -> int:
        """The height, which is also the width, because all images here are square."""
        return self.shape[2]


@dataclass(frozen=True)
class Op:
    name: str
    scope: int | None
    time: int
    backward_reads: str
    inputs: tuple[int, ...]
    output_bytes: int


class Net:
    def __init__(self, name: str, batch: int) -> None:
        self.name = name
        self.ops: list[Op] = []
        self.scopes: list[str] = []
        self.parameter_bytes = 0
        self._batch = batch
        self._path: list[str] = []

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        self._path.append(name)
        try:
            yield
        finally:
            self._path.pop()

    def input(self, channels: int, size: int) -> Tensor:
        return Tensor((self._batch, channels, size, size))

    # Layers. `tag` is appended to the kind of the op and makes its name: conv + "2_1" = "conv2_1".

    def conv(
        self,
        x: Tensor,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        dilation: int = 1,
        bias: bool = True,
        tag: str = "",
    ) -> Tensor:
        self._count_parameters(x.channels * channels * kernel**2 + bias * channels)
        size = _window_count(x.size, dilation * (kernel - 1) + 1, stride, pad, round_up=False)
        return self._image("conv" + tag, [x], channels, size, time=CONV_TIME)

    def deconv(self, x: Tensor, channels: int, kernel: int, stride: int, tag: str = "") -> Tensor:
        self._count_parameters(x.channels * channels * kernel**2 + channels)
        return self._image("deconv" + tag, [x], channels, stride * (x.size - 1) + kernel)

    def linear(self, x: Tensor, features: int, tag: str = "") -> Tensor:
        if len(x.shape) > 2:
            x = self._record("reshape" + tag, [x], (self._batch, math.prod(x.shape[1:])))
        self._count_parameters((x.shape[1] + 1) * features)
        return self._record("linear" + tag, [x], (self._batch, features))

    def bn(self, x: Tensor, tag: str = "") -> Tensor:
        self._count_parameters(2 * x.channels)
        return self._record("bn" + tag, [x], x.shape)

    def relu(self, x: Tensor, tag: str = "") -> Tensor:
        return self._record("relu" + tag, [x], x.shape, backward_reads="outputs")

    def max_pool(
        self, x: Tensor, kernel: int, stride: int, pad: int = 0, round_up: bool = True, tag: str = ""
    ) -> Tensor:
        size = _window_count(x.size, kernel, stride, pad, round_up)
        return self._image("max_pool" + tag, [x], x.channels, size, backward_reads="both")

    def avg_pool(self, x: Tensor, kernel: int, stride: int, tag: str = "") -> Tensor:
        size = _window_count(x.size, kernel, stride, 0, round_up=False)
        return self._image("avg_pool" + tag, [x], x.channels, size, backward_reads="both")

    def lrn(self, x: Tensor, tag: str = "") -> Tensor:
        return self._record("lrn" + tag, [x], x.shape, backward_reads="both")

    def dropout(self, x: Tensor, tag: str = "") -> Tensor:
        return self._record("dropout" + tag, [x], x.shape)

    def add(self, x: Tensor, y: Tensor, tag: str = "") -> Tensor:
        if x.shape != y.shape:
            raise ValueError(f"add{tag}: {x.shape} and {y.shape} differ")
        return self._record("add" + tag, [x, y], x.shape)

    def mul_const(self, x: Tensor, tag: str = "") -> Tensor:
        return self._record("mul_const" + tag, [x], x.shape)

    def concat(self, parts: list[Tensor], tag: str = "") -> Tensor:
        sizes = {part.size for part in parts}
        if len(sizes) != 1:
            raise ValueError(f"concat{tag}: sizes {sorted(sizes)} differ")
        return self._image("concat" + tag, parts, sum(part.channels for part in parts), sizes.pop())

    def crop(self, x: Tensor, size: int, tag: str = "") -> Tensor:
        return self._image("crop" + tag, [x], x.channels, size)

    def resize(self, x: Tensor, size: int, tag: str = "") -> Tensor:
        return self._image("resize" + tag, [x], x.channels, size)

    def softmax_ce(self, x: Tensor, tag: str = "") -> Tensor:
        return self._record("softmax_ce" + tag, [x], ())

    def conv_relu(self, x: Tensor, channels: int, kernel: int, pad: int = 0, tag: str = "") -> Tensor:
        return self.relu(self.conv(x, channels, kernel, pad=pad, tag=tag), tag)

    # Recording.

    def _image(
        self, name: str, inputs: list[Tensor], channels: int, size: int, time: int = 1, backward_reads: str = "inputs"
    ) -> Tensor:
        return self._record(name, inputs, (self._batch, channels, size, size), time, backward_reads)

    def _record(
        self, name: str, inputs: list[Tensor], shape: tuple[int, ...], time: int = 1, backward_reads: str = "inputs"
    ) -> Tensor:
        values = tuple(dict.fromkeys(x.value for x in inputs if x.value is not None))
        self.ops.append(Op(name, self._scope_index(), time, backward_reads, values, math.prod(shape) * ITEM_BYTES))
        return Tensor(shape, len(self.ops) - 1)

    def _scope_index(self) -> int | None:
        if not self._path:
            return None
        path = ".".join(self._path)
        if path not in self.scopes:
            self.scopes.append(path)
        return self.scopes.index(path)

    def _count_parameters(self, count: int) -> None:
        self.parameter_bytes += count * ITEM_BYTES


def _window_count(size: int, kernel: int, stride: int, pad: int, round_up: bool) -> int:
    """The number of positions of a sliding window along one axis. Rounding up lets the last one reach over the edge."""
    slack = size + 2 * pad - kernel
    return (slack + (stride - 1 if round_up else 0)) // stride + 1
