"""What cannot work says what was expected and what came."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from tests.contracts import PAIR_LOSSES, ROWS, Row

import reglet

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
z = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(0))


def refuses(loss: Any, call: Callable[[Any], Any], *said: str, error: type[Exception] = ValueError) -> None:
    """The call raises `error`, with every part of `said` in its message."""
    with pytest.raises(error) as caught:
        call(loss)
    for part in said:
        assert part in str(caught.value), f"{part!r} is not in {str(caught.value)!r}"


@every_row
def test_wrong_rank(row: Row) -> None:
    loss = row.build()
    for wrong in (z[0, 0], z[None]):
        refuses(loss, lambda f, x=wrong: f(x), type(loss).__name__, "(n, d)", str(tuple(wrong.shape)))
        refuses(loss, lambda f, x=wrong: f(x, x), "(n, d)", str(tuple(wrong.shape)))
        refuses(loss, lambda f, x=wrong: f.terms([x, x]), "(n, d)", str(tuple(wrong.shape)))
    refuses(loss, lambda f: f(z, z), "(n, d)", "(2, 8, 6)")  # two stacks are not two views


@every_row
def test_one_sample(row: Row) -> None:
    loss = row.build()
    refuses(loss, lambda f: f(z[:, :1]), type(loss).__name__, "at least", "(2, 1, 6)")
    refuses(loss, lambda f: f(global_views=z[:, :1]), "at least", "(2, 1, 6)")


@pytest.mark.parametrize("row", [row for row in ROWS if row.least_views == 2], ids=lambda row: row.name)
def test_one_view_of_a_loss_that_compares(row: Row) -> None:
    for call in (lambda f: f(z[:1]), lambda f: f(z[0]), lambda f: f([z[0]])):
        refuses(row.build(), call, type(row.build()).__name__, "2", "1")


@every_row
def test_views_that_do_not_match(row: Row) -> None:
    loss = row.build()
    refuses(loss, lambda f: f(z[0], z[1, :5]), "(8, 6)", "(5, 6)", "view 1")
    refuses(loss, lambda f: f(z[0], z[1, :, :5]), "(8, 6)", "(8, 5)")
    refuses(loss, lambda f: f([z[0], z[1], z[0, :4]]), "(8, 6)", "(4, 6)", "view 2")
    refuses(loss, lambda f: f(global_views=z, local_views=z[:, :4]), "(8, 6)", "(4, 6)")
    refuses(loss, lambda f: f(global_views=z, local_views=z[..., :4]), "(8, 6)", "(8, 4)")


@every_row
def test_integers_and_nothing(row: Row) -> None:
    loss = row.build()
    refuses(loss, lambda f: f(z.long()), "float", "int64", error=TypeError)
    refuses(loss, lambda f: f(z[0], z[1].int()), "float", "int32", "view 1", error=TypeError)
    refuses(loss, lambda f: f(z > 0), "float", "bool", error=TypeError)
    refuses(loss, lambda f: f(torch.zeros(2, 0, 6)), "empty")
    refuses(loss, lambda f: f(torch.zeros(2, 8, 0)), "empty")
    refuses(loss, lambda f: f([]), "empty")
    refuses(loss, lambda f: f(global_views=[]), "empty")


@every_row
def test_unclear_calls(row: Row) -> None:
    loss = row.build()
    for call in (
        lambda f: f(),
        lambda f: f(local_views=z),
        lambda f: f(z, global_views=z),
        lambda f: f(z, local_views=z),
        lambda f: f(z[0], z[1], local_views=z),
    ):
        refuses(loss, call, "global_views", error=TypeError)


@every_row
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_not_finite_names_the_view_when_asked(row: Row, bad: float) -> None:
    spoilt = torch.cat([z, z])
    spoilt[2, 3, 1] = spoilt[2, 5, 4] = bad
    asked = row.build(check_finite=True)
    said = ("view 2", "2 non-finite", "sample 3", "feature 1", str(bad))
    refuses(asked, lambda f: f(spoilt), *said, error=FloatingPointError)
    refuses(asked, lambda f: f(list(spoilt)), *said, error=FloatingPointError)
    refuses(asked, lambda f: f(global_views=spoilt[:2], local_views=spoilt[2:]), *said, error=FloatingPointError)
    assert torch.isfinite(asked(z))
    assert not torch.isfinite(row.build()(spoilt)), "unasked, what is not finite must not turn into a number"


def test_smi_needs_three_features() -> None:
    refuses(reglet.SMILoss(), lambda f: f(z[..., :2]), "SMILoss", "3", "(2, 8, 2)")
    reglet.SMILoss()(z[..., :3])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: reglet.VISReg(slices=0), "slices must be a whole number of at least 1, got 0"),
        (lambda: reglet.VISRegLoss(slices=-1), "slices must be a whole number of at least 1, got -1"),
        (lambda: reglet.SIGReg(slices=0), "slices must be a whole number of at least 1, got 0"),
        (lambda: reglet.LeJEPALoss(slices=0), "slices must be a whole number of at least 1, got 0"),
        (lambda: reglet.SWD(slices=0), "slices must be a whole number of at least 1, got 0"),
        (lambda: reglet.SWDLoss(slices=0), "slices must be a whole number of at least 1, got 0"),
        (lambda: reglet.VISRegLoss(lam=1.5), "1.5"),
        (lambda: reglet.SWDLoss(lam=-0.1), "-0.1"),
        (lambda: reglet.LeJEPALoss(lam=2.0), "2.0"),
        (lambda: reglet.VISReg(eps=0.0), "eps must be a positive number, got 0.0"),
        (lambda: reglet.SWD(clamp=0.5), "0.5"),
        (lambda: reglet.SIGReg(knots=1), "knots must be a whole number of at least 2, got 1"),
        (lambda: reglet.SIGReg(t_max=0.0), "t_max must be a positive number, got 0.0"),
        (lambda: reglet.NTXentLoss(temperature=0.0), "temperature must be a positive number, got 0.0"),
        (lambda: reglet.SMILoss(eps=0.0), "eps must be a positive number, got 0.0"),
    ],
)
def test_numbers_out_of_range(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        build()


CHOICES = [
    (reglet.VISReg, "positions", ["weibull", "hazen"]),
    (reglet.VISRegLoss, "positions", ["weibull", "hazen"]),
    (reglet.VICRegLoss, "variant", ["official", "paper", "solo", "visreg"]),
    (reglet.BarlowTwinsLoss, "variant", ["official", "visreg"]),
    (reglet.SMILoss, "on", ["sq", "hinge", "neg"]),
    (reglet.SMILoss, "off", ["sq", "lin"]),
    (reglet.SMILoss, "pairs", ["12", "11", "22"]),
    (reglet.SMILoss, "reduction", ["mean", "sum"]),
]


def messages(rank: int, world: int) -> dict[str, str]:
    """What a loss says of a choice it does not know and of a view that is no tensor."""
    said = {}
    for kind, argument, _ in CHOICES:
        with pytest.raises(ValueError) as caught:
            kind(**{argument: ["12", "13"] if argument == "pairs" else "other"})
        said[f"{kind.__name__}, {argument}"] = str(caught.value)
    with pytest.raises(ValueError) as caught:
        reglet.VISRegLoss()([z[0], "a view"])
    said["no tensor"] = str(caught.value)
    return said


def test_unknown_choice_lists_the_known(tmp_path: Path) -> None:
    """In a process of its own: the test run's type checker would speak before the loss does."""
    (said,) = ranks.run("tests.losses.test_bad_input:messages", world=1, folder=tmp_path)
    for kind, argument, allowed in CHOICES:
        message = said[f"{kind.__name__}, {argument}"]
        for word in [argument, "13" if argument == "pairs" else "other", *allowed]:
            assert word in message, message
    assert "(n, d)" in said["no tensor"]
    assert "str" in said["no tensor"]


