"""How often a classifier is right."""

from collections.abc import Callable

import torch
from torch import Tensor

from reglet.data.images import Images
from reglet.methods import Supervised


@torch.no_grad()
def accuracy(method: Supervised, images: Images, preprocess: Callable[[Tensor], Tensor], *, batch: int = 256) -> float:
    """Of the labels of `images`, the share that `method` gives."""
    if images.labels is None:
        raise ValueError(f"{images.name} has no labels to be right about")
    method.eval()
    device = next(method.parameters()).device
    right = 0
    for index in torch.arange(len(images)).split(batch):
        guess = method.logits(preprocess(images.batch(index).to(device))).argmax(1)
        right += int((guess.cpu() == images.labels[index]).sum())
    return right / len(images)
