"""The networks of the benchmark in PyTorch, after the papers they come from; weights are set by ``zoo.py``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_norm(channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution with same padding and BatchNorm."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(channels_out)]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a skip connection (He et al., 2016)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *conv_norm(channels_in, channels_out, 3, stride), nn.ReLU(), *conv_norm(channels_out, channels_out, 3)
        )
        same = stride == 1 and channels_in == channels_out
        self.skip = nn.Identity() if same else nn.Sequential(*conv_norm(channels_in, channels_out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.main(x) + self.skip(x))


class ResNet18(nn.Module):
    """x (1, 3, 224, 224) -> logits (1, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [*conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(channels, width, stride), BasicBlock(width, width, 1)]
            channels = width
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.adaptive_avg_pool2d(self.features(x), 1)
        return self.classifier(torch.flatten(pooled, 1))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """x (1, 1, H, W) -> mask (1, 1, H, W); five levels, ``width`` channels at the first (Ronneberger et al., 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width << level for level in range(5)]
        self.down = nn.ModuleList(self._pair(a, b) for a, b in zip([1, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(self._pair(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 1, 1)

    @staticmethod
    def _pair(channels_in: int, channels_out: int) -> nn.Sequential:
        first, second = conv_norm(channels_in, channels_out, 3), conv_norm(channels_out, channels_out, 3)
        return nn.Sequential(*first, nn.ReLU(), *second, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return torch.sigmoid(self.head(x))


class DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), *conv_norm(channels, 4 * growth, 1), nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.main(x)], 1)


class DenseNet121(nn.Module):
    """x (1, 1, 224, 224) -> 18 probabilities (Huang et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [*conv_norm(1, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for index, layers in enumerate((6, 12, 24, 16)):
            for _ in range(layers):
                blocks.append(DenseLayer(channels, 32))
                channels += 32
            if index < 3:
                half = channels // 2
                transition = nn.Conv2d(channels, half, 1, bias=False)
                blocks += [nn.BatchNorm2d(channels), nn.ReLU(), transition, nn.AvgPool2d(2, 2)]
                channels = half
        self.features = nn.Sequential(*blocks, nn.BatchNorm2d(channels), nn.ReLU())
        self.classifier = nn.Linear(channels, 18)

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.adaptive_avg_pool2d(self.features(x), 1)
        return torch.sigmoid(self.classifier(torch.flatten(pooled, 1)))


class InvertedResidual(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels_in * expansion
        layers: list[nn.Module] = [*conv_norm(channels_in, hidden, 1), nn.ReLU6()] if expansion != 1 else []
        layers += [*conv_norm(hidden, hidden, 3, stride, hidden), nn.ReLU6(), *conv_norm(hidden, channels_out, 1)]
        self.main = nn.Sequential(*layers)
        self.skips = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.main(x) if self.skips else self.main(x)  # type: ignore[no-any-return]


class MobileNetV2(nn.Module):
    """x (1, 3, 224, 224) -> logits (1, 1000) (Sandler et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_norm(3, 32, 3, 2), nn.ReLU6()]
        channels = 32
        for expansion, width, repeats, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for repeat in range(repeats):
                layers.append(InvertedResidual(channels, width, stride if repeat == 0 else 1, expansion))
                channels = width
        self.features = nn.Sequential(*layers, *conv_norm(channels, 1280, 1), nn.ReLU6())
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))  # type: ignore[no-any-return]
