"""Augmentation policies, on batches of tensors on any device; what was drawn is kept."""

from reglet.views.blur import Blur, gaussian_blur
from reglet.views.color import (
    ColorJitter,
    Normalize,
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    color_jitter,
    rgb_to_grayscale,
    solarize,
)
from reglet.views.crop import Crops, PadCrop, ResizedCrop, resized_crop
from reglet.views.draw import Draw, share_geometry
from reglet.views.masks import BlockMasks, MaskedDraw, MaskedViews, Masks
from reglet.views.multiview import Policy
from reglet.views.orientation import hflip, quarter_turn, rotate
from reglet.views.policies import POLICIES, policy
from reglet.views.view import View

__all__ = [
    "POLICIES",
    "BlockMasks",
    "Blur",
    "ColorJitter",
    "Crops",
    "Draw",
    "MaskedDraw",
    "MaskedViews",
    "Masks",
    "Normalize",
    "PadCrop",
    "Policy",
    "ResizedCrop",
    "View",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "color_jitter",
    "gaussian_blur",
    "hflip",
    "policy",
    "quarter_turn",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "share_geometry",
    "solarize",
]
