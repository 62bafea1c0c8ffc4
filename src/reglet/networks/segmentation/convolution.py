"""The layer that every file here is made of."""

from torch import nn


def conv_norm(c_in: int, c_out: int, *, kernel: int = 3, dilation: int = 1) -> nn.Sequential:
    """Convolution that keeps height and width, batch norm, ReLU."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(c_in, c_out, kernel, padding=padding, dilation=dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out), nn.ReLU())
