"""Networks with random numbers everywhere. A recomputation that draws other numbers gives wrong gradients."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class DropoutMlp(nn.Module):
    """Has dropout of the input, of every layer and in place, and adds noise."""

    def __init__(self, width: int, layers: int = 4, classes: int = 10, rate: float = 0.3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.input_dropout = nn.Dropout(rate)
        self.dropout = nn.AlphaDropout(rate)
        self.rate = rate
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input_dropout(x)
        for layer in self.layers:
            x = self.dropout(functional.selu(layer(x)))
            if self.training:
                x = x + 0.01 * torch.randn_like(x)
        x = functional.dropout(x, self.rate, self.training, inplace=True)
        return self.classifier(x)


class Attention(nn.Module):
    """Self-attention with dropout of its weights; `fused` leaves the arithmetic to one kernel."""

    def __init__(self, width: int, heads: int, rate: float, fused: bool) -> None:
        super().__init__()
        self.heads, self.rate, self.fused = heads, rate, fused
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.project(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        rate = self.rate if self.training else 0.0
        if self.fused:
            y = functional.scaled_dot_product_attention(query, key, value, dropout_p=rate)
        else:
            scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
            y = functional.dropout(scores.softmax(-1), rate, self.training) @ value
        return self.merge(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and feed-forward, each with dropout and each left out at random."""

    def __init__(self, width: int, heads: int, rate: float, fused: bool) -> None:
        super().__init__()
        self.rate = rate
        self.attention = nn.Sequential(
            nn.LayerNorm(width), Attention(width, heads, rate, fused), nn.Dropout(rate)
        )
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(rate),
            nn.Linear(4 * width, width), nn.Dropout(rate),
        )

    def drop_path(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = torch.rand(x.shape[0], 1, 1, device=x.device, dtype=x.dtype) >= self.rate
        return x * keep / (1 - self.rate)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attention(x))
        return x + self.drop_path(self.feed_forward(x))


class DropoutTransformer(nn.Module):
    """Every other block leaves the arithmetic of attention to PyTorch's own kernel."""

    def __init__(
        self, vocabulary: int, width: int, layers: int = 4, heads: int = 4, rate: float = 0.1
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(rate)
        blocks = (Block(width, heads, rate, fused=i % 2 == 1) for i in range(layers))
        self.blocks = nn.Sequential(*blocks)
        self.decoder = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(self.blocks(self.dropout(self.embedding(tokens))))
