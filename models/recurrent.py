"""Language models with LSTMs: one with the fused nn.LSTM, one that is unrolled by hand from cells."""

import torch
from torch import Tensor, nn


class LstmLanguageModel(nn.Module):
    """Has dropout between the layers of nn.LSTM. The decoder shares the weights of the embedding."""

    def __init__(self, vocabulary: int, width: int, layers: int = 2, dropout: float = 0.5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(width, vocabulary)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.decoder(self.dropout(hidden))


class UnrolledLanguageModel(nn.Module):
    """Runs nn.LSTMCell token by token, which gives a graph that is long and deep rather than wide."""

    def __init__(self, vocabulary: int, width: int, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        zeros = embedded.new_zeros(tokens.shape[0], embedded.shape[-1])
        states = [(zeros, zeros)] * len(self.cells)
        outputs = []
        for column in embedded.unbind(1):
            x = column
            for i, cell in enumerate(self.cells):
                states[i] = cell(x, states[i])
                x = states[i][0]
            outputs.append(x)
        return self.decoder(torch.stack(outputs, 1))
