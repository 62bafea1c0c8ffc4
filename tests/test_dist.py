"""Gradients cross ranks: a loss of gathered samples asks each rank for its own part, summed over all who used it."""

from pathlib import Path

import torch
from tests import ranks

from reglet import dist

ROWS_OF_RANK = [3, 1, 0, 4]


def sample(rank: int) -> torch.Tensor:
    """(2, rows, 3): every rank its own numbers, and its own number of them."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(2, ROWS_OF_RANK[rank], 3, generator=generator, dtype=torch.float64)


def weight(rank: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(100 + rank), dtype=torch.float64)


def work(rank: int, world: int) -> dict:
    assert (dist.rank(), dist.world_size()) == (rank, world)
    x = sample(rank).requires_grad_()
    gathered = dist.concat_over_ranks(x, dim=1)
    (gathered * weight(rank, *gathered.shape)).sum().backward()  # each rank weighs the same samples differently

    y = weight(rank, 3).requires_grad_()
    summed = dist.sum_over_ranks(y)
    (summed * weight(10 + rank, 3)).sum().backward()

    errors = []
    for wrong in (
        torch.zeros(2, 4 + rank),  # another number of features
        torch.zeros(*[2] * (2 + rank % 2)),  # another number of axes
        torch.zeros(2, 3, dtype=[torch.float32, torch.float64][rank % 2]),
        torch.zeros(2, 3, dtype=torch.int64),
    ):
        try:
            dist.concat_over_ranks(wrong)
        except (ValueError, TypeError) as error:
            errors.append(str(error))
    return {
        "gathered": gathered.detach(),
        "gradient": x.grad,
        "summed": summed.detach(),
        "summed gradient": y.grad,
        "y after": y.detach(),
        "errors": errors,
        "half": dist.concat_over_ranks(torch.full((1, 2), float(rank), dtype=torch.bfloat16)),
    }


def test_gather_and_sum(tmp_path: Path) -> None:
    world = len(ROWS_OF_RANK)
    results = ranks.run("tests.test_dist:work", world=world, folder=tmp_path)
    whole = torch.cat([sample(rank) for rank in range(world)], dim=1)
    asked = sum(weight(rank, *whole.shape) for rank in range(world))
    parts = asked.split(ROWS_OF_RANK, dim=1)
    everyone = range(world)
    for rank, result in enumerate(results):
        assert torch.equal(result["gathered"], whole)
        torch.testing.assert_close(result["gradient"], parts[rank], rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(result["summed"], sum(weight(r, 3) for r in everyone), rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(
            result["summed gradient"], sum(weight(10 + r, 3) for r in everyone), rtol=1e-14, atol=1e-14
        )
        assert torch.equal(result["y after"], weight(rank, 3)), "the summand must not be written to"
        assert result["half"][:, 0].tolist() == list(everyone)
        assert len(result["errors"]) == 4, "every rank refuses what cannot be gathered, so that none waits for another"
        assert result["errors"][:3] == results[0]["errors"][:3]
        assert "rank 0: (2, 4), rank 1: (2, 5)" in result["errors"][0]


def test_one_process_gathers_nothing() -> None:
    x = torch.randn(3, 2)
    assert (dist.rank(), dist.world_size()) == (0, 1)
    assert dist.concat_over_ranks(x) is x
    assert dist.concat_over_ranks(x, dim=1) is x
    assert dist.sum_over_ranks(x) is x
