"""W processes with different data train as one process on the whole batch: value, and parameter gradient under DDP."""

import copy
import time
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import ranks
from tests.contracts import PLAIN_ROWS, ROWS, Row, directions
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from reglet.losses import cpu_slices

SAMPLES = {2: [5, 3], 4: [4, 2, 3, 5]}  # uneven
VIEWS, GLOBAL, FEATURES, STEPS = 3, 2, 6, 2


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, 7)).double()


def batch(samples: list[int]) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    shared = torch.randn(1, sum(samples), FEATURES, generator=generator, dtype=torch.float64)
    own = torch.randn(VIEWS, sum(samples), FEATURES, generator=generator, dtype=torch.float64)
    return 2 * shared + own


def chooses_slices(row: Row) -> bool:
    """Whether its ranks may have slices of their own; those of a sketch are always shared."""
    return "shared_slices" in signature(row.kind).parameters


def cases(world: int) -> Iterator[tuple[str, Row, dict[str, Any]]]:
    for row in ROWS:
        yield row.name, row, {"gather": True}
    for row in PLAIN_ROWS:
        yield f"{row.name}, local", row, {"gather": False}
        if chooses_slices(row):
            shared = not row.build().slices.shared
            yield f"{row.name}, shared_slices={shared}", row, {"gather": True, "shared_slices": shared}


def work(rank: int, world: int) -> dict[str, Any]:
    """What one rank sees: per case and step its terms, the averaged parameter gradient, and its directions.

    Sliced losses share their slices out over two threads, whatever the size, so that threads and ranks meet.
    """
    torch.set_num_threads(2)
    cpu_slices.WORTHWHILE = 0
    samples = SAMPLES[world]
    x = batch(samples).split(samples, dim=1)[rank]
    model = DistributedDataParallel(network())
    torch.manual_seed(1234)  # the same on every rank, as people do
    found: dict[str, Any] = {}
    for name, row, arguments in cases(world):
        loss = row.build(**arguments)
        found[name] = []
        for _ in range(STEPS):
            model.zero_grad()
            z = model(x)
            w = directions(loss, z.detach())
            state = torch.get_rng_state()
            terms = loss.terms(global_views=z[:GLOBAL], local_views=z[GLOBAL:])
            assert torch.equal(state, torch.get_rng_state()), "a loss must not draw from the global generator"
            torch.stack(list(terms.values())).sum().backward()
            found[name].append(({k: t.detach() for k, t in terms.items()}, flat_gradient(model), w))
    assert cpu_slices._pool.cache_info().hits > 0, "no threads were used"
    return found


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()]).clone()


def one_process(
    row: Row, samples: list[int], seen: list[Tensor], local: bool
) -> tuple[list[dict[str, Tensor]], Tensor]:
    """By the oracle: each rank's terms, and the parameter gradient of their mean."""
    model = network()
    z = model(batch(samples))
    parts = z.split(samples, dim=1) if local else [z] * len(samples)
    terms = [row.oracle(part, GLOBAL, w) for part, w in zip(parts, seen, strict=True)]
    torch.stack([torch.stack(list(t.values())).sum() for t in terms]).mean().backward()
    return [{k: t.detach() for k, t in each.items()} for each in terms], flat_gradient(model)


@pytest.mark.parametrize("world", [2, 4])
def test_as_one_process_on_the_whole_batch(world: int, tmp_path: Path) -> None:
    results = ranks.run("tests.losses.test_ranks:work", world=world, folder=tmp_path)
    wrong = []
    for name, row, arguments in cases(world):
        shared = row.sliced and row.build(**arguments).slices.shared
        for step in range(STEPS):
            seen = [result[name][step][2] for result in results]
            wrong += slices_faults(f"{name}, step {step}", row, shared, seen)
            want, want_grad = one_process(row, SAMPLES[world], seen, local=not arguments["gather"])
            for rank, result in enumerate(results):
                terms, grad, _ = result[name][step]
                for term in want[rank]:
                    if not close(terms[term], want[rank][term]):
                        wrong.append(f"{name}, rank {rank}: {term} is {terms[term]}, should be {want[rank][term]}")
                if not close(grad, want_grad):
                    ratio = float(grad.norm() / want_grad.norm())
                    wrong.append(f"{name}, rank {rank}: parameter gradient, {ratio:.4f} times as long as it should be")
    assert not wrong, "\n".join(wrong)


