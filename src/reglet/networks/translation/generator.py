"""CUT's generator: convolutions down, residual blocks, convolutions up.  Park et al., ECCV 2020, arXiv:2007.15651.

Instance norms and reflected margins, as there.  Up goes by nearest neighbours and a convolution, where the authors blur
and interpolate.
"""

from jaxtyping import Float
from torch import Tensor, nn

SMALLEST = 16


class Residual(nn.Module):
    """x + norm(conv(relu(norm(conv(x)))))"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*conv(width, width), nn.ReLU(), *conv(width, width))

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
        self.stem = nn.Sequential(*conv(channels, width, kernel=7), nn.ReLU())
        self.down = nn.Sequential(*(nn.Sequential(*conv(c, 2 * c, stride=2), nn.ReLU()) for c in (width, 2 * width)))
        self.blocks = nn.Sequential(*(Residual(4 * width) for _ in range(depth)))
        self.up = nn.Sequential(
            *(nn.Sequential(nn.Upsample(scale_factor=2), *conv(2 * c, c), nn.ReLU()) for c in (2 * width, width))
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
    if min(height, width) < SMALLEST or height % 4 or width % 4:
        raise ValueError(
            f"the generator halves images twice: sides are multiples of 4, at least {SMALLEST}; got {height} x {width}"
        )


def conv(c_in: int, c_out: int, *, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    pad = nn.ReflectionPad2d(kernel // 2)
    return [pad, nn.Conv2d(c_in, c_out, kernel, stride=stride, bias=False), nn.InstanceNorm2d(c_out)]
