"""Images in tar archives, as WebDataset writes them: KEY.jpg beside KEY.cls or KEY.json.

The archives are read through once, for the place of each image.  After that any image is one read at its place, so the
order of training is global and exact, as it is for files.
"""

import hashlib
import json
import re
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from reglet.data.decode import open_file
from reglet.data.files import Known, numbered
from reglet.data.walk import SUFFIXES

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LABELS = ("label", "class", "cls", "target")


class Member(NamedTuple):
    shard: int
    name: str
    offset: int
    length: int


class ShardFiles:
    """The images of tar archives, shard by shard in the order of their names, within a shard as they lie."""

    def __init__(self, shards: list[Path], *, name: str) -> None:
        self.name, self.shards = name, shards
        self.members: list[Member] = []
        labels: list[str | None] = []
        for k, shard in enumerate(shards):
            members, found = _read(k, shard)
            self.members += members
            labels += found
        if not self.members:
            raise ValueError(f"{name} has no images: no member of its archives ends in {', '.join(sorted(SUFFIXES))}")
        self.known = Known(*numbered([str(label) for label in labels])) if None not in labels else Known()
        state = hashlib.sha256(repr(labels).encode())
        state.update(repr([(m.shard, m.name, m.length) for m in self.members]).encode())
        self.fingerprint = state.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.members)

    def file_name(self, i: int) -> str:
        return f"{self.shards[self.members[i].shard].name}/{self.members[i].name}"

    def open(self, i: int) -> BytesIO:
        member = self.members[i]
        with open_file(self.shards[member.shard]) as file:
            file.seek(member.offset)
            data = file.read(member.length)
        if len(data) != member.length:
            raise ValueError(f"the archive ends after {len(data)} of {member.length} bytes")
        return BytesIO(data)

    def length(self, i: int) -> int:
        return self.members[i].length


def find_shards(spec: str) -> list[Path]:
    """The archives that `spec` means: one .tar, a folder of them, a pattern with *, or a range {000..099}."""
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


def _read(k: int, shard: Path) -> tuple[list[Member], list[str | None]]:
    """The images of one archive and the label of each, where it has one."""
    try:
        with tarfile.open(shard, "r:") as archive:
            images: dict[str, Member] = {}
            labels: dict[str, str] = {}
            for info in archive:
                if not info.isfile():
                    continue
                key, _, kind = _split(info.name)
                if f".{kind.lower()}" in SUFFIXES:
                    images[key] = Member(k, info.name, info.offset_data, info.size)
                elif kind in ("cls", "json"):
                    file = archive.extractfile(info)
                    assert file is not None
                    labels.update(_label(key, kind, file.read()))
    except tarfile.ReadError as error:
        raise ValueError(
            f"{shard} cannot be read as a tar archive: {error}. A compressed one has no places to read from: unpack it"
        ) from error
    return list(images.values()), [labels.get(key) for key in images]


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
