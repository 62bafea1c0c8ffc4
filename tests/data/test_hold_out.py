"""Test images are never training images, whoever asks for them."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.drawn import fill, noise

from reglet.data import InMemory, load, load_pair
from reglet.data.hold_out import SHARE, hold_out_test, require_apart, shared
from reglet.engine.build import build_data
from reglet.engine.config import Config


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


def test_one_copy_among_thousands_is_found_and_refused_or_dropped() -> None:
    x = torch.randint(0, 256, (5000, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    train, test = InMemory(x[:1001], name="a"), InMemory(x[1001:], name="b")
    assert len(shared(train, test)) == 0
    x[3778] = x[77]  # at an odd place: comparing some evenly spread ones does not find it
    with pytest.raises(ValueError, match=r"1 of 3999 test images of b are training images of a, .* overlap=drop"):
        require_apart(train, test)
    with pytest.warns(UserWarning, match="1 of 3999 test images .* are left out of the test"):
        rest = require_apart(train, test, overlap="drop")
    assert len(rest) == 3998
    assert 2777 not in rest.index


def test_files_are_told_apart_by_all_their_bytes(tmp_path: Path) -> None:
    """Equal in length and in the middle, and still two images."""
    fill(tmp_path, "train/cat", "test/cat", each=16)
    for part, value in (("train", 1), ("test", 2)):
        pixels = np.zeros((64, 64, 3), np.uint8)
        pixels[0, 0] = value
        Image.fromarray(pixels).save(tmp_path / part / "cat" / "z.bmp")
    load_pair(str(tmp_path))
    shutil.copy(tmp_path / "train/cat/z.bmp", tmp_path / "test/cat/z.bmp")
    with pytest.raises(ValueError, match=r"1 of 17 test images .* such as cat/z.bmp"):
        load_pair(str(tmp_path))
    with pytest.warns(UserWarning, match="left out of the test"):
        _, test = load_pair(str(tmp_path), overlap="drop")
    assert test is not None
    assert len(test) == 16


def test_files_that_cannot_be_read_are_not_each_others_copies(tmp_path: Path) -> None:
    fill(tmp_path, "train/cat", "test/cat", each=16)
    for part in ("train", "test"):
        noise(0 if part == "train" else 1).save(tmp_path / part / "cat" / "gone.bmp")  # of one length, two images
    train, test = (load(str(tmp_path), split=part) for part in ("train", "test"))
    for images in (train, test):
        (tmp_path / images.name / "cat" / "gone.bmp").unlink()
    assert len(shared(train, test)) == 0  # though both are cat/gone.bmp


def test_a_domain_left_out_shares_no_image_with_the_others(tmp_path: Path) -> None:
    fill(tmp_path, "photo/cat", "photo/dog", "sketch/cat", "sketch/dog")
    config = Config(command="train", data=str(tmp_path), leave_out="sketch")
    build_data(config)
    shutil.copy(tmp_path / "photo/cat/03.png", tmp_path / "sketch/cat/another.png")
    with pytest.raises(ValueError, match=r"1 of 21 test images .* are training images"):
        build_data(config)
    with pytest.warns(UserWarning, match="left out of the test"):
        _, test = build_data(replace(config, overlap="drop"))
    assert test is not None
    assert len(test) == 20


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
