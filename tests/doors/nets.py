"""A user's file with networks, as the torch doors take it (``nets.py:UNet``); also imported by the tests."""

from __future__ import annotations

import torch
from torch import nn


class UNet(nn.Module):
    """One level down and up, with a skip connection: image [N, 1, H, W] to two class probabilities per pixel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.Conv2d(16, 2, 1)
        norm = self.down[1]
        with torch.no_grad():
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        top = self.down(image)
        low = torch.relu(self.deep(top))
        return torch.softmax(self.head(torch.cat([top, self.up(low)], 1)), 1)


class Encoder(nn.Module):
    """Attention, layer norm and an LSTM: tokens [N, T, 16] and a gate [N, 16]; a tuple of two results."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.memory = nn.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, tokens: torch.Tensor, gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.layer(tokens) * gate.sigmoid()[:, None]
        return self.memory(x)[0], x.mean(1)


class Unseeded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean() > 0:
            return x + 1
        return x - 1


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return x + self.seen


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        raise RuntimeError("the weights are at home")


def factory() -> nn.Module:
    return UNet()


ready = UNet()
nothing = 3
