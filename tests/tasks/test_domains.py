"""`reglet train task=domains`: the table, the three rules, and what a person is told when the data do not fit."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.trained import train

from reglet.cli import main
from reglet.data import Images, InMemory, load
from reglet.engine.guard import NonFiniteError
from reglet.method import Batch
from reglet.runs import Run
from reglet.tasks.domains import TASK, leave_each_out
from reglet.tasks.domains.config import RULES, DomainsConfig
from reglet.tasks.domains.leave_each_out import choose, runs
from reglet.tasks.domains.losses import NAMES
from reglet.tasks.domains.task import CheckpointScores, DomainsTask, check
from reglet.tasks.run import first_batch

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
    words.append("views=none")  # a colour that is jittered is no class
    assert main(["train", "task=domains", *words, f"out={tmp_path}"]) == 0
    said = capsys.readouterr()
    assert said.err.count("seed 1, without") == 3
    plan = "6 runs on .*, each of 30 steps of 8 images of each training domain: 3 domains left out in turn, 2 seeds;"
    assert re.search(plan, said.err)
    lines = said.out.splitlines()
    assert "selection: oracle" in lines
    assert max(map(len, lines[:-1])) <= 80
    report = json.loads((tmp_path / "task.json").read_text())
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


def scores(curve: CheckpointScores) -> dict[str, float]:
    """As a run stores them."""
    found: dict[str, float] = {}
    for i, (validation, test, oracle) in enumerate(zip(*curve, strict=True), 1):
        found |= {f"validation {d}@{i}": v for d, v in enumerate(validation)}
        found |= {f"test@{i}": test, f"oracle@{i}": oracle}
    return found


def of_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DomainsTask, "load", lambda self, config: images())


def test_finished_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def spy(run: Run, images: Images, *, config: DomainsConfig) -> dict[str, float]:
        trained.append((run.fold, run.seed))
        return scores(CheckpointScores([[0.5, 0.5]], [0.5], [0.5]))

    of_colours(monkeypatch)
    monkeypatch.setattr(leave_each_out, "compute", spy)
    TASK.run(config(tmp_path))
    assert trained == [(name, 0) for name in DOMAINS]
    TASK.run(config(tmp_path, seeds=2))
    assert trained[3:] == [(name, 1) for name in DOMAINS]
    TASK.run(config(tmp_path, steps=3))  # another training
    assert len(trained) == 9
    TASK.run(config(tmp_path, leave_out="ink", steps=3))
    assert len(trained) == 9, "one domain of those that were all left out before"


def test_each_rule_reports_what_it_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rates, each the favourite of another rule; accuracies on the test domain tell which was taken."""

    def made_up(run: Run, images: Images, *, config: DomainsConfig) -> dict[str, float]:
        lr = run.settings["lr"]
        if "," in run.fold:
            return scores(CheckpointScores([[0.5]] * 2, [0.9 if lr == 0.2 else 0.2, 0.1], [0.0, 0.0]))
        made = CheckpointScores(
            validation=[[0.5, 0.5], [0.9 if lr == 0.1 else 0.6, 0.7]],
            test=[lr, lr + 0.05],
            oracle=[1.0, 0.9 if lr == 0.3 else 0.3],  # the first checkpoint must not tempt it
        )
        return scores(made)

    of_colours(monkeypatch)
    monkeypatch.setattr(leave_each_out, "compute", made_up)
    found = {}
    for rule in RULES:
        report = TASK.run(config(tmp_path / rule, rates="0.1,0.2,0.3", checkpoints=2, selection=rule))
        (found[rule],) = {row["mean"] for row in report["held_out"]}
    assert found == {
        "training_domain": pytest.approx(0.15),
        "leave_one_domain_out": pytest.approx(0.2),
        "oracle": pytest.approx(0.35),
    }


def test_leave_one_domain_out_trains_without_every_pair() -> None:
    wanted = [run.fold for run in runs(config(Path(), selection="leave_one_domain_out"), images())]
    pairs = [f"{d},{test}" for test in DOMAINS for d in DOMAINS if d != test]
    assert wanted == [*DOMAINS, *pairs]


def test_held_out_scores_are_averaged_over_domains_at_each_checkpoint() -> None:
    held = [
        [CheckpointScores([], [0.0, 0.8], []), CheckpointScores([], [0.6, 0.2], [])],
        [CheckpointScores([], [0.4, 0.4], [])] * 2,
    ]
    assert choose("leave_one_domain_out", [], held)[:2] == (0, 1)


