"""A file of features in place of an encoder: .npz or .parquet, as `reglet embed` writes it or as another program does.

| column | |
|---|---|
| `features` | (n, d), the only one that is needed |
| `labels` | n numbers or words; `class` names the numbers |
| `split` | n words, train and test (or val); without them a fifth of the rows is held out |
| `domain`, `domain_name`, `file_name` | n each |
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from reglet.data import Images, InMemory, load
from reglet.data.hold_out import hold_out_test
from reglet.data.load import TEST, splits
from reglet.data.pair import paired

SUFFIXES = (".npz", ".parquet")
COLUMNS = ("features", "labels", "class", "split", "domain", "domain_name", "file_name")
PARTS = {"train": ("train",), "test": TEST}
Column = NDArray[Any]


class FeatureRows(InMemory):
    """Features as a data set: each image is a vector, so all code that reads images can read them.

    shown: the images of these features, if available.  places: numbers of the rows in the file.

    >>> rows = FeatureRows(torch.zeros(4, 8), labels=torch.tensor([0, 1, 0, 1]), name="x")
    >>> len(rows), rows.features.shape
    (4, torch.Size([4, 8]))
    """

    def __init__(
        self,
        features: Float[Tensor, "n d"],
        *,
        labels: Int64[Tensor, " n"] | None = None,
        domain: Int64[Tensor, " n"] | None = None,
        classes: list[str] | None = None,
        domains: list[str] | None = None,
        files: list[str] | None = None,
        split: list[str] | None = None,
        shown: Images | None = None,
        places: Int64[Tensor, " n"] | None = None,
        name: str,
    ) -> None:
        known = {"labels": labels, "domain": domain, "classes": classes, "domains": domains}
        super().__init__(features[:, :, None, None], **known, name=name)  # type: ignore[arg-type]
        self.files, self.split, self.shown = files, split, shown
        self.places = torch.arange(len(features)) if places is None else places

    @property
    def features(self) -> Float[Tensor, "n d"]:
        return self.images[:, :, 0, 0]

    def names(self, index: Int64[Tensor, " b"]) -> list[str] | None:  # type: ignore[override]
        return None if self.files is None else [self.files[i] for i in index.tolist()]

    def content(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        """Of the place in the file: rows that are equal need not be of the same image, as in a collapsed network."""
        return [hashlib.blake2b(str(i).encode(), digest_size=16).digest() for i in self.places[index].tolist()]

    def part(self, index: Int64[Tensor, " b"], *, name: str) -> "FeatureRows":  # type: ignore[override]
        return FeatureRows(
            self.features[index],
            labels=None if self.labels is None else self.labels[index],
            domain=None if self.domain is None else self.domain[index],
            classes=self.classes,
            domains=self.domains,
            files=self.names(index),
            split=None if self.split is None else [self.split[i] for i in index.tolist()],
            shown=None if self.shown is None else self.shown.part(index, name=name),
            places=self.places[index],
            name=f"{self.name}/{name}",
        )

    def of_split(self, split: str) -> "FeatureRows":
        """The rows of a part."""
        if self.split is None or split not in self.split:
            have = f"the splits {', '.join(sorted(set(self.split)))}" if self.split else "no column `split`"
            raise ValueError(f"{self.name} has {have}; got {split!r}")
        return self.part(torch.tensor([i for i, each in enumerate(self.split) if each == split]), name=split)


def read_features(path: Path) -> FeatureRows:
    """Read and check all columns: each row is one image."""
    columns = _npz(path) if path.suffix == ".npz" else _parquet(path)
    if "features" not in columns:
        raise ValueError(
            f"{path} has {', '.join(columns) or 'nothing'}, and no `features`. A file of features has {COLUMNS[0]}, "
            f"and where known {', '.join(COLUMNS[1:])}"
        )
    x = columns["features"]
    if x.ndim != 2 or 0 in x.shape or x.dtype.kind != "f":
        raise ValueError(f"{path}: features are (n, d) of floating point, got {x.dtype} of shape {x.shape}")
    for name in COLUMNS[1:]:
        if name in columns and columns[name].shape != (len(x),):
            raise ValueError(
                f"{path}: the rows do not match: {len(x)} of features, and {name} of shape {columns[name].shape}"
            )
    labels, classes = _numbered(path, columns, "labels", "class")
    domain, domains = _numbered(path, columns, "domain", "domain_name")
    words = {name: columns[name].astype(str).tolist() for name in ("file_name", "split") if name in columns}
    return FeatureRows(
        torch.from_numpy(np.array(x, dtype=np.float32)),
        labels=labels,
        domain=domain,
        classes=classes,
        domains=domains,
        files=words.get("file_name"),
        split=words.get("split"),
        name=path.stem,
    )


def pair_of(rows: FeatureRows, *, train: str = "", test: str = "") -> tuple[FeatureRows, FeatureRows | None]:
    """Rows to train probes on and rows to test them on: by the column `split`, or else a fifth held out."""
    if train:
        first = rows.of_split(train)
        return (first, rows.of_split(test)) if test else hold_out_test(first)  # type: ignore[return-value]
    parts = set(rows.split or ())
    last = next((name for name in TEST if name in parts), None)
    if "train" in parts and last is not None:
        a, b = paired(rows.of_split("train"), rows.of_split(last))
        return a, b  # type: ignore[return-value]
    return hold_out_test(rows)  # type: ignore[return-value]


def matched(rows: FeatureRows, images: Images, *, data: str, part: str) -> FeatureRows:
    """The features of `images`, in their order, matched by file name, or by place in `data` if there are no names.

    Raises if an image has no row, or if the labels of row and image differ.  part: "train" or "test".
    """
    every = torch.arange(len(images))
    names = images.names(every)
    if names is None:
        keys, have = images.content(every), _by_place(rows, data, part)
    elif rows.files is None:
        raise ValueError(f"the rows of {rows.name} cannot be matched with {data}: it has no column `file_name`")
    else:
        keys = names  # type: ignore[assignment]
        usable = [i for i in range(len(rows)) if rows.split is None or rows.split[i] in PARTS[part]]
        have = {rows.files[i]: i for i in usable}
    if missing := [i for i, key in enumerate(keys) if key not in have]:
        which = f", such as {names[missing[0]]}" if names else ""
        raise ValueError(
            f"the rows of {rows.name} do not match {images.name}: {len(missing)} of {len(images)} images have no row"
            f"{which}"
        )
    index = torch.tensor([have[key] for key in keys])
    found = rows.part(index, name=images.name)
    _same_labels(found, images)
    return FeatureRows(
        found.features,
        labels=images.labels,
        domain=images.domain,
        classes=images.classes,
        domains=images.domains,
        files=names,
        shown=images,
        name=images.name,
    )


def _by_place(rows: FeatureRows, data: str, part: str) -> dict[Any, int]:
    """Content of an image -> its row, where rows and images have no names: both are in the order of the data."""
    own, split = splits(data), set(rows.split or ())
    named = next((name for name in PARTS[part] if name in own and name in split), "")
    whole = load(data, split=named)
    index = [i for i in range(len(rows)) if not named or rows.split is None or rows.split[i] == named]
    if len(whole) != len(index):
        raise ValueError(
            f"the rows of {rows.name} do not match {whole.name}: {len(index)} rows of features, {len(whole)} images, "
            "and no file names"
        )
    return dict(zip(whole.content(torch.arange(len(whole))), index, strict=True))


def _same_labels(rows: FeatureRows, images: Images) -> None:
    if rows.labels is None or rows.classes is None or images.labels is None or images.classes is None:
        return
    ours, theirs = ([known.classes[i] for i in known.labels.tolist()] for known in (rows, images))  # type: ignore[union-attr,index]
    if wrong := [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]:
        first = wrong[0]
        raise ValueError(
            f"the rows of {rows.name} do not match the labels of {images.name}: {len(wrong)} of {len(ours)} differ. "
            f"The first has the label {ours[first]!r}, and its image {theirs[first]!r}"
        )


def _numbered(
    path: Path, columns: dict[str, Column], numbers: str, names: str
) -> tuple[Tensor | None, list[str] | None]:
    """Labels from 0 with their names, from numbers, from words, or from both."""
    if numbers not in columns and names not in columns:
        return None, None
    values, words = columns.get(numbers), columns.get(names)
    if values is None or values.dtype.kind not in "iu":
        values = values if values is not None else words
        assert values is not None
        if values.dtype.kind == "f":
            raise ValueError(f"{path}: {numbers} are whole numbers or words, got {values.dtype}")
        kinds, found = np.unique(values.astype(str), return_inverse=True)
        return torch.from_numpy(found.astype(np.int64)), kinds.tolist()
    if values.min() < 0:
        raise ValueError(f"{path}: {numbers} are numbers from 0, got {values.min()}")
    known = [str(i) for i in range(int(values.max()) + 1)]
    if words is not None:
        for number, word in set(zip(values.tolist(), words.astype(str).tolist(), strict=True)):
            if known[number] not in (str(number), word):
                raise ValueError(
                    f"{path}: {numbers} and {names} do not match: {number} is {known[number]!r} and {word!r}"
                )
            known[number] = word
    return torch.from_numpy(values.astype(np.int64)), known


def _npz(path: Path) -> dict[str, Column]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:
        raise ValueError(f"{path} is no .npz archive of plain arrays: {error}") from error


def _parquet(path: Path) -> dict[str, Column]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("a .parquet file needs pyarrow: pip install 'reglet[parquet]'") from error
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is no Parquet file: {error}") from error
    found: dict[str, Column] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name == "features":
            lengths = set(column.value_lengths().to_pylist()) if pa.types.is_list(column.type) else {0}
            if len(lengths) > 1 or None in lengths:
                raise ValueError(f"{path}: the rows of features have different lengths")
            if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
                flat = column.flatten().to_numpy(zero_copy_only=False)
                found[name] = flat.reshape(len(column), -1)
                continue
        values = column.to_numpy(zero_copy_only=False)
        found[name] = values.astype(str) if values.dtype.kind == "O" else values
    return found
