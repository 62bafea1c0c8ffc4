"""The layer that every file here is made of."""

from torch import nn


def conv_norm(c_in: int, c_out: int, *, kernel: int = 3, dilation: int = 1) -> nn.Sequential:
    """Convolution that keeps height and width, batch norm, ReLU."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(c_in, c_out, kernel, padding=padding, dilation=dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out), nn.ReLU())


def of_means(c_in: int, c_out: int) -> nn.Sequential:
    """1 x 1 convolution of means over parts of a map, norm, ReLU.

    Image by image, over all channels (group norm of one group), where the papers have batch norm: of the few means in a
    small batch that knows too little, and with it half of our runs with PSP called everything background.
    """
    return nn.Sequential(nn.Conv2d(c_in, c_out, 1, bias=False), nn.GroupNorm(1, c_out), nn.ReLU())
