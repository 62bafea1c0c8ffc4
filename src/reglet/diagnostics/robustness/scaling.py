"""Scales severities, which ImageNet-C and ImageNet-P give for 224 px, to any other size.

With s = side / 224:

    lengths    times s            blurs, shifts, blocks: the same share of the picture
    noise      times sqrt(s)      deviations of noise, share of dead pixels, JPEG steps, jitter of single pixels
    the rest   as it is           brightness, contrast, fog, zooms, angles

The noise of one pixel is not a length.  At s = 1/7, the same deviation would hide far more of a 32 px picture.  s times
the deviation is what averaging 7 x 7 pixels leaves, almost nothing.  sqrt(s) lies between, and is close to CIFAR-10-C
at 32 px: Gaussian 0.030 to 0.144 (theirs 0.04 to 0.10), shot noise 420 to 21 photons (500 to 50), impulses 0.011 to
0.102 (0.01 to 0.07).
"""

from torch import Tensor


def lengths(x: Tensor) -> float:
    return min(x.shape[2:]) / 224


def noise(x: Tensor) -> float:
    return lengths(x) ** 0.5
