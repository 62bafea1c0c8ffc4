"""Batches, splits and selection rules of domain generalization."""

import pytest
import torch

from reglet.methods.domains import (
    Batches,
    Choice,
    by_domain,
    leave_one_domain_out,
    leave_out,
    oracle,
    training_domain,
)

DOMAIN = torch.tensor([0] * 10 + [1] * 25 + [3] * 7)[torch.randperm(42, generator=torch.Generator().manual_seed(0))]


def test_batches_hold_every_domain_equally() -> None:
    batches = Batches(DOMAIN, per_domain=4, seed=1)
    assert batches.batch == 12
    for step in range(10):
        index = batches.indices(step)
        assert DOMAIN[index].bincount().tolist() == [4, 4, 0, 4]
        for half in index.view(2, 6):  # two ranks
            assert DOMAIN[half].bincount().tolist() == [2, 2, 0, 2]


def test_samples_of_a_domain_come_equally_often_and_in_a_new_order() -> None:
    batches = Batches(DOMAIN, per_domain=4)
    drawn = torch.cat([batches.indices(step) for step in range(175)])  # 700 of each domain: 70, 28 and 100 rounds
    counts = drawn.bincount(minlength=42)
    for d, times in ((0, 70), (1, 28), (3, 100)):
        assert (counts[d == DOMAIN] == times).all()
    small = [row for step in range(175) for row in batches.indices(step).tolist() if DOMAIN[row] == 3]
    rounds = {tuple(small[i : i + 7]) for i in range(0, 700, 7)}
    assert all(len(set(each)) == 7 for each in rounds)
    assert len(rounds) > 90


def test_batches_depend_on_seed_and_step_alone() -> None:
    first, again, other = (
        Batches(DOMAIN, per_domain=4),
        Batches(DOMAIN, per_domain=4),
        Batches(DOMAIN, per_domain=4, seed=1),
    )
    later = first.indices(30)
    for step in range(30):
        again.indices(step)
    assert torch.equal(again.indices(30), later)
    assert not torch.equal(other.indices(30), later)
    assert not torch.equal(first.indices(31), later)


def test_more_than_a_domain_has() -> None:
    index = Batches(DOMAIN, per_domain=15).indices(0)
    assert DOMAIN[index].bincount().tolist() == [15, 15, 0, 15]
    assert set(index[DOMAIN[index] == 3].tolist()) == set((DOMAIN == 3).nonzero()[:, 0].tolist())
    assert Batches(DOMAIN, per_domain=15).per_epoch == 1
    assert Batches(DOMAIN, per_domain=2).per_epoch == 7


def test_batches_bad_input() -> None:
    with pytest.raises(ValueError, match="per_domain >= 1, got 42 and 0"):
        Batches(DOMAIN, per_domain=0)
    with pytest.raises(ValueError, match="got 0 and 2"):
        Batches(DOMAIN[:0], per_domain=2)


def test_leave_one_out_is_80_20_and_uses_each_sample_once() -> None:
    split = leave_out(DOMAIN, 1)
    every = torch.cat([split.train, *split.validation.values(), split.test, split.oracle])
    assert sorted(every.tolist()) == list(range(42))
    assert (len(split.test), len(split.oracle)) == (20, 5)
    assert {d: len(v) for d, v in split.validation.items()} == {0: 2, 3: 1}
    assert set(DOMAIN[split.train].tolist()) == {0, 3}
    assert (DOMAIN[torch.cat([split.test, split.oracle])] == 1).all()
    for d, index in split.validation.items():
        assert (DOMAIN[index] == d).all()


def test_a_domains_parts_are_the_same_whichever_is_left_out() -> None:
    """Else what validates one run would train another, and selection would leak."""
    parts = by_domain(DOMAIN)
    for test, other in ((0, 1), (1, 3), (3, 0)):
        split, two = leave_out(DOMAIN, test), leave_out(DOMAIN, test, other)
        assert torch.equal(split.test, parts[test][0])
        assert torch.equal(split.oracle, parts[test][1])
        assert torch.equal(split.validation[other], parts[other][1])
        assert not set(two.train.tolist()) & set((other == DOMAIN).nonzero()[:, 0].tolist())
        assert torch.equal(two.test, split.test)
        assert torch.equal(leave_out(DOMAIN, other, test).train, two.train)
    alone = by_domain(DOMAIN[DOMAIN == 3])
    assert torch.equal((DOMAIN == 3).nonzero()[:, 0][alone[3][1]], parts[3][1])


def test_seeds_and_domains_are_split_differently() -> None:
    a, b = by_domain(DOMAIN, seed=0), by_domain(DOMAIN, seed=1)
    assert not torch.equal(a[1][1], b[1][1])
    twins = by_domain(torch.tensor([0] * 30 + [1] * 30))
    assert not torch.equal(twins[0][1], twins[1][1] - 30)


def test_leave_out_bad_input() -> None:
    for wrong in ((), (2,), (0, 0), (0, 1, 3)):
        with pytest.raises(ValueError, match="not all and none twice, of 0, 1, 3; got"):
            leave_out(DOMAIN, *wrong)
    with pytest.raises(
        ValueError, match=r"domain 7: a fraction of 0\.2 leaves one of the two parts of 1 samples empty"
    ):
        leave_out(torch.tensor([0, 0, 0, 0, 0, 7]), 0)


def test_training_domain_validation_stops_early() -> None:
    scores = torch.tensor([[[0.6, 0.6], [0.9, 0.5]], [[0.95, 0.1], [0.6, 0.7]]])
    trial, checkpoint, score = training_domain(scores)
    assert (trial, checkpoint) == (0, 1)  # means .6 .7 / .525 .65
    assert score == pytest.approx(0.7)


def test_leave_one_domain_out_validation_averages_over_domains() -> None:
    scores = torch.tensor([[[0.9, 0.1, 0.5]], [[0.6, 0.5, 0.5]]])
    assert leave_one_domain_out(scores)[:2] == (1, 0)


def test_oracle_looks_at_the_last_checkpoint_only() -> None:
    scores = torch.tensor([[0.99, 0.5], [0.3, 0.75]])
    assert oracle(scores) == Choice(1, 1, 0.75)


def test_the_three_rules_can_disagree() -> None:
    """Two trials: one good at home, the other elsewhere."""
    validation = torch.tensor([[[0.9, 0.9]], [[0.8, 0.8]]])
    held_out, test = torch.tensor([[[0.3, 0.6]], [[0.5, 0.6]]]), torch.tensor([[0.4], [0.6]])
    assert (training_domain(validation).trial, leave_one_domain_out(held_out).trial, oracle(test).trial) == (0, 1, 1)


def test_ties_go_to_the_first() -> None:
    assert training_domain(torch.full((3, 2, 2), 0.5))[:2] == (0, 0)


def test_selection_bad_input() -> None:
    with pytest.raises(ValueError, match=r"a finite score for every trial, checkpoint and domain, got \(1, 1, 2\)"):
        training_domain(torch.tensor([[[0.5, float("nan")]]]))
    with pytest.raises(ValueError, match=r"got shape \(0, 1, 2\)"):
        leave_one_domain_out(torch.zeros(0, 1, 2))
