"""Verdicts on representations that were built: one for each disease, and many healthy ones."""

import dataclasses

import pytest
import torch
from tests.diagnostics.test_collapse import as_users_have_it
from torch import Tensor

from reglet.diagnostics.verdict import EXIT_CODES, Symptoms, diagnose, measure


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def healthy(n: int = 400, d: int = 64, *, seed: int = 0, alpha: float = 1.0, shift: float = 0.5) -> Symptoms:
    """Features with a spectrum k^-alpha about a mean, two views that differ a little, and embeddings that are white."""
    scale = torch.arange(1, d + 1) ** (-alpha / 2)
    base = normal(n, d, seed=seed) * scale
    views = base + 0.2 * normal(2, n, d, seed=seed + 1) * scale
    z = views @ normal(d, 32, seed=seed + 2) / scale.square().sum().sqrt()
    return Symptoms(
        base + shift,
        views=views + shift,
        embeddings=z,
        gradients={"invariance": 0.4, "scale": 0.2, "shape": 0.5},
        batch_share=0.03,
        mode_gap=0.1,
        same_slices=False,
        batch=128,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "d"), [(64, 8), (64, 512), (100, 2048), (400, 64), (1000, 128), (300, 300)])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 1.5])
def test_no_false_alarm(n: int, d: int, alpha: float, seed: int) -> None:
    verdict = diagnose(healthy(n, d, seed=10 * seed, alpha=alpha))
    assert verdict.name == "healthy", verdict.findings
    assert verdict.exit_code == 0


def test_healthy_whatever_the_scale_and_with_features_alone() -> None:
    s = healthy()
    for factor in (1e-6, 1e6):
        scaled = dataclasses.replace(s, features=factor * s.features, embeddings=factor * s.embeddings)
        assert diagnose(scaled).name == "healthy"
    assert diagnose(Symptoms(s.features)).name == "healthy"
    assert diagnose(Symptoms(s.features.clamp_min(0))).name == "healthy"  # after a ReLU
    assert diagnose(Symptoms(normal(300, 2))).name == "healthy"  # two features have no rank to lose


def test_complete_collapse() -> None:
    s = healthy()
    for features in (torch.ones(400, 64), torch.zeros(400, 64), 3 + 1e-3 * s.features):
        verdict = diagnose(dataclasses.replace(s, features=features))
        assert verdict.name == "complete collapse"
        assert verdict.exit_code == 1
    few = Symptoms(torch.ones(10, 64))
    assert diagnose(few).name == "complete collapse"  # ten samples are enough to see that


