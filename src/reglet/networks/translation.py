"""Image translation without pairs: the parts of CUT.

CUT's generator: convolutions down, residual blocks, convolutions up.  Park et al., ECCV 2020, arXiv:2007.15651.

It has instance norms and reflected margins, as in the paper.  Upsampling is by nearest neighbours and a convolution,
where the authors blur and interpolate.

PatchGAN: a verdict for every patch.  Isola et al., CVPR 2017, arXiv:1611.07004, as CUT uses it.

Convolutions of 4 x 4: `halvings` of stride 2, each twice as wide as the one before, then two of stride 1.  With three
halvings a verdict sees 70 px, as in the paper; with two, 34 px.

PatchNCE: a patch of the translated image should match its own patch in the source.  Park et al., ECCV 2020, eq. 3.

    l_s = -log exp(v_s . v+_s / tau) / sum_u exp(v_s . v+_u / tau),        tau = 0.07,      mean over places and images

v are places of the translation, v+ the same places of the source (no gradient, as in the authors' code), all of unit
length.  Negatives are the other places of the same image.  `patch_ntxent` has negatives in other images, and computes
thousands of them block by block.  Here there are at most a few hundred, and one matrix product is enough.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from reglet.types import Scalar

SMALLEST = 16


class _Residual(nn.Module):
    """x + norm(conv(relu(norm(conv(x)))))"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_conv(width, width), nn.ReLU(), *_conv(width, width))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        y: Tensor = self.layers(x)
        return x + y


class Generator(nn.Module):
    """Images in [-1, 1] -> images in [-1, 1] of the same size, which is a multiple of 4 and at least 16.

    `features(x)` are the maps that PatchNCE compares: pixels, both steps down, the first and the middle residual block.

    >>> import torch
    >>> Generator(width=4, depth=1)(torch.zeros(1, 3, 16, 16)).shape
    torch.Size([1, 3, 16, 16])
    """

    sim_blocks = ("down.*", "blocks.*", "up.*")

    def __init__(self, *, width: int = 64, depth: int = 9, channels: int = 3) -> None:
        super().__init__()
        if min(width, depth, channels) < 1:
            raise ValueError(f"a generator needs positive numbers, got {width=}, {depth=}, {channels=}")
        self.stem = nn.Sequential(*_conv(channels, width, kernel=7), nn.ReLU())
        self.down = nn.Sequential(*(nn.Sequential(*_conv(c, 2 * c, stride=2), nn.ReLU()) for c in (width, 2 * width)))
        self.blocks = nn.Sequential(*(_Residual(4 * width) for _ in range(depth)))
        self.up = nn.Sequential(
            *(nn.Sequential(nn.Upsample(scale_factor=2), *_conv(2 * c, c), nn.ReLU()) for c in (2 * width, width))
        )
        self.head = nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(width, channels, 7), nn.Tanh())
        self.widths = (channels, 2 * width, 4 * width, 4 * width, 4 * width)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        check_size(*x.shape[2:])
        y: Tensor = self.head(self.up(self.blocks(self.down(self.stem(x)))))
        return y

    def features(self, x: Float[Tensor, "n c h w"]) -> list[Float[Tensor, "n d h2 w2"]]:
        """As far as the middle block; there are as many channels as `widths` says."""
        check_size(*x.shape[2:])
        first, second = self.down
        a = first(self.stem(x))
        b = second(a)
        inner = [b]
        for block in list(self.blocks)[: self.middle + 1]:
            inner.append(block(inner[-1]))
        return [x, a, b, inner[1], inner[-1]]

    @property
    def middle(self) -> int:
        return len(self.blocks) // 2


def generator_small(*, width: int = 16, depth: int = 3, channels: int = 3) -> Generator:
    """A quarter of the width and a third of the blocks: it trains in seconds on a CPU.

    >>> import torch
    >>> generator_small()(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 3, 32, 32])
    """
    return Generator(width=width, depth=depth, channels=channels)


