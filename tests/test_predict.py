"""A trained classifier is used: on folders, files and archives, with the pre-processing of training."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from reglet.cli import main
from reglet.data import load_pair
from reglet.evaluate.predict import predict
from reglet.export import load_encoder

CLASSES = ("blue", "green", "red")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def picture(i: int, channel: int) -> Image.Image:
    """40 x 30, mostly of one colour."""
    pixels = np.random.default_rng(i).integers(0, 100, (40, 30, 3), dtype=np.uint8)
    pixels[..., channel] += 140
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of colours, which it cannot get wrong."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("colours")
    for i in range(60):
        name = CLASSES[i % 3]
        (root / "photos" / name).mkdir(parents=True, exist_ok=True)
        picture(i, {"red": 0, "green": 1, "blue": 2}[name]).save(root / "photos" / name / f"{i}.png")
    learn = ["views=plain", "epochs=20", "batch=16", "lr=0.01", "model=convnet", "size=16", "knn_every=0"]
    assert main(["train", f"data={root / 'photos'}", f"out={root / 'run'}", "accelerator=cpu", *learn]) == 0
    return root / "run"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def by_the_card(run: Path, files: list[Path]) -> Tensor:
    """What a person gets who has torch and the card, and no reglet."""
    card = json.loads((run / "card.json").read_text())
    names: dict[str, object] = {}
    for code in (card["load"], card["preprocess"], card["classifier"]["load"]):
        exec(code.replace("'encoder.", f"'{run}/encoder.").replace("'head.", f"'{run}/head."), names)
    read, preprocess, encoder, head = (names[key] for key in ("read", "preprocess", "encoder", "head"))
    with torch.no_grad():
        return torch.cat([head(encoder(preprocess(read(file)))).softmax(1) for file in files])  # type: ignore[operator]


def test_a_folder_as_the_card_says(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """File name, class and probabilities, which are those of the exported head in plain torch."""
    photos = tmp_path / "new"
    photos.mkdir()
    for i, channel in enumerate((0, 1, 2, 2)):
        picture(100 + i, channel).save(photos / f"{i}.png")
    assert main(["predict", str(run), str(photos), f"out={tmp_path / 'out.csv'}"]) == 0
    assert "4 images, 3 classes" in capsys.readouterr().out
    found = rows(tmp_path / "out.csv")
    assert [row["file_name"] for row in found] == ["0.png", "1.png", "2.png", "3.png"]
    assert [row["class"] for row in found] == ["red", "green", "blue", "blue"]
    seen = torch.tensor([[float(row[f"p({name})"]) for name in CLASSES] for row in found])
    torch.testing.assert_close(seen, by_the_card(run, sorted(photos.iterdir())), rtol=1e-3, atol=1e-4)
    assert [float(row["probability"]) for row in found] == pytest.approx(seen.max(1).values.tolist())


def test_one_image_is_answered_on_the_screen(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture(7, 1).save(tmp_path / "leaf.png")
    assert main(["predict", str(run), str(tmp_path / "leaf.png")]) == 0
    said = capsys.readouterr().out
    assert "leaf.png" in said
    assert said.index("green") < said.index("red")


def test_an_archive_and_parquet(run: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pixels = np.stack([np.array(picture(i, i % 3).resize((16, 16))) for i in range(5)])
    np.savez(tmp_path / "x.npz", images=pixels)
    assert main(["predict", f"run={run}", f"data={tmp_path / 'x.npz'}", f"out={tmp_path / 'x.parquet'}"]) == 0
    table = pq.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["class"] == ["red", "green", "blue", "red", "green"]
    assert "file_name" not in table


def test_files_that_cannot_be_read_are_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of them; no other image's answer stands in their place."""
    photos = tmp_path / "mixed"
    photos.mkdir()
    for i in range(2):
        picture(i, 0).save(photos / f"{i}.png")
        (photos / f"broken-{i}.png").write_bytes(b"no picture")
    assert main(["predict", str(run), str(photos), f"out={tmp_path / 'out.csv'}"]) == 0
    said = capsys.readouterr().err
    assert "broken-0.png" in said
    assert "broken-1.png" in said
    assert [row["file_name"] for row in rows(tmp_path / "out.csv")] == ["0.png", "1.png"]
    for i in range(2):
        (photos / f"{i}.png").unlink()
    assert main(["predict", str(run), str(photos)]) == 2
    assert "no file of mixed can be read: broken-" in capsys.readouterr().err


