"""The task: which arm is trained, and what is said about it."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from reglet.engine.settings import option
from reglet.export import load_encoder
from reglet.networks.translation import Generator
from reglet.tasks.config import AUTO, TaskConfig
from reglet.tasks.task import Outcome
from reglet.tasks.translation.data import Domains, read
from reglet.tasks.translation.score import Encoder, random_conv, scores
from reglet.tasks.translation.train import Plan, train

NCE = ("without_sim", "always", "never")
RANDOM = "randomconv"


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(TaskConfig):
    data: str = option(
        "", "a folder with a/ and b/, or a .npz with images and domain; nothing: digits, dark to coloured"
    )
    model: str = option("cut", "cut", "cut")
    nce: str = option(NCE[0], f"PatchNCE: {NCE[0]} (SIM takes its place), {NCE[1]}, {NCE[2]}", *NCE)
    identity: bool = option(True, "PatchNCE also between images of b and what is made of them, as CUT has it")
    places: int = option(64, "of each map, that PatchNCE compares; 256 in CUT")
    width: int = option(16, "channels of the first layers of generator and discriminator; 64 in CUT")
    depth: int = option(3, "residual blocks; 9 in CUT")
    size: int = option(0, "side in pixels; 0: that of the images, at most 224")
    encoder: str = option("", "exported encoder or run whose features are compared; nothing: a fixed random conv net")
    steps: int = option(200, "optimizer steps of each network")
    batch: int = option(8, "images of each domain per step; 1 in CUT")
    lr: float = option(1e-3, "learning rate, constant and then linear to zero; 2e-4 in CUT")
    weight_decay: float = option(0.0, "none: CUT has Adam")
    out: str = option("runs/translation", "directory of the runs and task.json")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model != "cut":
            raise ValueError(f"model is cut; got {self.model!r}")
        if self.nce not in NCE:
            raise ValueError(f"nce is one of {', '.join(NCE)}; got {self.nce!r}")
        for key, least in (("places", 2), ("width", 1), ("depth", 1), ("size", 0)):
            if getattr(self, key) < least:
                raise ValueError(f"{key} must be at least {least}, got {getattr(self, key)}")
        if self.weight_decay:
            raise ValueError(f"CUT has no weight decay, got weight_decay={self.weight_decay}")


class Translation:
    """images of domain a in the manner of domain b, without pairs"""

    config = TranslationConfig
    main = "bridged"

    def load(self, config: TranslationConfig) -> Domains:
        return read(config.data, size=config.size)

    def train(self, config: TranslationConfig, data: Domains, *, seed: int, sim: bool) -> Outcome:
        generator, blocks = train(plan(config, sim=sim), data, seed=seed)
        encoder, name = encoder_of(config, channels=data.a.shape[1])
        return Outcome(scores(generator, data, encoder, name=name), generator, blocks)


def plan(config: TranslationConfig, *, sim: bool) -> Plan:
    where = list(Generator.sim_blocks) if config.sim == AUTO else config.sim.split(",")
    return Plan(
        steps=config.steps,
        batch=config.batch,
        lr=config.lr,
        width=config.width,
        depth=config.depth,
        nce=config.nce == "always" or (config.nce == "without_sim" and not sim),
        identity=config.identity,
        places=config.places,
        sim=where if sim else None,
        weight=config.weight,
        rho=config.rho,
    )


def encoder_of(config: TranslationConfig, *, channels: int) -> tuple[Encoder, str]:
    """Images in [-1, 1] -> features, and the name that the distance bears."""
    if not config.encoder:
        return random_conv(channels), RANDOM
    net, prepare, card = load_encoder(Path(config.encoder))

    def see(x: Tensor) -> Tensor:
        found: Tensor = net(prepare(((x + 1) * 127.5).round().byte()))
        return found

    return see, str(card["architecture"]["name"]).replace("/", "_")


TASK = Translation()
