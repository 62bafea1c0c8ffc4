"""The frame of all tasks: seeds, arms, what is kept, and what the command prints; on a task of the test's own."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import reglet.tasks
from reglet.cli import main
from reglet.engine.settings import option
from reglet.tasks import named
from reglet.tasks.config import TaskConfig
from reglet.tasks.fit import batches, fit, rate
from reglet.tasks.run import REPORT, fingerprint, jobs, key, run
from reglet.tasks.task import Outcome


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

    def train(self, config: LineConfig, data: tuple[Tensor, Tensor], *, seed: int, sim: bool) -> Outcome:
        self.trained.append((seed, sim))
        x, y = data
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1))
        order = batches(len(x), batch=config.batch, steps=config.steps, seed=seed)
        where = ("0" if config.sim == "auto" else config.sim) if sim else None
        found = fit(
            net,
            lambda i: (net(x[i]) - y[i]).square().mean(),
            order,
            config=config,
            blocks=where,
            example=x[:4],
            seed=seed,
        )
        error = (net(x) - y).square().mean() / y.var()
        return Outcome({"r2": 1 - error.item(), "adjusted_precision": error.item()}, net, found)  # as long as any


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
    (weights,) = tmp_path.glob("runs/*.safetensors")
    assert load_file(weights)["1.weight"].shape == (1, 8)
    assert weights.with_suffix(".json").exists()


def test_a_run_is_named_by_all_that_it_depends_on() -> None:
    config = LineConfig(sim="0", paired=True)
    without, with_sim = jobs(config)
    names = {key("line", config, "d", job) for job in (without, with_sim)}
    assert len(names) == 2
    for change in ({"noise": 0.2}, {"lr": 2e-3}, {"steps": 21}):
        assert key("line", replace(config, **change), "d", without) not in names
    assert key("line", config, "other data", without) not in names
    assert key("line", replace(config, weight=0.1), "d", without) in names  # the arm without SIM does not know of it
    assert key("line", replace(config, weight=0.1), "d", with_sim) not in names
    assert key("line", replace(config, out="elsewhere", seeds=9), "d", with_sim) in names


def test_sim_of_weight_zero_changes_nothing_but_the_log(line: LineTask) -> None:
    config = LineConfig(sim="auto", weight=0.0)
    data = line.load(config)
    without, with_sim = (line.train(config, data, seed=3, sim=sim) for sim in (False, True))
    assert without.scores == with_sim.scores
    assert (without.blocks, with_sim.blocks) == ((), ("0",))


def test_sim_changes_the_network_it_stands_on(line: LineTask) -> None:
    config = LineConfig(sim="auto", weight=1.0)
    data = line.load(config)
    without, with_sim = (line.train(config, data, seed=3, sim=sim).network for sim in (False, True))
    assert not torch.equal(without[0][0].weight, with_sim[0][0].weight)  # type: ignore[index]
    assert not with_sim.training


def test_the_command_prints_a_table(line: LineTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "task=line", "sim=auto", "paired=true", "seeds=5", "weight=1", f"out={tmp_path}"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "SIM minus without" in shown.out
    assert "adjusted_precision " in shown.out
    assert "SIM on 0; weight 1, rho 0.2" in shown.out
    assert "seed 4, SIM on 1 blocks: r2" in shown.err
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
        (["task=line", "steps=0"], "steps must be at least 1, got 0"),
        (["task=line", "rho=0"], "rho is a ratio in"),
        (["task=line", "lr=-1"], "lr must be positive"),
        (["task=line", "sim=nowhere"], "nowhere"),
    ],
)
def test_bad_input(
    line: LineTask, words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, f"out={tmp_path}"]) == 2
    assert says in capsys.readouterr().err


def test_a_loss_that_is_no_number_stops_the_run_and_leaves_no_hook(line: LineTask) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    x, config = torch.ones(4, 2), LineConfig()
    with pytest.raises(ValueError, match="the loss is nan in step 0"):
        fit(net, lambda i: net(x).sum() * torch.nan, [torch.arange(4)], config=config, blocks="0", example=x)
    assert not net[0]._forward_hooks


def test_batches_are_whole_and_cover_the_data() -> None:
    found = list(batches(10, batch=4, steps=5, seed=0))
    assert [len(b) for b in found] == [4] * 5
    assert len(torch.cat(found[:2]).unique()) == 8
    assert [len(b) for b in batches(3, batch=8, steps=2, seed=0)] == [3, 3]


def test_rate_rises_then_falls_to_zero() -> None:
    rates = [rate(step, 100) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0, abs=1e-12)


def test_a_task_that_is_listed_can_be_had() -> None:
    for name in reglet.tasks.TASKS:
        assert named(name).main


def test_fingerprint_of_a_folder_and_a_file(tmp_path: Path) -> None:
    before = fingerprint(str(tmp_path))
    (tmp_path / "a.csv").write_text("1")
    assert fingerprint(str(tmp_path)) != before
    assert fingerprint(str(tmp_path / "a.csv")) != fingerprint("")
