"""The configuration of a run by names: the settings of the loop, the data, the network, the method."""

from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

from reglet import schedules
from reglet.engine.best import CRITERIA
from reglet.engine.settings import Settings, option

Json = dict[str, Any]
C = TypeVar("C", bound="Named")
COMMANDS = ("pretrain", "adapt", "train")
ADAPT = {"lr": 1e-4}  # other defaults: pretrained weights need smaller steps

JEPA = "jepa"  # the method that predicts tokens: it takes a regularizer as its loss, and a ViT without [CLS]

# The keys of attach.N.KEY=, each with an example.
ATTACH = {
    "where": "blocks.*",
    "loss": "sigreg",
    "weight": "0.01",
    "on": "tokens",
    "rho": "0.2",
    "to": "blocks.9",
    "teacher": "runs/a",
    "stop": "to",
    "projector": "linear",
    "skip_tokens": "1",
    "channel_dim": "1",
    "batch_dim": "0",
    "grid": "square",
    "name": "sync",
}


@dataclass(frozen=True, kw_only=True)
class Named(Settings):
    """The keys of every run by names: how to train, the data, the network, and what is attached to it.

    options: arguments of the `rooms`, given as room.argument=value, such as {"loss.slices": 1024}.
    """

    rooms: ClassVar[tuple[str, ...]] = ("model", "sim", "attach", "latent", "mix")

    data: str = option("", "where the data are")
    model: str = option("", "the network")
    sim: str = option("", "blocks of the network to attach rhoSIM to, by name or glob, such as layer*.*")
    sim_weight: str = option("5e-3", "weight of rhoSIM: a number, or a schedule such as cosine(0, 5e-3)")
    latent: str = option("", "on latents and the classifier: latentdr, batchformer or noise")
    mix: str = option("", "samples of a classifier: mixup, cutmix, manifold or mixstyle; the last two at mix.blocks=")
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        schedules.parse(self.sim_weight)
        self.attached()
        for room in ("sim", "latent", "mix"):
            if self.of(room) and not getattr(self, room):
                raise ValueError(f"{room}.* are arguments of what {room}= names: give {room}= too")

    def attached(self) -> dict[str, Json]:
        """The keys attach.N.KEY= of each attachment, by its number, without the arguments of its loss."""
        found: dict[str, Json] = {}
        for word, value in self.of("attach").items():
            number, _, key = word.partition(".")
            if not number.isdecimal() or not key:
                raise ValueError(f"attachments have numbers, such as attach.0.where=; got attach.{word}=")
            if key not in ATTACH and not key.startswith("loss."):
                close = unknown(f"attach.{word}", {f"attach.{number}.{name}" for name in ATTACH})
                raise ValueError(f"{close} There are {', '.join(ATTACH)} and loss.ARGUMENT")
            found.setdefault(number, {}).update({} if key.startswith("loss.") else {key: value})
        for number, given in found.items():
            for key in ("where", "loss"):
                if not given.get(key):
                    raise ValueError(f"attach.{number} needs {key}=, such as attach.{number}.{key}={ATTACH[key]}")
            schedules.parse(str(given.get("weight", 1.0)))
        return dict(sorted(found.items(), key=lambda item: int(item[0])))

    def flat(self) -> Json:
        """The configuration as config.json holds it."""
        values = asdict(self)
        return values | values.pop("options")

    def of(self, room: str) -> Json:
        """The arguments given for one room."""
        return {k.removeprefix(room + "."): v for k, v in self.options.items() if k.startswith(room + ".")}


