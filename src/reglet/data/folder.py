"""Images in a folder: as they lie, in class/, or in domain/class/."""

import hashlib
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"})
FEWEST = 16  # images that anything can be learned from
IN_MEMORY = 2 << 30  # bytes of decoded images that are kept
LARGEST = 224  # side of the images where none is asked for


class Folder:
    """Every image brought to size x size: its shorter side resized, the middle cut out.

    A folder that fits in memory is decoded once; a larger one anew for each batch, in threads.

    unreadable: files that could not be decoded, with the reason.  They are not among the images.  In a folder that is
        too large to try them all, a file that turns out broken later is listed too, and the next one stands for it.
    """

    def __init__(self, root: Path, *, size: int = 0, threads: int = 0) -> None:
        self.name, self.root = root.name, root
        self.unreadable: dict[str, str] = {}
        self.pool = ThreadPoolExecutor(threads or min(16, 2 * (cpu_count() or 1)), thread_name_prefix="reglet-decode")
        paths = _images_in(root)
        self.size = size or _usual_size(paths)
        self._kept: Tensor | None = None
        if 3 * self.size**2 * len(paths) <= IN_MEMORY:
            decoded = list(self.pool.map(self._try, paths))
            self.paths = [path for path, image in zip(paths, decoded, strict=True) if image is not None]
            self._kept = torch.stack([image for image in decoded if image is not None]) if self.paths else None
        else:
            opened = list(self.pool.map(self._opens, paths))
            self.paths = [path for path, fine in zip(paths, opened, strict=True) if fine]
        self._report(len(paths))
        self.labels, self.classes, self.domain, self.domains = _kinds(root, self.paths)
        self.fingerprint = _digest(root, self.paths, self.size)

    def __len__(self) -> int:
        return len(self.paths)

    def batch(self, index: Int64[Tensor, " b"]) -> UInt8[Tensor, "b c h w"]:
        if self._kept is not None:
            return self._kept[index]
        return torch.stack(list(self.pool.map(self._or_next, index.tolist())))

    def _or_next(self, i: int) -> Tensor:
        for j in range(len(self.paths)):
            image = self._try(self.paths[(i + j) % len(self.paths)])
            if image is not None:
                return image
        raise ValueError(f"no image in {self.root} can be read any more")

    def _try(self, path: Path) -> Tensor | None:
        try:
            return decode(path, size=self.size)
        except Exception as error:  # whatever a broken file makes a decoder raise
            self.unreadable[str(path.relative_to(self.root))] = f"{type(error).__name__}: {error}"
            return None

    def _opens(self, path: Path) -> bool:
        from PIL import Image

        try:
            with Image.open(path):
                return True
        except Exception as error:
            self.unreadable[str(path.relative_to(self.root))] = f"{type(error).__name__}: {error}"
            return False

    def _report(self, found: int) -> None:
        if self.unreadable:
            listed = ", ".join(list(self.unreadable)[:5]) + (", ..." if len(self.unreadable) > 5 else "")
            message = (
                f"{len(self.unreadable)} of {found} images in {self.root} cannot be read and are left out: {listed}"
            )
            warnings.warn(message, stacklevel=3)
        if len(self.paths) < FEWEST:
            raise ValueError(
                f"{self.root} has {len(self.paths)} readable images, {len(self.unreadable)} unreadable ones; "
                f"at least {FEWEST} are needed, in files that end in {', '.join(sorted(SUFFIXES))}"
            )


def decode(path: Path, *, size: int) -> UInt8[Tensor, "3 size size"]:
    """RGB, upright, the shorter side resized to `size`, the middle cut out."""
    from PIL import Image, ImageOps

    with Image.open(path) as file:
        file.draft("RGB", (size, size))  # JPEG can be decoded at a fraction of its size
        image = ImageOps.exif_transpose(file).convert("RGB")
    image = ImageOps.fit(image, (size, size), method=Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _images_in(root: Path) -> list[Path]:
    if not root.is_dir():
        raise ValueError(f"{root} is no folder")
    paths = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and not _hidden(p, root))
    if not paths:
        raise ValueError(f"{root} has no images: no file ends in {', '.join(sorted(SUFFIXES))}")
    return paths


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _usual_size(paths: Sequence[Path]) -> int:
    """The middle one of the shorter sides of up to 32 images, and at most LARGEST."""
    from PIL import Image

    sides = []
    for path in paths[:: max(1, len(paths) // 32)][:32]:
        try:
            with Image.open(path) as image:
                sides.append(min(image.size))
        except Exception:  # it is reported when it is read
            continue
    return min(LARGEST, sorted(sides)[len(sides) // 2]) if sides else LARGEST


def _kinds(
    root: Path, paths: Sequence[Path]
) -> tuple[Tensor | None, list[str] | None, Tensor | None, list[str] | None]:
    """Labels and domains from the two lowest folders, if all images lie equally deep."""
    parents = [path.relative_to(root).parts[:-1] for path in paths]
    depths = {len(parts) for parts in parents}
    if depths not in ({1}, {2}):
        return None, None, None, None
    labels, classes = _numbered([parts[-1] for parts in parents])
    if depths == {1}:
        return labels, classes, None, None
    return labels, classes, *_numbered([parts[0] for parts in parents])


def _numbered(names: Sequence[str]) -> tuple[Tensor, list[str]]:
    every = sorted(set(names))
    place = {name: i for i, name in enumerate(every)}
    return torch.tensor([place[name] for name in names]), every


def _digest(root: Path, paths: Sequence[Path], size: int) -> str:
    """Of names and sizes of the files: reading all of them again would take too long."""
    state = hashlib.sha256(str(size).encode())
    for path in paths:
        state.update(f"{path.relative_to(root)}\0{path.stat().st_size}\n".encode())
    return state.hexdigest()[:16]
