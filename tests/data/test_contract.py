"""The contract of all sources: the same images and labels train to the same bits, whatever they lie in, killed or not,
on any number of ranks and workers, and with a file that breaks on the way."""

import json
import signal
from pathlib import Path

import pytest
import torch
from tests.data import layouts
from tests.data.layouts import EVERY, IN_FILES, Spec
from tests.data.trained import BATCH, STEPS, Interrupted, train, training_part
from tests.engine.processes import code, start, start_ranks
from torch import Tensor

from reglet.data import load_pair
from reglet.engine.checkpoint import read
from reglet.engine.feed import ImageFeed, Place


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Spec]:
    return {name: layout(tmp_path_factory.mktemp(name)) for name, layout in EVERY.items()}


@pytest.fixture(scope="module", params=["kept", "streamed"])
def keep(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "kept")


@pytest.fixture(scope="module")
def reference(made: dict[str, Spec], keep: bool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What the folder trains to.

    Images in memory are cropped by torch in float, files while they are decoded, by Pillow in bytes: two references.
    """
    out = tmp_path_factory.mktemp("reference")
    train(training_part(**made["folder"], keep=keep), str(out))
    return weights(out)


def weights(out: Path) -> dict[str, Tensor]:
    tensors, about = read(out / "checkpoint.safetensors")
    assert about["step"] == STEPS
    return {name: value for name, value in tensors.items() if name.startswith("method.")}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


class DyingError(Exception):
    pass


def dies() -> None:
    raise DyingError


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("name", EVERY)
def test_killed_and_resumed_every_layout_trains_to_the_folder_s_bits(
    name: str, made: dict[str, Spec], keep: bool, reference: dict[str, Tensor], tmp_path: Path
) -> None:
    if not keep and name not in IN_FILES:
        return  # an array is not streamed
    images, folder = training_part(**made[name], keep=keep), training_part(**made["folder"], keep=keep)
    assert (images.whole(torch.arange(1)) is not None) == keep
    assert images.classes == folder.classes == ["cat", "dog"]
    assert images.labels is not None
    assert torch.equal(images.labels, folder.labels)
    with pytest.raises(DyingError):
        train(images, str(tmp_path), Interrupted(7, dies))
    train(training_part(**made[name], keep=keep, workers=1), str(tmp_path), resume=True)
    same(weights(tmp_path), reference)


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("name", EVERY)
def test_the_order_is_a_function_of_seed_and_step(name: str, made: dict[str, Spec]) -> None:
    """Ranks, workers, what is read ahead, and where one begins: none of them changes a bit."""

    def steps(*, world: int, workers: int, read_ahead: int, first: int) -> list[list[Tensor]]:
        feeds = [
            ImageFeed(training_part(**made[name], keep=False, workers=workers), Interrupted(), batch=BATCH)
            for _ in range(world)
        ]
        for rank, feed in enumerate(feeds):
            feed.open(Place(rank=rank, world=world, read_ahead=read_ahead), steps=STEPS)
        found = []
        for step in range(first, STEPS, 3):
            batches = [feed(step) for feed in feeds]
            labels = [batch.labels for batch in batches if batch.labels is not None]
            found.append([torch.cat(views) for views in (*zip(*(b.views for b in batches), strict=True), labels)])
        for feed in feeds:
            feed.close()
        return found

    alone = steps(world=1, workers=1, read_ahead=0, first=0)
    for world, workers, ahead in ((1, 3, 2), (2, 1, 3), (4, 2, 0)):
        for a, b in zip(steps(world=world, workers=workers, read_ahead=ahead, first=3), alone[1:], strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True)), (world, workers, ahead)


@pytest.mark.parametrize("name", ["tars", "hugging_face"])
def test_two_processes_train_as_one(name: str, made: dict[str, Spec], tmp_path: Path) -> None:
    words = [f"{key}={value}" for key, value in made[name].items()]
    module = "tests.data.trained"
    one = start(*words, f"out={tmp_path / 'one'}", module=module)
    killed = start(*words, f"out={tmp_path / 'killed'}", "kill=5", module=module)
    two = start_ranks(2, *words, f"out={tmp_path / 'two'}", module=module)
    assert [code(process) for process in (one, *two, killed)] == [0, 0, 0, -signal.SIGKILL]
    assert code(start(*words, f"out={tmp_path / 'killed'}", "resume=true", module=module)) == 0
    alone, both = weights(tmp_path / "one"), weights(tmp_path / "two")
    same(weights(tmp_path / "killed"), alone)
    for key, value in alone.items():  # sums of gradients over two ranks are rounded in another order
        torch.testing.assert_close(both[key], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["folder", "csv", "tars"])
def test_a_file_that_breaks_between_two_epochs(name: str, tmp_path: Path) -> None:
    """Straight through, or killed where it broke and resumed: the same stands for it."""
    outs = [tmp_path / "straight", tmp_path / "killed"]
    for out, kill in zip(outs, (False, True), strict=True):
        root = tmp_path / f"data-{kill}"
        root.mkdir()
        spec = EVERY[name](root)
        broken = (
            next((root / "shards").glob("train-000.tar"), root) if name == "tars" else root / "photos/train/cat/03.png"
        )

        def breaks(broken: Path = broken, kill: bool = kill) -> None:
            spoil(broken)
            if kill:
                raise DyingError

        images = training_part(**spec, keep=False)
        if kill:
            with pytest.raises(DyingError):
                train(images, str(out), Interrupted(6, breaks), read_ahead=0)
            train(training_part(**spec, keep=False), str(out), read_ahead=0, resume=True)
        else:
            train(images, str(out), Interrupted(6, breaks), read_ahead=0)
        (line,) = [json.loads(line) for line in (out / "unreadable.jsonl").read_text().splitlines()]
        assert line["file"].endswith("0003.png" if name == "tars" else "cat/03.png")
    same(weights(outs[0]), weights(outs[1]))


def spoil(path: Path) -> None:
    """Bytes in the middle of a picture become zero; the length stays."""
    data = bytearray(path.read_bytes())
    start = data.index(b"IDAT", data.index(b"0003.png") if path.suffix == ".tar" else 0)
    data[start + 8 : start + 200] = bytes(192)
    path.write_bytes(data)


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("name", [name for name in EVERY if name != "npy"])
def test_a_source_brings_its_own_test_part(name: str, made: dict[str, Spec]) -> None:
    train_part, test = load_pair(**made[name])
    assert test is not None
    assert (len(train_part), len(test)) == (40, 16)
    assert test.labels is not None
    assert test.labels.tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize("name", ["folder", "csv", "npz", "hugging_face"])
def test_a_class_in_test_that_training_lacks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = layouts.files

    def files(root: Path):  # type: ignore[no-untyped-def]
        return (row for row in every(root) if row[1:] != ("dog", "train"))

    monkeypatch.setattr(layouts, "files", files)
    spec = EVERY[name](tmp_path)
    if name == "folder":
        for path in (tmp_path / "photos/train/dog").iterdir():
            path.unlink()
    with pytest.raises(ValueError, match=r"has classes that .* has not: dog"):
        load_pair(**spec)
