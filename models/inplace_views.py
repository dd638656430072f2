"""Layers that write into intermediates, and into parts of them, in the ways autograd allows."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class WritesInPlace(nn.Module):
    """Arithmetic in place on a layer's output, before and after it is read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        y.add_(0.5).clamp_(min=-2.0)
        z = y.sigmoid()  # Its backward reads its output and not y, so y may change.
        y.mul_(0.25)
        y += z
        functional.relu_(y)
        return y * self.scale


class WritesSlices(nn.Module):
    """Writes into columns, into rows and into every other element, and reads the whole tensor."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.half = width // 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        y[:, : self.half] += x[:, self.half:]
        y[0] = 0.0
        y[:, ::2].mul_(0.5)
        left = y.narrow(1, 0, self.half)
        left.add_(torch.tanh(x[:, : self.half]))
        return y


class WritesTransposes(nn.Module):
    """Writes through a transposed view and through an alias of another shape."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        y.t().add_(self.bias)
        y.view(-1)[: x.shape[1]].neg_()
        return y.t().contiguous().t() + y.unsqueeze(0).expand(2, -1, -1).sum(0)


class ReadsParts(nn.Module):
    """Uses several views of one storage, made by chunk and split, each by itself and one of them twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 4 * width)
        self.merge = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate, value, *rest = self.linear(x).chunk(4, dim=1)
        first, second = torch.stack(rest).unbind(0)
        small, large = value.split([1, value.shape[1] - 1], dim=1)
        value = torch.cat([large, small], 1)
        buffer = x.new_zeros(x.shape[0], 2 * x.shape[1])
        buffer[:, : x.shape[1]] = gate.sigmoid() * value
        buffer[:, x.shape[1]:] = first + second * gate
        return self.merge(buffer)


class InPlaceViews(nn.Module):
    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            WritesInPlace(width), WritesSlices(width), WritesTransposes(width), ReadsParts(width)
        )
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.layers(x))
