"""Trains a small language model in PyTorch inside a byte budget, under autocast, and prints what the budget costs."""

import torch
from torch import nn

import reprise


class LanguageModel(nn.Module):
    """A transformer that predicts the next token."""

    def __init__(self, tokens: int = 1000, width: int = 128, layers: int = 4, length: int = 128) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        x = self.embed(tokens) + self.place(torch.arange(length, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        return self.head(self.blocks(x, mask=mask, is_causal=True))


torch.manual_seed(0)
batches = [torch.randint(1000, (8, 129)) for _ in range(4)]  # your data goes here

model = LanguageModel()  # a transformer of four layers; plain training takes about 79 MiB
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
model = reprise.compile(model, budget="40MiB", optimizer=optimizer)

for tokens in batches:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

print(f"peak of the last step: {model.plan.measured_peak_bytes / 2**20:.2f} MiB")
print(reprise.explain(model))  # what is kept, what is computed again, and at what price
