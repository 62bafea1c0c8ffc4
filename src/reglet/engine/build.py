"""From names to objects: the data, the network, its objective, the views."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from reglet import backbones, losses, methods, schedules, views
from reglet.attach import Where, matching
from reglet.backbones.lora import add_lora
from reglet.backbones.protocol import dim_of
from reglet.blocks import SIM
from reglet.data import Images, Part, load_pair
from reglet.data.hold_out import require_apart
from reglet.data.splits import leave_one_out, long_tail, some_labels
from reglet.engine.arguments import call, call_with
from reglet.engine.attachments import ONE_PLACE, with_attachments
from reglet.engine.build_equivariant import EQUIVARIANT, equivariant_views, make_equivariant
from reglet.engine.build_predictive import build_jepa, jepa, masked_views
from reglet.engine.config import JEPA, Config, Named, no_such, unknown
from reglet.engine.feed import ImageFeed, ViewPolicy
from reglet.engine.run_folder import CHECKPOINT
from reglet.export import preprocessing, start_from
from reglet.latent import BatchFormer, LatentDR, NoisyLatents
from reglet.losses.base import OnViews
from reglet.method import Batch, Method
from reglet.probes.layer_decay import block_names
from reglet.seeded import seeded
from reglet.types import LatentLoss

LOSSES: dict[str, type[OnViews]] = {
    "visreg": losses.VISRegLoss,
    "lejepa": losses.LeJEPALoss,
    "swd": losses.SWDLoss,
    "vicreg": losses.VICRegLoss,
    "barlow": losses.BarlowTwinsLoss,
    "simclr": losses.NTXentLoss,
    "smi": losses.SMILoss,
    "mmcr": losses.MMCRLoss,
    "frossl": losses.FroSSLLoss,
    "emp_ssl": losses.EMPSSLLoss,
    "wmse": losses.WMSELoss,
    "tico": losses.TiCoLoss,
    "directclr": losses.DirectCLRLoss,
    "rectified_lpjepa": losses.RectifiedLpJEPALoss,
}
METHODS: dict[str, Callable[..., Method]] = {
    "moco": methods.MoCoV3,
    "dino": methods.DINO,
    "byol": methods.BYOL,
    "simsiam": methods.SimSiam,
    JEPA: jepa,
}

MIXINGS = ("mixup", "cutmix", "manifold", "mixstyle")
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
    policy: ViewPolicy
    size: int
    in_channels: int
    preprocess: Callable[[Tensor], Tensor]
    batch: int
    seed: int

    @property
    def feed(self) -> ImageFeed:
        return ImageFeed(self.images, self.policy, batch=self.batch, seed=self.seed)

    def resolved(self) -> dict[str, Any]:
        """Facts that were found, not given: sizes and data."""
        data = {"name": self.images.name, "images": len(self.images), "classes": self.images.classes}
        if self.test is not None:
            data["test"] = {
                "name": self.test.name,
                "images": len(self.test),
                "fingerprint": self.test.fingerprint,
            }
        start = {p for m in self.method.modules() if isinstance(m, methods.Preserved) for p in m.start.parameters()}
        own = [p for p in self.method.parameters() if p not in start]
        count, trained = (sum(p.numel() for p in some) for some in (own, [p for p in own if p.requires_grad]))
        sizes = {"size": self.size, "in_channels": self.in_channels, "parameters": count, "trained": trained}
        return {**sizes, "data": data}


def build_parts(config: Config, *, multiple: int = 1) -> Parts:
    """The parts of a run.  Weights depend on the seed only.  multiple: of which a default batch is a multiple."""
    images, test = build_data(config)
    _, in_channels, height, width = images.batch(torch.zeros(1, dtype=torch.int64)).shape
    size = config.size or fitting_size(min(height, width))
    with seeded(config.seed):
        method, policy = _method_and_views(config, images, size=size, in_channels=in_channels)
    found = method, images, test, policy, size, in_channels, preprocessing(size)
    return Parts(*found, batch=config.batch or fitting_batch(len(images), multiple=multiple), seed=config.seed)


def _method_and_views(config: Config, images: Images, *, size: int, in_channels: int) -> tuple[Method, ViewPolicy]:
    backbone = _backbone(config, size=size, in_channels=in_channels)
    start = deepcopy(backbone) if config.preserve else None
    if config.last_blocks:
        methods.freeze_all_but_last(backbone, config.last_blocks)
    if config.lora:
        inside = block_names(backbone)[-config.last_blocks :] if config.last_blocks else None
        add_lora(backbone, config.lora, inside=inside)
    for key in ("latent", "mix"):
        if getattr(config, key) and config.command != "train":
            raise ValueError(f"{key}={getattr(config, key)} needs labels and a classifier: it is for reglet train")
    method = _supervised(config, backbone, images) if config.command == "train" else _method(config, backbone)
    policy, example = _policy(config, backbone, size), torch.zeros(2, in_channels, size, size)
    method = make_equivariant(config, method, policy, example=example)
    if config.sim:
        matching(backbone, config.sim)  # an error that names blocks as the user does
        method = with_sim(config, method, f"backbone.{config.sim}", example=example)
    method = with_attachments(config, method, example=example)
    if config.preserve:
        method = _preserved(config, method, start)
    if config.last_blocks or config.lora or config.heads_first:
        method = methods.Partly(method, heads_first=config.heads_first)
    return method, masked_views(method, equivariant_views(config, policy, backbone))


def _backbone(config: Config, *, size: int, in_channels: int) -> nn.Module:
    """The backbone, with the weights that the run starts from unless it already has a checkpoint."""
    given, sizes = config.of("model"), {"size": size, "in_channels": in_channels}
    begins = not (Path(config.out) / CHECKPOINT).exists()
    given["pretrained"] = (config.pretrained or given.get("pretrained", False)) and begins
    backbone: nn.Module = call_with(backbones.build, "model", given, config.model, **sizes)
    if config.init_from and begins:
        start_from(backbone, config.init_from)
    return backbone


def _preserved(config: Config, method: Method, start: nn.Module | None) -> Method:
    keep = [kind.strip() for kind in config.preserve.split(",")]
    given = {key: value for key, value in config.of("preserve").items() if "." not in key}
    weights: dict[str, Any] = dict.fromkeys(keep, given.pop("weight", "share:0.2"))
    for key, value in config.of("preserve").items():
        kind, _, what = key.partition(".")
        if what:
            if kind not in keep or what != "weight":
                raise ValueError(unknown(f"preserve.{key}", {f"preserve.{each}.weight" for each in keep}))
            weights[kind] = value
    found = {kind: schedules.parse(str(weight)) for kind, weight in weights.items()}
    made: Method = call_with(methods.Preserved, "preserve", given, method, keep, weight=found, start=start)
    return made


def build_data(config: Config) -> tuple[Images, Images | None]:
    """Training and test images, split as the configuration says."""
    how: dict[str, Any] = {
        "size": config.size,
        "channels": config.channels,
        "table": config.table,
        "overlap": config.overlap,
    }
    images, test = load_pair(config.data, **how, hold_out=not config.leave_out)
    if config.leave_out:
        if images.domain is None or images.domains is None:
            raise ValueError(f"leave_out={config.leave_out}: the data have no domains")
        if config.leave_out not in images.domains:
            raise ValueError(f"the domains are {', '.join(images.domains)}; got leave_out={config.leave_out}")
        inside, outside = leave_one_out(images.domain, images.domains.index(config.leave_out))
        whole = images
        images = Part(whole, inside, name=f"without-{config.leave_out}")
        test = require_apart(images, Part(whole, outside, name=config.leave_out), overlap=config.overlap)
    if config.long_tail:
        index = long_tail(_labels(images, "long_tail"), config.long_tail, seed=config.seed)
        images = Part(images, index, name=f"tail-{config.long_tail:g}")
    if config.labels:
        amount = _amount(config.labels)
        images = Part(images, some_labels(_labels(images, "labels"), amount, seed=config.seed), name=config.labels)
    return images, test


def _amount(labels: str) -> int | float:
    try:
        return float(labels) if "." in labels else int(labels)
    except ValueError:
        raise ValueError(f"labels is a share such as 0.1 or a number such as 1000, got {labels!r}") from None


def _widths(projector: str) -> list[int]:
    widths = projector.split("-")
    if not all(width.isdecimal() and int(width) for width in widths):
        raise ValueError(f"projector is widths such as 512-512-128, got {projector!r}")
    return [int(width) for width in widths]


def _labels(images: Images, key: str) -> Tensor:
    if images.labels is None:
        raise ValueError(f"{key}= needs labels, and {images.name} has none")
    return images.labels


def _supervised(config: Config, backbone: nn.Module, images: Images) -> Method:
    known = _labels(images, "reglet train: data").unique()
    classes = len(images.classes or ())
    if len(known) < 2:
        raise ValueError(
            f"reglet train needs two classes, and {images.name} has only one ({', '.join(images.classes or ())}): "
            "put each class into a folder of its own, or give the labels in a table (table=labels.csv)"
        )
    given = {"classes": classes, "latent": latent_loss(config, dim_of(backbone))}
    return mixed(config, call(methods.Supervised, config, "method", backbone, **given), classes=classes)


def latent_loss(config: Named, dim: int) -> LatentLoss | None:
    """The loss on latents that `latent=` names."""
    if not config.latent:
        return None
    if config.latent not in LATENT:
        raise ValueError(no_such("latent loss", config.latent, set(LATENT)))
    loss: LatentLoss = call(LATENT[config.latent], config, "latent", dim)
    return loss


def mixed(config: Named, method: Method, *, classes: int) -> Method:
    """`method` on mixed samples, if `mix=` asks for it."""
    if not config.mix:
        return method
    given = config.of("mix")
    if (mixing := config.mix) not in MIXINGS:
        raise ValueError(no_such("mixing", mixing, set(MIXINGS)))
    if unknown_keys := set(given) - {"blocks", "alpha"}:
        raise ValueError(unknown(f"mix.{unknown_keys.pop()}", {"mix.blocks", "mix.alpha"}))
    blocks = [name for name in str(given.get("blocks", "")).split(",") if name]
    return methods.Mixed(method, cast(Any, mixing), classes=classes, blocks=blocks, alpha=given.get("alpha"))


def with_sim(
    config: Named, method: Method, where: Where, *, example: Tensor | Batch | None, **given: Any
) -> methods.Regularized:
    """`method` with rhoSIM on the blocks `where`."""
    loss = call(SIM, config, "sim", **given)
    weight = schedules.parse(config.sim_weight)
    return methods.Regularized(method, where, loss, weight=weight, example=example)


def _method(config: Config, backbone: nn.Module) -> Method:
    """The method by its name.  The name of a loss means the joint embedding with that loss."""
    if config.method == JEPA:
        own: dict[str, list[int] | None] = {"": None, "none": []}
        widths = own[config.projector] if config.projector in own else _widths(config.projector)
        return build_jepa(config, backbone, widths)
    if config.method in METHODS:
        if config.loss or config.projector:
            raise ValueError(
                f"method={config.method} has a loss and a projector of its own: leave loss= and projector= out"
            )
        return call(METHODS[config.method], config, "method", backbone)
    name = config.loss or config.method
    if config.method not in LOSSES or name not in LOSSES:
        wrong, allowed = ("loss", set(LOSSES)) if config.method in LOSSES else ("method", {*LOSSES, *METHODS})
        raise ValueError(no_such(wrong, getattr(config, wrong), allowed))
    cls = LOSSES[name]
    # W processes train like one: with the loss of the global batch, and the same slices everywhere.
    given: dict[str, Any] = {"gather": True}
    if "shared_slices" in inspect.signature(cls).parameters and "shared_slices" not in config.of("loss"):
        given["shared_slices"] = True
    loss = call(cls, config, "loss", **given)
    head = None
    if config.projector:
        head = backbones.projector(dim_of(backbone), widths=_widths(config.projector))
    return call(methods.JointEmbedding, config, "method", backbone, loss, projector=head)


def _policy(config: Config, backbone: nn.Module, size: int) -> views.Policy:
    name = config.views or _default_views(config, size)
    given = config.of("views")
    patch = getattr(backbone, "patch", 0)
    if patch and "local_size" not in given:  # local views must consist of whole patches
        given = {"local_size": max(patch, round(size * 3 / 7 / patch) * patch)}
        return call(views.policy, config, "views", name, size=size, **given)
    return call(views.policy, config, "views", name, size=size)


def _default_views(config: Config, size: int) -> str:
    """The paper's policy.  Small images get larger crops, so that no crop has only a few pixels."""
    if config.command == "train":
        return "supervised"
    if config.method == JEPA:
        return JEPA
    if config.data == "digits":
        return "digits"
    name = config.loss or config.method
    other = {"simsiam": "byol", "swd": "visreg"} | {"tico": "byol", "mmcr": "byol", "frossl": "vicreg"}
    other |= {"emp_ssl": "vicreg", "wmse": "simclr", "directclr": "simclr", "rectified_lpjepa": "vicreg"}
    name = other.get(name, name)
    return "visreg-small" if name in ("visreg", "lejepa") and size < 96 else name


