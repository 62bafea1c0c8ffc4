"""The five words, case by case; and by simulation that a table has a wrong one in at most 5 %."""

import numpy as np
import pytest

from reglet.runs import Claim, Gate, Interval, interval, judge
from reglet.runs.verdict import correct, judge_tables


def word(low: float, high: float, *, printed: float | None = None, **more: object) -> str:
    return judge([Claim(Interval((low + high) / 2, low, high, 8), printed=printed, **more)])[0].word  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.5, 2.5, "holds"),
        (2.5, 3.5, "holds"),  # more than was printed
        (0.5, 1.5, "smaller"),
        (-0.5, 1.5, "excluded"),
        (-2.5, -0.5, "excluded"),  # opposite
        (-2.5, 1.5, "excluded"),
        (-0.5, 2.5, "underpowered"),
    ],
)
def test_the_printed_effect_is_two(low: float, high: float, expected: str) -> None:
    assert word(low, high, printed=2.0) == expected
    assert word(-high, -low, printed=-2.0) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.5, 0.9, "holds"),
        (0.2, 0.9, "holds"),
        (1.1, 1.9, "excluded"),
        (-1.9, -1.1, "excluded"),
        (-0.5, 1.1, "underpowered"),
        (-1.5, 1.5, "underpowered"),
        (0.9, 1.9, "underpowered"),
    ],
)
def test_level_to_one(low: float, high: float, expected: str) -> None:
    assert word(low, high, margin=1.0) == expected


def test_a_direction_without_a_figure() -> None:
    assert word(0.1, 0.5) == word(-0.5, -0.1, sign=-1) == "holds"
    assert word(-0.5, -0.1) == word(0.1, 0.5, sign=-1) == "excluded"
    assert word(-0.1, 0.5) == "underpowered"


def test_a_gate_that_failed_is_named_and_comes_before_everything() -> None:
    gates = (Gate("above raw pixels", 34.6, 38.2), Gate("twice the steps", 0.4, 1.0, "at most"))
    assert [gate.passed for gate in gates] == [False, True]
    verdict = judge([Claim(Interval(2.0, 1.0, 3.0, 8), printed=2.0, gates=gates)])[0]
    assert (verdict.word, verdict.why) == ("cannot show", "above raw pixels: 34.6, not at least 38.2")


def test_four_seeds_are_too_few_whatever_they_say() -> None:
    verdict = judge([Claim(Interval(2.0, 1.9, 2.1, 4), printed=2.0)])[0]
    assert (verdict.word, verdict.seeds_needed) == ("underpowered", 5)


def test_underpowered_says_how_many_seeds_show_the_printed_effect() -> None:
    seen = interval([1.0, -1.0, 2.0, -2.0, 0.5])
    small, large = (judge([Claim(seen, printed=printed)])[0].seeds_needed for printed in (1.2, 0.6))
    assert small is not None
    assert large is not None
    assert 3.5 < (large - 2) / (small - 2) < 4.5, "four times as many for half of it"


def test_correction_by_hand() -> None:
    """m = 2: multipliers 2, 2, 2, 1."""
    assert correct([(0.01, 0.03), (0.02, 0.04)]) == [(0.02, 0.06), (0.04, 0.06)]
    assert correct([]) == []
    # Of one claim nothing is corrected; of three, what is told at 0.02 alone is not.
    one = Claim(Interval(1.0, 0.15, 1.85, 8), printed=1.0)
    assert 0.01 < one.ours.p() < 0.05
    assert judge([one])[0].word == "holds"
    noise = Claim(Interval(0.1, -1.0, 1.2, 8), printed=1.0)
    assert [v.word for v in judge([one, noise, noise])] == ["underpowered"] * 3


@pytest.mark.parametrize("bad", [{"printed": 0.0}, {"printed": 1.0, "margin": 1.0}, {"margin": -1.0}])
def test_what_is_no_claim(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"margin"):
        Claim(Interval(0.0, -1.0, 1.0, 5), **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("truth", ["nothing", "printed", "both"])
def test_a_table_has_a_wrong_verdict_in_five_of_a_hundred(truth: str) -> None:
    """Six claims of seven seeds, 1,000 tables.  Where nothing is true, "holds", "smaller" and the opposite direction
    are wrong; where the printed effect is, "smaller" and "excluded".  Three standard errors of 5 % are 2.1."""
    rng = np.random.default_rng(0)
    effects = {"nothing": [0.0] * 6, "printed": [1.0] * 6, "both": [0.0, 1.0] * 3}[truth]
    wrong = 0
    for _ in range(1000):
        samples = [interval(list(effect + rng.normal(size=7))) for effect in effects]
        verdicts = judge([Claim(seen, printed=1.0) for seen in samples])
        wrong += any(
            v.word in ("smaller", "excluded") if effect else v.adjusted[0] <= 0.05
            for effect, v in zip(effects, verdicts, strict=True)
        )
    assert wrong / 1000 < 0.071
    assert wrong, "and the simulation can see one"


def test_with_the_seeds_asked_for_the_printed_effect_is_found_in_four_of_five() -> None:
    rng = np.random.default_rng(1)
    n = judge([Claim(Interval(0.5, -0.8, 1.8, 6), printed=1.0)])[0].seeds_needed
    assert n is not None
    spread = Interval(0.5, -0.8, 1.8, 6).error * 6**0.5
    told = [judge([Claim(interval(list(1.0 + spread * rng.normal(size=n))), printed=1.0)])[0] for _ in range(400)]
    assert 0.74 < np.mean([v.adjusted[0] <= 0.05 for v in told]) < 0.87


def test_tables_are_corrected_each_for_itself() -> None:
    one = Claim(Interval(1.0, 0.15, 1.85, 8), printed=1.0)
    noise = Claim(Interval(0.1, -1.0, 1.2, 8), printed=1.0)
    together = judge_tables([noise, one, noise], ["a", "a", "a"])
    apart = judge_tables([noise, one, noise], ["a", "b", "a"])
    assert [v.word for v in together] == ["underpowered"] * 3
    assert [v.word for v in apart] == ["underpowered", "holds", "underpowered"], "in the order given"


def test_a_level_claim_needs_the_seeds_that_tell_it_from_the_nearer_edge() -> None:
    """0.77 is nearer to the edge than to 0: seeds that would tell 0 from 1 do not tell 0.77 from 1."""
    middle, near, outside = (
        judge([Claim(Interval(mean, mean - 0.8, mean + 0.8, 6), margin=1.0)])[0] for mean in (0.25, 0.77, 1.23)
    )
    assert {middle.word, near.word, outside.word} == {"underpowered"}
    assert middle.seeds_needed is not None
    assert near.seeds_needed is not None
    assert middle.seeds_needed < near.seeds_needed
    assert near.seeds_needed == outside.seeds_needed
    assert near.seeds_needed > 6
