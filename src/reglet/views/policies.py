"""The policies of the papers, by name.

The user gives sizes; shares, strengths and probabilities are the papers'.  Where a paper gives no window for its blur,
the window is a tenth of the view, 23 px at 224 px, as in SimCLR.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from reglet import check
from reglet.views.blur import Blur
from reglet.views.color import ColorJitter, Normalize
from reglet.views.crop import PadCrop, ResizedCrop
from reglet.views.multiview import Policy
from reglet.views.view import View


@dataclass(frozen=True)
class Recipe:
    """`n_global` global views, which take turns among `views`, and `n_local` copies of the local view."""

    views: tuple[View, ...]
    n_global: int = 2
    local: View | None = None
    n_local: int = 0


def visreg(size: int, local_size: int) -> Recipe:
    """VISReg, ViT-B and ViT-L on ImageNet-1k: 4 global and 6 local views, also for LeJEPA and SIGReg.

    solarize 0.2 is the paper's; the authors' code draws twice, which makes it 0.1.  hue 0.1 is their torchvision
    path's.
    """
    view = _visreg(size, ResizedCrop((0.3, 1.0), interpolation="bicubic"))
    local = replace(view, size=local_size, crop=ResizedCrop((0.05, 0.3), interpolation="bicubic"))
    return Recipe((view,), n_global=4, local=local, n_local=6)


def visreg_small(size: int, local_size: int) -> Recipe:
    """VISReg's ablations (ViT-S/8, Imagenette, long tail, Galaxy10): 4 global views, no local ones."""
    return Recipe((_visreg(size, ResizedCrop((0.08, 1.0), interpolation="bicubic")),), n_global=4)


def _visreg(size: int, crop: ResizedCrop) -> View:
    return View(size, crop, flip=0.5, jitter=ColorJitter(), gray=0.2, blur=Blur(9), solarize=0.2)


def smi(size: int, local_size: int) -> Recipe:
    """SMI on CIFAR.  The paper gives no probability for its blur; it is 0.5 here."""
    view = View(size, ResizedCrop((0.2, 1.0)), flip=0.5, jitter=ColorJitter(), gray=0.2, blur=Blur(_window(size)))
    return Recipe((view,))


def smi_imagenette(size: int, local_size: int) -> Recipe:
    """SMI on ImageNette and ImageWoof: smaller crops, more saturation, solarization."""
    (view,) = smi(size, local_size).views
    return Recipe((replace(view, crop=ResizedCrop(), jitter=ColorJitter(saturation=0.4), solarize=0.2),))


def moco(size: int, local_size: int) -> Recipe:
    """MoCo-v3, on which SER is built: BYOL's two views, bilinear."""
    return Recipe(_byol(size, ResizedCrop()))


def byol(size: int, local_size: int) -> Recipe:
    """BYOL, Barlow Twins and VICReg: one view always blurred, the other sometimes blurred and solarized."""
    return Recipe(_byol(size, ResizedCrop(interpolation="bicubic")))


def dino(size: int, local_size: int) -> Recipe:
    """DINO: BYOL's views of large crops, and 8 small crops, of which half are blurred."""
    views = _byol(size, ResizedCrop((0.4, 1.0), interpolation="bicubic"))
    crop = ResizedCrop((0.05, 0.4), interpolation="bicubic")
    local = replace(views[0], size=local_size, crop=crop, blur=Blur(_window(local_size)))
    return Recipe(views, local=local, n_local=8)


def _byol(size: int, crop: ResizedCrop) -> tuple[View, View]:
    blur = Blur(_window(size), p=1.0)
    first = View(size, crop, flip=0.5, jitter=ColorJitter(), gray=0.2, blur=blur)
    return first, replace(first, blur=replace(blur, p=0.1), solarize=0.2)


def simclr(size: int, local_size: int) -> Recipe:
    """SimCLR, with its full colour strength."""
    jitter = ColorJitter(0.8, 0.8, 0.8, 0.2)
    return Recipe((View(size, ResizedCrop(), flip=0.5, jitter=jitter, gray=0.2, blur=Blur(_window(size))),))