def slices_faults(name: str, row: Row, shared: bool, seen: list[Tensor]) -> list[str]:
    """Shared slices are those of one process; others differ between every two ranks."""
    if not row.sliced:
        return []
    if shared:
        return [f"{name}: shared slices differ"] * any(not torch.equal(seen[0], w) for w in seen)
    lines = torch.cat(seen)
    lines = lines[lines.any(dim=1)]  # two samples of a sparse target may both be zero
    return [f"{name}: ranks drew the same slices"] * (len(torch.unique(lines, dim=0)) < len(lines))


def close(got: Tensor, want: Tensor) -> bool:
    return bool((got - want).norm() <= 1e-10 * want.norm())


def lone_sample(rank: int, world: int) -> list[float]:
    """Rank 1 has one sample only."""
    z = batch([4, 1])
    z = z.split([4, 1], dim=1)[rank] if world > 1 else z
    return [
        float(row.build(gather=True, **({"shared_slices": True} if chooses_slices(row) else {}))(z))
        for row in PLAIN_ROWS
    ]


def test_a_rank_with_one_sample(tmp_path: Path) -> None:
    """The whole batch has five, on which every loss is defined: nobody refuses, and none waits for the other."""
    first, second = ranks.run("tests.losses.test_ranks:lone_sample", world=2, folder=tmp_path)
    assert first == second
    assert first == pytest.approx(lone_sample(0, 1), rel=1e-10)


def refusals(rank: int, world: int) -> dict[str, Any]:
    """Rank 1 has a batch that cannot work.  What each rank says, in how long; and the loss of a group of its own."""
    z = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(rank))
    nan = z.clone()
    nan[1, 2, 3] = torch.nan
    wrong = {"nan": nan, "empty": z[:, :0], "integers": z.long(), "features": z[..., :5]}
    found: dict[str, Any] = {}
    for row in PLAIN_ROWS:
        loss = row.build(gather=True, check_finite=True)
        for name, bad in wrong.items():
            start = time.monotonic()
            try:
                loss(bad if rank == 1 else z)
            except (ValueError, TypeError, FloatingPointError) as error:
                found[f"{row.name}, {name}"] = (type(error).__name__, str(error), time.monotonic() - start)
    halves = [torch.distributed.new_group([0, 1]), torch.distributed.new_group([2, 3])]
    for row in PLAIN_ROWS:
        if not row.sliced:
            loss = row.build(gather=True, group=halves[rank // 2])
            leaf = z.double().requires_grad_()
            copy.deepcopy(loss)(leaf).backward()
            found[row.name] = leaf.grad
    return found


def test_what_one_rank_raises_all_raise(tmp_path: Path) -> None:
    results = ranks.run("tests.losses.test_ranks:refusals", world=4, folder=tmp_path)
    said = {"nan": "FloatingPointError", "empty": "ValueError", "integers": "TypeError", "features": "ValueError"}
    for row in PLAIN_ROWS:
        for name, kind in said.items():
            for result in results:
                error, text, seconds = result[f"{row.name}, {name}"]
                assert error == kind
                assert text == results[0][f"{row.name}, {name}"][1]
                assert "rank 1" in text
                assert seconds < 30, "a hang would last until the timeout"
        if row.sliced:
            continue
        parts = [torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(r)).double() for r in range(4)]
        for half in (0, 2):
            z = torch.cat(parts[half : half + 2], dim=1).requires_grad_()
            (want,) = torch.autograd.grad(torch.stack(list(row.oracle(z, 2, z.new_zeros(0, 6)).values())).sum(), z)
            got = torch.cat([results[half][row.name], results[half + 1][row.name]], dim=1)
            assert close(got, 2 * want), f"{row.name}: the gradient of a group of two, before DDP's average"
