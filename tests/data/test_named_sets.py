"""Sets of Hugging Face and of torchvision: their own splits, lazily, and words where there is no network."""

import shutil
import struct
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from tests.data.drawn import noise
from tests.data.layouts import files, photos

from reglet.data import load, load_pair, pictures
from reglet.data.torchvision_sets import open_torchvision

datasets = pytest.importorskip("datasets")


def hf(root: Path, labels: list[int], *, image: str = "image", names: list[str] | None = None) -> "datasets.Dataset":
    """As many pictures as labels, whose files stay where they are."""
    root.mkdir(exist_ok=True)
    paths = [root / f"{len(labels)}-{i}.png" for i in range(len(labels))]
    for i, path in enumerate(paths):
        noise(len(labels) * 100 + i).save(path)
    kind = datasets.ClassLabel(names=names) if names else datasets.Value("int64")
    features = datasets.Features({image: datasets.Image(), "label": kind})
    return datasets.Dataset.from_dict({image: [str(p) for p in paths], "label": labels}, features=features)


def test_a_secret_test_part_gives_way_to_the_validation_part(tmp_path: Path) -> None:
    """As in imagenet-1k, whose test labels are -1."""
    names = ["ant", "bee"]
    parts = {
        "train": hf(tmp_path, [0, 1] * 10, names=names),
        "test": hf(tmp_path, [-1] * 17, names=names),
        "validation": hf(tmp_path, [1, 0] * 8, names=names),
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    train, test = load_pair(f"hf/{tmp_path / 'saved'}")
    assert test is not None
    assert test.name.endswith("/validation")
    assert test.labels is not None
    assert test.labels.tolist() == [1, 0] * 8
    assert train.classes == names


def test_a_folder_with_a_secret_test_part(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "photos" / "test").rename(tmp_path / "photos" / "val")
    (tmp_path / "photos" / "test").mkdir()
    for i in range(16):
        noise(5000 + i).save(tmp_path / "photos" / "test" / f"{i}.png")
    _, test = load_pair(str(tmp_path / "photos"))
    assert test is not None
    assert test.name == "val"


def test_one_part_alone_and_a_column_of_another_name(tmp_path: Path) -> None:
    hf(tmp_path, [3, 5] * 10, image="picture").save_to_disk(tmp_path / "saved")
    train, test = load_pair(f"hf/{tmp_path / 'saved'}")
    assert test is not None
    assert (len(train), len(test), train.classes) == (16, 4, ["3", "5"])  # a fifth is held out


def test_a_set_that_changes_under_its_name_is_read_anew(tmp_path: Path) -> None:
    for labels in ([0, 1] * 10, [0, 1, 1] * 8):
        shutil.rmtree(tmp_path / "saved", ignore_errors=True)
        hf(tmp_path, labels).save_to_disk(tmp_path / "saved")
        for images in (load(f"hf/{tmp_path / 'saved'}"), load(f"hf/{tmp_path / 'saved'}", split="train")):
            assert images.labels is not None
            assert images.labels.tolist() == labels
        train, test = load_pair(f"hf/{tmp_path / 'saved'}")
        assert test is not None
        assert len(train) + len(test) == len(labels)


def test_a_set_is_opened_once_for_both_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.DatasetDict({p: hf(tmp_path, [0, 1] * n) for p, n in (("train", 10), ("test", 8))}).save_to_disk(
        tmp_path / "saved"
    )
    opened: list[str] = []
    real = datasets.load_from_disk
    monkeypatch.setattr(datasets, "load_from_disk", lambda name: opened.append(name) or real(name))
    load_pair(f"hf/{tmp_path / 'saved'}")
    assert len(opened) == 1


def test_pictures_of_a_set_are_read_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "SAMPLE", 2)  # the first and the last one are looked at
    hf(tmp_path, [0, 1] * 100).save_to_disk(tmp_path / "saved")
    files_before = load(f"hf/{tmp_path / 'saved'}", keep=False)
    assert isinstance(files_before, pictures.Pictures)
    opened: list[int] = []
    real = files_before.files.open
    monkeypatch.setattr(files_before.files, "open", lambda i: opened.append(i) or real(i))
    files_before.batch(torch.tensor([7, 150]))
    assert sorted(opened) == [7, 150]


