"""Images in files: kept decoded where they fit in memory, otherwise decoded anew for each batch, in threads."""

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from reglet.data.decode import Array, Box, Picture, cut, cut_bytes, open_picture, to_unit
from reglet.data.files import Files, readable
from reglet.data.images import Pixels
from reglet.data.pillow_memory import shared_array
from reglet.data.unreadable import MOST, TooManyUnreadableError, Unreadable
from reglet.threads import single_threads
from reglet.views.crop import Crops

T = TypeVar("T")

FEWEST = 16  # images that anything can be learned from
IN_MEMORY = 2 << 30  # bytes of decoded images that are kept
_GLIMPSE = 4096  # bytes
_HELD_FILE, _HELD = 1 << 20, 64 << 20  # bytes of a file, and of all files of a batch, that are held to be decoded
_AT_ONCE = 4  # images that a thread takes from the queue
LARGEST = 224  # side of the images where none is asked for
SAMPLE = 32  # files that are looked at to know what the others are like


class Pictures:
    """`files` as images.

    Whole images are kept if they fit in memory, with a shorter side of at most twice `size`.  Otherwise files are
    opened when they are asked for.  A file that cannot be read is listed in `unreadable` and replaced by the next one
    of its class and domain.  So no image has a wrong label, and a resumed run sees the same.

    size: side of the images of `batch`; 0: the usual shorter side, at most 224.
    channels: 0 takes those of most files, 3 for photographs and 1 for 16 bit grey.
    workers: threads that decode; 0 takes one for each CPU that this process may use.
    keep: False opens files each time, even if they are few.
    once: for images that are seen once, such as for predictions.  None is kept, one image is enough, and a blank image
        replaces each file that cannot be read, even if they are many.
    """

    def __init__(
        self,
        files: Files,
        *,
        size: int = 0,
        channels: int = 0,
        workers: int = 0,
        keep: bool = True,
        once: bool = False,
    ) -> None:
        if len(files) < FEWEST and not once:
            raise ValueError(f"{files.name} has {len(files)} images, at least {FEWEST} are needed")
        self.files, self.name = files, files.name
        self.rows: NDArray[np.int64] = np.arange(len(files))  # of `files`
        self.unreadable = Unreadable(len(files), where=files.name, most=1.0 if once else MOST)
        self.once = once
        self.workers = workers or available_cpus()
        self.pool = single_threads(self.workers)
        seen = self._sample()
        self.size = size or min(LARGEST, sorted(min(p.height, p.width) for p in seen)[len(seen) // 2])
        self.channels = channels or Counter(p.channels for p in seen).most_common(1)[0][0]
        self.deep = any(p.deep for p in seen)
        self.labels, self.classes, self.domain, self.domains = files.known
        self.fingerprint = _digest(files.fingerprint, self.size, self.channels, self.deep)
        self._groups: NDArray[np.int64] | None = None
        self._held = _Held()
        self._kept = self._keep() if keep and not once and self._fits(seen) else None
        self._stacked = _stacked(self._kept)
        if self._stacked is not None and self._kept is not None:  # one copy
            fine = zip(self._kept, self._stacked, strict=True)
            self._kept = [old if isinstance(old, Exception) else new for old, new in fine]
        self._warn()

    def part(self, index: Int64[Tensor, " b"], *, name: str) -> "Pictures":
        """These images as a data set.  A broken file is replaced by one of this part."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.rows = self.rows[index.numpy()]
        new.labels, new.domain = (None if known is None else known[index] for known in (self.labels, self.domain))
        new.name = f"{self.name}/{name}"
        new.fingerprint = _digest(self.fingerprint, new.rows.tobytes())
        new._groups = None
        return new

    def __len__(self) -> int:
        return len(self.rows)

    def names(self, index: Int64[Tensor, " b"]) -> list[str]:
        return [readable(self.files.file_name(int(self.rows[i]))) for i in index.tolist()]

    def batch(self, index: Int64[Tensor, " b"]) -> Pixels:
        """The shorter side resized to `size`, the middle cut out."""

        def middle(k: int, j: int, height: int, width: int) -> list[_Cut]:
            side = min(height, width)
            box = Box((height - side) / 2, (width - side) / 2, side, side)
            return [_Cut(box, (self.size, self.size), "bicubic", exact=True)]

        return self._cut(index, [self.size], middle)[0]

    def whole(self, index: Int64[Tensor, " b"]) -> Pixels | None:
        if self._stacked is None:
            return None
        rows = self.rows[index.numpy()]
        if len(self.unreadable):
            rows = np.array([self._readable(i, self._readable_row) for i in index.tolist()])
        return _tensor(to_unit(self._stacked[rows]))

    def sizes(self, index: Int64[Tensor, " b"]) -> Int64[Tensor, "b 2"]:
        """Small files are held in memory until `crops` asks for them, so that they are opened once."""
        held = _Held()
        sizes = self._each(lambda i: self._readable(i, lambda j: self._size(j, held)), index.tolist())
        self._held = held
        return torch.tensor(sizes)

    def crops(self, index: Int64[Tensor, " b"], asked: Sequence[Crops]) -> list[Pixels]:
        boxes, images = [each.boxes.tolist() for each in asked], index.tolist()

        def boxed(k: int, j: int, height: int, width: int) -> list[_Cut]:
            i = images[k]
            h, w = (height, width) if j == i else self._readable(i, self._size)  # for which the boxes were drawn
            down, across = height / h, width / w
            cuts = []
            for each, box in zip(asked, boxes, strict=True):
                y, x, dy, dx = box[k]
                if y < 0 or x < 0 or y + dy > h or x + dx > w:
                    raise ValueError(f"the box {box[k]} is outside of an image of {h} x {w}: did the file change?")
                scaled = Box(y * down, x * across, dy * down, dx * across)
                cuts.append(_Cut(scaled, (each.size, each.size), each.interpolation, exact=each.exact))
            return cuts

        return self._cut(index, [each.size for each in asked], boxed)

    def content(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        """A digest of the bytes of each file, or of the name of an unreadable one."""
        return self._digests(index, lambda source: source.read())

    def glimpse(self, index: Int64[Tensor, " b"]) -> list[bytes]:
        """A digest of a few bytes from the middle: cheap, and enough to tell different images apart."""

        def middle(source: Any) -> bytes:
            source.seek(source.seek(0, os.SEEK_END) // 2)
            return source.read(_GLIMPSE)

        return self._digests(index, middle)

    def _digests(self, index: Int64[Tensor, " b"], read: Callable[[Any], bytes]) -> list[bytes]:
        def digest(i: int) -> bytes:
            row = int(self.rows[i])
            try:
                with _closing(self.files.open(row)) as source:
                    data = source.tobytes() if isinstance(source, Image.Image) else read(source)
            except Exception as error:
                self._note(row, error)
                data = (
                    f"{self.name}: {readable(self.files.file_name(row))}".encode()
                )  # the same name elsewhere is no copy
            return hashlib.blake2b(data, digest_size=16).digest()

        return list(self.pool.map(digest, index.tolist()))

    def lengths(self) -> NDArray[np.int64]:
        """The length of each file in bytes, if known.  Files of different lengths need not be compared."""
        return np.zeros(len(self), np.int64) if self.files.lengths is None else self.files.lengths[self.rows]

    def _cut(
        self, index: Tensor, sides: Sequence[int], want: "Callable[[int, int, int, int], list[_Cut]]"
    ) -> list[Any]:
        """want(place in the batch, index of the image that is read, its height, its width) -> one cut of each side."""
        kind = torch.float32 if self.deep else torch.uint8
        out = [torch.empty(len(index), self.channels, side, side, dtype=kind) for side in sides]
        images = index.tolist()

        def fill(k: int) -> None:
            def read(j: int) -> list[Tensor]:
                return self._read(j, lambda height, width: want(k, j, height, width))

            try:
                for where, values in zip(out, self._readable(images[k], read), strict=True):
                    where[k] = values
            except NoneReadableError:
                if not self.once:
                    raise
                for where in out:
                    where[k] = 0

        self._each(fill, range(len(index)))
        return out

    def _each(self, work: Callable[[int], T], items: Sequence[int]) -> list[T]:
        """`work` of each item, in the threads.  A thread takes a few at a time, because to hand one over costs 3 %."""
        few = max(1, min(_AT_ONCE, len(items) // (4 * self.workers)))
        parts = [items[k : k + few] for k in range(0, len(items), few)]
        return [each for part in self.pool.map(lambda part: [work(i) for i in part], parts) for each in part]

    def _read(self, j: int, want: "Callable[[int, int], list[_Cut]]") -> list[Tensor]:
        row = int(self.rows[j])
        if self._kept is not None:
            pixels = self._kept_pixels(row)
            height, width = pixels.shape[:2]
            return [each.of(to_unit(pixels), each.box) for each in want(height, width)]
        if (picture := self._held.pictures.pop(row, None)) is not None:
            return _decoded(picture, want(picture.height, picture.width), channels=self.channels, deep=self.deep)
        with _closing(self.files.open(row)) as source:
            picture = open_picture(source)
            cuts = want(picture.height, picture.width)
            return _decoded(picture, cuts, channels=self.channels, deep=self.deep)

    def _size(self, j: int, held: "_Held | None" = None) -> tuple[int, int]:
        row = int(self.rows[j])
        if self._kept is not None:
            height, width = self._kept_pixels(row).shape[:2]
            return height, width
        with _closing(self.files.open(row)) as source:
            picture = open_picture(source) if held is None else held.open(row, source)
            return picture.height, picture.width

    def _kept_pixels(self, row: int) -> Array:
        assert self._kept is not None
        pixels = self._kept[row]
        if isinstance(pixels, Exception):
            raise pixels
        return pixels

    def _readable_row(self, j: int) -> int:
        self._kept_pixels(int(self.rows[j]))
        return int(self.rows[j])

    def _readable(self, i: int, read: Callable[[int], T]) -> T:
        """The result of `read` for image i, or for the next readable one of its class and domain."""
        for j in self._stand_ins(i):
            try:
                return read(j)
            except TooManyUnreadableError:
                raise
            except Exception as error:  # whatever a broken file makes a decoder raise
                self._note(int(self.rows[j]), error)
        raise NoneReadableError(f"of the class and domain of {self.names(torch.tensor([i]))[0]} no image can be read")

    def _stand_ins(self, i: int) -> Iterator[int]:
        yield i
        if self.once:
            return
        if self._groups is None:
            label, domain = (torch.zeros(len(self)) if x is None else x for x in (self.labels, self.domain))
            self._groups = (label * (1 + domain.max()) + domain).long().numpy()
        same = np.flatnonzero(self._groups == self._groups[i])
        first = int(np.searchsorted(same, i)) + 1
        yield from (int(j) for j in np.roll(same, -first)[:-1])

    def _note(self, row: int, error: Exception) -> None:
        self.unreadable.add(readable(self.files.file_name(row)), error)

    def _sample(self) -> list[Picture]:
        """The headers of a few files, evenly spread."""
        found = []
        for row in np.unique(np.linspace(0, len(self.files) - 1, SAMPLE).astype(int)).tolist():
            try:
                with _closing(self.files.open(row)) as source:
                    found.append(open_picture(source))
            except ImportError:  # what is missing is a library
                raise
            except Exception as error:
                self._note(row, error)
        if not found:
            raise ValueError(f"no file of {self.name} can be read: {self.unreadable.first}")
        return found

    def _fits(self, seen: Sequence[Picture]) -> bool:
        values = [self.channels * np.prod(_bounded(p.height, p.width, 2 * self.size)) for p in seen]
        return float(np.mean(values)) * (2 if self.deep else 1) * len(self.files) <= IN_MEMORY

    def _keep(self) -> list[Array | Exception]:
        def whole(row: int) -> Array | Exception:
            try:
                with _closing(self.files.open(row)) as source:
                    picture = open_picture(source)
                    h, w = picture.height, picture.width
                    bound = _bounded(h, w, 2 * self.size)
                    if bound == (h, w):
                        pixels = picture.pixels(channels=self.channels, deep=self.deep)
                        return np.array(pixels).reshape(h, w, self.channels)
                    everything = _Cut(Box(0, 0, h, w), bound, "bicubic")
                    (small,) = _decoded(picture, [everything], channels=self.channels, deep=self.deep)
                    return small.permute(1, 2, 0).contiguous().numpy()
            except Exception as error:
                self._note(row, error)
                return error

        return list(self.pool.map(whole, range(len(self.files))))

    def _warn(self) -> None:
        if (broken := self.unreadable.reasons) and not self.once:
            listed = ", ".join(list(broken)[:5]) + (", ..." if len(broken) > 5 else "")
            warnings.warn(
                f"{len(broken)} of {len(self.files)} images in {self.name} cannot be read; others of their class stand "
                f"for them: {listed}",
                stacklevel=3,
            )


class NoneReadableError(ValueError):
    """Neither the file nor one that could replace it can be read."""


class _Held:
    """row -> a picture whose header was read, and whose encoded bytes are in memory.  Large files are not held."""

    def __init__(self) -> None:
        self.pictures: dict[int, Picture] = {}
        self.room = _HELD

    def open(self, row: int, source: Any) -> Picture:
        if isinstance(source, Image.Image):
            return open_picture(source)
        data = source.read(_HELD_FILE)
        if len(data) == _HELD_FILE or len(data) > self.room:
            source.seek(0)
            return open_picture(source)
        picture = open_picture(BytesIO(data))
        if picture.image is not None:  # otherwise it is decoded already
            self.pictures[row] = picture
            self.room -= len(data)
        return picture


class _Cut(NamedTuple):
    """A box of an image, and the (height, width) to which it is resized.

    exact: from all pixels and by Pillow, as other libraries read an image for evaluation.  Otherwise a JPEG may be
        decoded at a smaller size.
    """

    box: Box
    out: tuple[int, int]
    interpolation: str
    exact: bool = False

    def of(self, pixels: Image.Image | Array, box: Box) -> Tensor:
        """box: the same, in the pixels as they were decoded."""
        fast = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and all(x == int(x) for x in box)
        by_torch = fast and not self.exact and self.interpolation != "lanczos"  # which torch does not have
        how = cut_bytes if by_torch else cut
        return how(pixels, box, out=self.out, how=self.interpolation)  # type: ignore[arg-type]


def _decoded(picture: Picture, cuts: Sequence[_Cut], *, channels: int, deep: bool) -> list[Tensor]:
    """The cuts of a picture.  It is decoded once, at the smallest size that serves all of them."""
    room = min(1.0 if c.exact else min(c.box.height / c.out[0], c.box.width / c.out[1]) for c in cuts)
    shrink = next(s for s in (8, 4, 2, 1) if room >= s or s == 1)
    pixels = picture.pixels(channels=channels, deep=deep, shrink=shrink)
    width, height = pixels.size if isinstance(pixels, Image.Image) else pixels.shape[1::-1]
    down, across = height / picture.height, width / picture.width
    if shrink == 1 and (down, across) != (1.0, 1.0):
        raise ValueError(f"its header says {picture.height} x {picture.width}, and it has {height} x {width} pixels")
    if not isinstance(pixels, Image.Image):
        pixels = to_unit(pixels)
    elif not all(each.exact for each in cuts):
        pixels = shared_array(pixels)
    scale = down, across, down, across
    return [each.of(pixels, Box(*(x * s for x, s in zip(each.box, scale, strict=True)))) for each in cuts]


def _bounded(height: int, width: int, shorter: int) -> tuple[int, int]:
    """The size of the same aspect whose shorter side is within the limit."""
    ratio = min(1.0, shorter / min(height, width))
    return max(1, round(height * ratio)), max(1, round(width * ratio))


def _stacked(kept: Sequence[Array | Exception] | None) -> Array | None:
    """All images in one array, if they have one size.  A broken one is blank and never shown."""
    fine = [x for x in kept or () if not isinstance(x, Exception)]
    if kept is None or len({(x.shape, x.dtype) for x in fine}) != 1:
        return None
    blank = np.zeros_like(fine[0])
    return np.stack([blank if isinstance(x, Exception) else x for x in kept])


def _tensor(values: Array) -> Tensor:
    return torch.from_numpy(values).permute(0, 3, 1, 2).contiguous()


def _closing(source: Any) -> AbstractContextManager[Any]:
    """Closes files; an image that a library has opened stays open."""
    return nullcontext(source) if isinstance(source, Image.Image) else source


def available_cpus() -> int:
    """The CPUs that this process may use, at most 16."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(16, count)


def _digest(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]