@pytest.mark.parametrize(("n", "d"), [(100, 512), (400, 64), (2000, 128)])
def test_dimensional_collapse(n: int, d: int) -> None:
    for rank in (1, 2, 3):
        z = normal(n, rank) @ normal(rank, d, seed=1) + 1e-3 * normal(n, d, seed=2)
        verdict = diagnose(Symptoms(z))
        assert verdict.name == "dimensional collapse"
        assert verdict.exit_code == 1
        assert f"({n} images, {d} each)" in verdict.findings[0].evidence
    classes = torch.eye(d)[torch.arange(n) % 4] + 1e-3 * normal(n, d)  # three directions: all that four classes need
    assert diagnose(Symptoms(classes)).name == "dimensional collapse"
    assert diagnose(Symptoms(classes, classes=4)).name == "healthy"
    assert diagnose(Symptoms(classes[:, :1] + 1e-3 * normal(n, d), classes=10)).name == "dimensional collapse"
    spread_out = normal(n, d // 4) @ normal(d // 4, d, seed=1)  # three quarters of the directions empty, the rest used
    assert diagnose(Symptoms(spread_out)).name == "healthy"


def test_dimensional_collapse_of_embeddings_where_a_regularizer_promises_otherwise() -> None:
    s = healthy()
    assert s.embeddings is not None
    line = s.embeddings[:, :, :1] @ normal(1, 32) + 1e-3 * normal(2, 400, 32)
    sick = dataclasses.replace(s, embeddings=line)
    assert diagnose(sick).name == "dimensional collapse"
    assert "the embeddings have" in diagnose(sick).findings[0].evidence
    assert diagnose(dataclasses.replace(sick, gradients={"prediction": 1.0})).name == "healthy"  # BYOL promises nothing


def test_dead_projector() -> None:
    s = healthy()
    assert s.embeddings is not None
    constant = 1 + 1e-3 * s.embeddings
    units = s.embeddings * (torch.arange(32) < 2)  # two dimensions alive
    for z in (constant, units, torch.zeros_like(units)):
        verdict = diagnose(dataclasses.replace(s, embeddings=z))
        assert verdict.name == "dead projector"
        assert verdict.exit_code == 1


def test_informationless_projector_and_encoder() -> None:
    s = healthy()
    noise = normal(2, 400, 32, seed=9)
    assert diagnose(dataclasses.replace(s, embeddings=noise)).name == "informationless projector"
    assert s.views is not None
    assert s.embeddings is not None
    shuffled = torch.stack([s.embeddings[0], s.embeddings[1].flip(0)])
    assert diagnose(dataclasses.replace(s, embeddings=shuffled)).name == "informationless projector"
    unrelated = dataclasses.replace(s, embeddings=noise, views=normal(2, 400, 64, seed=8))
    assert diagnose(unrelated).name == "informationless encoder"


def test_batch_norm_leakage() -> None:
    for sick in (dataclasses.replace(healthy(), batch_share=0.6), dataclasses.replace(healthy(), mode_gap=3.0)):
        verdict = diagnose(sick)
        assert verdict.name == "batch-norm leakage"
        assert verdict.exit_code == 1
    evidence = diagnose(dataclasses.replace(healthy(), batch_share=0.6)).findings[0].evidence
    assert "60% of an embedding in batches of 128" in evidence


@pytest.mark.parametrize("n", [2, 10, 40])
def test_too_few_samples_to_tell(n: int) -> None:
    verdict = diagnose(Symptoms(healthy().features[:n]))
    assert verdict.name == "too few samples to judge"
    assert verdict.exit_code == 4
    assert "64 images or more" in verdict.findings[0].next_step


def test_what_few_samples_do_show_comes_first() -> None:
    s = healthy(n=40)
    verdict = diagnose(dataclasses.replace(s, same_slices=True))
    assert [f.name for f in verdict.findings] == ["ranks draw the same slices", "too few samples to judge"]
    assert verdict.exit_code == 1


def test_gradient_shares() -> None:
    for gradients, name in (
        ({"invariance": 1.0, "variance": 1e-4, "covariance": 1e-3}, "negligible regularizer"),
        ({"invariance": 1e-4, "scale": 0.1, "shape": 1.0}, "overwhelming regularizer"),
        ({"alignment": 1.0, "redundancy": 0.0}, "negligible regularizer"),
    ):
        verdict = diagnose(dataclasses.replace(healthy(), gradients=gradients))
        assert verdict.name == name
        assert verdict.exit_code == 1
    for gradients in ({"contrast": 1.0}, {"invariance": 0.0, "variance": 0.0}, {"invariance": 0.9, "variance": 0.1}):
        assert diagnose(dataclasses.replace(healthy(), gradients=gradients)).name == "healthy"


def test_same_slices_and_n_below_d() -> None:
    assert diagnose(dataclasses.replace(healthy(), same_slices=True)).name == "ranks draw the same slices"
    verdict = diagnose(dataclasses.replace(healthy(), batch=16))
    assert verdict.name == "healthy"  # Barlow Twins trains so
    assert verdict.exit_code == 0
    assert [f.name for f in verdict.remarks] == ["the batch is smaller than the embedding is wide"]
    assert "16 samples of 32 dimensions" in verdict.remarks[0].evidence


def test_the_gravest_comes_first_and_all_are_told() -> None:
    s = dataclasses.replace(
        healthy(), features=torch.ones(400, 64), batch_share=0.9, gradients={"invariance": 1.0, "scale": 0.0}, batch=8
    )
    assert [f.name for f in diagnose(s).findings] == [
        "complete collapse",
        "batch-norm leakage",
        "negligible regularizer",
    ]
    assert [f.name for f in diagnose(s).remarks] == ["the batch is smaller than the embedding is wide"]


@pytest.mark.parametrize("steps", [0, 49, 50])
def test_a_run_of_a_few_steps_is_not_judged(steps: int) -> None:
    """What was seen is told, as remarks; what is not finite is sick at any step."""
    s = dataclasses.replace(healthy(), features=torch.ones(400, 64), batch=8, steps=steps)
    verdict = diagnose(s)
    if steps == 50:
        assert verdict.name == "complete collapse"
        return
    assert (verdict.name, verdict.exit_code) == ("too few steps to judge", 4)
    assert [f.name for f in verdict.remarks] == ["complete collapse", "the batch is smaller than the embedding is wide"]
    assert {f.level for f in verdict.remarks} == {"remark"}
    s.features[0, 0] = torch.nan
    assert diagnose(s).name == "not finite"


def test_not_finite() -> None:
    s = healthy()
    s.features[3, 4] = torch.nan
    assert diagnose(s).name == "not finite"
    assert diagnose(s).exit_code == 1


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"embeddings": torch.full((2, 400, 32), torch.inf)}, "embeddings"),
        ({"views": torch.full((2, 400, 64), torch.nan)}, "views"),
        ({"gradients": {"invariance": 1.0, "scale": float("inf")}}, "gradients"),
        ({"batch_share": float("nan")}, "batch share"),
        ({"mode_gap": float("nan"), "batch_share": float("nan")}, "batch share and mode gap"),
    ],
)
def test_what_is_not_finite_is_named(changes: dict[str, object], broken: str) -> None:
    (finding,) = diagnose(dataclasses.replace(healthy(), **changes)).findings
    assert finding.evidence == f"NaN or infinity in the {broken}"


