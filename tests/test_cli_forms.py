"""What people type in their first ten minutes, in the forms that they bring along."""

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import reglet
from reglet.cli import main
from reglet.cli.dispatch import choose_waiting
from reglet.engine.state import State

ROOT = Path(__file__).parent.parent
QUICK = ["model=convnet", "projector=16-8", "loss.slices=8", "views.n_local=0", "accelerator=cpu", "knn_every=0"]
# A few steps of each command of the README, which are otherwise typed as they stand there.
SHORT = {
    "pretrain": ["steps=2", "loss.slices=8", "accelerator=cpu"],
    "train": ["steps=2", "accelerator=cpu"],
    "domains": ["steps=2", "checkpoints=1", "seeds=1", "per_domain=4", "model=convnet", "accelerator=cpu"],
    "compare": ["steps=2", "seeds=1", "robust=false", "projector=16-8", "accelerator=cpu"],
    "robust": ["severities=1", "images=8"],
    "report": ["robust=0", "points=12"],
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def photographs(folder: Path, classes: list[str], each: int = 12, size: int = 32) -> Path:
    """JPEGs, a colour for each class."""
    rng = np.random.default_rng(0)
    for c, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = rng.integers(0, 90, (size, size, 3), dtype=np.uint8)
            pixels[..., c % 3] += 120
            Image.fromarray(pixels).save(folder / name / f"{i}.jpg")
    return folder


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGLET_CACHE", str(tmp_path / "cache"))
    return photographs(tmp_path / "photos", ["cat", "dog", "owl"])


@pytest.mark.slow
def test_the_commands_of_the_readme_run_on_a_folder_of_photographs(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for domain in ("art", "photo", "sketch"):
        photographs(photos.parent / "pacs" / domain, ["cat", "dog"], size=16)
    page = (ROOT / "README.md").read_text()
    block = re.search(r"## With a folder of images\n\n```\n(.*?)```", page, re.DOTALL)
    assert block is not None
    ran = []
    for line in block.group(1).splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "reglet"
        kind = "domains" if "task=domains" in words else words[0]
        more = [word for word in SHORT.get(kind, []) if word.partition("=")[0] not in str(words)]
        code = main([*words, *more])
        assert code == 0 or (words[0] == "doctor" and code in (1, 4)), f"{line}: {capsys.readouterr().err}"
        ran.append(words[0])
    assert {"pretrain", "eval", "robust", "doctor", "compare", "train", "report"} <= set(ran)
    assert (photos.parent / "runs" / "a" / "encoder.safetensors").exists()


def test_other_forms(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "photos", *QUICK, "--steps", "1", "--batch=8", "--out", "runs/a"]) == 0
    assert main(["embed", "runs/a", "data=photos", "out=x.npz"]) == 0
    assert main(["export", "runs/a", "out=e"]) == 0
    assert main(["pretrain", "runs/a", "--out", "runs/b"]) == 0  # a run's directory is its config.json
    a, b = (load_file(f"runs/{name}/encoder.safetensors") for name in "ab")
    assert all(torch.equal(a[key], b[key]) for key in a)
    capsys.readouterr()
    assert main(["pretrain", "photos", "data=photos"]) == 2
    assert "data=photos or as photos" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says", "not_"),
    [
        (["train", "data=labels.csv"], "data=FOLDER table=labels.csv", "Did you mean labels.csv"),
        (["train", "photos", "model=resnet18", "sim=layer"], "Did you mean 'layer", "backbone."),
    ],
)
def test_advice_can_be_followed(
    given: list[str], says: str, not_: str, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("labels.csv").write_text("file,label\n")
    assert main(given) == 2
    said = capsys.readouterr().err
    assert says in said
    assert not_ not in said


def test_a_single_class_is_not_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photographs(tmp_path / "photos", ["all"], each=20)
    words = [f"data={folder}", "projector=16-8", "loss.slices=8", "views.n_local=0", "steps=1", "accelerator=cpu"]
    assert main(["pretrain", *words, f"out={tmp_path / 'a'}"]) == 0
    said = capsys.readouterr()
    assert "of one class, 'all'" in said.err
    assert "kNN" not in said.err
    assert main(["eval", str(tmp_path / "a")]) == 2
    assert "class" in capsys.readouterr().err


def test_ctrl_c_exits_130(photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = State.step

    def interrupted(self: State, steps: int) -> None:
        real(self, steps)
        if self.done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(State, "step", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
    try:
        assert main(["pretrain", "photos", *QUICK, "steps=5", "out=runs/a"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "stopped after step 2; resume: reglet pretrain out=runs/a resume=true" in capsys.readouterr().out


def test_a_run_is_trained_longer_where_its_schedule_allows(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "photos", *QUICK, "batch=8", "save_every=1"]
    even = ["schedule=constant", "warmup=0"]
    assert main([*words, *even, "epochs=1", "out=runs/a"]) == 0
    assert main(["pretrain", "out=runs/a", "resume=true", "epochs=2"]) == 0
    assert main([*words, *even, "epochs=2", "out=runs/b"]) == 0
    a, b = (load_file(f"runs/{name}/checkpoint.safetensors") for name in "ab")
    assert all(torch.equal(a[key], b[key]) for key in b)
    assert main([*words, "epochs=1", "out=runs/c"]) == 0
    capsys.readouterr()
    assert main(["pretrain", "out=runs/c", "resume=true", "epochs=2"]) == 2
    assert "schedule=constant warmup=0 may be trained longer" in capsys.readouterr().err


def test_help_has_the_keys_of_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help"]) == 0
    said = capsys.readouterr().out
    for text in ("loss.slices=", "views.n_local=", "sim.rho=", "model.patch=", "a whole number"):
        assert text in said
    assert main(["pretrain", "method=moco", "--help"]) == 0
    assert "method.temperature=" in capsys.readouterr().out
    assert main(["train", "task=audio", "latent=latentdr", "--help"]) == 0
    said = capsys.readouterr().out
    assert "mels=" in said
    assert "sim.rho=" in said
    assert "latent." in said


def test_waiting_is_chosen_unless_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    choose_waiting()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    choose_waiting()
    assert os.environ["GOMP_SPINCOUNT"] == "2500"


def test_only_a_process_of_its_own_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("reglet.cli.dispatch.choose_waiting", lambda: said.append("waiting"))
    monkeypatch.setattr("reglet.cli.dispatch.keep_freed_memory", lambda: said.append("memory"))
    main(["--version"])
    assert not said  # torch is there: this is the program of someone who calls `main`
    monkeypatch.delitem(sys.modules, "torch")
    main(["--version"])
    assert said == ["waiting", "memory"]


def test_from_python(photos: Path) -> None:
    options = {"loss.slices": 8, "views.n_local": 0}
    run = reglet.pretrain("photos", method="visreg", projector="16-8", steps=2, options=options, shown=False)
    assert run.path == Path("runs/run")
    assert set(run.scores) == {"knn", "rank"}
    x = run.preprocess(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    assert run.encoder(x).shape == (2, 128)
    assert run.evaluate(probes=["knn"]).probes["knn"]["accuracy"] >= 0
    again = reglet.train_classifier("photos", steps=1, shown=False)
    assert again.path == Path("runs/run-2")
    assert "accuracy" in again.scores