def supervised(size: int, local_size: int) -> Recipe:
    """As on CIFAR: padded by an eighth (4 px at 32 px), cropped and flipped.  One view."""
    return Recipe((View(size, PadCrop(size // 8), flip=0.5),), n_global=1)


def domains(size: int, local_size: int) -> Recipe:
    """DomainBed's, which LatentDR uses.  One view."""
    jitter = ColorJitter(0.3, 0.3, 0.3, 0.3, p=1.0)
    return Recipe((View(size, ResizedCrop((0.7, 1.0)), flip=0.5, jitter=jitter, gray=0.1),), n_global=1)


def probe(size: int, local_size: int) -> Recipe:
    """For a linear classifier on frozen features: crop and flip.  One view."""
    return Recipe((View(size, ResizedCrop(interpolation="bicubic"), flip=0.5),), n_global=1)


def digits(size: int, local_size: int) -> Recipe:
    """Ours, for the embedded digits: no flip, because a mirrored digit is another sign, and no blur."""
    return Recipe((View(size, ResizedCrop((0.3, 1.0)), jitter=ColorJitter(), gray=0.2),))


def digits_strong(size: int, local_size: int) -> Recipe:
    """The same with strong changes of angle and colour."""
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.5, p=1.0)
    return Recipe((View(size, ResizedCrop((0.5, 1.0), (0.8, 1.25)), rotate=30.0, jitter=jitter, gray=0.5),))


def jepa(size: int, local_size: int) -> Recipe:
    """I-JEPA: a crop and nothing else, not even a flip.  One view."""
    return Recipe((View(size, ResizedCrop((0.3, 1.0), interpolation="bicubic")),), n_global=1)


def plain(size: int, local_size: int) -> Recipe:
    """The whole image, resized and normalised: nothing is random.  One view."""
    return Recipe((View(size, ResizedCrop((1.0, 1.0), (1.0, 1.0), interpolation="bicubic")),), n_global=1)


def _window(size: int) -> int:
    return size // 10 | 1


POLICIES: dict[str, Callable[[int, int], Recipe]] = {
    "visreg": visreg,
    "visreg-small": visreg_small,
    "lejepa": visreg,
    "sigreg": visreg,
    "smi": smi,
    "smi-imagenette": smi_imagenette,
    "ser": moco,
    "moco": moco,
    "dino": dino,
    "byol": byol,
    "barlow": byol,
    "vicreg": byol,
    "simclr": simclr,
    "supervised": supervised,
    "domains": domains,
    "probe": probe,
    "jepa": jepa,
    "digits": digits,
    "digits-strong": digits_strong,
    "plain": plain,
}
"""The view policies by name, as `policy` and `views=` take them.

>>> sorted(POLICIES)[:2]
['barlow', 'byol']
"""


def policy(
    name: str,
    *,
    size: int,
    n_global: int | None = None,
    n_local: int | None = None,
    local_size: int | None = None,
    normalize: Normalize | None = None,
) -> Policy:
    """The policy `name` for views of `size` pixels.

    n_global, n_local: numbers of views, if not the paper's.  local_size: by default 3/7 of `size`, 96 px at 224 px,
    rounded to a multiple of 8 so that patches fit.  normalize: by default ImageNet's statistics.

    >>> policy("visreg", size=32, n_local=2).n_global
    4
    """
    if not isinstance(name, str) or name not in POLICIES:
        close = get_close_matches(str(name), POLICIES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no view policy {name!r}.{hint} There are: {', '.join(POLICIES)}")
    check.whole(1, size=size)
    local_size = max(8, round(size * 3 / 7 / 8) * 8) if local_size is None else local_size
    check.whole(1, local_size=local_size)
    recipe = POLICIES[name](size, local_size)
    n_global = recipe.n_global if n_global is None else n_global
    n_local = recipe.n_local if n_local is None else n_local
    check.whole(1, n_global=n_global)
    check.whole(0, n_local=n_local)
    views = [recipe.views[i % len(recipe.views)] for i in range(n_global)]
    if n_local:
        if recipe.local is None:
            raise ValueError(f"the policy {name!r} has no local views, got n_local={n_local}")
        views += [recipe.local] * n_local
    if normalize is not None:
        views = [replace(view, normalize=normalize) for view in views]
    return Policy(tuple(views), n_global=n_global)
