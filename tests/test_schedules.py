"""A weight may be a schedule: its value at a step, what the command line makes of it, and what is refused."""

import copy
import math
import pickle

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn

import reglet
from reglet.schedules import Schedule, Scheduled, Weight, at, checked_weight, constant, cosine, linear, parse


class Weighted(Scheduled, nn.Module):
    def __init__(self, weight: Weight) -> None:
        super().__init__()
        self.weight = checked_weight("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.now("weight") * x.sum()


def test_values() -> None:
    assert [linear(2, 0, steps=5)(step) for step in (0, 1, 2, 4, 99)] == [2.0, 1.5, 1.0, 0.0, 0.0]
    assert cosine(0, 1)(1, 5) == pytest.approx((1 - math.cos(math.pi / 4)) / 2)
    assert (cosine(0.5, 2)(0, 7), cosine(0.5, 2)(6, 7), cosine(0.5, 2)(700, 7)) == (0.5, 2.0, 2.0)
    assert linear(0, 1, steps=3)(1, 1000) == 0.5, "a schedule's own number of steps goes before the training's"
    assert linear(0, 1, steps=1)(0) == 0.0
    assert at(constant(3), None) == at(3, None) == 3.0
    assert at(lambda step: step / 4, 2) == 0.5


def test_set_step_reaches_everything_inside() -> None:
    inner = Weighted(cosine(0, 1))
    net = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"inner": inner}), Weighted(2.0))
    reglet.set_step(net, 10, 11)
    assert inner.now("weight") == 1.0
    reglet.set_step(net, 5, 11)
    assert inner.now("weight") == pytest.approx(0.5)
    assert copy.deepcopy(inner).now("weight") == pytest.approx(0.5)


def test_a_schedule_without_a_step_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"Weighted\.weight is the schedule cosine\(0, 1\).*reglet\.set_step"):
        Weighted(cosine(0, 1))(torch.ones(2))
    silent = Weighted(linear(0, 1))
    reglet.set_step(silent, 3)
    with pytest.raises(ValueError, match=r"linear\(0, 1\) runs over the whole training"):
        silent(torch.ones(2))
    reglet.set_step(silent, 3, 4)
    assert silent(torch.ones(2)) == 2.0
    assert Weighted(0.5)(torch.ones(2)) == 1.0, "a number needs no step"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_weights_that_are_none(bad: float) -> None:
    for refused in (lambda: Weighted(bad), lambda: cosine(0, bad), lambda: linear(bad, 0), lambda: parse(str(bad))):
        with pytest.raises(ValueError, match=r"weight|start|end"):
            refused()
    module = Weighted(lambda step: bad)
    reglet.set_step(module, 7)
    with pytest.raises(ValueError, match=r"Weighted\.weight at step 7 must be finite and not negative"):
        module(torch.ones(2))


def test_a_flag_is_no_weight() -> None:
    with pytest.raises(TypeError, match="weight must be a number or a function of the step, got bool"):
        checked_weight("weight", True)
    with pytest.raises(ValueError, match="steps=0"):
        cosine(0, 1, steps=0)


@pytest.mark.parametrize("schedule", [cosine(0, 1), linear(0.5, 1e-3, steps=10), constant(2)], ids=repr)
def test_text_and_pickle_give_it_back(schedule: Schedule) -> None:
    assert parse(repr(schedule)) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule


def test_command_line() -> None:
    assert parse("cosine(0,1)") == cosine(0, 1)
    assert parse(" linear(1, 0, 100) ") == linear(1, 0, steps=100)
    assert parse("2.5") == 2.5
    for wrong in ("cosine", "cosine(0)", "sine(0, 1)", "linear(0, 1, step=3)", "__import__('os')", "cosine(0, x)", ""):
        with pytest.raises(ValueError, match=r"a weight is a number, or cosine\(start, end\)"):
            parse(wrong)


def test_compiled_once() -> None:
    """A schedule that was compiled in would be compiled anew at each step, or keep its first value."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    module = Weighted(linear(0, 1))
    compiled = torch.compile(module, backend=counter)
    for step in range(12):
        reglet.set_step(module, step, 12)
        assert compiled(torch.ones(11)) == pytest.approx(step)
        if step == 2:
            after = counter.frame_count
    assert counter.frame_count == after
