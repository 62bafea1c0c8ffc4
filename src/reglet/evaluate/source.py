"""Opens an encoder of any source, with its pre-processing.  Every command that judges encoders starts here.

| given | pre-processing by |
|---|---|
| the directory of a run, or of an exported encoder | its card |
| `timm/NAME`, or a folder of timm | timm's data configuration |
| `hf/NAME`, or a folder that transformers saved | the configuration of the image processor |
| `package.module:callable` | what it gives beside the network, or the network's own configuration |
| a file of features, .npz or .parquet | none: there is no network |
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from reglet.backbones.adapter import Adapter
from reglet.backbones.load_transformers import load_transformers, processor_config
from reglet.backbones.protocol import Backbone
from reglet.backbones.timm import Timm, data_config
from reglet.backbones.transformers import Transformers, own_size
from reglet.data import Images, load
from reglet.engine.run_folder import CONFIG, RunError
from reglet.evaluate.features_file import SUFFIXES, FeatureRows, matched, pair_of, read_features
from reglet.evaluate.framed import Framed
from reglet.evaluate.labelled import split
from reglet.evaluate.preparation import IMAGENET, Preparation, of_timm, of_transformers, square, usual
from reglet.evaluate.python_object import EXPECTED, looks_like, python_object
from reglet.evaluate.run import before_training, depends_on, open_data, open_encoder
from reglet.evaluate.untrained import RANDOM
from reglet.export import CARD, load_head
from reglet.seeded import seeded

Json = dict[str, Any]
GIVEN = (
    "the directory of a run or of an exported encoder",
    "timm/NAME",
    "hf/NAME or a folder that transformers or timm saved",
    "package.module:callable",
    "a file of features (.npz or .parquet)",
)


@dataclass(frozen=True)
class Encoder:
    """An encoder that can be judged.

    name: as it was given.  prepare: pixels of `view(images)` -> what `net` takes.
    words: how images are prepared, for a person.  size, channels: at which images are read.
    folder: of a run or an exported encoder, where results lie beside it.
    about: a description, for files of results.  random: whether random weights were asked for.
    rows: those of a file of features.  It has no network; `net` returns the rows unchanged.
    untrained: makes the networks before training, by name.  depends: what these depend on.

    >>> Encoder("mine", nn.Flatten(), prepare=lambda x: x / 255, words="in [0, 1]", size=8, channels=3, about={}).random
    False
    """

    name: str
    net: nn.Module
    prepare: Callable[[Tensor], Tensor]
    words: str
    size: int
    channels: int
    about: Json
    folder: Path | None = None
    framing: Preparation | None = None
    head: tuple[nn.Linear, list[str]] | None = None
    random: bool = False
    rows: FeatureRows | None = None
    untrained: Callable[[], dict[str, nn.Module]] = dict
    depends: Json = field(default_factory=dict)

    def introduction(self) -> str:
        """One line, which every command prints: the encoder's name, and how its images are prepared."""
        random = "random weights, as pretrained=false asks; " if self.random else ""
        return f"{self.name}: {random}images: {self.words}"

    def view(self, images: Images) -> Images:
        """`images` as this encoder wants them framed."""
        return images if self.framing is None else Framed(images, self.framing)

    def open(self, data: str, *, split: str = "") -> Images:
        """All images of `data`, each to be seen once."""
        if self.rows is not None:
            return self.rows if not split else self.rows.of_split(split)
        return self.view(load(data, split=split, once=True, size=self.reading_size, channels=self.channels))

    def pair(self, data: str = "", train: str = "", test: str = "") -> tuple[Images, Images]:
        """Images to train probes on, and others to test them on.  data: nothing: the run's own, or the file's."""
        if self.rows is not None:
            return self._rows(data, train, test)
        where = self.folder
        if where is None:
            if not data:
                raise ValueError(f"{self.name} has no data of its own: give data=")
            where = Path()
        images, held = open_data(where, data, train, test, size=self.reading_size, channels=self.channels)
        return self.view(images), self.view(held)

    @property
    def reading_size(self) -> int:
        return self.size if self.framing is None else self.framing.resize

    def require_network(self, command: str) -> None:
        if self.rows is not None:
            raise ValueError(
                f"{self.name} is a file of features, and reglet {command} shows new images to a network: give the "
                "encoder that made it. Features are enough for reglet eval, doctor and report"
            )

    def _rows(self, data: str, train: str, test: str) -> tuple[Images, Images]:
        assert self.rows is not None
        if not data:
            return split(*pair_of(self.rows, train=train, test=test))
        images, held = open_data(Path(), data, train, test, size=0, channels=0, keep=False)
        return (
            matched(self.rows, images, data=data, part="train"),
            matched(self.rows, held, data=data, part="test"),
        )


