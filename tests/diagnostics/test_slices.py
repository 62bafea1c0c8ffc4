"""Real processes, each with the slices that a loss draws there."""

from pathlib import Path

import torch
from tests.ranks import run

from reglet.diagnostics.training import same_slices
from reglet.losses.slices import Slices


def work(rank: int, world: int) -> list[bool]:
    torch.manual_seed(0)  # as a training script does
    own, shared = (next(Slices(70, shared=s).at(0, torch.zeros(1, 6)).chunks(70)) for s in (False, True))
    unnoticed = torch.randn(70, 6)
    pair = torch.full((2, 2), float(rank // 2))  # ranks 0 and 1 alike, 2 not
    return [same_slices(z) for z in (own, shared, unnoticed, pair)]


def test_ranks_with_the_same_directions_are_noticed_on_all_ranks(tmp_path: Path) -> None:
    assert run("tests.diagnostics.test_slices:work", world=3, folder=tmp_path) == [[False, True, True, True]] * 3


def test_one_rank_has_nobody_to_agree_with() -> None:
    assert not same_slices(torch.ones(3, 2))
