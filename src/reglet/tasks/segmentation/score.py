"""Dice, intersection over union and AUROC of a network on whole images, pixels that do not count left out."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from reglet.probes.metrics import confusion, dice, iou, multilabel_auroc
from reglet.tasks.segmentation.crops import over_squares
from reglet.tasks.segmentation.data import IGNORE, MaskedImages

MOST = 4_000_000  # pixels that the AUROC of a domain is computed from


def pixels(x: UInt8[Tensor, "..."]) -> Float[Tensor, "..."]:
    """What the network sees: from -1 to 1."""
    return x / 127.5 - 1


def scores(network: Callable[[Tensor], Tensor], data: MaskedImages, *, side: int) -> dict[str, float]:
    """dice, iou and auroc on the test images of the domains that were trained on; where there are several domains also
    on those of each, such as "dice DRIVE"."""
    read = {i: _read(network, data.images[i], data.masks[i], side=side) for i in data.test}
    found = of_pixels([read[i] for i in data.test if data.domain[i] in data.trained_on], classes=data.classes)
    domains = sorted({data.domain[i] for i in data.test})
    if len(set(data.domain)) > 1:
        for name in domains:
            own = of_pixels([read[i] for i in data.test if data.domain[i] == name], classes=data.classes)
            found |= {f"{key} {name}": value for key, value in own.items()}
    return found


def of_pixels(
    parts: Sequence[tuple[Float[Tensor, "_ classes"], UInt8[Tensor, " _"]]], *, classes: int
) -> dict[str, float]:
    """Over all pixels together, and the mean over the classes that occur but for the background.

    parts: of every image the classes' probabilities at its pixels, and their classes.
    AUROC, of a class against the rest, is that of at most MOST pixels, taken at equal distances.
    """
    table = sum(confusion(p.argmax(1), truth.long(), classes=classes) for p, truth in parts)
    assert isinstance(table, Tensor)
    occurs = table.sum(1)[1:] > 0
    stride = -(-sum(len(truth) for _, truth in parts) // MOST)
    p, truth = (torch.cat([part[i][::stride] for part in parts]) for i in (0, 1))
    area = multilabel_auroc(p[:, 1:], truth[:, None] == torch.arange(1, classes))
    return {"dice": float(dice(table)[1:][occurs].mean()), "iou": float(iou(table)[1:][occurs].mean()), "auroc": area}


@torch.no_grad()
def _read(network: Callable[[Tensor], Tensor], image: Tensor, mask: Tensor, *, side: int) -> tuple[Tensor, Tensor]:
    logits = over_squares(network, pixels(image), side=side)
    counted = mask != IGNORE
    return logits[:, counted].T.softmax(1), mask[counted]
