"""The same forty training and sixteen test images, of two classes, in every layout that is read.

A layout writes them below a folder and says how `load` finds them.
"""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from tests.data.drawn import fill

Spec = dict[str, str]
Layout = Callable[[Path], Spec]


def photos(root: Path) -> Path:
    fill(root / "photos" / "train", "cat", "dog", each=20)
    return fill(root / "photos" / "test", "cat", "dog", each=8, seed=1).parent


def files(root: Path) -> Iterator[tuple[Path, str, str]]:
    """(path, label, split), in the order in which a folder has them."""
    for split in ("train", "test"):
        for path in sorted((root / "photos" / split).rglob("*.png")):
            yield path, path.parent.name, split


def folder(root: Path) -> Spec:
    return {"spec": str(photos(root))}


def rows(root: Path) -> list[dict[str, str]]:
    where = photos(root)
    return [{"file": str(p.relative_to(where)), "label": label, "split": split} for p, label, split in files(root)]


def csv(root: Path) -> Spec:
    lines = [",".join(row.values()) for row in rows(root)]
    (root / "labels.csv").write_text("\n".join(["file,label,split", *lines]))
    return {"spec": str(root / "photos"), "table": str(root / "labels.csv")}


def jsonl(root: Path) -> Spec:
    lines = "\n".join(map(json.dumps, rows(root)))
    (root / "photos" / "labels.jsonl").write_text(lines)
    return {"spec": str(root / "photos"), "table": "labels.jsonl"}


def parquet(root: Path) -> Spec:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows(root)), root / "labels.parquet", row_group_size=7)
    return {"spec": str(root / "photos"), "table": str(root / "labels.parquet")}


def tars(root: Path) -> Spec:
    photos(root)
    (root / "shards").mkdir()
    for i, (path, label, split) in enumerate(files(root)):
        with tarfile.open(root / "shards" / f"{split}-{i // 16:03}.tar", "a") as archive:
            for suffix, data in (("png", path.read_bytes()), ("cls", label.encode())):
                info = tarfile.TarInfo(f"{i:04}.{suffix}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return {"spec": str(root / "shards")}


def npz(root: Path) -> Spec:
    photos(root)
    found = list(files(root))
    images = np.stack([np.asarray(Image.open(path)) for path, _, _ in found])
    labels, splits = (np.array([row[k] for row in found]) for k in (1, 2))
    np.savez(root / "x.npz", images=images, labels=labels, split=splits)
    return {"spec": str(root / "x.npz")}


def npy(root: Path) -> Spec:
    """One array has no parts: the training images alone."""
    photos(root)
    found = [row for row in files(root) if row[2] == "train"]
    np.save(root / "x.npy", np.stack([np.asarray(Image.open(path)) for path, _, _ in found]))
    np.save(root / "x_labels.npy", np.array([label for _, label, _ in found]))
    return {"spec": str(root / "x.npy")}


def hugging_face(root: Path) -> Spec:
    import datasets

    photos(root)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    parts = {}
    for part in ("train", "test"):
        found = [row for row in files(root) if row[2] == part]
        columns = {"image": [str(path) for path, _, _ in found], "label": [label for _, label, _ in found]}
        parts[part] = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict(parts).save_to_disk(root / "saved")  # which puts the bytes of the files into it
    shutil.rmtree(root / "photos")
    return {"spec": f"hf/{root / 'saved'}"}


def torchvision(root: Path) -> Spec:
    """Country211, which the library has in folders of classes."""
    photos(root).rename(root / "country211")
    return {"spec": f"torchvision/{root}/Country211"}


IN_FILES: dict[str, Layout] = {
    "folder": folder,
    "csv": csv,
    "jsonl": jsonl,
    "parquet": parquet,
    "tars": tars,
    "hugging_face": hugging_face,
    "torchvision": torchvision,
}
EVERY: dict[str, Layout] = {**IN_FILES, "npz": npz, "npy": npy}