def test_what_was_trained_on_does_not_count(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the run's own folder the 12 that it has held out; in a copy under other names, too."""
    photos = run.parent / "photos"
    _, held = load_pair(str(photos), size=16)
    assert held is not None
    assert main(["predict", str(run), str(photos), f"out={tmp_path / 'all.csv'}"]) == 0
    assert f"of the {len(held)} images that it was not trained on; {60 - len(held)} others" in capsys.readouterr().out
    assert [row["label"] for row in rows(tmp_path / "all.csv")] == [CLASSES[i // 20] for i in range(60)]
    own = predict(run)
    assert own.files == held.names(torch.arange(len(held)))
    assert own.accuracy == (1.0, 12)
    trained = sorted(set(photos.glob("*/*")) - {photos / name for name in own.files})
    for i, path in enumerate(trained):
        (tmp_path / "copy" / path.parent.name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path.parent.name / f"copy-{i}.png").write_bytes(path.read_bytes())
    assert main(["predict", str(run), str(tmp_path / "copy")]) == 0
    assert "No accuracy: the run was trained on all of these 48 images" in capsys.readouterr().out


def test_labels_of_other_classes_are_no_labels(run: Path, tmp_path: Path) -> None:
    for name in ("red", "violet"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        picture(0, 0).save(tmp_path / "photos" / name / "a.png")
    found = predict(run, str(tmp_path / "photos"))
    assert found.labels is None
    assert found.accuracy is None


def test_images_that_lie_anywhere_are_all_predicted(run: Path, tmp_path: Path) -> None:
    """A stray one, too, which training would leave out."""
    for place in ("a/1.png", "a/2.png", "b/3.png", "4.png"):
        (tmp_path / "photos" / place).parent.mkdir(parents=True, exist_ok=True)
        picture(0, 0).save(tmp_path / "photos" / place)
    assert len(predict(run, str(tmp_path / "photos")).probabilities) == 4


def test_embed_has_the_names_beside_the_features(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = run.parent / "photos"
    for suffix in ("csv", "npz"):
        assert main(["embed", f"run={run}", f"data={photos}", f"out={tmp_path / f'x.{suffix}'}"]) == 0
    table, arrays = rows(tmp_path / "x.csv"), np.load(tmp_path / "x.npz")
    assert [row["file_name"] for row in table] == arrays["file_name"].tolist()
    assert [row["class"] for row in table] == arrays["class"].tolist() == [CLASSES[i // 20] for i in range(60)]
    width = arrays["features"].shape[1]
    values = np.array([[row[f"features{i}"] for i in range(width)] for row in table], np.float32)
    np.testing.assert_array_equal(values, arrays["features"])
    encoder, preprocess, _ = load_encoder(run)
    (i,) = [i for i, row in enumerate(table) if row["file_name"] == "green/4.png"]
    with Image.open(photos / "green" / "4.png") as file:
        square = file.crop((0, 5, 30, 35)).resize((16, 16), Image.Resampling.BICUBIC)
    with torch.no_grad():
        own = encoder(preprocess(torch.from_numpy(np.array(square)).permute(2, 0, 1)[None]))
    np.testing.assert_allclose(own[0].numpy(), values[i], rtol=1e-3, atol=1e-3)


def test_without_a_classifier(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def says(*words: str) -> str:
        assert main(["predict", *words]) == 2
        return capsys.readouterr().err

    card = json.loads((run / "card.json").read_text())
    del card["classifier"]
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "card.json").write_text(json.dumps(card))
    (encoder / "encoder.safetensors").write_bytes((run / "encoder.safetensors").read_bytes())
    assert "has no classifier: its features were learned without labels" in says(str(encoder), "x.npz")
    for task, word in (("domains", "leaves each domain out in turn"), ("audio", "task=audio")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "config.json").write_text(json.dumps({"command": "train", "task": task, "data": "pacs/"}))
        assert word in says(str(tmp_path / task), "images/")
    assert "needs the directory of a run" in says("out=x.csv")
    assert "ends in .csv, .npz or .parquet" in says(str(run), "out=x.txt")
    assert "there are no data at" in says(str(run), str(tmp_path / "nothing"))


def test_a_moving_average_brings_its_own_head(run: Path, tmp_path: Path) -> None:
    words = ["views=plain", "steps=3", "batch=16", "model=convnet", "size=16", "knn_every=0", "ema=0.9"]
    main(["train", f"data={run.parent / 'photos'}", f"out={tmp_path / 'run'}", "accelerator=cpu", *words])
    from safetensors.torch import load_file

    stored = load_file(tmp_path / "run" / "checkpoint.safetensors")
    head = load_file(tmp_path / "run" / "head.safetensors")
    assert torch.equal(head["weight"], stored["ema.module.head.weight"])
    assert not torch.equal(head["weight"], stored["method.head.weight"])
