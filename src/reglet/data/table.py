"""Files and labels by a table: .csv, .tsv, .jsonl or .parquet."""

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from reglet.data.decode import open_file
from reglet.data.files import Known, numbered

COLUMNS = {
    "file": ("file", "filename", "file_name", "filepath", "path", "image", "image_path"),
    "label": ("label", "labels", "class", "target", "category"),
    "domain": ("domain",),
    "split": ("split", "fold", "part"),
}
KINDS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


class TableFiles:
    """The files that a table names, in its order.

    root: where files that are not absolute lie.  split: only the rows that say so; "" for all.
    """

    def __init__(self, table: Path, root: Path, *, split: str = "") -> None:
        rows = read_table(table)
        column = {what: _column(rows[0], what) for what in COLUMNS}
        if column["file"] is None:
            raise ValueError(
                f"{table} has the columns {', '.join(rows[0])}; the one with the files is called one of "
                f"{', '.join(COLUMNS['file'])}"
            )
        rows = _of_split(table, rows, column["split"], split)
        self.name, self.root = table.stem + (f"/{split}" if split else ""), root
        self.files = [str(row[column["file"]]) for row in rows]
        self.known = Known(*_numbered(rows, column["label"]), *_numbered(rows, column["domain"]))
        state = hashlib.sha256(str(self.known.classes).encode())
        for i, name in enumerate(self.files):
            state.update(f"{name}\0{self.length(i)}\0{rows[i].get(column['label'] or '')}\n".encode())
        self.fingerprint = state.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.files)

    def file_name(self, i: int) -> str:
        return self.files[i]

    def open(self, i: int) -> BinaryIO:
        return open_file(self.root / self.files[i])

    def length(self, i: int) -> int:
        try:
            return (self.root / self.files[i]).stat().st_size
        except OSError:  # it is reported when it is read
            return 0


def table_splits(table: Path) -> list[str]:
    """The parts that the table names, or none."""
    rows = read_table(table)
    column = _column(rows[0], "split")
    return [] if column is None else sorted({str(row[column]) for row in rows})


def read_table(path: Path) -> list[dict[str, Any]]:
    """Row by row, column -> value."""
    if path.suffix not in KINDS or not path.is_file():
        raise ValueError(f"table= is a file that ends in {', '.join(KINDS)}; got {path}")
    if path.suffix == ".parquet":
        rows = _parquet(path)
    elif path.suffix in (".jsonl", ".ndjson"):
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    else:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    if not rows:
        raise ValueError(f"{path} has no rows")
    return rows


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow.parquet as pq  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError("a .parquet table needs pyarrow: pip install 'reglet[parquet]'; or give a .csv") from error
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _column(row: dict[str, Any], what: str) -> str | None:
    return next((name for name in COLUMNS[what] if name in row), None)


def _of_split(table: Path, rows: list[dict[str, Any]], column: str | None, split: str) -> list[dict[str, Any]]:
    if not split:
        return rows
    chosen = [row for row in rows if column is not None and str(row[column]) == split]
    if not chosen:
        raise ValueError(f"{table} has no rows whose split is {split!r}")
    return chosen


def _numbered(rows: Sequence[dict[str, Any]], column: str | None) -> tuple[Any, list[str] | None]:
    return (None, None) if column is None else numbered([str(row[column]) for row in rows])
