"""Links, strays, names, crops and depths of pixels."""

import struct
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from tests.data.drawn import fill

from reglet.data import load, load_pair, pictures
from reglet.data.decode import open_picture
from reglet.data.png16 import read_png16
from reglet.data.reader import read
from reglet.views import Crops, policy


def test_two_ranks_read_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    fill(tmp_path, "cat", "dog")
    for i in range(10):
        Image.effect_noise((50 + 5 * i, 30), 90).convert("RGB").save(tmp_path / "cat" / f"{i:02}.png")
    images, views, index = load(str(tmp_path)), policy("ser", size=16), torch.tensor([3, 17, 8, 0])

    def pixels(mine: slice) -> list[torch.Tensor]:
        return read(images, views, index, mine=mine, generator=torch.Generator().manual_seed(0)).pixels

    for whole, first, second in zip(pixels(slice(0, 4)), pixels(slice(0, 2)), pixels(slice(2, 4)), strict=True):
        assert torch.equal(whole, torch.cat([first, second]))


def test_links_are_followed_and_circles_cut(tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere", "dog")
    fill(tmp_path / "photos", "cat")
    (tmp_path / "photos" / "dog").symlink_to(tmp_path / "elsewhere" / "dog")
    (tmp_path / "photos" / "cat" / "up").symlink_to(tmp_path / "photos")
    data = load(str(tmp_path / "photos"))
    assert data.classes == ["cat", "dog"]
    assert len(data) == 20


def test_a_stray_image_is_named_and_labels_stay(tmp_path: Path) -> None:
    fill(tmp_path, "cat", "dog")
    Image.new("RGB", (32, 24)).save(tmp_path / "cover.png")
    with pytest.warns(UserWarning, match=r"in class/, except for 1, which are left out: cover.png"):
        data = load(str(tmp_path))
    assert (len(data), data.classes) == (20, ["cat", "dog"])
    for i in range(15):
        Image.new("RGB", (32, 24), (i, 0, 0)).save(tmp_path / f"cover-{i}.png")
    with pytest.warns(UserWarning, match="16 images 0 folders deep, 20 images 1 folders deep.* there are no labels"):
        assert load(str(tmp_path)).labels is None


@pytest.mark.parametrize("suffix", ["png", "tif", "npy"])
def test_16_bit_without_loss(tmp_path: Path, suffix: str) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (16, 12, 12), dtype=np.uint16)
    for i, value in enumerate(values):
        path = tmp_path / f"{i:02}.{suffix}"
        _ = np.save(path, value) if suffix == "npy" else Image.fromarray(value).save(path)
    data = load(str(tmp_path))
    found = data.whole(torch.arange(16))
    assert found is not None
    assert np.array_equal((found.numpy()[:, 0] * 65535).round().astype(np.uint16), values)


def png16(values: np.ndarray, kinds: Sequence[int]) -> bytes:
    """A PNG of 16-bit colours, as the specification says it, byte by byte; kinds: the filter of each row."""
    h, w, c = values.shape
    x = np.frombuffer(values.astype(">u2").tobytes(), np.uint8).reshape(h, w * 2 * c).astype(int)
    step, raw = 2 * c, bytearray()
    for y, kind in enumerate(kinds):
        raw.append(kind)
        for k in range(w * step):
            a = x[y, k - step] if k >= step else 0
            b = x[y - 1, k] if y else 0
            up_left = x[y - 1, k - step] if y and k >= step else 0
            p = a + b - up_left
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - up_left), 2, up_left))[2]
            raw.append((x[y, k] - (0, a, b, (a + b) // 2, paeth)[kind]) % 256)
    header = struct.pack(">IIBBBBB", w, h, 16, {3: 2, 2: 4, 4: 6}[c], 0, 0, 0)
    out = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(raw))), (b"IEND", b"")):
        out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return out


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_16_bit_colour_png_without_loss(tmp_path: Path, channels: int) -> None:
    """Every filter; alpha is dropped as that of 8 bit is, and there where it is asked for."""
    values = np.random.default_rng(0).integers(0, 65536, (16, 12, 7, channels), dtype=np.uint16)
    values[:8] = values[:8].cumsum(axis=1) // 8 % 65536  # smooth, so that filters have something to do
    for i, value in enumerate(values):
        (tmp_path / f"{i:02}.png").write_bytes(png16(value, [(i + row) % 5 for row in range(12)]))
        with Image.open(tmp_path / f"{i:02}.png") as seen:  # the file is a right one: Pillow reads its upper bytes
            assert np.array_equal(np.asarray(seen), value >> 8) or channels == 2
    kept = 1 if channels == 2 else 3
    data = load(str(tmp_path), channels=kept)
    opened = [open_picture(BytesIO((tmp_path / f"{i:02}.png").read_bytes())) for i in range(16)]
    assert all((p.height, p.width, p.channels, p.deep) == (12, 7, kept, True) for p in opened)
    for picture, value in zip(opened, values, strict=True):
        assert np.array_equal(picture.pixels(channels=kept, deep=True), value[:, :, :kept])
        assert np.array_equal(picture.pixels(channels=channels, deep=True), value)
    assert data.batch(torch.arange(16)).dtype == torch.float32


