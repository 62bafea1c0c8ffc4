"""docs/conformance.md is complete and within the limits, and what generates it works."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from benchmarks.agreement import Size
from benchmarks.conformance import SORTING, Found, document, measure
from benchmarks.deviation import Deviation
from benchmarks.differences import DIFFERENCES
from benchmarks.subjects import subjects

import reglet.losses
from reglet.losses.base import OnViews

FILE = Path(__file__).parent.parent / "docs" / "conformance.md"
EXPORTED = sorted(
    name
    for name, one in vars(reglet.losses).items()
    if inspect.isclass(one) and issubclass(one, OnViews) and name != "WithInvariance"  # which has no formula of its own
)
VALUE, GRADIENT = 1e-5, 1e-4
# Sorting losses only, in float32: two projections closer than float32 resolves exchange their targets, and the gradient
# jumps by the distance of two quantiles.  In float64 the limit is the common one.
JUMP = 1e-2
# autocast touches products only: the first three formulas have none, and RadialVCReg's counts little beside 100 times
# its other terms
NO_PRODUCT = ("KoLeo", "MMCRLoss", "BHEP", "RadialVCReg")
FACTORED = ("WMSELoss", "CodingRate", "EMPSSLLoss")  # lightly factors nearly singular matrices in float32


def table(text: str) -> dict[str, dict[str, Deviation | None]]:
    """loss -> column -> deviation, from the first table of the document."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.split("\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    titles = rows[0][1:]
    found = {}
    for loss, *cells in rows[2:]:
        numbers = [None if cell == "-" else Deviation(*map(float, cell.split(" / "))) for cell in cells]
        found[loss.removesuffix("\\*")] = dict(zip(titles, numbers, strict=True))
    return found


def check(text: str) -> None:
    found = table(text)
    assert sorted(found) == EXPORTED
    for loss, columns in found.items():
        for column, apart in columns.items():
            if apart is None:
                assert column == "lightly" or (column == "naive under autocast" and loss in FACTORED), (loss, column)
            elif not column.startswith("naive"):
                jumps = loss in SORTING and column in ("float32", "lightly", "autocast")
                limit = JUMP if jumps or (loss in FACTORED and column == "lightly") else GRADIENT
                assert apart.value < VALUE, (loss, column)
                assert apart.gradient < limit, (loss, column)


def test_the_committed_file() -> None:
    check(FILE.read_text())


def test_the_committed_file_compares_with_lightly() -> None:
    compared = {loss for loss, columns in table(FILE.read_text()).items() if columns["lightly"] is not None}
    assert compared == {one.name for one in subjects(1) if one.matched}


def test_every_loss_declares_its_differences() -> None:
    declared = {name for one in DIFFERENCES for name in re.findall(r"\w+", one.loss)}
    assert declared - {"LeWM"} == set(EXPORTED)  # a method, `Predictive`


@pytest.mark.slow
def test_the_generator_at_a_small_size() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sizes = [Size(4, 2, 12, 8), Size(2, 2, 12, 48)]
    found = measure(sizes=sizes, seeds=1, slices=32, ranks=Size(4, 2, 12, 8))
    torch.set_num_threads(threads)
    check(document(found, sizes=sizes, seeds=1, slices=32))
    assert isinstance(found, Found)
    for loss, naive in found.naive_autocast.items():  # or else autocast was not on
        if naive is None:
            assert loss in FACTORED, loss  # the plain formula fails to factor a matrix of bfloat16
        else:
            assert naive.gradient > 1e-4 or loss in NO_PRODUCT, loss