def test_an_infinite_gap_between_the_modes_is_a_disease_and_no_fault_of_the_measurement() -> None:
    assert diagnose(dataclasses.replace(healthy(), mode_gap=float("inf"))).name == "batch-norm leakage"


@as_users_have_it()
def test_tensors_of_another_shape_are_refused() -> None:
    for name, wrong in (("features", normal(4, 3, 8)), ("views", normal(3, 4, 8)), ("embeddings", normal(4, 8))):
        with pytest.raises(ValueError, match=f"{name} must be"):
            diagnose(dataclasses.replace(healthy(), **{name: wrong}))


def test_the_first_view_is_what_is_measured() -> None:
    z = normal(2, 400, 8)
    z[0, :, 2:] = 0
    numbers = measure(Symptoms(normal(400, 8), embeddings=z))
    assert numbers["embeddings.dead"] == 0.75
    assert numbers["embeddings.directions"] == 2
    numbers = measure(Symptoms(normal(400, 8), embeddings=z.flip(0)))
    assert numbers["embeddings.dead"] == 0
    assert numbers["embeddings.directions"] == 8


def test_what_was_found_cannot_be_changed() -> None:
    verdict = diagnose(healthy())
    for each, name in ((verdict, "numbers"), (verdict.findings[0], "name"), (healthy(), "batch")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(each, name, None)


def test_exit_codes() -> None:
    assert EXIT_CODES == {"healthy": 0, "remark": 0, "sick": 1, "unclear": 4}


def test_numbers_are_all_there() -> None:
    numbers = measure(healthy())
    assert numbers["regularizer.share"] == pytest.approx(0.7 / 1.1)
    assert numbers["features.n"] == 400
    assert numbers["embeddings.d"] == 32
    assert {"views.auc", "embeddings.auc", "batch_share", "mode_gap"} <= numbers.keys()


@pytest.mark.parametrize("gradients", [None, {}, {"invariance": 1.0}, {"contrast": 1.0, "redundancy": 2.0}])
def test_without_two_sides_there_is_no_share_of_the_gradient(gradients: dict[str, float] | None) -> None:
    assert "regularizer.share" not in measure(dataclasses.replace(healthy(), gradients=gradients))


def test_dead_dimensions_are_a_millionth_of_the_largest() -> None:
    z = normal(2, 400, 1).double() * torch.tensor([1.0, 0.96e-6, 1.04e-6, 0.0], dtype=torch.float64)
    assert measure(dataclasses.replace(healthy(), embeddings=z))["embeddings.dead"] == 0.5
    assert measure(dataclasses.replace(healthy(), embeddings=0 * z))["embeddings.dead"] == 1.0
