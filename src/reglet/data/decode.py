"""One image file: what its header says, and its pixels.

| file | treatment |
|---|---|
| grey, RGB, palette, CMYK, YCbCr, RGBA | RGB; transparency is dropped, as torchvision does |
| the same with `channels=1` or `channels=4` | grey, or RGBA with its alpha (CMYK as it is) |
| 16 bit PNG or TIFF, grey or colour; more than 4 channels in TIFF or .npy | float32 in [0, 1], without loss |
| 16 bit colours in other formats | 8 bit: Pillow reads no more |
| float TIFF or .npy | unchanged if all values are in [0, 1]; else refused |
| 32 bit integers | refused: nothing says which value is white |
| EXIF orientation | turned upright |
| animated | the first frame |
| truncated, too large (Pillow's limit against decompression bombs), FIFO, device | refused |
"""

import os
import stat
from dataclasses import dataclass
from io import BytesIO
from math import ceil, floor
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from reglet.data.pillow_memory import with_fourth_byte
from reglet.data.png16 import read_png16

Array = NDArray[Any]  # (h, w, c) of uint8, uint16 or float32
MOST_CHANNELS = 16
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_ORIENTATION = 0x0112
_HOW = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file.  A FIFO or a device is refused: reading it could wait for ever, or never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is no regular file")
    return os.fdopen(handle, "rb")


