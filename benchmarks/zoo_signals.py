"""The networks of the benchmark that are not image CNNs: ECG CNN, vision transformer, recurrent network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class EcgBlock(nn.Module):
    """Two convolutions of width 15 and a skip connection."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv1d(channels_in, channels_out, 15, stride, 7, bias=False), nn.BatchNorm1d(channels_out), nn.ReLU(),
            nn.Conv1d(channels_out, channels_out, 15, 1, 7, bias=False), nn.BatchNorm1d(channels_out),
        )  # fmt: skip
        self.skip = nn.Conv1d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.main(x) + self.skip(x))


class EcgCnn(nn.Module):
    """Twelve leads, 5000 samples (1, 12, 5000) -> 5 probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(12, 32, 15, 2, 7, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(3, 2, 1),
            EcgBlock(32, 32, 1), EcgBlock(32, 64, 2), EcgBlock(64, 64, 2), EcgBlock(64, 128, 2),
        )  # fmt: skip
        self.classifier = nn.Linear(128, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.classifier(self.features(x).mean(2)))


class TransformerBlock(nn.Module):
    """Pre-norm attention and a GELU perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.project = nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        size = width // self.heads
        normed = self.norm1(x)
        query, key, value = (
            layer(normed).reshape(batch, tokens, self.heads, size).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        attention = torch.softmax((query * size**-0.5) @ key.transpose(-2, -1), -1)
        x = x + self.project((attention @ value).permute(0, 2, 1, 3).reshape(batch, tokens, width))
        return x + self.shrink(functional.gelu(self.grow(self.norm2(x))))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """ViT-tiny: x (N, 3, 224, 224), patches of 16, width 192, 12 blocks, 3 heads -> logits (N, 1000)."""

    def __init__(self, width: int = 192, depth: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embed(x).flatten(2).transpose(1, 2)
        # At batch 1 nothing is expanded, so that its graph stays what it was.
        token = self.token if len(x) == 1 else self.token.expand(len(x), -1, -1)
        tokens = self.blocks(torch.cat([token, patches], 1) + self.position)
        return self.head(self.norm(tokens[:, 0:1]).flatten(1))  # type: ignore[no-any-return]


class BiLstm(nn.Module):
    """Two bidirectional layers of 64 units over x (1, 250, 12) -> 5 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 64, 2, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(128, 5)

    def forward(self, x: Tensor) -> Tensor:
        sequence, _ = self.lstm(x)
        return self.classifier(sequence[:, -1])  # type: ignore[no-any-return]