def open_source(spec: str | Path, *, pretrained: bool = True, size: int = 0) -> Encoder:
    """The encoder that `spec` names; see the table above.

    pretrained: False takes timm/NAME and hf/NAME with random weights.
    size: of the images, if it should differ from the model's own; not for runs of reglet.

    >>> found = open_source("reglet.backbones:ConvNet", size=32)
    >>> found.net.dim, found.words[:28]
    (128, 'shorter side to 32 px (bicub')
    """
    given, path = str(spec), Path(spec)
    if not pretrained and not given.startswith(("timm/", "hf/")) and not _saved_by_others(path):
        raise ValueError(f"pretrained=false is for timm/NAME and hf/NAME, and {given} has weights of its own")
    if given.startswith("timm/"):
        return _timm(given, given.removeprefix("timm/"), pretrained, size)
    if given.startswith("hf/"):
        return _transformers(given, given.removeprefix("hf/"), pretrained, size)
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise ValueError(f"there is no file of features {path}")
        return _features(given, read_features(path))
    if (kind := _saved_by_others(path)) is not None:
        return _transformers(given, given, pretrained, size) if kind == "transformers" else _timm(
            given, f"local-dir:{path}", pretrained, size
        )  # fmt: skip
    if not path.exists() and looks_like(given):
        return _python(given, size)
    if not path.is_dir():
        raise RunError(f"there is no directory {path}. An encoder is {'; '.join(GIVEN[:-1])}; or {GIVEN[-1]}")
    if size:
        raise ValueError(f"size= is for encoders of others: {given} says itself which images it takes")
    return _of_reglet(given, path)


def open_sources(given: Sequence[str], *, pretrained: bool = True, size: int = 0) -> list[Encoder]:
    """Several, by the same keys."""
    keys = keys_for(given, pretrained=pretrained, size=size)
    return [open_source(spec, **each) for spec, each in zip(given, keys, strict=True)]


def keys_for(given: Sequence[str], *, pretrained: bool = True, size: int = 0) -> list[Json]:
    """`pretrained` and `size` for each of several encoders: only for those that take them, where one does."""
    named = [spec.startswith(("timm/", "hf/")) or _saved_by_others(Path(spec)) is not None for spec in given]
    sized = [of or (looks_like(spec) and not Path(spec).exists()) for spec, of in zip(given, named, strict=True)]
    return [
        {
            "pretrained": pretrained or (any(named) and not named[i]),
            "size": 0 if any(sized) and not sized[i] else size,
        }
        for i in range(len(given))
    ]


def _of_reglet(name: str, folder: Path) -> Encoder:
    net, prepare, card = open_encoder(folder)
    about = card["architecture"]
    mean, std = (" ".join(f"{value:.4g}" for value in values) for values in IMAGENET)
    words = f"middle square, {about['size']} px (bicubic), mean {mean}, std {std}; as in training, by its card"
    return Encoder(
        name,
        net,
        prepare,
        words,
        about["size"],
        about["in_channels"],
        about,
        folder=folder,
        head=load_head(folder, card),
        untrained=lambda: before_training(folder, card),
        depends=depends_on(folder, card),
    )


def _timm(name: str, kind: str, pretrained: bool, size: int) -> Encoder:
    config = data_config(kind)
    preparation = of_timm(config)
    preparation = preparation.at(size) if size else preparation
    channels = int(config["input_size"][0])
    how: Json = {"size": preparation.size, "in_channels": channels}
    with seeded(0):  # random weights are the same each time
        net = Timm(kind, **how, pretrained=pretrained)
    return _foreign(name, net, preparation, pretrained, fresh=lambda: Timm(kind, **how, pretrained=False))


def _transformers(name: str, kind: str, pretrained: bool, size: int) -> Encoder:
    with seeded(0):
        net = load_transformers(kind, pretrained=pretrained)
    preparation = _of_processor(kind, net)
    if size and size != preparation.size:
        preparation = preparation.at(size)
        net = Transformers(net.model, size=size)
    return _foreign(
        name, net, preparation, pretrained,
        fresh=lambda: load_transformers(kind, size=preparation.size, pretrained=False),
    )  # fmt: skip