def check_size(height: int, width: int) -> None:
    """An error where the generator cannot take images of this size.

    >>> check_size(30, 32)
    Traceback (most recent call last):
    ValueError: the generator halves images twice: sides are multiples of 4, at least 16; got 30 x 32
    """
    if min(height, width) < SMALLEST or height % 4 or width % 4:
        raise ValueError(
            f"the generator halves images twice: sides are multiples of 4, at least {SMALLEST}; got {height} x {width}"
        )


def _conv(c_in: int, c_out: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    pad = nn.ReflectionPad2d(kernel // 2)
    return [pad, nn.Conv2d(c_in, c_out, kernel, stride=stride, bias=False), nn.InstanceNorm2d(c_out)]


class PatchDiscriminator(nn.Module):
    """Images -> a map of verdicts, one for each patch; 1 is "real".

    >>> import torch
    >>> PatchDiscriminator(width=8)(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 1, 6, 6])
    """

    def __init__(self, *, width: int = 64, halvings: int = 3, channels: int = 3) -> None:
        super().__init__()
        if min(width, halvings, channels) < 1:
            raise ValueError(f"a discriminator needs positive numbers, got {width=}, {halvings=}, {channels=}")
        widths = [width << i for i in range(halvings + 1)]
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        for i, (c_in, c_out) in enumerate(pairwise(widths), start=1):
            stride = 2 if i < halvings else 1
            layers.append(nn.Conv2d(c_in, c_out, 4, stride=stride, padding=1, bias=False))
            layers += [nn.InstanceNorm2d(c_out), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4, padding=1))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 1 h2 w2"]:
        y: Tensor = self.layers(x)
        return y


def patch_discriminator_small(*, width: int = 16, channels: int = 3) -> PatchDiscriminator:
    """A quarter of the width and one halving fewer: images of 32 px are more than one patch.

    >>> import torch
    >>> patch_discriminator_small()(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 1, 6, 6])
    """
    return PatchDiscriminator(width=width, halvings=2, channels=channels)


class PatchMLP(nn.Module):
    """Maps, and places in each -> vectors (n, places, width) of each map, by two layers with a ReLU.

    >>> vectors = PatchMLP([8], width=4)([torch.randn(2, 8, 5, 5)], [torch.tensor([0, 7, 24])])
    >>> vectors[0].shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, widths: Sequence[int], *, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(c, width), nn.ReLU(), nn.Linear(width, width)) for c in widths
        )

    def forward(
        self, maps: Sequence[Float[Tensor, "n _c _h _w"]], places: Sequence[Int64[Tensor, " _p"]]
    ) -> list[Float[Tensor, "n _p k"]]:
        return [
            layer(y.flatten(2)[:, :, index].transpose(1, 2))
            for layer, y, index in zip(self.layers, maps, places, strict=True)
        ]


def draw_places(
    maps: Sequence[Float[Tensor, "n _c _h _w"]], *, count: int, generator: torch.Generator | None = None
) -> list[Int64[Tensor, " _p"]]:
    """At most `count` places of each map, without repetition, the same for all images of the batch.

    >>> [len(places) for places in draw_places([torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 2, 2)], count=16)]
    [16, 4]
    """
    return [
        torch.randperm(y.shape[2] * y.shape[3], generator=generator, device=None if generator else y.device)[:count].to(
            y.device
        )
        for y in maps
    ]


def patch_nce(v: Float[Tensor, "n p k"], source: Float[Tensor, "n p k"], *, temperature: float = 0.07) -> Scalar:
    """
    >>> round(patch_nce(torch.ones(2, 8, 4), torch.ones(2, 8, 4)).item(), 4)  # all equal: log p
    2.0794
    """
    n, p, _ = v.shape
    if p < 2 or temperature <= 0:
        raise ValueError(f"PatchNCE needs two places at least and a positive temperature, got {p} and {temperature}")
    scores = F.normalize(v, dim=2) @ F.normalize(source.detach(), dim=2).transpose(1, 2) / temperature
    return F.cross_entropy(scores.flatten(0, 1), torch.arange(p, device=v.device).repeat(n))
