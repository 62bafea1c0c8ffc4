import pytest

from reglet.runs import Finished, Run, by_seed, compare, markdown, table


def finished(arm: str, seed: int, fold: str, **scores: float) -> Finished:
    return Finished(Run(arm, seed, fold), scores, {})


RESULTS = [
    *(finished("base", seed, fold, y=10 * seed + len(fold)) for seed in range(3) for fold in ("a", "bbb")),
    *(
        finished("more", seed, fold, y=10 * seed + len(fold) + 1 + 0.1 * seed, z=2)
        for seed in range(4)
        for fold in ("a", "bbb")
    ),
    finished("more", 9, "a", y=1e6),  # of which a fold is missing
]


def test_the_unit_is_a_seed_with_all_its_folds() -> None:
    assert by_seed(RESULTS, "base", "y") == {0: 2, 1: 12, 2: 22}
    assert by_seed(RESULTS, "base", "y", folds=["bbb"]) == {0: 3, 1: 13, 2: 23}
    assert 9 not in by_seed(RESULTS, "more", "y")
    assert 9 in by_seed(RESULTS, "more", "y", folds=["a"])


def test_differences_are_paired_by_seed() -> None:
    found = compare(RESULTS, "more", "base", "y")
    assert (found.mean, found.n) == (pytest.approx(1.1), 3)
    assert found.half < 0.3, "the spread of seeds, 10, is not in it"
    with pytest.raises(ValueError, match="no seed in common"):
        compare(RESULTS, "more", "other", "y")


def test_the_table() -> None:
    lines = markdown(table(RESULTS, ["y", "z"], base="base")).splitlines()
    assert lines[0] == "| arm | versus | y | z | seeds |"
    assert lines[2] == "| base |  | 12.00 ± 24.84 |  | 3 |"
    assert lines[3] == "| more | base | 18.15 ± 20.75 (+1.10 ± 0.25) | 2.00 ± 0.00 | 4 |"