def _of_processor(kind: str, net: Transformers) -> Preparation:
    own = own_size(net.config)
    side = own if isinstance(own, int) else square(*own)
    config = processor_config(kind)
    return usual(side) if config is None else of_transformers(config, size=side)


def _foreign(
    name: str, net: nn.Module, preparation: Preparation, pretrained: bool, *, fresh: Callable[[], nn.Module]
) -> Encoder:
    def before() -> dict[str, nn.Module]:
        with seeded(0):
            return {RANDOM: fresh().eval()}

    channels = len(preparation.mean)
    about = {
        "name": name,
        "size": preparation.size,
        "in_channels": channels,
        "features": getattr(net, "dim", None),
        "weights": "pretrained" if pretrained else "random",
        "preprocess": preparation.words(),
    }
    return Encoder(
        name,
        net.eval(),
        preparation,
        preparation.words(),
        preparation.size,
        channels,
        about,
        framing=preparation,
        random=not pretrained,
        untrained=before if pretrained else dict,
        depends={"architecture": name, "size": preparation.size, "seed of weights": 0},
    )


def _python(name: str, size: int) -> Encoder:
    with seeded(0):  # weights that it draws are the same each time
        found = python_object(name)
    own: Callable[[Tensor], Tensor] | None = None
    if isinstance(found, tuple) and len(found) == 2 and callable(found[1]):
        found, own = found
    if not isinstance(found, nn.Module):
        raise ValueError(f"{name} is {EXPECTED}; got {type(found).__name__}")
    net, preparation = _adapted(found, size, prepares=own is not None)
    if own is not None:
        side, words = size or 224, "reads the middle square of {} px, then by the function that it gives itself"
        about = {"name": name, "size": side, "preprocess": words.format(side)}
        framing = Preparation(side, side)
        return Encoder(name, net.eval(), own, words.format(side), side, 3, about, framing=framing)
    made = _foreign(name, net, preparation, True, fresh=lambda: net)
    return Encoder(
        name, made.net, made.prepare, made.words, made.size, made.channels, {**made.about, "weights": "its own"},
        framing=preparation,
    )  # fmt: skip


def _adapted(net: nn.Module, size: int, *, prepares: bool) -> tuple[nn.Module, Preparation]:
    """A network of a person's own, pooled where it puts out more than a vector, and how its images are prepared.

    prepares: it comes with a function that prepares them, which may give it images that are no squares.
    """
    cfg: Any = getattr(net, "pretrained_cfg", None)
    if hasattr(net, "config") and getattr(net, "main_input_name", None) == "pixel_values":
        found = Transformers(net, size=size or None)
        takes = own_size(found.config)
        return found, usual(size or _side((takes, takes) if isinstance(takes, int) else takes, prepares=prepares))
    preparation = of_timm(data_config(net)) if cfg and not prepares else usual(size or 224)
    preparation = preparation.at(size) if size else preparation
    if isinstance(net, Backbone):
        return net, preparation
    return Adapter(net, size=preparation.size, in_channels=len(preparation.mean)), preparation


def _side(takes: tuple[int, int], *, prepares: bool) -> int:
    """Of the squares that a network of a person's own is given."""
    high, wide = takes
    if high != wide and not prepares:
        raise ValueError(
            f"the model takes images of {high} x {wide}, and images are squares here. Give size=, if it can take "
            f"squares, or return (network, preprocess) with a function that makes {high} x {wide} of squares"
        )
    return high


def _features(name: str, rows: FeatureRows) -> Encoder:
    about = {"name": name, "features": rows.features.shape[1], "rows": len(rows)}
    words = f"none: {len(rows):,} rows of {rows.features.shape[1]} features"
    return Encoder(name, nn.Flatten(), lambda x: x, words, 0, 0, about, rows=rows)


def is_run(path: Path) -> bool:
    """Whether it is the directory of a run."""
    return (path / CONFIG).exists() and _saved_by_others(path) is None


def is_of_reglet(path: Path) -> bool:
    """Whether it is a directory that is neither of transformers nor of timm: a run's, or an exported encoder's."""
    return path.is_dir() and _saved_by_others(path) is None


def _saved_by_others(path: Path) -> str | None:
    """Whether a folder is of transformers or of timm; neither, where it is of reglet."""
    if not path.is_dir() or (path / CARD).exists() or not (path / CONFIG).is_file():
        return None
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    if "model_type" in config:
        return "transformers"
    return "timm" if isinstance(config.get("architecture"), str) and "command" not in config else None
