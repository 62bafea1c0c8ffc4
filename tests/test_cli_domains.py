"""`reglet train task=domains`: the table, the three rules, and what a person is told when the data do not fit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from reglet.cli import main
from reglet.data import InMemory, load
from reglet.engine import domains
from reglet.engine.domain_arms import AT_BLOCKS, NAMES
from reglet.engine.domains import Curve, DomainsConfig, Job, check, choose, jobs, learn, leave_each_out

DOMAINS = ["ink", "paint", "photo"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def images(*, without: tuple[str, int] | None = None) -> InMemory:
    """Three domains of twenty images, brighter by domain; the class is a colour."""
    rng = np.random.default_rng(0)
    domain, labels = torch.arange(60) // 20, torch.arange(60) % 2
    x = torch.from_numpy(rng.integers(0, 60, (60, 3, 8, 8))) + 20 * domain.view(-1, 1, 1, 1)
    x[torch.arange(60), labels] += 120
    keep = torch.ones(60, dtype=torch.bool)
    if without is not None:
        keep &= ~((domain == DOMAINS.index(without[0])) & (labels == without[1]))
    return InMemory(
        x[keep].to(torch.uint8),
        labels=labels[keep],
        domain=domain[keep],
        classes=["red", "green"],
        domains=DOMAINS,
        name="colours",
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = images()
    path = tmp_path_factory.mktemp("data") / "colours.npz"
    names = np.array(DOMAINS)[found.domain.numpy()]
    np.savez(path, images=found.images.permute(0, 2, 3, 1).numpy(), labels=found.labels.numpy(), domain=names)
    return path


def config(out: Path, **given: object) -> DomainsConfig:
    small = DomainsConfig(out=str(out), steps=2, per_domain=4, checkpoints=1, seeds=1)
    return replace(small, **given)  # type: ignore[arg-type]


def test_table_and_json(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"data={data}", "steps=30", "per_domain=8", "checkpoints=2", "seeds=2", "lr=3e-3", "selection=oracle"]
    assert main(["train", "task=domains", *words, f"out={tmp_path}"]) == 0
    said = capsys.readouterr()
    assert "6/6" in said.err
    lines = said.out.splitlines()
    assert "selection: oracle" in lines
    assert max(map(len, lines[:-1])) <= 80
    report = json.loads((tmp_path / "domains.json").read_text())
    assert [row["domain"] for row in report["held_out"]] == DOMAINS
    for row in report["held_out"]:
        a, b = row["accuracy"]
        assert min(a, b) > 0.8  # of two classes
        assert row["mean"] == pytest.approx((a + b) / 2)
        assert row["standard_error"] == pytest.approx(abs(a - b) / 2)  # s / sqrt(2), s = |a - b| / sqrt(2)
        assert row["chosen"] == [{"lr": 3e-3, "checkpoint": 2, "by": c["by"]} for c in row["chosen"]]
        assert any(line.split()[:2] == [row["domain"], f"{100 * row['mean']:.1f}"] for line in lines)
    means = [row["mean"] for row in report["held_out"]]
    assert report["average"]["mean"] == pytest.approx(sum(means) / 3)


def test_finished_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def spy(config: DomainsConfig, images: object, left_out: tuple[int, ...], *, lr: float, seed: int) -> Curve:
        trained.append(Job(left_out, lr, seed))
        return Curve([[0.5, 0.5]], [0.5], [0.5])

    monkeypatch.setattr(domains, "learn", spy)
    leave_each_out(config(tmp_path), images())
    assert trained == [Job((d,), 1e-3, 0) for d in range(3)]
    leave_each_out(config(tmp_path, seeds=2), images())
    assert trained[3:] == [Job((d,), 1e-3, 1) for d in range(3)]
    leave_each_out(config(tmp_path, steps=3), images())  # another training
    assert len(trained) == 9


def test_each_rule_reports_what_it_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rates, each the favourite of another rule; accuracies on the test domain tell which was taken."""

    def made_up(config: DomainsConfig, images: object, left_out: tuple[int, ...], *, lr: float, seed: int) -> Curve:
        if len(left_out) == 2:
            return Curve([[0.5]] * 2, [0.9 if lr == 0.2 else 0.2, 0.1], [0.0, 0.0])
        return Curve(
            validation=[[0.5, 0.5], [0.9 if lr == 0.1 else 0.6, 0.7]],
            test=[lr, lr + 0.05],
            oracle=[1.0, 0.9 if lr == 0.3 else 0.3],  # the first checkpoint must not tempt it
        )

    monkeypatch.setattr(domains, "learn", made_up)
    found = {}
    for rule in domains.RULES:
        report = leave_each_out(config(tmp_path / rule, lr="0.1,0.2,0.3", checkpoints=2, selection=rule), images())
        (found[rule],) = {row["mean"] for row in report["held_out"]}
    assert found == {
        "training_domain": pytest.approx(0.15),
        "leave_one_domain_out": pytest.approx(0.2),
        "oracle": pytest.approx(0.35),
    }


