"""The laws of the loop, swept over every command and task: a run that is killed and goes on ends in the same bits, its
config.json repeats it, and half precision trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from reglet.backbones import vit_mini
from reglet.cli import main
from reglet.engine.config import COMMANDS
from reglet.engine.state import State
from reglet.tasks import TASKS

SMALL: dict[str, list[str]] = {
    "pretrain": ["views=smi", "knn_every=0", "steps=4", "batch=16", "method=vicreg", "projector=16-16"],
    "adapt": ["model=vit_mini", "views=smi", "knn_every=0", "steps=4", "batch=16", "method=vicreg", "projector=16-16"],
    "pretrain jepa": [
        "knn_every=0",
        "steps=4",
        "batch=16",
        "method=jepa",
        "model=vit_mini",
        "model.patch=2",
        "loss.slices=8",
        "method.targets=2",
        "projector=none",
    ],
    "train": ["knn_every=0", "steps=4", "batch=16"],
    "domains": ["steps=4", "per_domain=4", "checkpoints=1", "seeds=1", "leave_out=paint"],
    "segmentation": ["steps=4", "batch=2", "width=4", "stages=2", "crop=32"],
    "audio": ["steps=4", "batch=8", "mels=12", "hop=0.025", "pool=2"],
    "anomaly": ["steps=4", "batch=4", "window=20"],
    "few-shot": ["steps=4", "batch=8", "shots=2"],
    "dense": ["steps=4", "batch=8", "model=convnet", "images=32"],
    "translation": ["steps=4", "batch=4", "width=4", "depth=1", "places=8"],
    "series-ssl": ["steps=4", "batch=8", "slices=16"],
    "series-ssl predict": ["steps=4", "batch=8", "slices=16", "objective=predict", "loss=sigreg"],
}


def test_no_command_or_task_is_forgotten() -> None:
    assert {name.split()[0] for name in SMALL} == {*COMMANDS, *TASKS}


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty small images of two classes and three domains."""
    rng = np.random.default_rng(0)
    y, d = np.arange(60) % 2, np.arange(60) // 20
    x = rng.integers(0, 60, (60, 8, 8, 3)) + 20 * d[:, None, None, None]
    x[np.arange(60), :, :, y] += 120
    path = tmp_path_factory.mktemp("colours") / "colours.npz"
    np.savez(path, images=x.astype(np.uint8), labels=y, domain=np.array(["ink", "paint", "photo"])[d])
    torch.manual_seed(0)
    save_file(vit_mini(size=8).state_dict(), path.with_name("start.safetensors"))  # what adapt goes on from
    return path


def words(name: str, colours: Path, out: Path, *more: str) -> list[str]:
    task = name.split()[0]
    data = [f"data={colours}"] if task in (*COMMANDS, "domains") else []
    command = [task] if task in COMMANDS else ["train", f"task={task}"]
    if name == "adapt" and "resume=true" not in more:
        start = ["preserve=features,gram,l2sp", "layer_decay=0.7", "heads_first=1", "last_blocks=3", "keep_best=rankme"]
        more = (*more, f"init_from={colours.with_name('start.safetensors')}", *start)
    return [*command, *data, *SMALL[name], "accelerator=cpu", "save_every=1", f"out={out}", *more]


def weights(out: Path) -> dict[str, torch.Tensor]:
    (file,) = out.rglob("checkpoint.safetensors")
    if (best := out / "best.safetensors").exists():
        return load_file(file) | {f"best.{key}": value for key, value in load_file(best).items()}
    return load_file(file)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("name", SMALL)