@dataclass(frozen=True, kw_only=True)
class Config(Named):
    """`reglet pretrain`, `reglet adapt` and `reglet train` on images."""

    rooms: ClassVar[tuple[str, ...]] = (*Named.rooms, "method", "loss", "views", "equivariant", "preserve")

    left_open: ClassVar[tuple[str, ...]] = ("epochs", "batch")

    command: str = field(default="pretrain", metadata={"choices": COMMANDS})
    data: str = option(
        "digits", "digits, a folder of images (unlabelled, class/ or domain/class/), a .npz, hf/NAME ..."
    )
    table: str = option("", "a .csv, .tsv, .jsonl or .parquet with the files in `data` and their labels")
    channels: int = option(0, "channels of the image files; 0: those of most files, 3 for photographs")
    model: str = option("convnet", "the network, such as vit_tiny, resnet18 or timm/NAME (see reglet list models)")
    method: str = option("visreg", "visreg, barlow, vicreg, dino, jepa, ... (see reglet list methods)")
    loss: str = option("", "a view loss in place of the method's own (reglet list losses); for jepa, its regularizer")
    views: str = option("", "augmentation policy; default: the method's own (see reglet list views)")
    size: int = option(0, "side of the views in pixels; 0: that of the images, at most 224")
    projector: str = option("", "widths of the projector, such as 512-512-128; default: the method's own")
    pretrained: bool = option(False, "start from the weights that timm/NAME or hf/NAME comes with")
    last_blocks: int = option(0, "train only this many last blocks of the backbone, and what follows them; 0: all")
    lora: int = option(0, "rank of low-rank updates (peft) that are trained in place of the weights; 0: none")
    heads_first: float = option(0.0, "steps, or a share of them below 1, in which only new heads learn")
    preserve: str = option("", "stay near the start by: features, class, gram, l2sp; several with commas")
    require: str = option("not worse", "verdict of adapt for exit code 0: not worse, or better", "not worse", "better")
    equivariant: str = option("", "equivariance beside the method: ser, augself, equimod, essl or stl")
    labels: str = option("", "train on a share (0.1) or a number (1000) of the training images, stratified")
    long_tail: float = option(0.0, "make the first class this many times larger than the last; 0: no")
    leave_out: str = option("", "train without this domain, and test on it")
    overlap: str = option("refuse", "test images that are also training images: an error, or dropped", "refuse", "drop")
    epochs: int = option(0, "passes over the data; 0: 100, on a CPU what fits into four minutes")
    batch: int = option(0, "images per optimizer step, over all devices; 0: by the number of images, at most 256")
    micro_batch: int = option(
        0, "images at a time on a device, with the exact gradient of the batch; 0: all, or what fits into memory"
    )
    data_licence: str = option("not stated", "licence of the data, for the card of the encoder")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("last_blocks", "lora", "heads_first"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.keep_best and self.keep_best not in CRITERIA:
            raise ValueError(f"keep_best is one of {', '.join(CRITERIA)}; got {self.keep_best!r}")
        if self.of("preserve") and not self.preserve:
            raise ValueError("preserve.* are arguments of what preserve= names: give preserve= too")
        if self.strategy == "fsdp" and self._holds_by_share():  # before processes are launched
            raise ValueError(
                "a share of the gradient is measured on whole weights, which fsdp splits: give a number, such as "
                "preserve.weight=0.1, or take ddp"
            )
        if self.pretrained and self.init_from:
            raise ValueError("pretrained=true and init_from= are two starts: give one of them")
        if self.command != "train" and self.method == JEPA and self.model.startswith(("vit_", "timm/")):
            object.__setattr__(self, "options", {"model.cls_layer": None, **self.options})

    def _holds_by_share(self) -> bool:
        """Whether any weight of preserve= is a share of the gradient, as it is by default."""
        given = self.of("preserve")
        common = given.get("weight", "share")
        weights = [given.get(f"{kind.strip()}.weight", common) for kind in self.preserve.split(",") if kind]
        return any(isinstance(weight, str) and weight.startswith("share") for weight in weights)

    def require_start(self) -> None:
        """Raise if `reglet adapt` was given no weights to start from."""
        started = self.pretrained or self.of("model").get("pretrained") or self.init_from
        if self.command == "adapt" and not started:
            raise ValueError(
                "reglet adapt starts from weights: give pretrained=true (model=timm/NAME or hf/NAME), or init_from= "
                "a file, a run, hf/NAME or a folder that transformers saved; reglet pretrain starts from nothing"
            )


RENAMED = {"equivariant.share": "equivariant.fraction"}  # in the config.json of older runs


def from_flat(values: Json, kind: type[C] = Config) -> C:  # type: ignore[assignment]
    """The inverse of `flat`.  The error for an unknown key names the closest one."""
    values = {RENAMED.get(key, key): value for key, value in values.items()}
    known = {f.name for f in fields(kind)} - {"options"}
    plain = {key: value for key, value in values.items() if "." not in key}
    options = {key: value for key, value in values.items() if "." in key}
    for key in [*plain, *(o.split(".")[0] for o in options)]:
        allowed = known if key in plain else set(kind.rooms)
        if key not in allowed:
            raise ValueError(unknown(key, allowed))
    return kind(**plain, options=options)


def unknown(key: str, allowed: set[str]) -> str:
    close = get_close_matches(key, sorted(allowed), n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]}=?" if close else ""
    return f"unknown key {key!r}.{hint}"


def no_such(what: str, name: str, allowed: set[str]) -> str:
    close = get_close_matches(name, sorted(allowed), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no {what} {name!r}.{hint} There are {', '.join(sorted(allowed))}"


def parse(key: str, text: str, kind: type[Named] = Config) -> Any:
    """The value of `key=text` on a command line, in the type of the key."""
    if "." in key:
        return literal(text)
    kinds: dict[str, type[Any]] = {f.name: type(f.default) for f in fields(kind) if f.name != "options"}
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


def literal(text: str) -> int | float | bool | str | None:
    words: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
