"""The task: which arm is trained, and what is said about it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from reglet.engine.feed import TensorFeed
from reglet.engine.monitor import AtEnd, Trained
from reglet.engine.optim import SCHEDULES
from reglet.engine.settings import option
from reglet.export import load_encoder
from reglet.method import Batch, Method
from reglet.networks.translation import Generator, PatchDiscriminator, generator_small, patch_discriminator_small
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.config import TaskConfig
from reglet.tasks.task import Setup
from reglet.tasks.translation.cut import CUT, Places
from reglet.tasks.translation.data import TwoDomains, read
from reglet.tasks.translation.score import FeaturesOf, random_conv, scores

MODELS: dict[str, tuple[Callable[..., Generator], Callable[..., PatchDiscriminator]]] = {
    "cut-small": (generator_small, patch_discriminator_small),
    "cut": (Generator, PatchDiscriminator),
}
NCE = ("without_sim", "always", "never")
RANDOM = "randomconv"


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(TaskConfig):
    data: str = option(
        "", "a folder with a/ and b/, or a .npz with images and domain; nothing: digits, dark to coloured"
    )
    model: str = option("cut-small", "CUT, of the published size or small", *MODELS)
    nce: str = option(NCE[0], f"PatchNCE: {NCE[0]} (SIM takes its place), {NCE[1]}, {NCE[2]}", *NCE)
    identity: bool = option(True, "PatchNCE also between images of b and what is made of them, as CUT has it")
    places: int = option(64, "of each map, that PatchNCE compares; 256 in CUT")
    width: int = option(0, "channels of the first layers of generator and discriminator; 0: 64 in cut, 16 in cut-small")
    depth: int = option(0, "residual blocks; 0: 9 in cut, 3 in cut-small")
    size: int = option(0, "side in pixels; 0: that of the images, at most 224")
    encoder: str = option("", "exported encoder or run whose features are compared; nothing: a fixed random conv net")
    steps: int = option(200, "optimizer steps; 0: epochs decide")
    batch: int = option(8, "images of each domain per step; 1 in CUT")
    lr: float = option(1e-3, "largest learning rate; 2e-4 in CUT")
    schedule: str = option("half", "of the rate: half (constant, then linear to zero), cosine or constant", *SCHEDULES)
    warmup: float = option(0.0, "share of the steps during which the learning rate rises")
    optimizer: str = option("adam", "CUT has Adam", "adam")
    momentum: float = option(0.5, "the first beta of Adam")
    weight_decay: float = option(0.0, "none: CUT has Adam")
    clip: float = option(0.0, "largest norm of the gradient, without the heads of block losses; 0: none")
    out: str = option("runs/translation", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model not in MODELS:
            raise ValueError(f"model is one of {', '.join(MODELS)}; got {self.model!r}")
        if self.nce not in NCE:
            raise ValueError(f"nce is one of {', '.join(NCE)}; got {self.nce!r}")
        for key, least in (("places", 2), ("width", 0), ("depth", 0), ("size", 0)):
            if getattr(self, key) < least:
                raise ValueError(f"{key} must be at least {least}, got {getattr(self, key)}")
        if self.weight_decay:
            raise ValueError(f"CUT has no weight decay, got weight_decay={self.weight_decay}")


class Translation:
    """images of domain a in the manner of domain b, without pairs"""

    config = TranslationConfig
    main = "bridged"

    def load(self, config: TranslationConfig) -> TwoDomains:
        return read(config.data, size=config.size)

    def setup(self, config: TranslationConfig, data: TwoDomains) -> Setup:
        channels = data.a.shape[1]
        generator, critic = networks(config, channels=channels)
        nce = config.nce == "always" or (config.nce == "without_sim" and not config.sim)
        method = CUT(generator, critic, nce=nce, identity=config.identity, places=config.places)

        def batch(index: Tensor, random: torch.Generator) -> Batch:
            others = torch.randint(len(data.b), (len(index),), generator=random)
            places = Places(int(torch.randint(2**31, (), generator=random)))
            return Batch([data.a[index], data.b[others]], n_global=2, draws=[places])

        mark = digest(data.a, data.b, data.a_test, data.b_test)
        return Setup(
            method,
            TensorFeed(batch, shuffled(len(data.a), config), name=config.data or "digits", fingerprint=mark),
            [AtEnd(partial(self._scores, config=config, data=data))],
            inside="generator",
            sim_blocks=list(Generator.sim_blocks),
        )

    def _scores(self, model: Trained, *, config: TranslationConfig, data: TwoDomains) -> dict[str, float]:
        encoder, name = encoder_of(config, channels=data.a.shape[1])
        return scores(lambda x: model.call(_translate, x).cpu(), data, encoder, name=name)


def networks(config: TranslationConfig, *, channels: int) -> tuple[Generator, PatchDiscriminator]:
    """The model's own sizes, but for those that were said."""
    generator, critic = MODELS[config.model]
    width = {"width": config.width} if config.width else {}
    depth = {"depth": config.depth} if config.depth else {}
    return generator(channels=channels, **width, **depth), critic(channels=channels, **width)


def _translate(method: Method, x: Tensor) -> Tensor:
    return method.encode(x)


def encoder_of(config: TranslationConfig, *, channels: int) -> tuple[FeaturesOf, str]:
    """Images in [-1, 1] -> features, and the name that the distance bears."""
    if not config.encoder:
        return random_conv(channels), RANDOM
    net, prepare, card = load_encoder(Path(config.encoder))

    def see(x: Tensor) -> Tensor:
        found: Tensor = net(prepare(((x + 1) * 127.5).round().byte()))
        return found

    return see, str(card["architecture"]["name"]).replace("/", "_")


TASK = Translation()
