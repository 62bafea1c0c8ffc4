import statistics

import pytest
import torch
from tests.probes.blobs import blobs
from torch import Tensor

from reglet.probes import few_label_probe, linear_probe
from reglet.probes.few_label import some_of_each


def test_draws_so_many_of_each_class_and_others_each_time() -> None:
    labels = torch.tensor([0] * 50 + [1] * 5 + [3] * 20)
    index = some_of_each(labels, 4, seed=0)
    assert labels[index].bincount().tolist() == [4, 4, 0, 4]
    assert len(index.unique()) == 12
    assert not torch.equal(index.sort().values, some_of_each(labels, 4, seed=1).sort().values)


def test_mean_and_deviation_of_what_the_probe_scores() -> None:
    x, y = blobs(200, 8, spread=3.0)
    x_test, y_test = blobs(300, 8, spread=3.0, seed=1)
    seen: list[Tensor] = []

    def probe(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
        assert test is x_test
        assert test_labels is y_test
        assert labels.bincount().tolist() == [3, 3, 3, 3]
        seen.append(train)
        return float(len(seen))

    score = few_label_probe(x, y, x_test, y_test, per_class=3, draws=4, probe=probe)
    assert score == (2.5, pytest.approx(statistics.stdev([1, 2, 3, 4])), [1.0, 2.0, 3.0, 4.0])
    assert not any(torch.equal(a, b) for i, a in enumerate(seen) for b in seen[:i])
    assert few_label_probe(x, y, x_test, y_test, draws=1).std == 0.0


def test_more_labels_are_better_and_one_is_enough_to_run() -> None:
    x, y = blobs(400, 20, spread=3.0)
    x_test, y_test = blobs(500, 20, spread=3.0, seed=1)
    one, many = (few_label_probe(x, y, x_test, y_test, per_class=k).mean for k in (1, 30))
    everything = linear_probe(x, y, x_test, y_test).accuracy
    assert 0.25 < one < many - 0.1
    assert many < everything + 0.01


def test_bad_input_says_so() -> None:
    x, y = blobs(40, 3)
    with pytest.raises(ValueError, match="between 1 and 10 labels of each class can be drawn, got 11"):
        few_label_probe(x, y, x, y, per_class=11)
    with pytest.raises(ValueError, match="draws must be a whole number of at least 1, got 0"):
        few_label_probe(x, y, x, y, draws=0)