def test_a_broken_16_bit_png_says_so() -> None:
    whole = png16(np.zeros((4, 4, 3), np.uint16), [0] * 4)
    with pytest.raises(ValueError, match="broken in its IDAT chunk"):
        read_png16(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    header = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 1)
    with pytest.raises(ValueError, match="interlaced"):
        read_png16(whole[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + whole[33:])


def test_16_bit_colour_tiff_without_loss(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (16, 12, 12, 3), dtype=np.uint16)
    for i, value in enumerate(values):
        tifffile.imwrite(tmp_path / f"{i:02}.tif", value, photometric="rgb")
    found = load(str(tmp_path)).whole(torch.arange(16))
    assert found is not None
    assert np.array_equal((found.numpy().transpose(0, 2, 3, 1) * 65535).round().astype(np.uint16), values)


def test_four_channels_without_loss(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (16, 12, 12, 4), dtype=np.uint8)
    for i, value in enumerate(values):
        Image.fromarray(value, "RGBA").save(tmp_path / f"{i:02}.png")
    found = load(str(tmp_path), channels=4).whole(torch.arange(16))
    assert found is not None
    assert np.array_equal(found.numpy().transpose(0, 2, 3, 1), values)


def test_floats_beyond_one_are_refused_with_the_reason(tmp_path: Path) -> None:
    for i in range(16):
        Image.fromarray(np.full((12, 12), 4095.0, np.float32)).save(tmp_path / f"{i:02}.tif")
    with pytest.raises(ValueError, match=r"images are in \[0, 1\], this one has values from 4095 to 4095"):
        load(str(tmp_path))


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.usefixtures("torchvision")
def test_crops_are_torchvisions_on_the_whole_image(tmp_path: Path, name: str) -> None:
    """To the bit those that its `resized_crop` makes of a tensor; of a Pillow image it makes 2 of 255 more or less."""
    from torchvision.transforms.v2 import InterpolationMode, functional

    fill(tmp_path, ".", each=16)
    images, views = load(str(tmp_path), keep=False), policy("ser", size=16)
    index = torch.arange(16)
    sizes = images.sizes(index)
    draws = views.draw(16, torch.Generator().manual_seed(0), aspect=sizes[:, 1] / sizes[:, 0])
    asked = views.crops(draws, height=sizes[:, 0], width=sizes[:, 1])[0]._replace(interpolation=name)
    (made,) = images.crops(index, [asked])
    for i, box in enumerate(asked.boxes.tolist()):
        with Image.open(tmp_path / f"{i:02}.png") as whole:
            given = {"size": [16, 16], "interpolation": InterpolationMode(name), "antialias": True}
            assert torch.equal(made[i], functional.resized_crop(functional.pil_to_tensor(whole), *box, **given))
            by_pillow = functional.pil_to_tensor(functional.resized_crop(whole, *box, **given))
        assert (made[i].int() - by_pillow.int()).abs().max() <= 2


def test_a_jpeg_is_decoded_smaller_for_a_crop_and_whole_for_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    for i in range(16):
        small = np.random.default_rng(i).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((320, 240), Image.Resampling.BICUBIC).save(tmp_path / f"{i:02}.jpg", quality=95)
    images = load(str(tmp_path), size=32)
    box = torch.tensor([[0, 40, 240, 240]]).expand(16, 4)
    made = images.crops(torch.arange(16), [Crops(box, 32, "bicubic")])[0].float()
    exact = images.batch(torch.arange(16))
    for i in range(16):
        whole = Image.open(tmp_path / f"{i:02}.jpg").crop((40, 0, 280, 240)).resize((32, 32), Image.Resampling.BICUBIC)
        pixels = torch.from_numpy(np.array(whole)).permute(2, 0, 1)
        assert torch.equal(exact[i], pixels)
        gap = (made[i] - pixels).abs()
        assert 0 < float(gap.mean()) < 1.5  # of 255: a JPEG's own scaling averages where Pillow's cubic does not
        assert float(gap.max()) < 16


def test_load_pair_of_a_table_by_its_splits(tmp_path: Path) -> None:
    photos = fill(tmp_path / "photos", ".", each=40)
    rows = ["path,class,split", *(f"{i:02}.png,{'ab'[i % 2]},{'train' if i < 20 else 'test'}" for i in range(40))]
    (photos / "labels.csv").write_text("\n".join(rows))
    train, test = load_pair(str(photos), table="labels.csv")
    assert test is not None
    assert (len(train), len(test), train.classes) == (20, 20, ["a", "b"])
