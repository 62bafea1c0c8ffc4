"""Test images are never training images, whoever asks for them."""

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.data.drawn import fill, noise

from reglet.data import InMemory, load_pair
from reglet.data.hold_out import SHARE, hold_out_test


def test_a_fifth_of_each_class_is_held_out_by_name(tmp_path: Path) -> None:
    fill(tmp_path / "one", "cat", "dog", "eel", each=20)
    train, test = load_pair(str(tmp_path / "one"))
    assert test is not None
    assert (len(train), len(test)) == (48, 12)
    assert test.labels is not None
    assert test.labels.bincount().tolist() == [4, 4, 4]
    names = test.names(torch.arange(12))
    assert names is not None
    assert not set(names) & set(train.names(torch.arange(48)) or ())
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # elsewhere, at another time: the same
    _, again = load_pair(str(tmp_path / "two"))
    assert again is not None
    assert again.names(torch.arange(12)) == names
    noise(77).save(tmp_path / "one" / "dog" / "new.png")  # one class does not move another's
    _, more = load_pair(str(tmp_path / "one"))
    assert more is not None
    kept = [n for n in more.names(torch.arange(len(more))) or () if not n.startswith("dog")]
    assert kept == [n for n in names if not n.startswith("dog")]


def test_copies_are_never_on_both_sides(tmp_path: Path) -> None:
    fill(tmp_path, "cat", "dog", each=20)
    for path in list((tmp_path / "cat").iterdir()):
        shutil.copy(path, tmp_path / "cat" / f"copy-of-{path.name}")
    train, test = load_pair(str(tmp_path))
    assert test is not None
    seen = set(train.content(torch.arange(len(train))))
    assert not seen & set(test.content(torch.arange(len(test))))
    assert len(test) >= 4  # dogs, and those cats of which both copies were held out


def test_images_without_names_are_held_out_by_their_pixels() -> None:
    x = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) % 2
    _, test = hold_out_test(InMemory(x, labels=y, name="a"))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    _, moved = hold_out_test(InMemory(x[order], labels=y[order], name="a"))
    assert test is not None
    assert moved is not None
    every = torch.arange(8)
    assert len(test) == round(SHARE * 40)
    assert set(test.content(every)) == set(moved.content(every))


def test_a_class_of_one_image_is_trained_on() -> None:
    x = torch.arange(16, dtype=torch.uint8).view(16, 1, 1, 1)
    train, test = hold_out_test(InMemory(x, labels=torch.tensor([0] * 13 + [1, 1, 2]), name="a"))
    assert test is not None
    assert test.labels is not None
    assert train.labels is not None
    assert test.labels.bincount(minlength=3).tolist() == [3, 1, 0]
    assert hold_out_test(InMemory(x, labels=torch.arange(16), name="a"))[1] is None


def test_an_overlap_is_refused_by_content(tmp_path: Path) -> None:
    fill(tmp_path, "train/cat", "train/dog", "test/cat", "test/dog")
    load_pair(str(tmp_path))
    shutil.copy(tmp_path / "train/cat/03.png", tmp_path / "test/cat/another-name.png")
    with pytest.raises(ValueError, match=r"1 of 21 test images .* are training images .*cat/another-name.png"):
        load_pair(str(tmp_path))


def test_a_few_copies_in_a_large_test_part_are_left_out() -> None:
    x = torch.randint(0, 256, (400, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    from reglet.data.hold_out import require_apart

    with pytest.warns(UserWarning, match="1 test images of b are training images, too, and are left out"):
        rest = require_apart(InMemory(x[:201], name="a"), InMemory(x[200:], name="b"))
    assert len(rest) == 199


def test_classes_are_the_same_by_name(tmp_path: Path) -> None:
    fill(tmp_path, "train/ant", "train/bee", "train/cat", "test/bee", "test/cat")
    train, test = load_pair(str(tmp_path))
    assert test is not None
    assert test.labels is not None
    assert train.classes == test.classes == ["ant", "bee", "cat"]
    assert test.labels.bincount(minlength=3).tolist() == [0, 10, 10]
    (tmp_path / "test" / "dog").mkdir()
    Image.new("RGB", (24, 32)).save(tmp_path / "test" / "dog" / "x.png")
    with pytest.raises(ValueError, match="test has classes that train has not: dog"):
        load_pair(str(tmp_path))