@dataclass
class Picture:
    """An opened image.  height, width: of the upright image.  deep: values need more than a byte."""

    height: int
    width: int
    channels: int
    deep: bool
    image: Image.Image | None = None
    array: Array | None = None
    orientation: int = 1

    def pixels(self, *, channels: int, deep: bool, shrink: int = 1) -> Image.Image | Array:
        """A Pillow image for 8 bit grey or RGB, otherwise an array.

        shrink: 1, 2, 4 or 8, the factor by which a JPEG is decoded smaller; other files keep their size.
        """
        if self.image is None:
            assert self.array is not None
            alpha = channels == self.array.shape[2]  # dropped unless it was asked for
            return _depth(_spread(self.array if alpha else self.array[:, :, : self.channels], channels), deep)
        if shrink > 1:
            self.image.draft(None, (self.image.width // shrink, self.image.height // shrink))
        image = self.image if self.deep else _converted(self.image, channels)
        if self.orientation in _TURNS:
            image = image.transpose(_TURNS[self.orientation])
        if self.deep:
            return _depth(_spread(_grey(image), channels), deep)
        image.load()
        if not deep and channels in (1, 3):
            return image
        return _depth(_with_channels(np.asarray(image)), deep)


def open_picture(source: BytesIO | BinaryIO | Image.Image) -> Picture:
    """Open an image file and read its header.  An error says why it cannot be used."""
    if isinstance(source, Image.Image):
        return _of_pillow(source)
    head = source.read(8)
    source.seek(0)
    if head[:6] == b"\x93NUMPY":
        return _of_array(np.load(source, allow_pickle=False))
    if head[:4] in (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+") and (deep := _tiff(source)) is not None:
        return _of_array(deep)
    try:
        return _of_pillow(Image.open(source))
    except UnidentifiedImageError:
        raise UnidentifiedImageError("no format that Pillow knows") from None


class Box(NamedTuple):
    """In pixels, with fractions where a JPEG was decoded at a fraction of its size."""

    top: float
    left: float
    height: float
    width: float

    @property
    def around(self) -> tuple[int, int, int, int]:
        """(top, left, bottom, right) of the whole pixels that the box touches."""
        return floor(self.top), floor(self.left), ceil(self.top + self.height), ceil(self.left + self.width)


def cut(pixels: Image.Image | Array, box: Box, *, out: tuple[int, int], how: str) -> Tensor:
    """Cut a box and resize it once to `out` (height, width), by Pillow.  Pixels outside the box have no influence."""
    top, left, bottom, right = box.around
    inside = (box.left - left, box.top - top, box.left - left + box.width, box.top - top + box.height)
    if isinstance(pixels, Image.Image):
        parts = [pixels.crop((left, top, right, bottom))]
    else:
        planes = pixels[top:bottom, left:right]
        kind = np.uint8 if planes.dtype == np.uint8 else np.float32
        parts = [Image.fromarray(np.ascontiguousarray(planes[:, :, k], dtype=kind)) for k in range(planes.shape[2])]
    found = [_with_channels(np.array(_resized(part, inside, out, how))) for part in parts]
    return torch.from_numpy(found[0] if len(found) == 1 else np.concatenate(found, axis=2)).permute(2, 0, 1)


def cut_bytes(pixels: Array, box: Box, *, out: tuple[int, int], how: str) -> Tensor:
    """The same for bytes and whole pixels by torch, in a third of the time: torchvision's `resized_crop` of a tensor.

    It differs from Pillow's by 1 or 2 of 255 in a few per cent of the pixels.
    """
    top, left, bottom, right = box.around
    planes = with_fourth_byte(pixels[top:bottom, left:right])
    part = torch.from_numpy(planes).permute(2, 0, 1)
    if part.shape[1:] != out:
        part = F.interpolate(part[None], out, mode=how, antialias=True)[0]
    return part[: pixels.shape[2]]


def to_unit(values: Array) -> Array:
    """uint16 to float32 in [0, 1], without loss."""
    return values.astype(np.float32) / np.float32(65535) if values.dtype == np.uint16 else values


def _resized(part: Image.Image, box: tuple[float, float, float, float], out: tuple[int, int], how: str) -> Image.Image:
    size = out[1], out[0]
    return part if part.size == size and box == (0, 0, *size) else part.resize(size, _HOW[how], box=box)


def _of_pillow(image: Image.Image) -> Picture:
    orientation = 1
    if image.format != "TIFF" and "exif" in image.info:  # Pillow turns TIFF itself
        exif = Image.Exif()
        exif.load(image.info["exif"])
        orientation = int(exif.get(_ORIENTATION, 1))
    width, height = image.size if orientation < 5 else image.size[::-1]
    if image.format == "PNG" and len(image.getbands()) > 1 and _raw_mode(image).endswith(";16B"):
        return _of_png16(image, height, width, orientation)
    deep = image.mode.startswith("I;16") or image.mode == "F" or (image.mode == "I" and image.format in ("PNG", "PPM"))
    if image.mode == "I" and not deep:
        raise ValueError("it has 32-bit integers, and nothing says which of them is white: save it as 16 bit")
    return Picture(height, width, 1 if deep else 3, deep, image=image, orientation=orientation)


def _raw_mode(image: Image.Image) -> str:
    tiles = cast(Any, image).tile  # of a file that is not decoded yet
    return str(tiles[0][3]) if tiles else ""


def _of_png16(image: Image.Image, height: int, width: int, orientation: int) -> Picture:
    file = cast(Any, image).fp
    file.seek(0)
    values: Array = read_png16(file.read())
    if orientation in _TURNS:
        planes = [Image.fromarray(plane).transpose(_TURNS[orientation]) for plane in np.moveaxis(values, 2, 0)]
        values = np.stack([np.asarray(plane) for plane in planes], axis=2)
    return Picture(height, width, 1 if values.shape[2] == 2 else 3, True, array=values)


def _of_array(values: Array) -> Picture:
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise ValueError(f"an image is (height, width) or (height, width, channels), got shape {values.shape}")
    values = _with_channels(values)
    h, w, c = values.shape
    if c > MOST_CHANNELS and h <= MOST_CHANNELS:
        values, (c, h, w) = values.transpose(1, 2, 0), values.shape
    if c > MOST_CHANNELS:
        raise ValueError(f"an image has at most {MOST_CHANNELS} channels, got shape {values.shape}")
    return Picture(h, w, c, values.dtype != np.uint8, array=check_values(values))


def check_values(values: Array) -> Array:
    """Check for uint8, uint16 or float32 in [0, 1].  An error says what came instead."""
    if values.dtype in (np.uint8, np.uint16):
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:  # of the other byte order
        return values.astype(np.uint16)
    if values.dtype.kind != "f":
        raise ValueError(f"it has {values.dtype}, and nothing says which value is white: save it as uint8 or uint16")
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):
        raise ValueError(f"floating-point images are in [0, 1], this one has values from {low:g} to {high:g}")
    return values.astype(np.float32)


def _tiff(source: BytesIO | BinaryIO) -> Array | None:
    """The pixels of a TIFF that Pillow cannot read, or only with loss: 16 bit colours, more than four channels."""
    try:
        with Image.open(source) as image:
            tags = cast(Any, image).tag_v2
            bits, samples = tags.get(258, (1,)), tags.get(277, 1)
            if samples == 1 or max(bits) <= 8:
                return None
    except UnidentifiedImageError:
        pass
    source.seek(0)
    try:
        import tifffile  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError("a TIFF of 16 bit colours or many channels needs: pip install 'reglet[tiff]'") from error
    values: Array = tifffile.imread(BytesIO(source.read()))
    if values.ndim == 3 and values.shape[0] <= MOST_CHANNELS < min(values.shape[1:]):
        values = values.transpose(1, 2, 0)  # planes one after the other
    return values


def _grey(image: Image.Image) -> Array:
    """16 bit or floating-point grey."""
    if image.mode == "F":
        return check_values(np.asarray(image))[:, :, None]
    return np.asarray(image).astype(np.uint16)[:, :, None]


def _converted(image: Image.Image, channels: int) -> Image.Image:
    if channels not in _MODES:
        raise ValueError(f"it is {image.mode}, and images of {channels} channels were expected")
    mode = _MODES[channels]
    if image.mode == mode or (channels == 4 and image.mode == "CMYK"):
        return image
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert(mode)


def _with_channels(values: Array) -> Array:
    return values[:, :, None] if values.ndim == 2 else values


def _spread(values: Array, channels: int) -> Array:
    """Grey may stand for as many channels as are wanted; otherwise their number must be right."""
    have = values.shape[2]
    if have == channels:
        return values
    if have != 1:
        raise ValueError(f"it has {have} channels, and {channels} were expected")
    return values.repeat(channels, axis=2)


def _depth(values: Array, deep: bool) -> Array:
    """Bytes, or where the data set is deep float32 in [0, 1] (16 bit may stay so until they are used)."""
    if deep:
        return values.astype(np.float32) / np.float32(255) if values.dtype == np.uint8 else values
    if values.dtype == np.uint16:
        return (values.astype(np.float32) / 257).round().astype(np.uint8)
    return (values * 255).round().astype(np.uint8) if values.dtype != np.uint8 else values
