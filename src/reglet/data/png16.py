"""16-bit colours of a PNG, of which Pillow keeps 8 bit.

After decompression each row has a filter (0 to 4), which says what was subtracted from its bytes: nothing, the byte of
the pixel to the left (a), of the one above (b), their mean, or Paeth's choice among a, b and the one above a (c).
Undoing it needs a, b and c, so the pixels of one anti-diagonal, x + y = t, are undone at once: h + w steps in all.
"""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SAMPLES = {2: 3, 4: 2, 6: 4}  # colour type -> RGB, grey and alpha, RGBA


def read_png16(data: bytes) -> NDArray[np.uint16]:
    """(height, width, channels)."""
    chunks = _chunks(data)
    w, h, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[0][1])
    if bits != 16 or colour not in _SAMPLES:
        raise ValueError(f"expected a PNG of 16-bit colours, got {bits} bit and colour type {colour}")
    if interlaced:
        raise ValueError("an interlaced PNG of 16-bit colours cannot be read: save it without interlacing")
    width = 2 * _SAMPLES[colour]
    size = h * (1 + w * width)
    raw = zlib.decompressobj().decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"), size)
    if len(raw) < size:
        raise ValueError(f"the file is truncated: it has {len(raw)} of {size} bytes")
    rows = np.frombuffer(raw, np.uint8).reshape(h, 1 + w * width)
    values = _unfiltered(rows[:, 1:].reshape(h, w, width), rows[:, 0])
    return values.view(">u2").astype(np.uint16)


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if zlib.crc32(kind + body) != int.from_bytes(data[at + 8 + length : at + 12 + length], "big"):
            raise ValueError(f"the file is broken in its {kind.decode('ascii', 'replace')} chunk")
        found.append((kind, body))
        at += 12 + length
    return found


def _unfiltered(filtered: NDArray[np.uint8], kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if int(kinds.max()) > 4:
        raise ValueError(f"a PNG has the filters 0 to 4, got {int(kinds.max())}")
    h, w, width = filtered.shape
    x = np.zeros((h + 1, w + 1, width), np.int16)  # with a border of zeros, above and to the left
    for t in range(h + w - 1):
        row = np.arange(max(0, t - w + 1), min(h, t + 1))
        column = t - row
        a, b, c = x[row + 1, column], x[row, column + 1], x[row, column]
        p = a + b - c
        to_a, to_b, to_c = abs(p - a), abs(p - b), abs(p - c)
        paeth = np.where((to_a <= to_b) & (to_a <= to_c), a, np.where(to_b <= to_c, b, c))
        guess = np.choose(kinds[row][:, None], [np.zeros_like(a), a, b, (a + b) // 2, paeth])
        x[row + 1, column + 1] = (filtered[row, column] + guess) & 255
    return x[1:, 1:].astype(np.uint8)
