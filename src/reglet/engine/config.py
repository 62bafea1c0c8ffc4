"""A run by names: the settings of the loop, and what is trained on what."""

from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from reglet.engine.settings import Settings, option

Json = dict[str, Any]
ROOMS = (
    "model",
    "method",
    "loss",
    "views",
    "sim",
    "equivariant",
    "latent",
)  # whose own arguments are given as room.argument=value


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """`options`: arguments of one of the ROOMS, as {"loss.slices": 1024}."""

    command: str = field(default="pretrain", metadata={"choices": ("pretrain", "train")})
    data: str = option(
        "digits", "digits, a folder of images (unlabelled, class/ or domain/class/), a .npz, hf/NAME ..."
    )
    model: str = option("convnet", "the network, such as vit_tiny, resnet18 or timm/NAME (see reglet list models)")
    method: str = option("visreg", "visreg, barlow, vicreg, dino, ... (see reglet list methods)")
    loss: str = option("", "another view loss than the method's own (see reglet list losses)")
    views: str = option("", "augmentation policy; default: the method's own (see reglet list views)")
    size: int = option(0, "side of the views in pixels; 0: that of the images, at most 224")
    projector: str = option("", "widths of the projector, such as 512-512-128; default: the method's own")
    sim: str = option("", "blocks of the network to attach rhoSIM to, by name or glob, such as layer*.*")
    sim_weight: float = option(5e-3, "weight of rhoSIM beside the other terms")
    equivariant: str = option("", "equivariance beside the method: ser, augself, equimod, essl or stl")
    latent: str = option("", "on latents and the classifier: latentdr, batchformer or noise")
    labels: str = option("", "of the training images, take a share (0.1) or a number (1000), stratified")
    long_tail: float = option(0.0, "make the classes unequal, the first so many times larger than the last; 0: no")
    leave_out: str = option("", "train without this domain, and test on it")
    data_licence: str = option("not stated", "licence of the data, for the card of the encoder")
    options: dict[str, Any] = field(default_factory=dict)

    def flat(self) -> Json:
        """As config.json has it."""
        values = asdict(self)
        return values | values.pop("options")

    def of(self, room: str) -> Json:
        """The arguments given for one room."""
        return {k.removeprefix(room + "."): v for k, v in self.options.items() if k.startswith(room + ".")}


def from_flat(values: Json) -> Config:
    """The inverse of `flat`; an unknown key is an error that names the closest."""
    known = {f.name for f in fields(Config)} - {"options"}
    plain = {key: value for key, value in values.items() if "." not in key}
    options = {key: value for key, value in values.items() if "." in key}
    for key in [*plain, *(o.split(".")[0] for o in options)]:
        allowed = known if key in plain else set(ROOMS)
        if key not in allowed:
            raise ValueError(unknown(key, allowed))
    return Config(**plain, options=options)


def unknown(key: str, allowed: set[str]) -> str:
    close = get_close_matches(key, sorted(allowed), n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]}=?" if close else ""
    return f"unknown key {key!r}.{hint}"


def parse(key: str, text: str) -> Any:
    """`key=text` of a command line, as the type that the key has."""
    if "." in key:
        return _literal(text)
    kinds: dict[str, type[Any]] = {f.name: type(f.default) for f in fields(Config) if f.name != "options"}
    if key not in kinds:
        raise ValueError(unknown(key, set(kinds) - {"command"}))
    return typed(key, text, kinds[key])


def typed(key: str, text: str, kind: type[Any]) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise ValueError(f"{key} is true or false, got {text!r}")
        return text.lower() in ("true", "1", "yes")
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{key} is {'a whole number' if kind is int else 'a number'}, got {text!r}") from error


def _literal(text: str) -> int | float | bool | str | None:
    words: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