def fitting_batch(images: int, *, multiple: int = 1) -> int:
    """The largest power of two that fits four times into an epoch, at most 256, rounded down to a multiple.

    >>> [fitting_batch(n) for n in (3, 152, 640, 1297, 10_000)], fitting_batch(640, multiple=3)
    ([2, 32, 128, 256, 256], 126)
    """
    largest = min(256, max(2, images // 4))
    return max(multiple, 2 ** (largest.bit_length() - 1) // multiple * multiple)


def fitting_size(side: int) -> int:
    """The largest size up to `side` that consists of whole patches of our networks."""
    step = 16 if side >= 128 else 8 if side >= 64 else 4
    return max(step, side // step * step)


def makers(config: Config) -> dict[str, Callable[..., Any]]:
    """Room -> the function or class that takes its arguments, for the names in the configuration."""
    name = config.loss or config.method
    found: dict[str, Callable[..., Any]] = {"model": backbones.build, "views": views.policy}
    if config.command == "train":
        found["method"] = methods.Supervised
    elif config.method in METHODS:
        found["method"] = METHODS[config.method]
        if config.method == JEPA and (config.loss or "visreg") in ONE_PLACE:
            found["loss"] = ONE_PLACE[config.loss or "visreg"]
    elif name in LOSSES:
        found |= {"loss": LOSSES[name], "method": methods.JointEmbedding}
    if config.latent in LATENT:
        found["latent"] = LATENT[config.latent]
    if config.equivariant in EQUIVARIANT:
        found["equivariant"] = EQUIVARIANT[config.equivariant]
    if config.preserve:
        found["preserve"] = methods.Preserved
    return found | {"sim": SIM}
