"""Whether a run may start or go on: `resume` and `init_from` cannot be confused."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine.toy import feed, images, toy

from reglet.engine.metrics import read_metrics
from reglet.engine.monitor import OnlineKNN
from reglet.engine.run_folder import RunError
from reglet.engine.settings import Settings
from reglet.train import fit


def settings(out: Path, **changes: object) -> Settings:
    given = {"out": str(out), "accelerator": "cpu", "epochs": 2, "batch": 16, "save_every": 4, **changes}
    return Settings(**given)  # type: ignore[arg-type]


def train(s: Settings) -> None:
    fit(toy(), feed(s), s, shown=False)


def test_a_directory_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train(settings(tmp_path / "run"))
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    with pytest.raises(RunError, match=r"holds a run already \(checkpoint of step 12\). resume=true continues it"):
        train(settings(tmp_path / "run"))
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before


def test_a_finished_run_resumes_to_itself(tmp_path: Path) -> None:
    s = settings(tmp_path / "run")
    train(s)
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    train(replace(s, resume=True, save_every=3))
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no run to resume"):
        train(settings(tmp_path / "none", resume=True))
    assert not (tmp_path / "none").exists()


def test_a_changed_configuration_is_no_resume(tmp_path: Path) -> None:
    train(settings(tmp_path / "run"))
    with pytest.raises(RunError, match=r"another configuration.*lr was 0.001 and is 0.5.*init_from="):
        train(settings(tmp_path / "run", resume=True, lr=0.5))
    s = settings(tmp_path / "run", resume=True)
    with pytest.raises(RunError, match="fingerprint was"):
        fit(toy(), feed(s, data=images(seed=1)), s, shown=False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"patience": 3}, "say which by keep_best="),
        ({"layer_decay": 0.0}, "layer_decay is a factor"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"lr": -1.0}, "lr must not be negative"),
        ({"warmup": 5.0}, "warmup is a share between 0 and 1"),
        ({"optimizer": "lion"}, "optimizer is one of adamw, adam, sgd, lars; got 'lion'"),
        ({"micro_batch": 2, "accumulate": 2}, "give one of them"),
        ({"batch": 6, "devices": 4}, "batch 6 is not a multiple of devices x nodes x accumulate"),
        ({"loggers": "print"}, "loggers are tensorboard and wandb; got print"),
        ({"strategy": "fsdp", "ema": 0.9}, "fsdp"),
        ({"strategy": "fsdp", "precision": "16-mixed"}, "take bf16-mixed"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings(**given)  # type: ignore[arg-type]


def test_too_few_images_for_a_batch(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch 128 is larger than the data, which have 96 images"):
        train(settings(tmp_path / "run", batch=128))


def test_what_a_run_says_of_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = images()
    knn = OnlineKNN(data, lambda x: x.float() / 255, test=data)
    s = settings(tmp_path / "run", log_every=4)
    result = fit(toy(), feed(s, data=data), s, watch=[knn])
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [4, 8, 12]
    scores = [row["knn"] for row in rows if "knn" in row]
    assert all(row["rank"] >= 1 for row in rows if "knn" in row)
    assert all(row["grad_norm"] > 0 for row in rows if "loss" in row)
    assert len(scores) == 2
    assert result.metrics["knn"] == scores[-1] > 0.5  # three classes by colour
    assert all(
        abs(row["loss"] - sum(row[t] for t in ("scale", "shape", "center", "invariance"))) < 1e-5 for row in rows[-1:]
    )
    shown = capsys.readouterr().err
    assert "images/s" in shown
    assert "kNN" in shown
    assert result.finished
    assert result.encoder.training is True


@pytest.mark.parametrize("logger", ["tensorboard", "wandb"])
def test_absent_loggers_say_what_to_install(tmp_path: Path, logger: str) -> None:
    package = {"tensorboard": "tensorboard", "wandb": "wandb"}[logger]
    try:
        __import__(package)
    except ImportError:
        with pytest.raises(ImportError, match=rf"pip install 'reglet\[{package}\]'"):
            train(settings(tmp_path / "run", loggers=logger))
    else:
        pytest.skip(f"{package} is installed here")