def test_training_sees_the_other_domains_in_turn_and_augmented(tmp_path: Path) -> None:
    """As many of each, in the order that the method takes them apart in; DomainBed's views unless told otherwise."""
    own = config(tmp_path, leave_out="paint")
    setup = TASK.setup(own, images())
    batch = first_batch(setup.feed)
    assert batch.domain.tolist() == [0, 2] * 4
    raw = first_batch(TASK.setup(replace(own, views="none"), images()).feed)
    assert torch.equal(raw.labels, batch.labels)
    assert not torch.allclose(raw.views[0], batch.views[0], atol=0.05)


def test_turns_and_domains_give_the_same_loss(tmp_path: Path) -> None:
    setup = TASK.setup(config(tmp_path, leave_out="ink", loss="coral"), images())
    method, batch = setup.method.eval(), first_batch(setup.feed)
    by_turn = method(batch)
    method.interleaved = 0
    shuffled = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    mixed = Batch([batch.views[0][shuffled]], labels=batch.labels[shuffled], domain=batch.domain[shuffled])
    by_number = method(mixed)
    for name, term in by_turn.items():
        torch.testing.assert_close(term, by_number[name])


@pytest.mark.parametrize("loss", NAMES)
def test_every_loss_trains(loss: str, tmp_path: Path) -> None:
    found = train(TASK, config(tmp_path, loss=loss, leave_out="ink"), images()).scores
    assert set(found) == {"test@1", "oracle@1", "validation paint@1", "validation photo@1"}


@pytest.mark.parametrize("mix", ["mixup", "cutmix", "manifold", "mixstyle"])
def test_every_mixing_trains(mix: str, tmp_path: Path) -> None:
    options = {"mix.blocks": "stages.0,stages.1"} if mix in ("manifold", "mixstyle") else {}
    found = train(TASK, config(tmp_path, mix=mix, options=options, leave_out="ink"), images()).scores
    assert 0 <= found["test@1"] <= 1


def test_the_moments_are_forgotten_where_a_penalty_gets_its_weight(tmp_path: Path) -> None:
    method = TASK.setup(config(tmp_path, loss="irm", steps=50, leave_out="ink"), images()).method
    assert [step for step in range(1, 51) if method.forgets(step)] == [5]
    assert not TASK.setup(config(tmp_path, leave_out="ink"), images()).method.forgets(5)


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
        ("lr=-1", "negative"),
        ("rates=1e-3,fast", "rates are numbers"),
        ("rates=0,1", "positive"),
        ("seeds=0", "at least 1"),
        ("seeds=two", "whole number"),
        ("steps=2 checkpoints=3", "no 3 checkpoints"),
        ("mix=mixstyle", "blocks are for"),
        ("mix.blocks=stages.0", "give mix= too"),
        ("leave_out=nowhere", "the domains are"),
        ("views=visreg", "one view of each image"),
        ("los=erm", "Did you mean loss=?"),
    ],
)
def test_mistakes(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "task=domains", *words.split()]) == 2
    assert says in capsys.readouterr().err.replace("\n", " ")


def test_help_names_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "task=domains", "--help"]) == 0
    said = capsys.readouterr().out
    names = {field.name for field in fields(DomainsConfig)} - {"options"}
    assert [name for name in names if f"  {name}=" not in said] == []


def test_a_loss_that_is_not_finite_stops_it(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="step"):
        train(TASK, config(tmp_path, steps=20, loss="coral", lr=1e9, leave_out="ink"), images())


def test_pairs(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"data={data}", "steps=3", "per_domain=4", "checkpoints=1", "seeds=2", "leave_out=ink", f"out={tmp_path}"]
    sim = ["sim=stages.*", "sim_weight=0.1"]
    assert main(["train", "task=domains", *words, *sim, "paired=true"]) == 0
    said = capsys.readouterr()
    assert said.err.count("rhoSIM: test") == 2
    assert "without, %" in said.out
    both = json.loads((tmp_path / "task.json").read_text())
    (row,) = both["held_out"]
    a, b = row["without"]["accuracy"], row["accuracy"]
    assert row["difference"]["difference"] == pytest.approx(((b[0] - a[0]) + (b[1] - a[1])) / 2)
    assert both["average"]["difference"] == row["difference"]
    assert len(list((tmp_path / "runs").glob("*.json"))) == 4
    assert main(["report", str(tmp_path)]) == 0
    assert "without, %" in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    for given, wanted in (([], a), (sim, b)):  # each arm alone finds its runs stored
        assert main(["train", "task=domains", *words, *given]) == 0
        assert json.loads((tmp_path / "task.json").read_text())["held_out"][0]["accuracy"] == wanted
    assert len(list((tmp_path / "runs").glob("*.json"))) == 4, "nothing was trained again"
    assert main(["train", "task=domains", *words, "sim=auto"]) == 2
    assert "suggests no blocks" in capsys.readouterr().err
