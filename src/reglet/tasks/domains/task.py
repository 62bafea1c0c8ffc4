"""One network, trained on all domains but those left out, and scored on the first of them.

DomainBed's cut: each domain has a part of 80 % and one of 20 %.  The larger part trains, or tests where the domain is
left out.  The smaller part chooses the checkpoint.  A batch has as many images of every domain.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from reglet import backbones, views
from reglet.backbones.protocol import dim_of
from reglet.data import Images, Part, load
from reglet.engine.build import fitting_size, latent_loss, mixed
from reglet.engine.feed import ImageFeed
from reglet.engine.monitor import AtCheckpoints, Scores, Trained, accuracy
from reglet.export import preprocessing
from reglet.methods.domains import (
    Batches,
    Domains,
    OnUnion,
    Split,
    leave_out,
)
from reglet.tasks.domains.config import DomainsConfig
from reglet.tasks.domains.losses import Size, make_loss
from reglet.tasks.task import Setup


class DomainsTask:
    """train on all domains but one, test on that one, for each in turn

    Every domain is cut 80/20; the larger parts train, or test where the domain is left out; the smaller parts choose:
      selection=training_domain        by the smaller parts of the training domains
      selection=leave_one_domain_out   by training domains left out in further runs, one at a time
      selection=oracle                 by the smaller part of the test domain; it looks at what is reported
    """

    config = DomainsConfig
    main = "test"

    def load(self, config: DomainsConfig) -> Images:
        images = load(config.data, size=config.size)
        check(images, selection=config.selection, leave_out=config.leave_out)
        return images

    def run(self, config: DomainsConfig) -> dict[str, Any]:
        from reglet.tasks.domains.leave_each_out import leave_each_out

        return leave_each_out(config)

    def setup(self, config: DomainsConfig, data: Images) -> Setup:
        assert data.domain is not None
        assert data.domains is not None
        left_out = [data.domains.index(name) for name in config.leave_out.split(",")]
        split = leave_out(data.domain, *left_out, seed=config.seed)
        _, channels, height, width = data.batch(split.test[:1]).shape
        size = config.size or fitting_size(min(height, width, 224))
        backbone = backbones.build(config.model, size=size, in_channels=channels, **config.of("model"))
        order = Batches(data.domain[split.train], per_domain=config.per_domain, seed=config.seed)
        domains, classes = len(order.members), len(data.classes or ())
        latent = latent_loss(config, dim_of(backbone))
        loss = OnUnion(latent) if latent else make_loss(config.loss, Size(dim_of(backbone), domains, config.steps))
        method = Domains(backbone, loss, classes=classes, interleaved=domains)
        name = "plain" if config.views == "none" else config.views
        policy = views.policy(name, size=size, **config.of("views"))
        if policy.n_global != 1 or len(policy.views) != 1:
            raise ValueError(f"task=domains classifies one view of each image; views={name} makes {len(policy.views)}")
        return Setup(
            mixed(config, method, classes=classes),
            ImageFeed(Part(data, split.train, name="train"), policy, order=order),
            [AtCheckpoints(partial(scores, data=data, split=split, size=size), count=config.checkpoints)],
            sim_blocks=list(getattr(backbone, "sim_blocks", ())),
        )


def scores(model: Trained, *, data: Images, split: Split, size: int) -> Scores:
    """test: accuracy on the domain left out.  oracle: on its smaller part.  validation NAME: of a training domain."""
    right = partial(accuracy, model, data, preprocessing(size))
    names = data.domains or []
    return {
        "test": right(index=split.test),
        "oracle": right(index=split.oracle),
        **{f"validation {names[d]}": right(index=index) for d, index in split.validation.items()},
    }


class CheckpointScores(NamedTuple):
    """Accuracies at each checkpoint."""

    validation: list[list[float]]  # of each training domain
    test: list[float]
    oracle: list[float]


def checkpoint_scores(found: Scores, *, checkpoints: int) -> CheckpointScores:
    """What `scores` gave at every checkpoint."""
    at = range(1, checkpoints + 1)
    names = [key.rpartition("@")[0] for key in found if key.startswith("validation ") and key.endswith("@1")]
    validation = [[found[f"{name}@{i}"] for name in names] for i in at]
    return CheckpointScores(validation, [found[f"test@{i}"] for i in at], [found[f"oracle@{i}"] for i in at])


def check(images: Images, *, selection: str, leave_out: str = "") -> list[str]:
    """Notes on classes that some domains lack; an error where leaving a domain out makes no sense."""
    if images.labels is None or images.domain is None or not images.domains or not images.classes:
        lack = "labels" if images.labels is None else "domains"
        raise ValueError(
            f"{images.name} has no {lack}: it needs a folder domain/class/, or a .npz with `labels` and `domain`"
        )
    least = 3 if selection == "leave_one_domain_out" else 2
    count = torch.zeros(len(images.domains), len(images.classes), dtype=torch.int64)
    count.index_put_((images.domain, images.labels), torch.ones_like(images.labels), accumulate=True)
    present = [name for name, row in zip(images.domains, count, strict=True) if row.any()]
    if len(present) < least:
        raise ValueError(
            f"selection={selection} needs at least {least} domains; {images.name} has {', '.join(present)}"
        )
    if missing := [name for name in leave_out.split(",") if name and name not in present]:
        raise ValueError(f"leave_out={missing[0]}: the domains are {', '.join(present)}")
    for c, name in enumerate(images.classes):
        where = [d for d, n in zip(images.domains, count[:, c].tolist(), strict=True) if n]
        if len(where) == 1:
            raise ValueError(
                f"class {name!r} has images in domain {where[0]!r} alone: "
                "with that domain left out there is nothing to learn it from"
            )
    return _lacking(images.domains, images.classes, count.tolist())


def _lacking(domains: Sequence[str], classes: Sequence[str], count: Sequence[Sequence[int]]) -> list[str]:
    return [
        f"domain {d!r} has no images of class {c!r}, which is not trained or tested there"
        for d, row in zip(domains, count, strict=True)
        for c, n in zip(classes, row, strict=True)
        if not n and any(row)
    ]
