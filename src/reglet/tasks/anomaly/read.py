"""Machines from a user's files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reglet.tasks.anomaly.machines import Machine, machine

PARTS = ("train", "test", "labels")
LAYOUTS = (
    "expected train, test and labels; or NAME_train, NAME_test and NAME_labels for each machine; or "
    "{train,test}_{telemetry,commands,offsets}, labels and channels"
)
Arrays = dict[str, NDArray[Any]]


def read(path: Path) -> list[Machine]:
    """A .npz, or a folder with train.csv, test.csv and labels.csv."""
    if path.is_dir():
        return [machine(path.name, *(_csv(path / f"{part}.csv") for part in PARTS))]
    if not path.exists():
        raise ValueError(f"there is no {path}; data is a .npz, or a folder with train.csv, test.csv and labels.csv")
    return from_npz(path)


def from_npz(path: Path) -> list[Machine]:
    """Three layouts: one machine; several by name; telemetry and commands of several, one after another."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except Exception as error:
        raise ValueError(f"{path} is no .npz archive of plain arrays: {error}") from error
    if "train_telemetry" in arrays:
        return _telemanom(path, arrays)
    if "train" in arrays:
        return [_machine(path, arrays, path.stem, prefix="")]
    names = [key.removesuffix("_train") for key in arrays if key.endswith("_train")]
    if not names:
        raise ValueError(f"{path} has {', '.join(arrays) or 'nothing'}; {LAYOUTS}")
    return [_machine(path, arrays, name, prefix=f"{name}_") for name in names]


def _machine(path: Path, arrays: Arrays, name: str, *, prefix: str) -> Machine:
    _require(path, arrays, [prefix + part for part in PARTS])
    return machine(name, *(arrays[prefix + part] for part in PARTS))


def _telemanom(path: Path, arrays: Arrays) -> list[Machine]:
    """NASA's: a telemetry value and binary commands per point; channel k is from offsets[k] to offsets[k + 1]."""
    keys = [f"{part}_{what}" for part in ("train", "test") for what in ("telemetry", "commands", "offsets")]
    _require(path, arrays, [*keys, "labels", "channels"])
    names, cut = arrays["channels"], {}
    for part in ("train", "test"):
        telemetry, commands, offsets = (arrays[f"{part}_{what}"] for what in ("telemetry", "commands", "offsets"))
        if len(telemetry) != len(commands):
            raise ValueError(f"{path}: {part} has {len(telemetry)} points of telemetry and {len(commands)} of commands")
        if len(offsets) != len(names) + 1 or offsets[-1] != len(telemetry):
            raise ValueError(
                f"{path}: {part}_offsets has {len(offsets)} entries up to {offsets[-1]}; expected {len(names) + 1}, "
                f"for {len(names)} channels, up to {len(telemetry)}"
            )
        cut[part] = np.split(np.column_stack([telemetry, commands]), offsets[1:-1])
    if len(arrays["labels"]) != len(arrays["test_telemetry"]):
        raise ValueError(
            f"{path}: {len(arrays['labels'])} labels for {len(arrays['test_telemetry'])} points of test_telemetry"
        )
    labels = np.split(arrays["labels"], arrays["test_offsets"][1:-1])
    return [machine(str(name), *parts) for name, *parts in zip(names, cut["train"], cut["test"], labels, strict=True)]


def _require(path: Path, arrays: Arrays, keys: list[str]) -> None:
    if missing := [key for key in keys if key not in arrays]:
        raise ValueError(f"{path} has no {', '.join(missing)}; {LAYOUTS}")


def _csv(path: Path) -> NDArray[Any]:
    """Numbers with commas between them, a row for each time, under a line of names or not."""
    if not path.exists():
        raise ValueError(f"there is no {path}; a folder has train.csv, test.csv and labels.csv")
    with path.open(encoding="utf-8-sig") as file:
        head = file.readline().strip()
    if not head:
        raise ValueError(f"{path} is empty")
    try:
        values = np.genfromtxt(
            path, delimiter=",", skip_header=not _numbers(head), dtype=np.float64, ndmin=2, encoding="utf-8-sig"
        )
    except ValueError as error:
        raise ValueError(f"{path}: rows differ in length. {error}") from error
    return values


def _numbers(line: str) -> bool:
    """Whether a cell of this line is a number: names of columns are none."""
    for cell in line.split(","):
        try:
            float(cell)
        except ValueError:
            continue
        return True
    return False