def test_a_folder_as_the_hub_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub" / "data").mkdir(parents=True)
    for part, count in (("train", 10), ("test", 8)):
        found = hf(tmp_path / "images", [0, 1] * count, names=["ant", "bee"])
        found.cast_column("image", datasets.Image(decode=False)).map(_embedded).cast_column(
            "image", datasets.Image()
        ).to_parquet(tmp_path / "hub" / "data" / f"{part}-00000-of-00001.parquet")
    train, test = load_pair(f"hf/{tmp_path / 'hub'}")
    assert test is not None
    assert (len(train), len(test), train.classes) == (20, 16, ["ant", "bee"])
    with pytest.raises(ValueError, match=r"has no images.*It has .parquet files: data=hf/"):
        load(str(tmp_path / "hub"))


def _embedded(row: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {"image": {"bytes": Path(str(row["image"]["path"])).read_bytes(), "path": None}}


def test_a_saved_set_without_its_prefix_is_named(tmp_path: Path) -> None:
    hf(tmp_path / "images", [0, 1] * 10).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"has no images.*Hugging Face's library saved: data=hf/.*saved"):
        load(str(tmp_path / "saved"))


def test_no_images_and_no_such_split(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(tmp_path / "texts")
    with pytest.raises(ValueError, match="has the columns text, and none of them is of images"):
        load(f"hf/{tmp_path / 'texts'}")
    hf(tmp_path / "images", [0, 1] * 10).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match="has the splits train; got 'test'"):
        load(f"hf/{tmp_path / 'saved'}", split="test")


def test_the_hub_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str) -> None:
        raise ConnectionError("Couldn't reach the Hugging Face Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    says = r"no folder 'org/cats'.*\(ConnectionError: Couldn't reach.*save_to_disk\(FOLDER\).*write data=hf/FOLDER"
    with pytest.raises(ValueError, match=says):
        load_pair("hf/org/cats")


@pytest.mark.usefixtures("torchvision")
def test_torchvision_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("Temporary failure in name resolution")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    says = (
        r"CIFAR10 is not in .*, and could not be brought there \(URLError.*put its files there.*torchvision/FOLDER/CIF"
    )
    with pytest.raises(ValueError, match=says):
        load_pair(f"torchvision/{tmp_path}/CIFAR10")
    with pytest.raises(ValueError, match=r"has no data set 'CIFAR11'. It has CIFAR1"):
        load("torchvision/CIFAR11")


def idx(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes())


@pytest.mark.usefixtures("torchvision")
def test_torchvision_s_sets_that_say_train_true(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, n in (("train", 30), ("t10k", 20)):
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        idx(tmp_path / "MNIST" / "raw" / f"{part}-images-idx3-ubyte", images)
        idx(tmp_path / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte", (np.arange(n) % 10).astype(np.uint8))
    train, test = load_pair(f"torchvision/{tmp_path}/MNIST", channels=1)
    assert test is not None
    assert (len(train), len(test)) == (30, 20)
    assert train.classes is not None
    assert train.classes[3] == "3 - three"
    assert torch.equal(test.batch(torch.tensor([19]))[0, 0], torch.from_numpy(images[19]))


@pytest.mark.usefixtures("torchvision")
def test_torchvision_s_sets_without_parts(tmp_path: Path) -> None:
    photos(tmp_path)
    every = [path for path, *_ in files(tmp_path)]
    for path in every:
        folder = tmp_path / "eurosat" / "2750" / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{path.parent.parent.name}-{path.name}").write_bytes(path.read_bytes())
    train, test = load_pair(f"torchvision/{tmp_path}/EuroSAT")
    assert test is not None
    assert (len(train), len(test)) == (44, 12)  # a fifth of each class is held out
    assert list(open_torchvision(f"{tmp_path}/EuroSAT")) == [""]
