"""From a folder to a score: what every command tests on was never trained on."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from reglet.cli import main
from reglet.data import load_pair
from reglet.engine.build import build_parts
from reglet.engine.run_folder import RunError, read_run
from reglet.evaluate import evaluate_run
from reglet.evaluate.examine import examine
from reglet.export import load_encoder
from reglet.probes import knn_probe
from reglet.report.gather.source import open_source

CLASSES = 10


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that has learned 200 pictures with random labels by heart."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("shuffled")
    labels = [i % CLASSES for i in range(200)]
    random.Random(0).shuffle(labels)
    for i, label in enumerate(labels):
        folder = root / "photos" / f"class-{label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    learn = ["views=plain", "epochs=60", "batch=40", "lr=0.01", "weight_decay=0", "model=convnet", "knn_every=60"]
    assert main(["train", f"data={root / 'photos'}", f"out={root / 'run'}", "accelerator=cpu", *learn]) == 0
    return root / "run"


def test_random_labels_score_at_chance_everywhere(run: Path) -> None:
    encoder, preprocess, card = load_encoder(run)
    train, test = load_pair(str(run.parent / "photos"), size=card["architecture"]["size"])
    assert test is not None
    assert train.labels is not None
    with torch.no_grad():
        x = encoder(preprocess(train.batch(torch.arange(len(train)))))
    by_heart = knn_probe(x, train.labels, x, train.labels, k=1)
    assert by_heart > 0.95  # otherwise the rest would show nothing
    chance = 0.3  # 40 images at one in ten: the mean and four deviations
    found = evaluate_run(run, probes=("knn", "linear"))
    assert found.data["test"]["images"] == len(test) == 40
    assert all(found.probes[name]["accuracy"] < chance for name in ("knn", "linear"))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert 0 <= next(row["knn"] for row in rows if "knn" in row) < chance
    assert card["metrics"]["accuracy"] < chance


def test_every_command_has_the_same_test_images(run: Path) -> None:
    config, stored = read_run(run)
    parts = build_parts(config)
    assert parts.test is not None
    assert stored["resolved"]["data"]["test"]["fingerprint"] == parts.test.fingerprint
    assert stored["fingerprint"] == parts.images.fingerprint
    source = open_source(run)
    assert source.test.fingerprint == parts.test.fingerprint
    examine(run)
    assert json.loads((run / "doctor.json").read_text())["data"].startswith(f"{parts.test.name}/40 of 40")


def test_other_data_than_the_runs_are_noticed(run: Path) -> None:
    new = run.parent / "photos" / "class-0" / "new.png"
    Image.new("RGB", (8, 8)).save(new)
    try:
        with pytest.raises(RunError, match="have changed since"):
            evaluate_run(run)
    finally:
        new.unlink()


def test_a_test_folder_without_one_of_the_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each folder numbers its own classes; the score must not."""
    for part, names in (("train", "abc"), ("test", "bc")):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(12):
                rng = np.random.default_rng([ord(name), i, len(part)])
                pixels = rng.integers(0, 40, (8, 8, 3), dtype=np.uint8)
                pixels[..., "abc".index(name)] += 200
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    words = [f"data={tmp_path}", f"out={tmp_path / 'run'}", "epochs=15", "batch=12", "views=plain", "accelerator=cpu"]
    assert main(["train", *words]) == 0
    said = capsys.readouterr().out
    assert "online kNN 100.0%" in said
    assert "the classifier's own accuracy 100.0%" in said
