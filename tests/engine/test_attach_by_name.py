"""`attach.0.where=stages.* attach.0.loss=sigreg ...` of the command line: in pretrain, in train and in a task."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reglet.attach import matching
from reglet.cli import main
from reglet.engine.attachments import ATTACHED, TWO_PLACES, detach, with_attachments
from reglet.engine.build import build_parts
from reglet.engine.config import from_flat, parse
from reglet.engine.feed import Place
from reglet.method import Batch, innermost
from reglet.methods import Regularized
from reglet.schedules import set_step
from reglet.tasks import TASKS, named
from reglet.tasks.run import regularized
from reglet.types import total


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "small.npz"
    split = np.array(["train"] * 40 + ["test"] * 20)
    np.savez(path, images=rng.integers(0, 255, (60, 16, 16, 3), dtype=np.uint8), labels=np.arange(60) % 2, split=split)
    return path


def rows(out: Path) -> list[dict[str, Any]]:
    return [row for line in (out / "metrics.jsonl").read_text().splitlines() if "loss" in (row := json.loads(line))]


def test_several_at_once_recorded_logged_repeated_and_resumed(data: Path, tmp_path: Path) -> None:
    """With a frozen teacher, which another run left; nothing of the attachments is in the encoder."""
    torch.set_num_threads(1)
    base = [f"data={data}", "model=convnet", "batch=20", "accelerator=cpu", "projector=16-8", "loss.slices=32"]
    assert main(["pretrain", *base, "epochs=1", f"out={tmp_path / 'teacher'}"]) == 0
    words = [*base, "attach.0.where=stages.1,stages.2", "attach.0.loss=sigreg", "attach.0.loss.slices=16"]
    words += ["attach.0.weight=cosine(0, 0.1)", "attach.0.rho=0.25", "attach.0.on=tokens"]
    words += ["attach.1.where=stages.1", "attach.1.to=stages.3", "attach.1.loss=cosine", "attach.1.weight=0.5"]
    words += ["attach.2.where=stages.2", "attach.2.to=stages.3", f"attach.2.teacher={tmp_path / 'teacher'}"]
    words += ["attach.2.loss=sim", "attach.2.name=taught"]
    out = tmp_path / "a"
    assert main(["pretrain", *words, "epochs=2", "log_every=1", f"out={out}"]) == 0
    seen = rows(out)
    names = ["sigreg@stages.1,stages.2", "cosine@stages.1->stages.3", "taught"]
    assert all(set(names) <= set(row) for row in seen)
    assert seen[0][names[0]] == 0 < seen[-1][names[0]]  # the schedule starts at 0
    assert all(row[name] > 0 for row in seen for name in names[1:])
    config = json.loads((out / "config.json").read_text())
    assert config["attach.0.weight"] == "cosine(0, 0.1)"
    assert config["attach.2.to"] == "stages.3"
    kept, exported = load_file(out / "checkpoint.safetensors"), load_file(out / "encoder.safetensors")
    assert any(key.startswith("method.attachment.heads.") for key in kept)
    assert not any("teacher" in key for key in kept)
    assert set(exported) == set(load_file(tmp_path / "teacher/encoder.safetensors"))
    assert main(["pretrain", str(out / "config.json"), f"out={tmp_path / 'b'}"]) == 0
    again = load_file(tmp_path / "b/encoder.safetensors")
    assert all(torch.equal(again[key], value) for key, value in exported.items())


@pytest.mark.parametrize("loss", sorted(ATTACHED))
def test_every_loss_by_its_name(data: Path, loss: str) -> None:
    """Terms and gradients, by the function that other commands call."""
    given = {"attach.0.where": "stages.1", "attach.0.loss": loss, "attach.0.weight": 0.5}
    if loss in TWO_PLACES:
        given["attach.0.to"] = "stages.2"
    config = from_flat({"data": str(data), "batch": 20, "command": "train", **given})
    parts = build_parts(config)
    method = parts.method
    assert isinstance(method, Regularized)
    batch = Batch([torch.randn(6, 3, 16, 16)], labels=torch.arange(6) % 2)
    terms = method(batch)
    name = f"{loss}@stages.1" + ("->stages.2" if loss in TWO_PLACES else "")
    assert list(terms)[1:] == [name]
    terms[name].backward()
    stages = dict(method.backbone.named_parameters())
    assert any(p.grad is not None and bool(p.grad.any()) for key, p in stages.items() if key.startswith("stages.1"))
    assert all(p.grad is None for key, p in stages.items() if key.startswith("stages.3"))
    detach(method)
    assert not any(m._forward_hooks for m in method.backbone.modules())


def test_a_weight_follows_its_schedule(data: Path) -> None:
    words = {"attach.0.where": "stages.1", "attach.0.loss": "l2", "attach.0.to": "stages.2"}
    config = from_flat({"data": str(data), "command": "train", **words, "attach.0.weight": "linear(0, 2)"})
    bare = build_parts(from_flat({"data": str(data), "command": "train"})).method
    example = torch.zeros(2, 3, 16, 16)
    method = with_attachments(config, bare, example=example)
    values = []
    for step in range(3):
        set_step(method, step, 3)
        assert isinstance(method, Regularized)
        values.append(method.balance.now("weight"))
    assert values == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["attach.0.loss=sigreg"], "attach.0 needs where=, such as attach.0.where=blocks.*"),
        (["attach.0.where=stages.1"], "attach.0 needs loss="),
        (["attach.where=stages.1"], "attachments have numbers, such as attach.0.where="),
        (["attach.0.were=stages.1", "attach.0.loss=l2"], "Did you mean attach.0.where=? There are where, loss, weight"),
        (["attach.0.where=stages.1", "attach.0.loss=sigreeg"], "Did you mean 'sigreg'? There are barlow, bhep, cka"),
        (["attach.0.where=stages.1", "attach.0.loss=cosine"], "attach.0: cosine compares two places: give to= too"),
        (["attach.0.where=stages.1", "attach.0.to=stages.2", "attach.0.loss=swd"], "swd regularizes one place"),
        (["attach.0.where=layers.1", "attach.0.loss=swd"], "attach.0: no module matches 'backbone.layers.1'"),
        (["attach.0.where=stages.1", "attach.0.loss=swd", "attach.0.weight=much"], "a weight is a number"),
        (["attach.0.where=stages.1", "attach.0.loss=swd", "attach.0.loss.slizes=3"], "attach.0.loss.slices"),
        (
            ["attach.0.where=stages.1", "attach.0.loss=swd", "attach.0.on=all"],
            "attach.0.on is one of tokens, pooled, class",
        ),
        (
            ["attach.0.where=stages.1", "attach.0.loss=l2", "attach.0.to=stages.1", "attach.0.teacher=nowhere"],
            "nowhere holds no exported encoder",
        ),
    ],
)
def test_what_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Any, says: str) -> None:
    assert main(["train", f"data={data}", "accelerator=cpu", f"out={tmp_path / 'c'}", *words]) == 2
    assert says in capsys.readouterr().err


def test_in_a_task_with_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    words = [
        "task=few-shot",
        "steps=2",
        "shots=2",
        "accelerator=cpu",
        f"out={tmp_path / 'd'}",
        "paired=true",
        "seeds=2",
    ]
    words += ["attach.0.where=cache", "attach.0.loss=vicreg", "attach.0.weight=0.1", "attach.0.on=pooled"]
    assert main(["train", *words]) == 0
    said = capsys.readouterr().out
    assert "vicreg on cache; weight 0.1" in said
    assert "attached minus without" in said
    report = json.loads((tmp_path / "d/task.json").read_text())
    assert [run["sim"] for run in report["runs"]] == [False, True, False, True]
    assert report["config"]["attach.0.where"] == "cache"
    metrics = [rows(folder) for folder in sorted((tmp_path / "d/runs").iterdir()) if folder.is_dir()]
    assert sorted("vicreg@cache" in run[0] for run in metrics) == [False, False, True, True]


def test_the_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "attach"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ATTACHED)


SMALL = {
    "domains": ["model=convnet", "per_domain=4", "leave_out=paint"],
    "segmentation": ["batch=2", "width=4", "stages=2", "crop=32"],
    "audio": ["batch=8", "mels=12", "hop=0.025", "pool=2"],
    "anomaly": ["batch=4", "window=20"],
    "few-shot": ["batch=8", "shots=2"],
    "dense": ["batch=8", "model=convnet", "images=32"],
    "translation": ["batch=4", "width=4", "depth=1", "places=8"],
    "series-ssl": ["batch=8", "slices=16"],
    "series-ssl predict": ["batch=8", "slices=16", "objective=predict"],
}
BLOCKS = {"domains": ["stages.0", "stages.1"]}  # where the network suggests none


def with_words(name: str, *words: str) -> Any:
    kind = named(name.split()[0]).config
    given = dict(word.split("=", 1) for word in (*SMALL[name], "accelerator=cpu", *words))
    return from_flat({key: parse(key, text, kind) for key, text in given.items()}, kind)


def test_no_task_is_forgotten() -> None:
    assert {name.split()[0] for name in SMALL} == set(TASKS)


@pytest.mark.parametrize("name", list(SMALL))
def test_every_task_takes_attachments(name: str, tmp_path: Path) -> None:
    """A regularizer of features, and a comparison with another block where there is one; then no trace of them."""
    task = named(name.split()[0])
    words = []
    if name == "domains":
        rng = np.random.default_rng(0)
        x, d = rng.integers(0, 255, (60, 8, 8, 3), dtype=np.uint8), np.arange(60) // 20
        np.savez(tmp_path / "d.npz", images=x, labels=np.arange(60) % 2, domain=np.array(["ink", "paint", "photo"])[d])
        words = [f"data={tmp_path / 'd.npz'}"]
    plain = with_words(name, *words)
    data = task.load(plain)
    torch.manual_seed(0)
    setup = task.setup(plain, data)
    own = BLOCKS.get(name) or setup.sim_blocks
    first = next(iter(matching(innermost(setup.method).get_submodule(setup.inside), own)))
    words += [f"attach.0.where={first}", "attach.0.loss=vicreg", "attach.0.on=pooled", "attach.0.name=spread"]
    method, _ = regularized(setup, with_words(name, *words))
    setup.feed.open(Place(), steps=1)
    terms = method.train()(setup.feed(0))
    setup.feed.close()
    assert "spread" in terms
    total(terms).backward()
    assert torch.isfinite(total(terms))
    detach(method)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in setup.method.modules())


@pytest.mark.parametrize("command", ["pretrain", "adapt", "train"])
def test_the_commands_on_images_take_attachments(command: str, data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    base = [f"data={data}", "model=convnet", "batch=20", "accelerator=cpu", "steps=2", "knn_every=0", "log_every=1"]
    start = []
    if command == "adapt":
        assert main(["pretrain", *base, "projector=16-8", "loss.slices=32", f"out={tmp_path / 'start'}"]) == 0
        start = [f"init_from={tmp_path / 'start'}"]
    words = ["attach.0.where=stages.1", "attach.0.loss=patch_ntxent", "attach.0.to=stages.3", "attach.1.loss=sim"]
    words += ["attach.1.where=stages.1", "attach.1.to=stages.2", "attach.2.where=stages.*", "attach.2.loss=weak_sigreg"]
    own = [] if command == "train" else ["projector=16-8", "loss.slices=32"]
    assert main([command, *base, *own, *start, *words, f"out={tmp_path / 'a'}"]) == 0
    names = ["patch_ntxent@stages.1->stages.3", "sim@stages.1->stages.2", "weak_sigreg@stages.*"]
    assert all(set(names) <= set(row) for row in rows(tmp_path / "a"))
