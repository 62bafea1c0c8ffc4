"""Images of two domains: a folder with a/ and b/, a .npz with `images` and `domain`, or digits made on the fly."""

from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from reglet.data.load import load
from reglet.data.npz import load_npz
from reglet.networks.translation import check_size

FEWEST = 10  # images of a domain: a fifth of them is held out, and two have a covariance
TEST = 0.2


class TwoDomains(NamedTuple):
    """Images in [-1, 1], of one size; a fifth of each domain is held out."""

    a: Float[Tensor, "n c h w"]
    b: Float[Tensor, "m c h w"]
    a_test: Float[Tensor, "p c h w"]
    b_test: Float[Tensor, "q c h w"]


def read(spec: str, *, size: int) -> TwoDomains:
    """size: side in pixels to which all are brought; 0: that of the images, at most 224."""
    if not spec:
        return split(*digits(), size=size)
    path = Path(spec)
    if path.is_dir():
        missing = [name for name in ("a", "b") if not (path / name).is_dir()]
        if missing:
            raise ValueError(
                f"{path} has no folder {missing[0]}/: translation goes from the images in a/ to those in b/"
            )
        a = load(str(path / "a"), size=size)
        b = load(str(path / "b"), size=a.batch(torch.zeros(1, dtype=torch.int64)).shape[2])
        return split(a.batch(torch.arange(len(a))), b.batch(torch.arange(len(b))), size=size)
    if path.suffix == ".npz" and path.is_file():
        return split(*_of_archive(path), size=size)
    raise ValueError(f"there are no data at {spec!r}: translation takes a folder with a/ and b/, or a .npz")


def _of_archive(path: Path) -> tuple[UInt8[Tensor, "n c h w"], UInt8[Tensor, "m c h w"]]:
    images = load_npz(path)
    if images.domain is None:
        raise ValueError(f"{path} has no `domain`: translation goes from its first domain to its second")
    present = images.domain.unique().tolist()
    if len(present) != 2:
        raise ValueError(f"translation is between two domains, and {path} has images of {len(present)}")
    a, b = (images.images[images.domain == d] for d in present)
    return a, b


def split(a: UInt8[Tensor, "n c h w"], b: UInt8[Tensor, "m c2 h2 w2"], *, size: int = 0) -> TwoDomains:
    """Checked, brought to [-1, 1] and to `size`, a random fifth held out, the same always."""
    for name, x in (("a", a), ("b", b)):
        if len(x) < FEWEST:
            raise ValueError(f"domain {name} has {len(x)} images, and at least {FEWEST} are needed")
    if a.shape[1:] != b.shape[1:] and (not size or a.shape[1] != b.shape[1]):
        raise ValueError(f"images of both domains are of one size, got {tuple(a.shape[1:])} and {tuple(b.shape[1:])}")
    check_size(*((size, size) if size else a.shape[2:]))
    parts = []
    for x in (a, b):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        pixels = _resized(x, size)[order]
        held = max(2, round(TEST * len(x)))
        parts.append((pixels[held:], pixels[:held]))
    return TwoDomains(parts[0][0], parts[1][0], parts[0][1], parts[1][1])


def _resized(x: UInt8[Tensor, "n c h w"], size: int) -> Float[Tensor, "n c h2 w2"]:
    y = x.float()
    if size and x.shape[2:] != (size, size):
        y = F.interpolate(y, (size, size), mode="bilinear", antialias=True, align_corners=False)
    return y / 127.5 - 1


def digits() -> tuple[UInt8[Tensor, "n 3 16 16"], UInt8[Tensor, "m 3 16 16"]]:
    """scikit-learn's digits at 16 px: the first half dark on light, the second orange on blue.  No digit is in both."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install reglet[data]") from error
    ink = torch.from_numpy(load_digits().images).float()[:, None] / 16
    ink = F.interpolate(ink, (16, 16), mode="bilinear", align_corners=False)
    half = len(ink) // 2
    back, front = (torch.tensor(colour).view(1, 3, 1, 1) for colour in ((20.0, 40.0, 120.0), (250.0, 150.0, 30.0)))
    dark = (255 * (1 - ink[:half])).expand(-1, 3, -1, -1)
    bright = back + (front - back) * ink[half:]
    return dark.round().to(torch.uint8), bright.round().to(torch.uint8)
