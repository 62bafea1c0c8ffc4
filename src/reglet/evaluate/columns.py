"""Columns as a file: .csv, .npz or .parquet, written atomically."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reglet.atomic import replacing

SUFFIXES = (".csv", ".npz", ".parquet")
Column = NDArray[Any]
Columns = Mapping[str, Column]  # of one length; words, numbers, or rows of numbers


def require_suffix(out: Path) -> None:
    if out.suffix not in SUFFIXES:
        raise ValueError(f"out= is a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {out}")


def write_columns(out: Path, columns: Columns) -> None:
    """The suffix of `out` decides the format.  A .csv has a matrix as several columns: features0, features1, ..."""
    require_suffix(out)
    with replacing(out) as fresh:
        {".csv": _csv, ".npz": _npz, ".parquet": _parquet}[out.suffix](fresh, columns)


def _npz(path: Path, columns: Columns) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **columns)


def _csv(path: Path, columns: Columns) -> None:
    """Numbers with as many digits as float32 has."""
    head: list[str] = []
    for name, values in columns.items():
        head += [name] if values.ndim == 1 else [f"{name}{i}" for i in range(values.shape[1])]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([text for cell in row for text in _cells(cell)])


def _cells(cell: Any) -> list[str]:
    return [f"{v:.9g}" if isinstance(v, np.floating) else str(v) for v in np.atleast_1d(cell)]


def _parquet(path: Path, columns: Columns) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            "a .parquet file needs pyarrow: pip install 'reglet[parquet]'; or give .csv or .npz"
        ) from error

    def column(values: NDArray[Any]) -> Any:
        if values.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        return pa.array(values)

    pq.write_table(pa.table({name: column(values) for name, values in columns.items()}), path)
