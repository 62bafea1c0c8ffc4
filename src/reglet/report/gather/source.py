"""What a run can be looked at with: its encoder, its data, and where it was made by names, its method and views."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import backbones
from reglet.data import Images
from reglet.engine import checkpoint
from reglet.engine.build import build_parts
from reglet.engine.config import Config
from reglet.engine.feed import ViewPolicy
from reglet.engine.monitor import Classifier
from reglet.engine.run_folder import CHECKPOINT, CONFIG, RunError, read_run
from reglet.evaluate.compute import Compute
from reglet.evaluate.extract import extract
from reglet.evaluate.labelled import split
from reglet.evaluate.run import open_data, open_encoder, reading, require_same
from reglet.evaluate.source import Encoder
from reglet.evaluate.untrained import RANDOM
from reglet.export import CARD, load_head, load_weights, preprocessing
from reglet.method import Method, innermost
from reglet.seeded import seeded
from reglet.train import trained_backbone

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Source:
    """Of a run that was made in Python, a person gives this; of a run by names, `open_source` makes it.

    encoder: images as `preprocess` leaves them -> (n, d).  train, test: for probes; the page shows the test images.
    method: with the trained weights, for LatentDR's places.  policy: how training draws views, for their alignment.
    untrained: the encoder before training, to stand beside it.
    head: of a classifier, with its classes.
    about: what it is, where no run says it.  network: False for a file of features: `encoder` gives them back.
    """

    encoder: nn.Module
    preprocess: Callable[[Tensor], Tensor]
    train: Images
    test: Images
    method: Method | None = None
    policy: ViewPolicy | None = None
    untrained: nn.Module | None = None
    head: tuple[nn.Linear, list[str]] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    network: bool = True

    @torch.no_grad()
    def features(self, images: Images) -> Float[Tensor, "n d"]:
        """Of every image, on the CPU."""
        return extract(self.encoder, images, self.preprocess, compute=Compute((device_of(self.encoder),))).cpu()


def device_of(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


@torch.no_grad()
def encode(encoder: nn.Module, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
    """Of prepared images, wherever the encoder is; the features on the CPU."""
    device = device_of(encoder)
    return torch.cat([encoder(part.to(device)).float().cpu() for part in x.split(256)])


def open_source(run: Path, *, data: str = "") -> Source:
    """From the run, or the exported encoder, in the directory `run`.  data: instead of the run's own."""
    if (run / CONFIG).exists() and (run / CHECKPOINT).exists():
        return _of_run(run, data)
    if (run / CONFIG).exists() and not (run / CARD).exists():
        raise RunError(f"the run in {run} has left no checkpoint yet, so there are no weights to look at")
    encoder, preprocess, card = open_encoder(run)
    if (run / CONFIG).exists():
        read_run(run)  # says so where it was made in Python
    train, test = open_data(run, data, "", "", **reading(card))
    return Source(encoder.to(DEVICE), preprocess, train, test, head=load_head(run, card))


def source_of(encoder: Encoder, data: str) -> Source:
    """Of an encoder that is not of reglet, or of a file of features."""
    train, test = encoder.pair(data)
    before = encoder.untrained().get(RANDOM)
    return Source(
        encoder.net.to(DEVICE),
        encoder.prepare,
        train,
        test,
        untrained=None if before is None else before.to(DEVICE),
        about={"encoder": encoder.about},
        network=encoder.rows is None,
    )


def _of_run(run: Path, data: str) -> Source:
    config, stored = read_run(run)
    parts = build_parts(replace(config, init_from="", pretrained=False, resume=False))
    tensors, _ = checkpoint.read(run / CHECKPOINT)
    checkpoint.load_module(parts.method, checkpoint.part(tensors, "ema.module.") or checkpoint.part(tensors, "method."))
    size, in_channels = stored["resolved"]["size"], parts.in_channels
    if (run / CARD).exists():
        encoder = _build(config, size=size, in_channels=in_channels)
        load_weights(encoder, run)
    else:
        encoder = trained_backbone(config, run / CHECKPOINT, size=size, in_channels=in_channels).eval()
    fresh = not (config.init_from or config.pretrained or config.of("model").get("pretrained"))
    if data:
        train, test = open_data(run, data, "", "", size=size, channels=in_channels)
    else:
        train, test = split(*require_same(run, stored, parts.images, parts.test))
    return Source(
        encoder.to(DEVICE),
        preprocessing(size),
        train,
        test,
        parts.method.eval(),
        parts.policy,
        _build(config, size=size, in_channels=in_channels).to(DEVICE) if fresh else None,
        _head(parts.method, parts.images.classes),
    )


def _head(method: Method, classes: list[str] | None) -> tuple[nn.Linear, list[str]] | None:
    inner = innermost(method)
    head = getattr(inner, "head", None)
    return (head, classes) if isinstance(inner, Classifier) and isinstance(head, nn.Linear) and classes else None


def _build(config: Config, *, size: int, in_channels: int) -> nn.Module:
    """With the weights that a run of this seed starts from."""
    options = {key: value for key, value in config.of("model").items() if key != "pretrained"}
    with seeded(config.seed):
        return backbones.build(config.model, size=size, in_channels=in_channels, **options).eval()