def test_leave_one_domain_out_trains_without_every_pair() -> None:
    wanted = {job.left_out for job in jobs(config(Path(), selection="leave_one_domain_out"), [0, 1, 2])}
    assert wanted == {(0,), (1,), (2,), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2)}


def test_held_out_scores_are_averaged_over_domains_at_each_checkpoint() -> None:
    held = [[Curve([], [0.0, 0.8], []), Curve([], [0.6, 0.2], [])], [Curve([], [0.4, 0.4], [])] * 2]
    assert choose("leave_one_domain_out", [], held)[:2] == (0, 1)


def test_training_sees_the_other_domains_in_equal_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, seen = images(), []

    class Spied(InMemory):
        def batch(self, index: Tensor) -> Tensor:
            seen.append(self.domain[index].tolist())
            return super().batch(index)

    spied = Spied(data.images, labels=data.labels, domain=data.domain, domains=DOMAINS, name="spied")
    monkeypatch.setattr(domains, "_right", lambda *_: [0.0, 0.0, 0.0, 0.0])
    learn(config(tmp_path, steps=5), spied, (1,), lr=1e-3, seed=0)
    assert len(seen) == 6  # the first is a look at the size of an image
    assert all((part.count(0), part.count(1), part.count(2)) == (4, 0, 4) for part in seen[1:])


@pytest.mark.parametrize("loss", NAMES)
def test_every_loss_trains(loss: str, tmp_path: Path) -> None:
    blocks = "stages.0,stages.1" if loss in AT_BLOCKS else ""
    curve = learn(config(tmp_path, loss=loss, blocks=blocks), images(), (0,), lr=1e-3, seed=0)
    assert len(curve.test) == len(curve.oracle) == 1
    assert len(curve.validation[0]) == 2


def test_the_default_data_have_domains() -> None:
    assert check(load(DomainsConfig().data), selection="training_domain") == []


def test_a_class_that_a_domain_lacks_is_said() -> None:
    assert check(images(without=("paint", 1)), selection="oracle") == [
        "domain 'paint' has no images of class 'green', which is not trained or tested there"
    ]


def test_data_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*words: str, says: str) -> None:
        assert main(["train", "task=domains", *words, f"out={tmp_path / 'out'}"]) == 2
        assert says in capsys.readouterr().err.replace("\n", " ")

    def npz(**known: object) -> str:
        np.savez(tmp_path / "x.npz", images=np.zeros((8, 8, 8, 3), np.uint8), **known)
        return f"data={tmp_path / 'x.npz'}"

    labels = np.arange(8) % 2
    fails(npz(labels=labels), says="has no domains")
    fails(npz(domain=labels), says="has no labels")
    fails(npz(labels=labels, domain=np.zeros(8, int)), says="needs at least 2 domains")
    fails(npz(labels=labels, domain=labels), says="in domain '0' alone")
    two = npz(labels=labels, domain=np.arange(8) // 4)
    fails(two, "selection=leave_one_domain_out", says="needs at least 3 domains")
    fails("data=nowhere", says="no data at 'nowhere'")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("loss=emr", "loss is one of erm"),
        ("selection=best", "selection is one of training_domain"),
        ("lr=fast", "lr is a number"),
        ("lr=-1", "positive"),
        ("seeds=0", "at least 1"),
        ("seeds=two", "whole number"),
        ("steps=2 checkpoints=3", "no 3 checkpoints"),
        ("loss=mixstyle", "blocks="),
        ("blocks=stages.0", "blocks="),
        ("los=erm", "Did you mean loss=?"),
    ],
)
def test_mistakes(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "task=domains", *words.split()]) == 2
    assert says in capsys.readouterr().err.replace("\n", " ")


def test_help_names_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "task=domains", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name}=" in said for name in DomainsConfig.__dataclass_fields__)


def test_a_loss_that_is_not_finite_stops_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="try a smaller one"):
        learn(config(tmp_path, steps=20, loss="coral"), images(), (0,), lr=1e9, seed=0)
