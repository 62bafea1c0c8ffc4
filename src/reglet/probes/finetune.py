"""Fine-tuning: the accuracy of a pretrained network after all of it is trained on labels.

AdamW at 3e-4 for 256 images, with a factor of 0.75 from block to block; weight decay 0.05; warm-up for a tenth of the
steps, then a cosine to zero; label smoothing 0.1, mixup 0.8 and CutMix 1.0 in turn, gradients clipped at 1.  That is
VISReg's protocol without RandAugment and random erasing.  Drop-path is set where the backbone is built.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from reglet import check, views
from reglet.attach import Where
from reglet.latent import CutMix, Mixup
from reglet.probes.check import check_classes
from reglet.probes.layer_decay import layer_groups
from reglet.probes.metrics import accuracy
from reglet.seeded import seeded

Mix = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]  # images and soft labels, mixed alike


class FineTuneScore(NamedTuple):
    """Accuracy and logits on the test images, and the network that was trained.

    >>> from reglet.backbones import resnet8
    >>> x, y = torch.zeros(8, 3, 16, 16, dtype=torch.uint8), torch.arange(8) % 2
    >>> fine_tune(resnet8(), x, y, x, y, size=16, epochs=1, batch=4).logits.shape
    torch.Size([8, 2])
    """

    accuracy: float  # on the test images
    logits: Float[Tensor, "n classes"]  # of the test images
    model: nn.Module  # backbone and classifier, as trained


def fine_tune(
    backbone: nn.Module,
    train: UInt8[Tensor, "m c h w"],
    train_labels: Int[Tensor, " m"],
    test: UInt8[Tensor, "n c h w"],
    test_labels: Int[Tensor, " n"],
    *,
    size: int,
    policy: str = "probe",
    epochs: int = 100,
    batch: int = 256,
    lr: float = 3e-4,
    layer_decay: float = 0.75,
    weight_decay: float = 0.05,
    warmup: float = 0.1,
    label_smoothing: float = 0.1,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    clip: float = 1.0,
    blocks: Where | None = None,
    seed: int = 0,
) -> FineTuneScore:
    """Train a copy of `backbone` (images -> (n, dim)) with a linear classifier.  The given backbone does not change.

    size: side of the training views in pixels.  policy: the view policy of training images by name; "probe" is crop and
        flip.  lr: for 256 images a step, and in proportion for others.  mixup, cutmix: their alpha; 0 leaves one out.
    blocks: see `layer_groups`.

    >>> from reglet.backbones import resnet8
    >>> x, y = torch.zeros(8, 3, 16, 16, dtype=torch.uint8), torch.arange(8) % 2
    >>> fine_tune(resnet8(), x, y, x, y, size=16, epochs=1, batch=4).accuracy
    0.5
    """
    _check(train, train_labels, test, test_labels)
    check.whole(1, size=size, epochs=epochs, batch=batch)
    check.whole(0, seed=seed)
    check.positive(lr=lr, layer_decay=layer_decay, clip=clip)
    check.not_negative(weight_decay=weight_decay, mixup=mixup, cutmix=cutmix)
    check.below_one(warmup=warmup, label_smoothing=label_smoothing)
    classes, batch = int(train_labels.max()) + 1, min(batch, len(train))
    steps, peak = epochs * (len(train) // batch), lr * batch / 256
    generator = torch.Generator().manual_seed(seed)
    mixes = ([_mixup(mixup)] if mixup else []) + ([_cutmix(cutmix)] if cutmix else [])
    view = views.policy(policy, size=size, n_global=1, n_local=0)
    batches = _batches(train, train_labels, view, mixes, batch, generator)
    with seeded(seed, next(backbone.parameters()).device), torch.enable_grad():
        model = _with_head(backbone, size=size, channels=train.shape[1], classes=classes)
        groups = layer_groups(model[0], lr=peak, weight_decay=weight_decay, layer_decay=layer_decay, blocks=blocks)
        groups.append({"params": list(model[1].parameters()), "weight_decay": weight_decay})
        optimizer = torch.optim.AdamW(groups, lr=peak)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _factor(steps, round(warmup * steps)))
        model.train()
        device = next(model.parameters()).device
        for x, y in itertools.islice(batches, steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device), label_smoothing=label_smoothing)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            schedule.step()
    logits = _logits(model.eval(), test, size=size, batch=batch)
    if not bool(torch.isfinite(logits).all()):
        raise ValueError(f"fine-tuning diverged at a rate of {lr:g}; expected a lower one")
    return FineTuneScore(accuracy(logits, test_labels.to(logits.device)), logits, model)


def _mixup(alpha: float) -> Mix:
    mixup = Mixup(alpha)
    return lambda x, y, generator: mixup.mix(x, y, mixup.draw(len(x), generator), num_classes=y.shape[1])


def _cutmix(alpha: float) -> Mix:
    cutmix = CutMix(alpha)
    return lambda x, y, generator: cutmix.mix(x, y, cutmix.draw(len(x), generator), num_classes=y.shape[1])


def _batches(
    images: Tensor,
    labels: Tensor,
    policy: views.Policy,
    mixes: Sequence[Mix],
    batch: int,
    generator: torch.Generator,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Views and soft labels, epoch after epoch, mixed by `mixes` in turn.  Incomplete last batches are left out."""
    classes, turn = int(labels.max()) + 1, itertools.count()
    while True:
        order = torch.randperm(len(images), generator=generator, device="cpu")
        for index in order.split(batch)[: len(images) // batch]:
            x = policy.apply(images[index.to(images.device)], policy.draw(batch, generator))[0]
            y = F.one_hot(labels[index.to(labels.device)].long(), classes).float()
            if mixes:
                x, y = mixes[next(turn) % len(mixes)](x, y, generator)
            yield x, y


def _with_head(backbone: nn.Module, *, size: int, channels: int, classes: int) -> nn.Sequential:
    """A copy of the backbone and a classifier that starts at zero, so that the first step moves only the classifier."""
    body = copy.deepcopy(backbone).eval()
    like = next(body.parameters())
    with torch.no_grad():
        y = body(torch.zeros(1, channels, size, size, dtype=like.dtype, device=like.device))
    if not isinstance(y, Tensor) or y.ndim != 2:
        got = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise TypeError(f"expected from {type(backbone).__name__} features (n, d), got {got}")
    head = nn.Linear(y.shape[1], classes, dtype=like.dtype, device=like.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(body.requires_grad_(), head)


def _factor(steps: int, warmup: int) -> Callable[[int], float]:
    """The factor of the learning rate: linear up, then half a cosine down."""
    return lambda s: (s + 1) / warmup if s < warmup else (1 + math.cos(math.pi * (s - warmup) / (steps - warmup))) / 2


@torch.no_grad()
def _logits(model: nn.Module, images: Tensor, *, size: int, batch: int) -> Float[Tensor, "n classes"]:
    plain, device = views.policy("plain", size=size), next(model.parameters()).device
    rows = [
        model(plain.apply(part, plain.draw(len(part), torch.Generator()))[0].to(device)).cpu()
        for part in images.split(batch)
    ]
    return torch.cat(rows)


def _check(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> None:
    for what, images, labels in (("training", train, train_labels), ("test", test, test_labels)):
        check.images(images, floating=False)
        check.class_numbers(**{f"{what} labels": labels})
        if len(images) != len(labels):
            raise ValueError(f"expected one label for each {what} image, got {len(images)} and {len(labels)}")
    if train.shape[1] != test.shape[1]:
        raise ValueError(f"training images have {train.shape[1]} channels, test images {test.shape[1]}")
    check_classes(train_labels)
