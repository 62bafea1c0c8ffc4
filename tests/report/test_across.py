"""Differences between runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.report.made import empty

from reglet.report.across import by_image, in_words, over_seeds, paired_share, read_compare
from reglet.report.gather import RunData
from reglet.report.gather.probing import Probes
from reglet.report.gather.repeat import repeat


def probed(name: str, right: list[int], *, seed: int = 0, lr: float = 0.1, data: str = "x") -> RunData:
    known = torch.tensor(right).bool()
    share = float(known.double().mean())
    row = {"accuracy": share, "interval": [0.0, 1.0]}
    probes = Probes("train", "test", (9, len(right)), {"linear": row}, {"linear": known}, data, {}, None, ("a", 0.5))
    stored = {"command": "pretrain", "lr": lr, "seed": seed, "out": name}
    return replace(empty(name), probes=probes, repeat=repeat(stored))


def test_a_paired_interval() -> None:
    a, b = torch.zeros(100).bool(), torch.arange(100) < 20
    mean, error = paired_share(a, b)
    assert mean == pytest.approx(0.2)
    assert error == pytest.approx((0.2 * 0.8 / 99) ** 0.5)


def test_pairs_see_less_noise_than_runs_apart() -> None:
    base = torch.arange(200) % 2 == 0
    better = base.clone()
    better[1:20:2] = True  # ten more right, none less
    (found,) = by_image([probed("a", base.tolist()), probed("b", better.tolist())])
    assert found.difference == pytest.approx(0.05)
    assert found.resolved  # two proportions of 200, unpaired, would have an error of 0.05


def test_runs_on_other_images_are_not_compared() -> None:
    assert by_image([probed("a", [1, 0]), probed("b", [1, 0], data="y")]) == []
    assert by_image([empty(), probed("b", [1, 0])]) == []


def test_the_sentence_for_two_runs() -> None:
    runs = [probed("a", [0, 1] * 50), probed("b", [1, 1] * 50)]
    said = in_words(by_image(runs), runs)
    assert said is not None
    assert said.startswith("This b is better than this a: linear probe +50.0 points (+40.2 to +59.8)")
    assert "one run of each cannot tell" in said
    same = [probed("a", [0, 1] * 50), probed("b", [1, 0] * 50)]
    assert "cannot be told apart" in (in_words(by_image(same), same) or "")


def test_two_configurations_over_the_same_seeds() -> None:
    shares = [(50, 56), (48, 55), (51, 56), (49, 55), (50, 57)]
    runs = []
    for seed, (a, b) in enumerate(shares):
        for name, share, lr in (("a", a, 0.1), ("b", b, 0.2)):
            runs.append(probed(f"{name}{seed}", [1] * share + [0] * (100 - share), seed=seed, lr=lr))
    found = over_seeds(runs)
    assert found is not None
    assert found.sentence.startswith("It helps: linear probe +6.20 points")
    assert found.scores["linear"].seeds == 5
    assert over_seeds(runs[:2]) is None  # one seed
    assert over_seeds([*runs, probed("c", [1], seed=9, lr=0.3)]) is None  # three configurations


def test_what_compare_left(tmp_path: Path) -> None:
    assert read_compare(tmp_path) is None
    (tmp_path / "compare.json").write_text(json.dumps({"sentence": "It helps."}))
    found = read_compare(tmp_path)
    assert found is not None
    assert found.runs == [tmp_path / "base" / "seed-0", tmp_path / "candidate" / "seed-0"]
