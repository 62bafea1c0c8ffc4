"""The class of each pixel, read linearly from patch tokens.

Batch norm and a linear map of each token; logits are resized to the mask bilinearly, and cross-entropy is taken there.
AdamW, rate 2e-3 (1 - s/S)^0.9, 16 images a step, 40 epochs: VISReg's protocol on ADE20K.  The paper reports the best
epoch on the test images; we report the last.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet import check
from reglet.probes.metrics import confusion, mean_iou
from reglet.seeded import seeded

Grid = tuple[int, int]  # rows and columns of a token map


class SegmentationScore(NamedTuple):
    """Intersection over union, of each class and their mean; the share of right pixels; the predicted classes.

    >>> masks = torch.tensor([[0, 0], [1, 1]]).repeat(8, 1, 1)
    >>> tokens = torch.eye(2)[masks.flatten(1)]
    >>> segmentation_probe(tokens, masks, tokens, masks, grid=(2, 2), lr=0.1).predicted.shape
    torch.Size([8, 2, 2])
    """

    mean_iou: float  # over the classes that occur in the test masks
    iou: list[float]  # of each class; NaN where it neither occurs nor was predicted
    accuracy: float  # of pixels
    predicted: Int[Tensor, "n h w"]  # the test masks


def segmentation_probe(
    train: Float[Tensor, "m t d"],
    train_masks: Int[Tensor, "m h w"],
    test: Float[Tensor, "n t d"],
    test_masks: Int[Tensor, "n h w"],
    *,
    grid: Grid,
    ignore: int | None = None,
    epochs: int = 40,
    batch: int = 16,
    lr: float = 2e-3,
    weight_decay: float = 0.01,
    seed: int = 0,
) -> SegmentationScore:
    """Mean intersection over union on the test masks.

    grid: rows and columns that the tokens fill, row by row.
    ignore: a class whose pixels are left out in training and testing; 0 for ADE20K.

    >>> masks = torch.tensor([[0, 0], [1, 1]]).repeat(8, 1, 1)
    >>> tokens = torch.eye(2)[masks.flatten(1)]
    >>> segmentation_probe(tokens, masks, tokens, masks, grid=(2, 2), lr=0.1).mean_iou
    1.0
    """
    _check(train, train_masks, test, test_masks, grid, ignore)
    check.whole(1, epochs=epochs, batch=batch)
    check.whole(0, seed=seed)
    check.positive(lr=lr)
    check.not_negative(weight_decay=weight_decay)
    classes = int(train_masks.max()) + 1
    if classes <= int(test_masks.max()):
        raise ValueError(f"test masks have classes up to {int(test_masks.max())}, training masks up to {classes - 1}")
    with seeded(seed, train.device), torch.enable_grad():
        head = _Head(train.shape[2], classes, grid).to(train.device)
        optimizer = torch.optim.AdamW(head.parameters(), lr=lr, weight_decay=weight_decay)
        per_epoch = -(-len(train) // batch)
        for step in range(epochs * per_epoch):
            if step % per_epoch == 0:
                batches = torch.randperm(len(train)).to(train.device).tensor_split(per_epoch)
            index = batches[step % per_epoch]
            optimizer.param_groups[0]["lr"] = lr * (1 - step / (epochs * per_epoch)) ** 0.9
            optimizer.zero_grad()
            logits, masks = head(train[index].float(), train_masks.shape[1:]), train_masks[index].long()
            F.cross_entropy(logits, masks, ignore_index=-100 if ignore is None else ignore).backward()
            optimizer.step()
    return _score(head.eval(), test, test_masks, classes=classes, ignore=ignore, batch=batch)


class _Head(nn.Module):
    def __init__(self, d: int, classes: int, grid: Grid) -> None:
        super().__init__()
        self.norm, self.linear, self.grid = nn.BatchNorm2d(d), nn.Conv2d(d, classes, 1), grid

    def forward(self, tokens: Float[Tensor, "n t d"], size: Grid) -> Float[Tensor, "n classes h w"]:
        maps = self.linear(self.norm(tokens.transpose(1, 2).unflatten(2, self.grid)))
        return F.interpolate(maps, size=size, mode="bilinear", align_corners=False)


@torch.no_grad()
def _score(
    head: nn.Module, tokens: Tensor, masks: Tensor, *, classes: int, ignore: int | None, batch: int
) -> SegmentationScore:
    rows = []
    for part in tokens.split(batch):
        logits = head(part.float(), masks.shape[1:])
        if not bool(torch.isfinite(logits).all()):
            raise ValueError("the probe diverged; expected a lower rate")
        rows.append(logits.argmax(1))
    predicted = torch.cat(rows)
    kept = torch.ones_like(masks, dtype=torch.bool) if ignore is None else masks != ignore
    table = confusion(predicted[kept], masks[kept], classes=classes)
    right = table.diagonal()
    iou = right / (table.sum(0) + table.sum(1) - right)
    return SegmentationScore(mean_iou(table), iou.tolist(), float(right.sum() / table.sum()), predicted)


def _check(
    train: Tensor, train_masks: Tensor, test: Tensor, test_masks: Tensor, grid: Grid, ignore: int | None
) -> None:
    check.grid(grid=grid)
    if ignore is not None:
        check.whole(0, ignore=ignore)
    for what, tokens, masks in (("training", train, train_masks), ("test", test, test_masks)):
        check.tensor(f"{what} tokens", tokens, None, None, None)
        check.tensor(f"{what} masks", masks, None, None, None, floating=False)
        if masks.is_floating_point() or masks.is_complex() or masks.dtype == torch.bool:
            raise TypeError(f"{what} masks must hold class numbers, got {masks.dtype}")
        if len(tokens) != len(masks):
            raise ValueError(f"expected one {what} mask for each image, got {len(tokens)} images and {len(masks)}")
        if tokens.shape[1] != grid[0] * grid[1]:
            raise ValueError(f"{tokens.shape[1]} {what} tokens do not fill a grid of {grid[0]} x {grid[1]}")
        check.all_finite(**{f"{what} tokens": tokens})
        check.no_overflow(
            "segmentation_probe", {f"the square of the {what} tokens": tokens.float().norm() ** 2}, tokens
        )
        if int(masks.min()) < 0:
            raise ValueError(f"masks hold class numbers from 0, got {int(masks.min())}")
        if ignore is not None and bool((masks == ignore).all()):
            raise ValueError(f"every pixel of the {what} masks is of the class that is ignored, {ignore}")
    if train.shape[2] != test.shape[2]:
        raise ValueError(f"training and test tokens must agree in d, got {train.shape[2]} and {test.shape[2]}")