@every_row
def test_everything_but_views_is_named(row: Row) -> None:
    with pytest.raises(TypeError):
        row.kind(64)
    with pytest.raises(TypeError):
        row.build(unknown=1)


PAIRS = [
    (reglet.BarlowTwinsLoss, ("weight", "eps")),
    (reglet.VICRegLoss, ("invariance", "variance", "covariance", "gamma", "eps")),
    (reglet.NTXentLoss, ("temperature",)),
    (reglet.KoLeo, ("eps",)),
    (reglet.MMCRLoss, ("weight",)),
    (reglet.FroSSLLoss, ("weight",)),
    (reglet.CodingRate, ("eps",)),
    (reglet.EMPSSLLoss, ("weight", "eps")),
    (reglet.WMSELoss, ("eps",)),
    (reglet.TiCoLoss, ("beta", "rho")),
    (reglet.DirectCLRLoss, ("temperature",)),
    (reglet.BHEP, ("beta",)),
    (reglet.RadialVCReg, ("variance", "covariance", "cross_entropy", "entropy", "gamma", "eps")),
    (reglet.RDMReg, ("p", "mu", "sigma")),
    (reglet.RectifiedLpJEPALoss, ("invariance", "weight", "p", "mu", "sigma")),
    (reglet.SMILoss, ("weight", "eps", "target")),
]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in PAIRS for name in names])
def test_numbers_that_are_none(kind: type, name: str) -> None:
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"{name} must be .*{bad}"):
            kind(**{name: bad})


@pytest.mark.parametrize("size", [(2, 8, 6), (2, 8, 40)])
@pytest.mark.parametrize("row", [row for row in ROWS if row.kind in PAIR_LOSSES], ids=lambda row: row.name)
@pytest.mark.parametrize("scale", [1e10, 1e20, 1e30, 1e37])
def test_large_numbers_stay_finite_or_are_refused(row: Row, size: tuple[int, int, int], scale: float) -> None:
    """Most do not see the scale.  VICReg's squares overflow; eps I is nothing beside W-MSE's covariance."""
    large = (scale * torch.randn(size, generator=torch.Generator().manual_seed(0)).clamp(-8, 8)).requires_grad_()
    if row.kind in (reglet.VICReg, reglet.VICRegLoss, reglet.WMSELoss, reglet.RadialVCReg) or row.name in (
        "barlow-visreg",
        "mmcr-weight",
    ):
        try:
            value = row.build()(large)
        except ValueError as error:
            assert re.search("overflows torch.float32|is singular in float64", str(error))  # noqa: PT017
            return
    else:
        value = row.build()(large)
        want = row.build()(large.detach().double())
        torch.testing.assert_close(value.detach(), want.float(), rtol=1e-4, atol=1e-6)
    (grad,) = torch.autograd.grad(value, large)
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


@every_row
def test_views_of_two_precisions(row: Row) -> None:
    """In either order the loss of the widest, and each view has the gradient in its own precision."""
    half, full = z[0].bfloat16(), z[1]
    for views in ((half, full), (full, half), (half.double(), full)):
        leaves = [view.clone().requires_grad_() for view in views]
        value = row.build()(*leaves)
        widest = torch.float64 if views[0].dtype == torch.float64 else torch.float32
        torch.testing.assert_close(value.detach(), row.build()(*(view.to(widest) for view in views)))
        value.backward()
        assert [leaf.grad.dtype for leaf in leaves] == [view.dtype for view in views]
