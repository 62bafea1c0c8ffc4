"""Networks that name the class of every pixel: U-Net's two halves, and heads on what they give."""

from reglet.networks.segmentation.deeplabv3 import DeepLabV3Head
from reglet.networks.segmentation.fcn import FCNHead
from reglet.networks.segmentation.psp import PSPHead
from reglet.networks.segmentation.segmenter import HEADS, Segmenter, build
from reglet.networks.segmentation.unet_decoder import UNetDecoder
from reglet.networks.segmentation.unet_encoder import UNetEncoder

__all__ = ["HEADS", "DeepLabV3Head", "FCNHead", "PSPHead", "Segmenter", "UNetDecoder", "UNetEncoder", "build"]
