"""Errors of arguments say what was expected and what came."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from reglet import check


@pytest.mark.parametrize(
    ("ask", "good", "bad"),
    [
        (check.positive, [1, 0.5, np.float32(2)], [0, -1.0]),
        (check.not_negative, [0, 3.5], [-1e-9]),
        (check.finite, [-3, 0.0], []),
        (check.probability, [0, 1, 0.5], [-0.1, 1.1]),
        (check.below_one, [0, 0.9], [1, -0.1]),
    ],
)
def test_numbers(ask: Any, good: list[float], bad: list[float]) -> None:
    for value in good:
        ask(alpha=value)
    for value in [*bad, math.nan, math.inf, -math.inf]:
        with pytest.raises(ValueError, match=rf"alpha must be .*, got {value}"):
            ask(beta=good[0], alpha=value)
    for value, shown in [("0.1", "str '0.1'"), (None, "NoneType None"), (True, "bool True"), ([1] * 99, "list$")]:
        with pytest.raises(TypeError, match=f"alpha must be .*, got {shown}"):
            ask(alpha=value)


def test_whole_numbers_flags_and_choices() -> None:
    check.whole(1, heads=1, size=np.int64(4))
    with pytest.raises(ValueError, match="heads must be a whole number of at least 1, got 0"):
        check.whole(1, heads=0)
    for value in (2.0, True, "2", None, math.nan):
        with pytest.raises(TypeError, match="heads must be a whole number of at least 1, got"):
            check.whole(1, heads=value)
    check.flag(shared=True)
    with pytest.raises(TypeError, match="shared must be True or False, got int 1"):
        check.flag(shared=1)
    check.choice("norm", "pre", ("pre", "post"))
    for value in ("Pre", None, ("pre",)):
        with pytest.raises(ValueError, match=r"norm must be one of pre, post; got"):
            check.choice("norm", value, ("pre", "post"))


def test_tensors() -> None:
    check.tensor("z", torch.zeros(3, 4), None, 4)
    check.tensor("x", torch.zeros(3, 4, 2), None, 4, -1)
    with pytest.raises(
        ValueError, match=r"z must be a floating-point tensor \(_, 4\) and not empty, got shape \(3, 5\)"
    ):
        check.tensor("z", torch.zeros(3, 5), None, 4)
    with pytest.raises(
        ValueError, match=r"x must be a floating-point tensor \(_, _, ...\) and not empty, got shape \(3,\)"
    ):
        check.tensor("x", torch.zeros(3), None, None, -1)
    with pytest.raises(ValueError, match=r"not empty, got shape \(0, 4\)"):
        check.tensor("z", torch.zeros(0, 4), None, 4)
    with pytest.raises(TypeError, match=r"z must be a floating-point tensor \(_, 4\), got torch.int64"):
        check.tensor("z", torch.zeros(3, 4, dtype=torch.int64), None, 4)
    with pytest.raises(TypeError, match="got list"):
        check.tensor("z", [1.0], None)


def test_labels() -> None:
    check.labels(torch.tensor([0, 2]), n=2, classes=3)
    check.labels(torch.tensor([0, 2], dtype=torch.uint8), n=2, classes=3)
    check.labels(torch.rand(2, 3), n=2, classes=3)
    check.labels(torch.tensor([7, 7], device="meta"), n=2, classes=3)  # not looked at: it would make the device wait
    expected = r"labels must be 2 class numbers from 0 to 2, or rows of probabilities \(2, 3\); got"
    for y, got in [
        (torch.tensor([0, 3]), "values 0 to 3"),
        (torch.tensor([-1, 2]), "values -1 to 2"),
        (torch.tensor([0, 1, 2]), r"shape \(3,\)"),
        (torch.rand(2, 4), r"torch.float32 of shape \(2, 4\)"),
    ]:
        with pytest.raises(ValueError, match=f"{expected} {got}"):
            check.labels(y, n=2, classes=3)
    for y, got in [(torch.tensor([True, False]), "torch.bool"), ([0, 1], "list")]:
        with pytest.raises(TypeError, match=f"{expected} {got}"):
            check.labels(y, n=2, classes=3)
    with pytest.raises(TypeError, match=r"class numbers from 0 to 2; got torch\.float32"):
        check.labels(torch.rand(2, 3), n=2, classes=3, soft=False)


def test_overflow() -> None:
    nan, one = torch.tensor(math.nan), torch.tensor(1.0)
    check.no_overflow("CORAL", {"risk": one, "penalty": one}, torch.ones(2))
    check.no_overflow("CORAL", {"penalty": nan}, torch.tensor([1.0, math.inf]))
    check.no_overflow("CORAL", {"penalty": nan.to("meta")}, torch.ones(2, device="meta"))
    with pytest.raises(ValueError, match=r"CORAL: penalty overflows torch.float32 for input of up to 1e\+30; expected"):
        check.no_overflow("CORAL", {"risk": one, "penalty": nan}, torch.ones(2), torch.tensor([-1e30]))


def test_values_are_read_where_that_is_free() -> None:
    assert check.readable(torch.ones(2))
    assert check.readable(torch.nn.Parameter(torch.ones(2)))
    assert not check.readable(torch.ones(2, device="meta"))
    with FakeTensorMode():
        assert not check.readable(torch.ones(2))
    seen: list[bool] = []
    torch.func.vmap(lambda x: (seen.append(check.readable(x)), x)[1])(torch.ones(2))
    torch.compile(lambda x: x + check.readable(x), backend="eager", fullgraph=True)(torch.ones(2))
    assert seen == [False]
