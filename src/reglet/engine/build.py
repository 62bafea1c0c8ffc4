"""From names to objects: the data, the network, its objective, the views."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reglet import backbones, losses, methods, views
from reglet.backbones.protocol import dim_of
from reglet.blocks import SIM
from reglet.data import Images, Part, load_pair
from reglet.data.splits import leave_one_out, long_tail, some_labels
from reglet.engine.config import Config, unknown
from reglet.engine.equivariant import equivariant_views, make_equivariant
from reglet.engine.feed import Policy
from reglet.export import load_weights, preprocessing
from reglet.latent import BatchFormer, LatentDR, NoisyLatents
from reglet.losses.base import OnViews
from reglet.method import Method
from reglet.types import LatentLoss

LOSSES: dict[str, type[OnViews]] = {
    "visreg": losses.VISRegLoss,
    "lejepa": losses.LeJEPALoss,
    "swd": losses.SWDLoss,
    "vicreg": losses.VICRegLoss,
    "barlow": losses.BarlowTwinsLoss,
    "simclr": losses.NTXentLoss,
    "smi": losses.SMILoss,
}
METHODS: dict[str, Callable[..., Method]] = {
    "moco": methods.MoCoV3,
    "dino": methods.DINO,
    "byol": methods.BYOL,
    "simsiam": methods.SimSiam,
}

LATENT: dict[str, Callable[..., LatentLoss]] = {
    "latentdr": LatentDR,
    "batchformer": BatchFormer,
    "noise": NoisyLatents,
}


@dataclass(frozen=True)
class Parts:
    method: Method
    images: Images
    test: Images | None
    policy: Policy
    size: int
    in_channels: int
    preprocess: Callable[[Tensor], Tensor]

    def resolved(self) -> dict[str, Any]:
        """What was not asked for but found: sizes and data."""
        data = {"name": self.images.name, "images": len(self.images), "classes": self.images.classes}
        count = sum(p.numel() for p in self.method.parameters())
        return {"size": self.size, "in_channels": self.in_channels, "parameters": count, "data": data}


def build_parts(config: Config) -> Parts:
    """Weights are a function of the seed alone."""
    images, test = build_data(config)
    _, in_channels, height, width = images.batch(torch.zeros(1, dtype=torch.int64)).shape
    size = config.size or _fitting(min(height, width))
    torch.manual_seed(config.seed)
    backbone = _call(backbones.build, config, "model", config.model, size=size, in_channels=in_channels)
    if config.init_from:
        load_weights(backbone, Path(config.init_from))
    if config.latent and config.command != "train":
        raise ValueError(f"latent={config.latent} needs labels and a classifier: it is for reglet train")
    method = _supervised(config, backbone, images) if config.command == "train" else _method(config, backbone)
    policy, example = _policy(config, backbone, size), torch.zeros(2, in_channels, size, size)
    method = make_equivariant(config, method, policy, example=example)
    if config.sim:
        loss = _call(SIM, config, "sim")
        where = f"backbone.{config.sim}"
        method = methods.Regularized(method, where, loss, weight=config.sim_weight, example=example)
    elif config.of("sim"):
        raise ValueError(
            "sim.* are arguments of rhoSIM, which sim= attaches: say to which blocks, such as sim=layer*.*"
        )
    seen = equivariant_views(config, policy, backbone)
    return Parts(method, images, test, seen, size, in_channels, preprocessing(size))


def build_data(config: Config) -> tuple[Images, Images | None]:
    """Training and test images, cut as the configuration says."""
    # Somewhat larger than the views, as 256 px are for views of 224.
    images, test = load_pair(config.data, size=round(config.size * 8 / 7))
    if config.leave_out:
        if images.domain is None or images.domains is None:
            raise ValueError(f"leave_out={config.leave_out}: the data have no domains")
        if config.leave_out not in images.domains:
            raise ValueError(f"the domains are {', '.join(images.domains)}; got leave_out={config.leave_out}")
        inside, outside = leave_one_out(images.domain, images.domains.index(config.leave_out))
        whole = images
        images, test = (
            Part(whole, inside, name=f"without-{config.leave_out}"),
            Part(whole, outside, name=config.leave_out),
        )
    if config.long_tail:
        index = long_tail(_labels(images, "long_tail"), config.long_tail, seed=config.seed)
        images = Part(images, index, name=f"tail-{config.long_tail:g}")
    if config.labels:
        amount = float(config.labels) if "." in config.labels else int(config.labels)
        images = Part(images, some_labels(_labels(images, "labels"), amount, seed=config.seed), name=config.labels)
    return images, test


def _labels(images: Images, key: str) -> Tensor:
    if images.labels is None:
        raise ValueError(f"{key}= needs labels, and {images.name} has none")
    return images.labels


def _supervised(config: Config, backbone: nn.Module, images: Images) -> Method:
    _labels(images, "reglet train: data")
    given: dict[str, Any] = {"classes": len(images.classes or ())}
    if config.latent:
        if config.latent not in LATENT:
            raise ValueError(_no_such("latent loss", config.latent, set(LATENT)))
        given["latent"] = _call(LATENT[config.latent], config, "latent", dim_of(backbone))
    elif config.of("latent"):
        raise ValueError("latent.* are arguments of the loss that latent= names, such as latent=latentdr")
    return _call(methods.Supervised, config, "method", backbone, **given)


def _method(config: Config, backbone: nn.Module) -> Method:
    """A loss by its name is the joint embedding with that loss."""
    if config.method in METHODS:
        if config.loss or config.projector:
            raise ValueError(
                f"method={config.method} has a loss and a projector of its own: leave loss= and projector= out"
            )
        return _call(METHODS[config.method], config, "method", backbone)
    name = config.loss or config.method
    if config.method not in LOSSES or name not in LOSSES:
        wrong, allowed = ("loss", set(LOSSES)) if config.method in LOSSES else ("method", {*LOSSES, *METHODS})
        raise ValueError(_no_such(wrong, getattr(config, wrong), allowed))
    cls = LOSSES[name]
    # W processes shall train as one does: the loss of the global batch, with the same slices everywhere.
    given: dict[str, Any] = {"gather": True}
    if "shared_slices" in inspect.signature(cls).parameters and "shared_slices" not in config.of("loss"):
        given["shared_slices"] = True
    loss = _call(cls, config, "loss", **given)
    head = None
    if config.projector:
        head = backbones.projector(dim_of(backbone), widths=[int(w) for w in config.projector.split("-")])
    return _call(methods.JointEmbedding, config, "method", backbone, loss, projector=head)


def _policy(config: Config, backbone: nn.Module, size: int) -> views.Policy:
    name = config.views or _default_views(config, size)
    given = config.of("views")
    patch = getattr(backbone, "patch", 0)
    if patch and "local_size" not in given:  # local views are made of whole patches
        given = {"local_size": max(patch, round(size * 3 / 7 / patch) * patch)}
        return _call(views.policy, config, "views", name, size=size, **given)
    return _call(views.policy, config, "views", name, size=size)


def _default_views(config: Config, size: int) -> str:
    """The paper's policy, except that crops of small images stay larger than a few pixels."""
    if config.command == "train":
        return "supervised"
    if config.data == "digits":
        return "digits"
    name = config.loss or config.method
    other = {"simsiam": "byol", "swd": "visreg"}
    name = other.get(name, name)
    return "visreg-small" if name in ("visreg", "lejepa") and size < 96 else name


def _fitting(side: int) -> int:
    """The largest size, at most `side`, that the patches of our networks fit."""
    step = 16 if side >= 128 else 8 if side >= 64 else 4
    return max(step, side // step * step)


def _call(make: Callable[..., Any], config: Config, room: str, *parts: Any, **given: Any) -> Any:
    """`make` with the arguments that the configuration has for `room`; an unknown one names the closest."""
    options = config.of(room)
    allowed = {k for k, p in inspect.signature(make).parameters.items() if p.kind is p.KEYWORD_ONLY}
    for key in options:
        if key not in allowed:
            raise ValueError(unknown(f"{room}.{key}", {f"{room}.{name}" for name in allowed}))
    return make(*parts, **{**given, **options})


def _no_such(what: str, name: str, allowed: set[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(allowed), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no {what} {name!r}.{hint} There are {', '.join(sorted(allowed))}"
