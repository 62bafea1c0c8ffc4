"""What becomes of a file that is not plain 8 bit RGB: the table of docs/data.md, line by line; and odd names."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.drawn import fill, noise

from reglet.cli import main
from reglet.data import Images, load, load_pair

SIDE = 12


def pixels(seed: int, channels: int) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, channels), dtype=np.uint8)
    return values[:, :, 0] if channels == 1 else values


def sixteen(root: Path, save: "Save", suffix: str) -> Path:
    """As many images as a set needs."""
    for i in range(16):
        save(i, root / f"{i:02}.{suffix}")
    return root


def by_pillow(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def first(images: Images) -> np.ndarray:
    """The first image, as evaluation sees it: it has the size already."""
    found = images.batch(torch.tensor([0]))[0].permute(1, 2, 0).numpy()
    return np.asarray(found)


class Save:
    def __init__(self, mode: str, channels: int, **options: object) -> None:
        self.mode, self.channels, self.options = mode, channels, options

    def image(self, i: int) -> Image.Image:
        image = Image.fromarray(pixels(i, self.channels))
        return image if image.mode == self.mode else image.convert(self.mode)

    def __call__(self, i: int, path: Path) -> None:
        self.image(i).save(path, **self.options)


@pytest.mark.parametrize(
    ("save", "suffix"),
    [
        (Save("L", 1), "png"),
        (Save("RGB", 3), "png"),
        (Save("P", 3), "png"),
        (Save("P", 3), "gif"),
        (Save("RGB", 3), "bmp"),
        (Save("RGB", 3, lossless=True), "webp"),
        (Save("RGB", 3), "tif"),
        (Save("CMYK", 3), "tif"),
        (Save("YCbCr", 3), "jpg"),
        (Save("CMYK", 3), "jpg"),
    ],
    ids=lambda x: x if isinstance(x, str) else x.mode,
)
def test_what_becomes_rgb(tmp_path: Path, save: Save, suffix: str) -> None:
    found = first(load(str(sixteen(tmp_path, save, suffix))))
    assert found.shape == (SIDE, SIDE, 3)
    assert np.array_equal(found, by_pillow(tmp_path / f"00.{suffix}"))


def test_transparency_is_dropped_and_not_painted(tmp_path: Path) -> None:
    rgba = pixels(0, 4)
    sixteen(tmp_path, Save("RGBA", 4), "png")
    assert np.array_equal(first(load(str(tmp_path))), rgba[:, :, :3])
    assert np.array_equal(first(load(str(tmp_path), channels=4)), rgba)
    assert first(load(str(tmp_path), channels=1)).shape == (SIDE, SIDE, 1)


def test_cmyk_as_four_channels(tmp_path: Path) -> None:
    sixteen(tmp_path, Save("CMYK", 3), "tif")
    assert np.array_equal(first(load(str(tmp_path), channels=4)), np.asarray(Image.open(tmp_path / "00.tif")))


@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_turns_upright(tmp_path: Path, turn: int) -> None:
    """The corner that a viewer shows at the upper left, for all eight orientations; also when it is cropped."""
    wide = noise(1, 40, 60)
    exif = Image.Exif()
    exif[0x0112] = turn
    for i in range(16):
        wide.save(tmp_path / f"{i:02}.jpg", exif=exif, quality=95)
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(Image.open(tmp_path / "00.jpg"))
    data = load(str(tmp_path), size=40, keep=False)
    assert data.sizes(torch.tensor([0])).tolist() == [[upright.height, upright.width]]
    left, top = (upright.width - 40) // 2, (upright.height - 40) // 2
    assert np.array_equal(first(data), np.asarray(upright.crop((left, top, left + 40, top + 40))))


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_of_animations_the_first_frame(tmp_path: Path, suffix: str) -> None:
    frames = [noise(i, SIDE, SIDE) for i in range(3)]
    for i in range(16):
        frames[0].save(tmp_path / f"{i:02}.{suffix}", save_all=True, append_images=frames[1:], lossless=True)
    assert np.array_equal(first(load(str(tmp_path))), by_pillow(tmp_path / f"00.{suffix}"))


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "tif"])
def test_truncated_files_are_not_shown_in_half(tmp_path: Path, suffix: str) -> None:
    for i in range(16):
        noise(i, 64, 64).save(tmp_path / f"{i:02}.{suffix}")
    whole = load(str(tmp_path), keep=False).batch(torch.tensor([1]))
    path = tmp_path / f"00.{suffix}"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    data = load(str(tmp_path), keep=False)
    assert torch.equal(data.batch(torch.tensor([0])), whole)
    assert list(data.unreadable.reasons) == [f"00.{suffix}"]  # type: ignore[attr-defined]


def test_32_bit_integers_are_refused(tmp_path: Path) -> None:
    for i in range(16):
        Image.fromarray(np.full((SIDE, SIDE), 70_000, np.int32)).save(tmp_path / f"{i:02}.tif")
    with pytest.raises(ValueError, match="32-bit integers, and nothing says which of them is white"):
        load(str(tmp_path))


@pytest.mark.parametrize("kind", ["npz", "npy", "folder of npy"])
@pytest.mark.parametrize(("dtype", "channels"), [(np.uint16, 1), (np.uint16, 4), (np.uint8, 4), (np.uint16, 16)])
def test_arrays_come_back_without_loss(tmp_path: Path, kind: str, dtype: type, channels: int) -> None:
    most = np.iinfo(dtype).max
    values = np.random.default_rng(0).integers(0, most + 1, (16, 20, 20, channels), dtype=dtype)
    if kind == "npz":
        np.savez(tmp_path / "x.npz", images=values)
    elif kind == "npy":
        np.save(tmp_path / "x.npy", values)
    else:
        for i, value in enumerate(values):
            np.save(tmp_path / f"{i:02}.npy", value)
    found = load(str(tmp_path if kind == "folder of npy" else tmp_path / f"x.{kind}")).batch(torch.arange(16))
    scale = 65535 if dtype == np.uint16 else 1
    assert np.array_equal((found.double() * scale).round().numpy().transpose(0, 2, 3, 1), values)


@pytest.mark.parametrize("test", ["test", "val", "valid", "validation"])
def test_names_of_a_test_part(tmp_path: Path, test: str) -> None:
    fill(tmp_path, "train/cat", "train/dog", f"{test}/cat", f"{test}/dog")
    train, held = load_pair(str(tmp_path))
    assert held is not None
    assert (len(train), len(held), held.name) == (20, 20, test)


def test_a_file_whose_name_is_not_utf8_is_read_and_named(tmp_path: Path) -> None:
    fill(tmp_path, "cat", "dog", each=8)
    latin = os.fsdecode(b"caf\xe9.png")
    (tmp_path / "cat" / "00.png").rename(tmp_path / "cat" / latin)
    data = load(str(tmp_path), keep=False)
    assert data.names(torch.tensor([7])) == ["cat/caf\\xe9.png"]
    assert np.array_equal(data.sizes(torch.tensor([7])).numpy(), [[24, 32]])
    (tmp_path / "cat" / latin).write_bytes(b"broken")
    with pytest.warns(UserWarning, match=r"cat/caf.xe9.png"):
        broken = load(str(tmp_path), keep=False)
    broken.unreadable.write_to(tmp_path / "unreadable.jsonl")  # type: ignore[attr-defined]
    assert r"cat/caf\\xe9.png" in (tmp_path / "unreadable.jsonl").read_text()


def test_a_class_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, "cat", "dog", each=8)
    (tmp_path / "cat").rename(tmp_path / os.fsdecode(b"caf\xe9"))
    with pytest.raises(ValueError, match=r"name of the folder caf\\xe9 is not UTF-8, and it names a class: rename it"):
        load(str(tmp_path))


def test_a_table_that_is_not_utf8_or_has_holes(tmp_path: Path) -> None:
    fill(tmp_path, ".", each=16)
    lines = [f"{i:02}.png,{'ab'[i % 2]}" for i in range(16)]
    table = tmp_path / "labels.csv"
    table.write_bytes(b"file,label\n" + "\n".join([*lines, "x.png,café"]).encode("latin-1"))
    with pytest.raises(ValueError, match=r"is not UTF-8 .* save it as UTF-8"):
        load(str(tmp_path), table="labels.csv")
    table.write_text("\ufefffile,label\n" + "\n".join(lines))  # as Excel begins
    assert load(str(tmp_path), table="labels.csv").classes == ["a", "b"]
    table.write_text("file,label\n" + "\n".join([*lines, "15.png,"]))
    with pytest.raises(ValueError, match="has a row without label, number 17"):
        load(str(tmp_path), table="labels.csv")
    table.write_text("picture,label\n00.png,a")
    with pytest.raises(
        ValueError, match=r"has the columns picture, label; the one with the files is called one of file"
    ):
        load(str(tmp_path), table="labels.csv")


def test_a_single_class_cannot_be_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "photos", "cat", each=40)
    assert main(["train", f"data={tmp_path / 'photos'}", "steps=1", f"out={tmp_path / 'run'}"]) != 0
    assert "has only one (cat)" in capsys.readouterr().err
