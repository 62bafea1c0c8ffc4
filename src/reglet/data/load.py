"""Images by name or path."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from reglet.data.digits import STYLES, canvas_digits
from reglet.data.files import Files
from reglet.data.hold_out import hold_out_test
from reglet.data.images import Images
from reglet.data.memory import InMemory
from reglet.data.npz import load_npy, load_npz, splits_of
from reglet.data.pair import paired

SOURCES = (
    "digits",
    "a folder (images as they lie, class/ or domain/class/; train/ beside test/ or val/)",
    "a folder and table=labels.csv",
    "a .npz archive",
    "a .npy array",
    ".tar shards",
    "hf/NAME or hf/FOLDER",
    "torchvision/NAME",
)
TEST = ("test", "val", "valid", "validation")  # names of a test part, in the order in which they are looked for


class HowToRead(NamedTuple):
    """How images are read.

    size: side in pixels to which images in files are resized for evaluation; 0: their own, at most 224.
    channels: 0: those of the files, 3 for photographs.
    table: a .csv, .tsv, .jsonl or .parquet with the files and their labels.
    workers: threads that decode files; 0: one for each CPU that the process may use.
    keep: False opens files each time, even if they are few.
    once: for images that are seen once, such as for predictions.  None is kept, one image is enough, and a blank image
        replaces each file that cannot be read, even if they are many.
    """

    size: int = 0
    channels: int = 0
    table: str = ""
    workers: int = 0
    keep: bool = True
    once: bool = False


def load(
    spec: str,
    *,
    split: str = "",
    size: int = 0,
    channels: int = 0,
    table: str = "",
    workers: int = 0,
    keep: bool = True,
    once: bool = False,
) -> Images:
    """The images that `spec` names; see `docs/data.md`.

    split: "train", "test", or another part of the source, such as a folder in it; "" takes all images.
    The other arguments are those of `HowToRead`.

    >>> digits = load("digits", split="test")
    >>> len(digits), digits.domains
    (500, ['plain', 'stripes', 'checks', 'clouds'])
    """
    how = HowToRead(size, channels, table, workers, keep, once)
    return _load(spec, split, how, _opened(spec, how))


def load_pair(
    spec: str,
    *,
    size: int = 0,
    channels: int = 0,
    table: str = "",
    workers: int = 0,
    keep: bool = True,
    hold_out: bool = True,
    overlap: str = "refuse",
) -> tuple[Images, Images | None]:
    """Training and test images, with the same numbers for classes and no image in both.

    If the source has no test images, some are held out, always the same; see `reglet.data.hold_out`.
    hold_out: False leaves them with the training images, for callers that split the data themselves.
    overlap: "drop" removes test images that are also training images; otherwise they are an error.

    >>> train, test = load_pair("digits")
    >>> len(train), len(test)
    (1297, 500)
    """
    how = HowToRead(size, channels, table, workers, keep)
    opened = _opened(spec, how)
    parts = list(opened) or _splits(spec, how)
    images = _load(spec, "train" if "train" in parts else "", how, opened)
    if "train" in parts:
        for test in (_load(spec, name, how, opened) for name in TEST if name in parts):
            if images.labels is None or test.labels is not None:  # a test part may keep its labels secret
                return paired(images, test, overlap=overlap)
    return hold_out_test(images) if hold_out else (images, None)


def _opened(spec: str, how: HowToRead) -> Mapping[str, Any]:
    """Part -> data, of a set that a library opens; of all else nothing."""
    if spec.startswith("hf/") and not how.table:
        from reglet.data.hugging_face import open_hugging_face

        return open_hugging_face(spec.removeprefix("hf/"))
    if spec.startswith("torchvision/") and not how.table:
        from reglet.data.torchvision_sets import open_torchvision

        return open_torchvision(spec.removeprefix("torchvision/"))
    return {}


def _load(spec: str, split: str, how: HowToRead, opened: Mapping[str, Any]) -> Images:
    """opened: see `_opened`."""
    if spec == "digits":
        return _digits(split)
    path = Path(spec)
    if path.suffix == ".npz" and path.is_file():
        return load_npz(path, split=split)
    if path.suffix == ".npy" and path.is_file():
        return load_npy(path)
    from reglet.data.pictures import Pictures

    files = _files(spec, split, how, opened)
    given = {"size": how.size, "channels": how.channels, "workers": how.workers}
    return Pictures(files, **given, keep=how.keep, once=how.once)


def _files(spec: str, split: str, how: HowToRead, opened: Mapping[str, Any]) -> Files:
    if how.table:
        from reglet.data.table import TableFiles

        return TableFiles(_table(spec, how), Path(spec), split=split)
    if spec.startswith("hf/"):
        from reglet.data.hugging_face import HuggingFaceFiles

        part, found = _part(spec, split, opened)
        return HuggingFaceFiles(found, name=f"{spec.removeprefix('hf/')}/{part}")
    if spec.startswith("torchvision/"):
        from reglet.data.torchvision_sets import TorchvisionFiles

        name = spec.removeprefix("torchvision/")
        part, found = _part(spec, split, opened)
        return TorchvisionFiles(found, name=name + (f"/{part}" if part else ""))
    from reglet.data.folder import FolderFiles, OneFile, is_image
    from reglet.data.shards import ShardFiles, find_shards, shard_splits

    path = Path(spec)
    if shards := shard_splits(spec).get(split, []) if split else find_shards(spec):
        return ShardFiles(shards, name=path.name + (f"/{split}" if split else ""))
    if path.is_dir():
        if split and not (path / split).is_dir():
            raise ValueError(f"{path} has no folder {split!r}")
        return FolderFiles(path / split if split else path, every=how.once)
    if path.is_file() and is_image(path):
        return OneFile(path)
    near = get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1) if path.parent.is_dir() else []
    hint = f" Did you mean {path.parent / near[0]}?" if near else ""
    if path.is_file():
        hint = " A table of labels stands beside the folder that it is about: data=FOLDER table=" + path.name
        hint = f"{hint}." if path.suffix in (".csv", ".tsv", ".jsonl", ".parquet") else " That file is of another kind."
    raise ValueError(f"there are no data at {spec!r}.{hint} Data are {', '.join(SOURCES[:-1])} or {SOURCES[-1]}")


def _part(spec: str, split: str, parts: Mapping[str, Any]) -> tuple[str, Any]:
    """The part `split`; of a source that cannot give all parts as one, "" is the training part."""
    part = split or ("train" if "train" in parts else next(iter(parts)))
    if part not in parts:
        raise ValueError(f"{spec} has the splits {', '.join(parts)}; got {part!r}")
    return part, parts[part]


def _table(spec: str, how: HowToRead) -> Path:
    """Beside the images, or wherever the path leads."""
    inside = Path(spec) / how.table
    return inside if inside.is_file() else Path(how.table)


def splits(spec: str) -> Sequence[str]:
    """The parts that the source has.

    >>> splits("digits")
    ['train', 'test']
    """
    how = HowToRead()
    return list(_opened(spec, how)) or _splits(spec, how)


def _splits(spec: str, how: HowToRead) -> Sequence[str]:
    """The parts that a source of files has of itself."""
    path = Path(spec)
    if how.table:
        from reglet.data.table import table_splits

        return table_splits(_table(spec, how), path)
    if spec == "digits":
        return ["train", "test"]
    if path.suffix == ".npz" and path.is_file():
        return splits_of(path)
    if path.is_dir():
        from reglet.data.shards import shard_splits

        return list(shard_splits(spec)) or [name for name in ("train", *TEST) if (path / name).is_dir()]
    return []


def _digits(split: str) -> InMemory:
    part = split or "all"
    if part not in ("train", "test", "all"):
        raise ValueError(f"digits have the splits train and test, got {split!r}")
    found = canvas_digits(cast(Literal["train", "test", "all"], part))
    return InMemory(
        found.images,
        labels=found.labels,
        domain=found.style,
        classes=[str(i) for i in range(10)],
        domains=STYLES,
        name=f"digits/{part}",
    )
