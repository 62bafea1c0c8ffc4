"""Files and labels by a table: .csv, .tsv, .jsonl or .parquet.

A table is read once, row by row.  If it has many rows, an index is kept.
"""

import csv
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from reglet import progress
from reglet.data.decode import open_file
from reglet.data.files import Known, in_order
from reglet.data.index_file import Index, Names, kept_index, modified

COLUMNS = {
    "file": ("file", "filename", "file_name", "filepath", "path", "image", "image_path"),
    "label": ("label", "labels", "class", "target", "category"),
    "domain": ("domain",),
    "split": ("split", "fold", "part"),
}
KINDS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


class TableFiles:
    """The files that a table names, in its order.

    root: the folder of files that are not absolute.  split: take only the rows of this part; "" for all.
    """

    def __init__(self, table: Path, root: Path, *, split: str = "") -> None:
        self.index = index = index_table(table, root)
        self.name, self.root = table.stem + (f"/{split}" if split else ""), root.resolve()
        self.rows = np.arange(len(index.names)) if not split else _of_split(table, index, split)
        self.known = Known(*_known(index, "label", self.rows), *_known(index, "domain", self.rows))
        lengths = index.arrays["lengths"][self.rows]
        self.lengths: NDArray[np.int64] | None = lengths if lengths.min() >= 0 else None
        self.fingerprint = index.digest(*index.arrays) + (f"/{split}" if split else "")

    def __len__(self) -> int:
        return len(self.rows)

    def file_name(self, i: int) -> str:
        return self.index.names[int(self.rows[i])]

    def open(self, i: int) -> BinaryIO:
        return open_file(self.root / self.file_name(i))


def table_splits(table: Path, root: Path) -> list[str]:
    """The parts that the table names, or none."""
    named: list[str] = index_table(table, root).about["names"].get("split", [])
    return named


def index_table(table: Path, root: Path, *, cache: Path | None = None) -> Index:
    """The length in bytes of each row's file (-1 if it is missing) and the numbers of its label, domain and split, if
    the table has them.  Their names are in `about`."""
    if table.suffix not in KINDS or not table.is_file():
        raise ValueError(f"table= is a file that ends in {', '.join(KINDS)}; got {table}")
    of = ["table", str(table.resolve()), str(root.resolve())]
    return kept_index(of, lambda: _index(table, root), lambda about: modified(table), cache=cache)


def _index(table: Path, root: Path) -> Index:
    times = modified(table)
    found: dict[str, str] = {}  # what -> name of the column
    numbers: dict[str, dict[str, int]] = {}
    columns: dict[str, array[int]] = {}
    lengths = array("q")

    def names() -> Iterator[str]:
        for k, row in enumerate(_rows(table)):
            if not found:
                found.update(_columns(table, row))
                numbers.update({what: {} for what in found if what != "file"})
                columns.update({what: array("q") for what in numbers})
            if empty := [name for name in found.values() if row.get(name) in (None, "")]:
                raise ValueError(f"{table} has a row without {empty[0]}, number {k + 1}: give all rows one, or none")
            for what, known in numbers.items():
                columns[what].append(known.setdefault(str(row[found[what]]), len(known)))
            name = str(row[found["file"]])
            lengths.append(_length(root / name))
            yield name

    files = Names.of(progress.track(names(), f"rows of {table.name}"))
    if not len(files):
        raise ValueError(f"{table} has no rows")
    arrays: dict[str, NDArray[Any]] = {"lengths": np.array(lengths)}
    sorted_names: dict[str, list[str]] = {}
    for what, values in columns.items():
        arrays[what], sorted_names[what] = in_order(np.array(values), numbers[what])
    return Index(files, arrays, {"names": sorted_names}, times)


def _columns(table: Path, row: dict[str, Any]) -> dict[str, str]:
    column = {what: next((name for name in names if name in row), None) for what, names in COLUMNS.items()}
    if column["file"] is None:
        raise ValueError(
            f"{table} has the columns {', '.join(map(str, row))}; the one with the files is called one of "
            f"{', '.join(COLUMNS['file'])}"
        )
    return {what: name for what, name in column.items() if name is not None}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """column -> value, row by row."""
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # Excel begins with a mark
            if path.suffix in (".jsonl", ".ndjson"):
                yield from (json.loads(line) for line in file if line.strip())
            else:
                yield from csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}): save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} has a line that is no JSON: {error}") from error


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("a .parquet table needs pyarrow: pip install 'reglet[parquet]'; or give a .csv") from error
    with pq.ParquetFile(path) as file:
        wanted = [name for name in file.schema_arrow.names if any(name in names for names in COLUMNS.values())]
        for batch in file.iter_batches(columns=wanted or None):
            yield from batch.to_pylist()


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it is reported when it is read
        return -1


def _of_split(table: Path, index: Index, split: str) -> NDArray[np.int64]:
    names = index.about["names"].get("split", [])
    if split not in names:
        raise ValueError(f"{table} has no rows whose split is {split!r}")
    return np.flatnonzero(index.arrays["split"] == names.index(split))


def _known(index: Index, what: str, rows: NDArray[np.int64]) -> tuple[torch.Tensor | None, list[str] | None]:
    """Numbers among the names that these rows have."""
    if what not in index.arrays:
        return None, None
    present, numbers = np.unique(index.arrays[what][rows], return_inverse=True)
    names = index.about["names"][what]
    return torch.from_numpy(numbers), [names[k] for k in present]
