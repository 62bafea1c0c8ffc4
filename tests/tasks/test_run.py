"""The frame of all tasks: seeds, arms, what is kept, and what the command prints; on a task of the test's own."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.tasks.trained import train
from torch import Tensor, nn

import reglet.tasks
from reglet.cli import main
from reglet.engine.feed import TensorFeed
from reglet.engine.guard import NonFiniteError
from reglet.engine.monitor import AtEnd, Trained
from reglet.engine.settings import option
from reglet.method import Batch
from reglet.tasks import named
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.config import TaskConfig
from reglet.tasks.predict import Predict
from reglet.tasks.run import REPORT, fingerprint, run, runs
from reglet.tasks.task import Setup


@dataclass(frozen=True, kw_only=True)
class LineConfig(TaskConfig):
    steps: int = option(20, "optimizer steps")
    noise: float = option(0.1, "of the labels")


class LineTask:
    """Draws a straight line."""

    config = LineConfig
    main = "r2"

    def __init__(self) -> None:
        self.trained: list[tuple[int, bool]] = []

    def load(self, config: LineConfig) -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        return x, x.sum(1, keepdim=True) * 0.3 + config.noise

    def setup(self, config: LineConfig, data: tuple[Tensor, Tensor]) -> Setup:
        self.trained.append((config.seed, bool(config.sim)))
        x, y = data
        net = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1))
        method = Predict(net, lambda out, batch: (out - batch.labels).square().mean(), term="error")

        def scores(model: Trained) -> dict[str, float]:
            out = model.call(lambda m, x: m.encode(x), x)
            error = float((out - y).square().mean() / y.var())
            return {"r2": 1 - error, "adjusted_precision": error}  # a name as long as any

        return Setup(
            method,
            TensorFeed(
                lambda i, _: Batch([x[i]], labels=y[i]), shuffled(len(x), config), name="line", fingerprint=digest(x)
            ),
            [AtEnd(scores)],
            inside="network",
            sim_blocks=["0"],
        )


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> LineTask:
    import sys
    from types import ModuleType

    made, module = LineTask(), ModuleType("line_task")
    module.TASK = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "line_task", module)
    monkeypatch.setitem(reglet.tasks.TASKS, "line", "line_task")
    return made


def test_every_seed_in_both_arms_and_what_is_finished_is_kept(line: LineTask, tmp_path: Path) -> None:
    config = LineConfig(sim="auto", paired=True, seeds=2, out=str(tmp_path))
    first = run("line", line, config)
    assert line.trained == [(0, False), (0, True), (1, False), (1, True)]
    again = run("line", line, replace(config, seeds=3))
    assert line.trained[4:] == [(2, False), (2, True)]
    assert again["runs"][:4] == first["runs"]
    assert json.loads((tmp_path / REPORT).read_text()) == again
    assert again["blocks"] == ["0"]


def test_weights_are_beside_the_scores(line: LineTask, tmp_path: Path) -> None:
    run("line", line, LineConfig(out=str(tmp_path)))
    (weights,) = tmp_path.glob("runs/*/network.safetensors")
    assert load_file(weights)["network.1.weight"].shape == (1, 8)
    assert weights.parent.with_suffix(".json").exists()


def test_a_run_is_named_by_all_that_it_depends_on() -> None:
    config = LineConfig(sim="0", paired=True)

    def key(config: LineConfig, arm: int, data: str = "d") -> str:
        return runs("line", config, data)[arm].key

    names = {key(config, arm) for arm in (0, 1)}
    assert len(names) == 2
    for change in ({"noise": 0.2}, {"lr": 2e-3}, {"steps": 21}, {"precision": "bf16-mixed"}):
        assert key(replace(config, **change), 0) not in names
    assert key(config, 0, "other data") not in names
    assert key(replace(config, sim_weight="0.1"), 0) in names, "the arm without rhoSIM does not know of its weight"
    assert key(replace(config, sim_weight="0.1"), 1) not in names
    assert key(replace(config, out="elsewhere", seeds=9, devices=2), 1) in names


def test_sim_of_weight_zero_changes_nothing_but_the_log(line: LineTask) -> None:
    config = LineConfig(sim="auto", sim_weight="0")
    without, with_sim = (train(line, config, seed=3, sim=sim) for sim in (False, True))
    assert without.scores == with_sim.scores
    assert (without.blocks, with_sim.blocks) == ([], ["0"])


def test_sim_changes_the_network_it_stands_on(line: LineTask) -> None:
    config = LineConfig(sim="auto", sim_weight="1")
    without, with_sim = (train(line, config, seed=3, sim=sim).method.network for sim in (False, True))
    assert not torch.equal(without[0][0].weight, with_sim[0][0].weight)


def test_the_command_prints_a_table(line: LineTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "task=line", "sim=auto", "paired=true", "seeds=5", "sim_weight=1", f"out={tmp_path}"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "SIM minus without" in shown.out
    assert "adjusted_precision " in shown.out
    assert "rhoSIM on 0; weight 1, rho 0.2" in shown.out
    assert "seed 4, rhoSIM on 1 blocks: r2" in shown.err
    assert max(map(len, shown.out.splitlines())) <= 80 or str(tmp_path) in shown.out.splitlines()[-1]


def test_help_lists_the_keys_of_the_task(line: LineTask, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "task=line", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Draws a straight line." in shown
    assert "noise=0.1" in shown


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["task=lines"], "there is no task 'lines'"),
        (["task=line", "nois=1"], "unknown key 'nois'. Did you mean noise="),
        (["task=line", "steps=many"], "steps is a whole number, got 'many'"),
        (["task=line", "paired=true"], "say where it is attached"),
        (["task=line", "steps=-1"], "steps must not be negative, got -1"),
        (["task=line", "sim=0", "sim.rho=0"], "rho"),
        (["task=line", "sim.rho=0.1"], "sim.* are arguments of what sim= names"),
        (["task=line", "lr=-1"], "lr must not be negative"),
        (["task=line", "sim=nowhere"], "nowhere"),
    ],
)
def test_bad_input(
    line: LineTask, words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, f"out={tmp_path}"]) == 2
    assert says in capsys.readouterr().err


def test_a_loss_that_is_no_number_stops_the_run(line: LineTask, tmp_path: Path) -> None:
    x, y = line.load(LineConfig())
    with pytest.raises(NonFiniteError, match="step 0: error = nan"):
        train(line, LineConfig(), (x, y * torch.nan))


def test_a_small_set_is_one_batch() -> None:
    order = shuffled(3, LineConfig(batch=8))
    assert [len(order.indices(step)) for step in range(2)] == [3, 3]


def test_a_task_that_is_listed_can_be_had() -> None:
    for name in reglet.tasks.TASKS:
        assert named(name).main


def test_fingerprint_of_a_folder_and_a_file(tmp_path: Path) -> None:
    before = fingerprint(str(tmp_path))
    (tmp_path / "a.csv").write_text("1")
    assert fingerprint(str(tmp_path)) != before
    assert fingerprint(str(tmp_path / "a.csv")) != fingerprint("")
