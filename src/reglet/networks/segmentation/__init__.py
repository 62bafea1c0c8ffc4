"""Networks that name the class of every pixel: U-Net's two halves, and heads on what they give."""

from reglet.networks.segmentation.heads import DeepLabV3Head, FCNHead, PSPHead
from reglet.networks.segmentation.segmenter import HEADS, Segmenter, build
from reglet.networks.segmentation.unet import UNetDecoder, UNetEncoder

__all__ = ["HEADS", "DeepLabV3Head", "FCNHead", "PSPHead", "Segmenter", "UNetDecoder", "UNetEncoder", "build"]
