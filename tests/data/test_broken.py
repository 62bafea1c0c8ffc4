"""Broken files: named, replaced by their like, the same after a restart, and not too many."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.drawn import fill

from reglet.data import load, pictures
from reglet.data.unreadable import TooManyUnreadableError
from reglet.views import Crops


@pytest.fixture(params=["kept", "streamed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "streamed":
        monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    return fill(tmp_path / "photos", "cat", "dog")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_the_next_of_its_class_stands_for_a_broken_file(folder: Path) -> None:
    good = load(str(folder)).batch(torch.arange(20))
    halve(folder / "cat" / "09.png")  # the last cat: dog/00 is its neighbour
    with pytest.warns(UserWarning, match=r"1 of 20 images .* cannot be read; others of their class .*cat/09.png"):
        data = pictures_of(folder)
    whole = data.batch(torch.arange(20))
    assert torch.equal(whole[9], good[0])
    assert torch.equal(whole[torch.arange(20) != 9], good[torch.arange(20) != 9])
    sizes = data.sizes(torch.tensor([9, 0]))
    crops = Crops(torch.tensor([[2, 3, 15, 20]] * 2), 8)
    one, other = data.crops(torch.tensor([9, 0]), [crops])[0]
    assert torch.equal(sizes[0], sizes[1])
    assert torch.equal(one, other)
    assert list(data.unreadable.reasons) == ["cat/09.png"]


def pictures_of(folder: Path) -> pictures.Pictures:
    data = load(str(folder))
    assert isinstance(data, pictures.Pictures)
    data.batch(torch.arange(len(data)))
    data._warn()
    return data


def test_a_part_never_borrows_from_another(folder: Path) -> None:
    data = load(str(folder))
    part = data.part(torch.tensor([8, 9]), name="test")
    halve(folder / "cat" / "09.png")
    if data.whole(torch.arange(1)) is None:
        assert torch.equal(*part.batch(torch.arange(2)))
        (folder / "cat" / "08.png").unlink()  # vanished
        with pytest.raises(TooManyUnreadableError, match="2 of the 20 files"):
            part.batch(torch.arange(2))


def test_what_broke_is_written_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    data = load(str(folder))
    assert isinstance(data, pictures.Pictures)
    log = tmp_path / "unreadable.jsonl"
    data.unreadable.write_to(log)
    assert not log.exists()
    halve(folder / "dog" / "04.png")
    for _ in range(2):
        data.batch(torch.arange(20))
        (line,) = [json.loads(line) for line in log.read_text().splitlines()]
        assert line["file"] == "dog/04.png"
        assert "truncated" in line["reason"]
        data = load(str(folder))
        data.unreadable.write_to(log)


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_more_than_one_in_a_hundred_stops(folder: Path) -> None:
    for name in ("cat/01.png", "dog/01.png"):
        (folder / name).write_bytes(b"this is no picture")
    with pytest.raises(
        TooManyUnreadableError, match=r"2 of the 20 files .* more than 1%.*UnidentifiedImageError: no format"
    ):
        load(str(folder)).batch(torch.arange(20))


def test_fifos_and_devices_are_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "cat" / "pipe.png")
    (folder / "cat" / "zero.png").symlink_to("/dev/zero")
    (folder / "cat" / "gone.png").symlink_to(folder / "nowhere.png")
    with pytest.warns(UserWarning, match=r"3 in .* left out, such as cat/gone.png: the link leads nowhere"):
        assert len(load(str(folder))) == 20


def test_a_file_that_becomes_a_fifo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    data = load(str(folder))
    (folder / "cat" / "00.png").unlink()
    os.mkfifo(folder / "cat" / "00.png")
    assert torch.equal(*data.batch(torch.tensor([0, 1])))


def test_decompression_bombs_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 24 * 32)
    Image.fromarray(np.zeros((300, 300), np.uint8)).save(folder / "cat" / "05.png")
    with pytest.warns(UserWarning, match="cat/05.png"):
        assert "DecompressionBombError" in pictures_of(folder).unreadable.reasons["cat/05.png"]


def test_a_file_is_opened_once_for_its_size_and_its_crops(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "IN_MEMORY", 0)
    data = load(str(folder))
    assert isinstance(data, pictures.Pictures)
    opened: list[int] = []
    every = data.files.open
    monkeypatch.setattr(data.files, "open", lambda i: (opened.append(i), every(i))[1])
    index, crops = torch.tensor([3, 7, 3]), Crops(torch.tensor([[2, 3, 15, 20]] * 3), 8)
    data.sizes(index)
    (first,) = data.crops(index, [crops])
    assert sorted(opened) == [3, 3, 3, 7]  # twice for the sizes of 3, and once more for its second crop
    (again,) = data.crops(index, [crops])  # nothing is held any more
    assert torch.equal(first, again)
    for limit in ("_HELD", "_HELD_FILE"):
        monkeypatch.setattr(pictures, limit, 8)
        opened.clear()
        data.sizes(index)
        assert torch.equal(data.crops(index, [crops])[0], first)
        assert sorted(opened) == [3, 3, 3, 3, 7, 7]
