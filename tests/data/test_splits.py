"""Parts of a data set, as indices."""

import pytest
import torch

from reglet.data.splits import hold_out, leave_one_out, long_tail, some_labels

LABELS = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)[torch.randperm(100, generator=torch.Generator().manual_seed(1))]


def counts(index: torch.Tensor) -> list[int]:
    return LABELS[index].bincount(minlength=3).tolist()


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0.1, [6, 3, 1]), (10, [6, 3, 1]), (0.5, [30, 15, 5]), (1.0, [60, 30, 10]), (3, [1, 1, 1]), (100, [60, 30, 10])],
)
def test_labels_are_stratified(amount: float, expected: list[int]) -> None:
    index = some_labels(LABELS, amount)
    assert counts(index) == expected
    assert index.unique().numel() == len(index)


def test_one_label_is_a_number_and_all_of_them_a_share() -> None:
    assert len(some_labels(torch.zeros(5, dtype=torch.int64), 1)) == 1
    assert len(some_labels(torch.zeros(5, dtype=torch.int64), 1.0)) == 5


def test_seeds_take_other_samples_and_fewer_labels_are_among_more() -> None:
    assert not some_labels(LABELS, 10).equal(some_labels(LABELS, 10, seed=1))
    assert some_labels(LABELS, 10).equal(some_labels(LABELS, 10))
    assert set(some_labels(LABELS, 10).tolist()) < set(some_labels(LABELS, 50).tolist())


@pytest.mark.parametrize("amount", [0, 2, 101, 0.0, 1.5])
def test_too_few_or_too_many_labels(amount: float) -> None:
    with pytest.raises(ValueError, match=r"between 3 \(one of each class\) and 100"):
        some_labels(LABELS, amount)


def test_long_tail_follows_its_formula() -> None:
    labels = torch.arange(1000) % 10
    found = labels[long_tail(labels, 100.0)].bincount()
    assert found.tolist() == [int(100 * 100 ** (-c / 9)) for c in range(10)]
    assert found[0] == 100
    assert found[-1] == 1
    assert labels[long_tail(labels, 1.0)].bincount().tolist() == [100] * 10
    with pytest.raises(ValueError, match=r"at least 1, got 0\.5"):
        long_tail(labels, 0.5)


def test_leave_one_domain_out() -> None:
    domain = torch.tensor([0, 1, 2, 1, 0])
    inside, outside = leave_one_out(domain, 1)
    assert inside.tolist() == [0, 2, 4]
    assert outside.tolist() == [1, 3]
    with pytest.raises(ValueError, match="there are domains 0, 1, 2"):
        leave_one_out(domain, 3)
    with pytest.raises(ValueError, match="and in another"):
        leave_one_out(torch.zeros(3, dtype=torch.int64), 0)


def test_hold_out() -> None:
    rest, held = hold_out(10, 0.3)
    assert len(held) == 3
    assert torch.cat([rest, held]).sort().values.equal(torch.arange(10))
    with pytest.raises(ValueError, match="empty"):
        hold_out(3, 0.01)
