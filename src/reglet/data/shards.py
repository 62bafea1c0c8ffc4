"""Images in tar archives, as WebDataset writes them: KEY.jpg beside KEY.cls or KEY.json.

The archives are read once to find the place of each image.  For many images these places are kept as an index.  Then an
image is one read at its place, so the order of training is global and exact, as for files.
"""

import json
import re
import tarfile
from array import array
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from reglet import progress
from reglet.data.decode import open_file
from reglet.data.files import Known, in_order
from reglet.data.index_file import Index, Names, kept_index, modified
from reglet.data.walk import SUFFIXES

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LABELS = ("label", "class", "cls", "target")


class ShardFiles:
    """The images of tar archives, in the order of the archives' names, and within an archive in its order."""

    def __init__(self, shards: list[Path], *, name: str) -> None:
        for shard in shards:
            if not shard.is_file():
                raise ValueError(f"there is no archive {shard}")
        self.name, self.shards = name, [shard.resolve() for shard in shards]
        index = index_shards(self.shards)
        if not len(index.names):
            raise ValueError(f"{name} has no images: no member of its archives ends in {', '.join(sorted(SUFFIXES))}")
        self.index, self.shard_of, self.places = index, index.arrays["shard_of"], index.arrays["places"]
        self.lengths: NDArray[np.int64] = index.arrays["lengths"]
        labels, classes = index.arrays["labels"], index.about["classes"]
        self.known = Known() if labels.min() < 0 else Known(torch.from_numpy(labels), classes)
        self.fingerprint = index.digest("shard_of", "lengths", "labels")

    def __len__(self) -> int:
        return len(self.lengths)

    def file_name(self, i: int) -> str:
        return f"{self.shards[int(self.shard_of[i])].name}/{self.index.names[i]}"

    def open(self, i: int) -> BytesIO:
        length = int(self.lengths[i])
        with open_file(self.shards[int(self.shard_of[i])]) as file:
            file.seek(int(self.places[i]))
            data = file.read(length)
        if len(data) != length:
            raise ValueError(f"the archive ends after {len(data)} of {length} bytes")
        return BytesIO(data)


def index_shards(shards: list[Path], *, cache: Path | None = None) -> Index:
    """The archive, place, length in bytes and label (-1 for none) of each image."""
    paths = [str(shard) for shard in shards]
    return kept_index(["tar", *paths], lambda: _index(shards), lambda about: modified(*shards), cache=cache)


def _index(shards: list[Path]) -> Index:
    times = modified(*shards)
    columns = {"shard_of": array("i"), "places": array("q"), "lengths": array("q"), "labels": array("q")}
    numbers: dict[str, int] = {}  # of the labels, as they come

    def names() -> Iterator[str]:
        for k, shard in enumerate(progress.track(shards, "archives read through")):
            for member in _members(shard):
                label = -1 if member.label is None else numbers.setdefault(member.label, len(numbers))
                for column, value in zip(columns.values(), (k, member.place, member.length, label), strict=True):
                    column.append(value)
                yield member.name

    found = Names.of(names())
    arrays: dict[str, NDArray[Any]] = {name: np.array(values) for name, values in columns.items()}
    arrays["labels"], classes = in_order(arrays["labels"], numbers)
    return Index(found, arrays, {"classes": classes}, times)


def find_shards(spec: str) -> list[Path]:
    """The archives of `spec`: one .tar, a folder of them, a pattern with *, or a range {000..099}."""
    path = Path(spec)
    if path.is_dir():
        return sorted(path.glob("*.tar"))
    if (found := _BRACES.search(spec)) is not None:
        first, last = found.groups()
        names = [f"{i:0{len(first)}}" for i in range(int(first), int(last) + 1)]
        return [Path(spec[: found.start()] + name + spec[found.end() :]) for name in names]
    if "*" in path.name:
        return sorted(path.parent.glob(path.name))
    return [path] if path.suffix == ".tar" and path.is_file() else []


def shard_splits(spec: str) -> dict[str, list[Path]]:
    """Of a folder whose archives are called train-..., val-... or test-..., or lie in folders of these names."""
    path = Path(spec)
    parts: dict[str, list[Path]] = {}
    for part in ("train", "test", "val", "valid", "validation"):
        inside = sorted((path / part).glob("*.tar")) if (path / part).is_dir() else []
        beside = sorted(p for p in path.glob(f"{part}*.tar") if re.match(rf"{part}(\W|_|\d|$)", p.stem))
        if inside or beside:
            parts[part] = inside or beside
    return parts


class _Member(NamedTuple):
    name: str
    place: int
    length: int
    label: str | None


def _members(shard: Path) -> list[_Member]:
    """The images of one archive, each with its label if it has one."""
    images: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, str] = {}
    try:
        with tarfile.open(shard, "r:") as archive:
            for info in archive:
                if not info.isfile():
                    continue
                key, _, kind = _split(info.name)
                if f".{kind.lower()}" in SUFFIXES:
                    images[key] = info.name, info.offset_data, info.size
                elif kind in ("cls", "json"):
                    file = archive.extractfile(info)
                    assert file is not None
                    labels.update(_label(key, kind, file.read()))
    except tarfile.ReadError as error:
        raise ValueError(
            f"{shard} cannot be read as a tar archive: {error}. A compressed one has no places to read from: unpack it"
        ) from error
    return [_Member(*image, labels.get(key)) for key, image in images.items()]


def _split(name: str) -> tuple[str, str, str]:
    """WebDataset's key, up to the first dot of the file's name; and the last suffix."""
    folder, slash, file = name.rpartition("/")
    stem, _, suffixes = file.partition(".")
    return f"{folder}{slash}{stem}", file, suffixes.rpartition(".")[2]


def _label(key: str, kind: str, data: bytes) -> dict[str, str]:
    if kind == "cls":
        return {key: data.decode().strip()}
    about: dict[str, Any] = json.loads(data)
    found = next((about[name] for name in _LABELS if name in about), None)
    return {} if found is None else {key: str(found)}
