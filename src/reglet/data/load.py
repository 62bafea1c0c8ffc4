"""Images by name or path."""

from difflib import get_close_matches
from pathlib import Path
from typing import Literal, cast

from reglet.data.digits import STYLES, canvas_digits
from reglet.data.folder import Folder
from reglet.data.images import Images
from reglet.data.memory import InMemory
from reglet.data.named import load_hf, load_torchvision
from reglet.data.npz import load_npz, splits_of

SOURCES = ("digits", "a folder", "a .npz archive", "hf/NAME", "torchvision/NAME")


def load(spec: str, *, split: str = "", size: int = 0) -> Images:
    """The images that `spec` names: "digits", a folder (as it is, class/ or domain/class/), a .npz archive, "hf/NAME"
    or "torchvision/NAME".

    split: "train", "test", or what the source calls its parts; "" takes all there is.  In a folder, a folder in it.
    size: side in pixels to which images in files are brought; 0: their own, at most 224.

    >>> digits = load("digits", split="test")
    >>> len(digits), digits.domains
    (500, ['plain', 'stripes', 'checks', 'clouds'])
    """
    if spec == "digits":
        return _digits(split)
    if spec.startswith("hf/"):
        return load_hf(spec.removeprefix("hf/"), split=split, size=size)
    if spec.startswith("torchvision/"):
        return load_torchvision(spec.removeprefix("torchvision/"), split=split, size=size)
    path = Path(spec)
    if path.suffix == ".npz" and path.is_file():
        return load_npz(path, split=split)
    if path.is_dir():
        if split and not (path / split).is_dir():
            raise ValueError(f"{path} has no folder {split!r}")
        return Folder(path / split if split else path, size=size)
    near = get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1) if path.parent.is_dir() else []
    hint = f" Did you mean {path.parent / near[0]}?" if near else ""
    raise ValueError(f"there are no data at {spec!r}.{hint} Data are {', '.join(SOURCES[:-1])} or {SOURCES[-1]}")


def load_pair(spec: str, *, size: int = 0) -> tuple[Images, Images | None]:
    """Training images and, where the source has them apart, test images."""
    path = Path(spec)
    if spec == "digits":
        return load(spec, split="train"), load(spec, split="test")
    if path.is_dir() and (path / "train").is_dir():
        test = next((name for name in ("test", "val") if (path / name).is_dir()), None)
        return load(spec, split="train", size=size), None if test is None else load(spec, split=test, size=size)
    if path.suffix == ".npz" and path.is_file() and "train" in (names := splits_of(path)):
        test = next((name for name in ("test", "val") if name in names), None)
        return load(spec, split="train"), None if test is None else load(spec, split=test)
    return load(spec, size=size), None


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
