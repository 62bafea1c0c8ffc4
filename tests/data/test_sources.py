"""Folders, archives and names become images with what is known about each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reglet.data import Images, InMemory, Part, load, load_pair
from reglet.data.npz import load_npz


def picture(path: Path, *, colour: tuple[int, int, int] = (255, 0, 0), size: tuple[int, int] = (20, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def fill(root: Path, *folders: str, each: int = 8, size: tuple[int, int] = (20, 30)) -> Path:
    for k, name in enumerate(folders):
        for i in range(each):
            picture(root / name / f"{i}.png", colour=(40 * k, 10 * i, 7), size=size)
    return root


def test_unlabelled(tmp_path: Path) -> None:
    data = load(str(fill(tmp_path / "photos", ".", each=16)), size=12)
    assert isinstance(data, Images)
    assert len(data) == 16
    assert data.labels is None
    assert data.domain is None
    batch = data.batch(torch.tensor([3, 0]))
    assert batch.shape == (2, 3, 12, 12)
    assert batch.dtype == torch.uint8


def test_classes_and_domains(tmp_path: Path) -> None:
    data = load(str(fill(tmp_path / "a", "dog", "cat")))
    assert data.classes == ["cat", "dog"]
    assert data.labels is not None
    assert data.labels.tolist() == [0] * 8 + [1] * 8
    assert data.batch(torch.tensor([8]))[0, 1, 0, 0] == 0  # dog/0
    data = load(str(fill(tmp_path / "b", "photo/dog", "photo/cat", "sketch/dog", "sketch/cat", each=4)))
    assert (data.classes, data.domains) == (["cat", "dog"], ["photo", "sketch"])
    assert data.domain is not None
    assert data.domain.tolist() == [0] * 8 + [1] * 8


def test_evaluation_sees_the_middle_of_the_shrunk_image(tmp_path: Path) -> None:
    fill(tmp_path, "x", each=15, size=(90, 30))
    wide = Image.new("RGB", (90, 30), (0, 0, 0))
    wide.paste((255, 255, 255), (30, 0, 60, 30))
    wide.save(tmp_path / "x" / "a.png")
    middle = load(str(tmp_path), size=10).batch(torch.tensor([15]))
    assert middle[..., 1:-1].eq(255).all()
    assert int(middle.min()) > 200  # it is kept at twice the size, and there a bicubic edge saw a little of the sides


def test_own_size_and_at_most_224(tmp_path: Path) -> None:
    assert load(str(fill(tmp_path / "a", "x", each=16))).batch(torch.tensor([0])).shape[2:] == (20, 20)
    assert load(str(fill(tmp_path / "b", "x", each=16, size=(500, 400)))).batch(torch.tensor([0])).shape[2:] == (
        224,
        224,
    )


def test_empty_and_far_too_small(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="has no images: no file ends in"):
        load(str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"has 8 images, at least 16"):
        load(str(fill(tmp_path / "few", "x")))
    fill(tmp_path / "Photos", "x")
    with pytest.raises(ValueError, match=r"no data at .*Did you mean .*Photos"):
        load(str(tmp_path / "Photoz"))
    with pytest.raises(ValueError, match="has no folder 'test'"):
        load(str(tmp_path / "Photos"), split="test")


def test_train_and_test_folders(tmp_path: Path) -> None:
    fill(tmp_path, "train/dog", "train/cat", "val/dog", "val/cat")
    train, test = load_pair(str(tmp_path))
    assert test is not None
    assert (len(train), len(test), train.classes) == (16, 16, ["cat", "dog"])


def archive(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_npz(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
    names = np.array(["cat", "dog", "ant", "cat", "dog", "ant"])
    split = np.array(["train"] * 4 + ["test"] * 2)
    path = archive(tmp_path / "a.npz", images=images, labels=names, domain=np.arange(6) % 2, split=split)
    train, test = load_pair(str(path))
    assert test is not None
    assert (len(train), len(test)) == (4, 2)
    assert train.classes == test.classes == ["ant", "cat", "dog"]
    assert train.labels is not None
    assert train.labels.tolist() == [1, 2, 0, 1]
    assert test.domain is not None
    assert test.domain.tolist() == [0, 1]
    assert torch.equal(test.batch(torch.tensor([1])), torch.from_numpy(images[5:]).permute(0, 3, 1, 2))
    grey = load_npz(archive(tmp_path / "g.npz", images=images[..., 0]))
    assert grey.batch(torch.tensor([0])).shape == (1, 1, 8, 9)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"labels": np.arange(3)}, "has labels; expected images"),
        ({"images": np.full((3, 4, 4), 2.0)}, r"in \[0, 1\], got values from 2 to 2"),
        ({"images": np.zeros((3, 4, 4), np.int32)}, "must be uint8, uint16 or floats"),
        ({"images": np.zeros((3, 4, 4, 5), np.uint8)}, "4 and 5 do not tell"),
        ({"images": np.zeros((3, 4, 4), np.uint8), "labels": np.arange(2)}, "3 images and 2 labels"),
        ({"images": np.zeros((3, 4, 4), np.uint8), "labels": np.array([{}, 1, 2], dtype=object)}, "plain arrays"),
    ],
)
def test_bad_archives(tmp_path: Path, arrays: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load(str(archive(tmp_path / "a.npz", **arrays)))


def test_no_such_split(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8), split=np.array(["train", "test"]))
    with pytest.raises(ValueError, match="has the splits test, train; got 'val'"):
        load(str(path), split="val")


def test_fingerprints_tell_data_apart() -> None:
    x = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    y = x.clone()
    y[3, 2, 1, 1] = 1
    one, other = InMemory(x, name="a"), InMemory(y, name="a")
    assert one.fingerprint == InMemory(x.clone(), name="b").fingerprint != other.fingerprint
    part = Part(one, torch.tensor([2, 0]), name="part")
    assert part.fingerprint != Part(one, torch.tensor([0, 2]), name="part").fingerprint
    assert torch.equal(Part(other, torch.tensor([3, 0]), name="p").batch(torch.tensor([0])), y[3:])
