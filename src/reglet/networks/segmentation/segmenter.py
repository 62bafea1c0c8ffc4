"""U-Net and a head."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.segmentation.heads import DeepLabV3Head, FCNHead, PSPHead
from reglet.networks.segmentation.unet import UNetDecoder, UNetEncoder

HEADS: dict[str, Callable[..., nn.Module]] = {
    "unet": partial(FCNHead, convs=0),
    "fcn": FCNHead,
    "psp": PSPHead,
    "deeplabv3": DeepLabV3Head,
}
"""The heads by the names that `reglet train task=segmentation head=` takes.

>>> import torch
>>> HEADS["psp"](8, classes=3)(torch.zeros(2, 8, 12, 12)).shape
torch.Size([2, 3, 12, 12])
"""


class Segmenter(nn.Module):
    """Logits of the class of every pixel.

    decoder: with it, the head reads a map as fine as the image, as in mmsegmentation's U-Nets with these heads.  None:
        the head reads the encoder's last map, and its logits are resized to the image bilinearly.

    >>> import torch
    >>> from reglet.networks.segmentation import FCNHead, UNetDecoder, UNetEncoder
    >>> net = Segmenter(UNetEncoder(widths=(8, 16)), UNetDecoder(widths=(8, 16)), FCNHead(8, classes=3))
    >>> net(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(self, encoder: UNetEncoder, decoder: UNetDecoder | None, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head = encoder, decoder, head

    @property
    def sim_blocks(self) -> list[str]:
        """The default blocks for SIM: the encoder's stages, without the first, which takes pixels."""
        return [f"encoder.stages.{i}" for i in range(1, len(self.encoder.stages))]

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n classes h w"]:
        maps = self.encoder(x)
        y: Tensor = self.head(maps[-1] if self.decoder is None else self.decoder(maps))
        same = y.shape[2:] == x.shape[2:]
        return y if same else F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


def build(
    head: str, *, classes: int, in_channels: int = 3, width: int = 64, stages: int = 5, decoder: bool = True
) -> Segmenter:
    """A U-Net whose first stage is `width` wide and every other twice the one before, with one of HEADS.

    The defaults are U-Net's own sizes.

    >>> import torch
    >>> build("psp", classes=2, width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 2, 32, 32])
    """
    if head not in HEADS:
        raise ValueError(f"the head is one of {', '.join(HEADS)}; got {head!r}")
    if min(width, stages) < 1 or classes < 2:
        raise ValueError(f"expected {width=} and {stages=} from 1 on and {classes=} from 2 on")
    widths = [width << i for i in range(stages)]
    encoder = UNetEncoder(widths=widths, in_channels=in_channels)
    end = HEADS[head](widths[0] if decoder else widths[-1], classes, dim=width)
    return Segmenter(encoder, UNetDecoder(widths=widths) if decoder else None, end)