def test_killed_and_gone_on_is_not_killed(
    name: str, colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    assert main(words(name, colours, tmp_path / "straight")) == 0
    real = State.step

    def dies(self: State, steps: int) -> None:
        if self.done == 2:
            raise KilledError
        real(self, steps)

    monkeypatch.setattr(State, "step", dies)
    with pytest.raises(KilledError):
        main(words(name, colours, tmp_path / "killed"))
    monkeypatch.setattr(State, "step", real)
    resume = ["resume=true"] if name.split()[0] in COMMANDS else []
    assert main(words(name, colours, tmp_path / "killed", *resume)) == 0
    a, b = weights(tmp_path / "straight"), weights(tmp_path / "killed")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", SMALL)
def test_config_json_repeats_the_run(name: str, colours: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    assert main(words(name, colours, tmp_path / "a")) == 0
    command = name.split()[0] if name.split()[0] in COMMANDS else "train"
    assert main([command, str(tmp_path / "a" / "config.json"), f"out={tmp_path / 'b'}"]) == 0
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    stored = [json.loads((tmp_path / run / "config.json").read_text()) for run in "ab"]
    assert {k: v for k, v in stored[0].items() if k != "out"} == {k: v for k, v in stored[1].items() if k != "out"}


EVERY = """
import sys
from reglet.cli import main
for words in sys.stdin.read().split("\\n"):
    if words and main(words.split("\\t")) != 0:
        sys.exit(words)
"""


def test_every_command_trains_in_half_precision(colours: Path, tmp_path: Path) -> None:
    """In one process, whose instruction set has to be chosen before torch is loaded: see CONTRIBUTING."""
    given = [words(name, colours, tmp_path / name, "precision=bf16-mixed") for name in SMALL]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", "OMP_NUM_THREADS": "1"}
    lines = "\n".join("\t".join(each) for each in given)
    done = subprocess.run(
        [sys.executable, "-c", EVERY], input=lines, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


# SGD: Adam would make steps of the size of the rate out of gradients that are nothing but rounding.
PLAIN = ("clip=0", "optimizer=sgd", "lr=0.05", "warmup=0")
# Batch norm sees the samples of its own process unless it is told to look at all.  CUT has its own optimizer.  TDNN is
# so steep at its start that a large rate makes much of rounding.
ALONE: dict[str, tuple[str, ...]] = {
    "pretrain": (*PLAIN, "model=convnet", "sync_batchnorm=true"),
    "adapt": (*PLAIN, "sync_batchnorm=true", "preserve.weight=0.1"),  # shares are measured rank by rank
    "train": (*PLAIN, "model=vit_mini"),
    "domains": (*PLAIN, "model=vit_mini"),
    "segmentation": (*PLAIN, "sync_batchnorm=true"),
    "audio": (*PLAIN[:2], "lr=0.001", "warmup=0", "sync_batchnorm=true"),
    "anomaly": PLAIN,
    "few-shot": PLAIN,
    "dense": (*PLAIN, "sync_batchnorm=true"),
    "translation": (),
    "series-ssl": (*PLAIN, "sync_batchnorm=true"),
    "pretrain jepa": PLAIN,
    "series-ssl predict": (*PLAIN, "sync_batchnorm=true", "dropout=0"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"), [*((name, ()) for name in ALONE), ("few-shot", ("model=meta-adapter", "episodes=2"))]
)
def test_two_processes_are_one(name: str, more: tuple[str, ...], colours: Path, tmp_path: Path) -> None:
    assert set(ALONE) == set(SMALL)
    one, two = (words(name, colours, tmp_path / n, *ALONE[name], *more, f"devices={n}") for n in "12")
    torch.set_num_threads(1)
    assert main(one) == 0
    done = subprocess.run(
        [sys.executable, "-m", "reglet.cli", *two],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    a, b = weights(tmp_path / "1"), weights(tmp_path / "2")
    assert a.keys() == b.keys()
    for key, value in a.items():
        if value.is_floating_point() and "optimizer" not in key:
            torch.testing.assert_close(b[key], value, atol=1e-5, rtol=1e-4, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", [name for name in SMALL if name.split()[0] in TASKS])
def test_a_task_leaves_a_network_that_torch_runs_and_a_page(name: str, colours: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    out = tmp_path / "a"
    assert main(words(name, colours, out)) == 0
    assert main(["export", f"run={out}", f"out={tmp_path / 'e'}"]) == 0
    card = json.loads((tmp_path / "e" / "card.json").read_text())
    program = torch.export.load(tmp_path / "e" / "network.pt2").module()
    assert torch.isfinite(program(torch.zeros(3, *card["input"]))).all()
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert f"task {name.split()[0]}" in page
    assert '<section id="scores"' in page
    assert '<section id="training"' in page


# What is judged by `reglet eval`, `doctor` and `embed`, besides a run: a name, and words that it needs
JUDGED = ("run", "exported", "timm", "hf", "folder", "python", "npz", "parquet")


@pytest.mark.parametrize("form", JUDGED)
def test_every_form_of_encoder_is_judged_the_same_twice(
    form: str, colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Random weights of a name, too: nothing depends on what was computed before."""
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    spec, more = judged(form, colours, tmp_path, request)
    data = [] if form in ("npz", "parquet") else [f"data={colours}"]
    found = []
    for name in "ab":
        torch.rand(3)
        assert main(["eval", spec, *data, *more, "probes=knn,ridge", "accelerator=cpu", f"out={name}.json"]) == 0
        written = json.loads((tmp_path / f"{name}.json").read_text())
        found.append({key: written[key] for key in ("probes", "representation", "classes")})
    assert found[0] == found[1]
    assert main(["doctor", spec, *data, *more, "accelerator=cpu"]) in (0, 1, 4)
    if data:
        for name in "ab":
            assert main(["embed", spec, *data, *more, "accelerator=cpu", f"out={name}.npz"]) == 0
        a, b = (np.load(tmp_path / f"{name}.npz")["features"] for name in "ab")
        assert np.array_equal(a, b)


def judged(form: str, colours: Path, folder: Path, request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    if form == "timm":
        request.getfixturevalue("timm")
        return "timm/test_vit", ["pretrained=false", "size=32"]
    if form in ("hf", "folder"):
        transformers = request.getfixturevalue("transformers")
        tiny = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        torch.manual_seed(0)
        transformers.ViTModel(transformers.ViTConfig(**tiny, image_size=16, patch_size=8)).save_pretrained(folder / "t")
        return f"{'hf/' if form == 'hf' else ''}{folder / 't'}", []
    if form == "python":
        (folder / "mine.py").write_text("from reglet.backbones import ConvNet\nmake = lambda: ConvNet(widths=(4, 8))\n")
        return "mine:make", ["size=16"]
    assert main(words("pretrain", colours, folder / "run")) == 0
    if form == "run":
        return str(folder / "run"), []
    assert main(["export", f"run={folder / 'run'}", f"out={folder / 'exported'}"]) == 0
    if form == "exported":
        return str(folder / "exported"), []
    assert (
        main(["embed", str(folder / "run"), f"data={colours}", "accelerator=cpu", f"out={folder / f'x.{form}'}"]) == 0
    )
    return str(folder / f"x.{form}"), []
