"""Every threshold of the doctor, from both sides: numbers in, findings out."""

import pytest

from reglet.diagnostics import diseases
from reglet.diagnostics.diseases import Finding

HEALTHY = {
    "features.n": 400.0,
    "features.d": 64.0,
    "features.spread": 0.9,
    "features.rank": 30.0,
    "features.noise_rank": 60.0,
    "features.directions": 60.0,
    "embeddings.n": 400.0,
    "embeddings.d": 32.0,
    "embeddings.spread": 0.9,
    "embeddings.rank": 20.0,
    "embeddings.noise_rank": 30.0,
    "embeddings.directions": 30.0,
    "embeddings.auc": 0.95,
    "embeddings.dead": 0.0,
    "views.auc": 0.95,
    "batch_share": 0.03,
    "mode_gap": 0.1,
    "batch": 128.0,
    "regularizer.share": 0.5,
}
RULES = (
    diseases.of_features,
    diseases.of_embeddings,
    diseases.of_batches,
    diseases.of_gradients,
    diseases.of_ranks,
    diseases.of_sizes,
)


def found(without: tuple[str, ...] = (), **changes: float) -> list[Finding]:
    """`changes` name numbers with two underscores for the dot."""
    numbers = HEALTHY | {name.replace("__", "."): value for name, value in changes.items()}
    numbers = {name: value for name, value in numbers.items() if not name.startswith(without or ("-",))}
    return [finding for rule in RULES for finding in rule(numbers)]


def names(without: tuple[str, ...] = (), **changes: float) -> list[str]:
    return [finding.name for finding in found(without, **changes)]


@pytest.mark.parametrize(
    ("number", "sick", "well", "name"),
    [
        ("features__spread", 0.0499, 0.05, "complete collapse"),
        ("embeddings__spread", 0.0499, 0.05, "dead projector"),
        ("embeddings__dead", 0.901, 0.9, "dead projector"),
        ("embeddings__auc", 0.5575, 0.5585, "informationless projector"),  # 0.5 + 4 * 0.29 / sqrt(400) = 0.558
        ("batch_share", 0.2501, 0.25, "batch-norm leakage"),
        ("mode_gap", 1.001, 1.0, "batch-norm leakage"),
        ("regularizer__share", 0.0099, 0.01, "negligible regularizer"),
        ("regularizer__share", 0.9901, 0.99, "overwhelming regularizer"),
        ("features__rank", 1.99, 2.0, "dimensional collapse"),
        ("features__directions", 5.99, 6.0, "dimensional collapse"),
        ("embeddings__rank", 1.99, 2.0, "dimensional collapse"),
        ("embeddings__directions", 2.99, 3.0, "dimensional collapse"),
        ("features__n", 63.0, 64.0, "too few samples to judge"),
        ("batch", 31.0, 32.0, "the batch is smaller than the embedding is wide"),
    ],
)
def test_both_sides_of_a_threshold(number: str, sick: float, well: float, name: str) -> None:
    assert names(**{number: sick}) == [name]
    assert names(**{number: well}) == []


LEVELS = {
    "complete collapse": {"features__spread": 0.0},
    "dead projector": {"embeddings__spread": 0.0},
    "informationless encoder": {"embeddings__auc": 0.5, "views__auc": 0.5},
    "informationless projector": {"embeddings__auc": 0.5},
    "batch-norm leakage": {"batch_share": 0.9},
    "overwhelming regularizer": {"regularizer__share": 1.0},
    "dimensional collapse": {"features__rank": 1.0},
}


@pytest.mark.parametrize("name", LEVELS)
def test_a_disease_is_sick_and_says_what_to_do(name: str) -> None:
    (finding,) = found(**LEVELS[name])
    assert (finding.name, finding.level) == (name, "sick")
    assert all((finding.evidence, finding.cause, finding.next_step))


def test_levels_of_the_others() -> None:
    assert found(features__n=10.0)[0].level == "unclear"
    assert found(batch=8.0)[0].level == "remark"
    assert [f.level for f in diseases.of_slices(True)] == ["sick"]
    assert diseases.of_slices(False) == diseases.of_slices(None) == []
    assert diseases.not_finite(["features", "views"]).level == "sick"
    assert "NaN or infinity in the features and views" in diseases.not_finite(["features", "views"]).evidence
    well = diseases.healthy(HEALTHY)
    assert (well.name, well.level) == ("healthy", "healthy")
    assert "over 30.0 directions, by effective rank; pure noise would over 60" in well.evidence


def test_chance_depends_on_the_number_of_images() -> None:
    """A uniform rank has a deviation of 0.29: at 100 images 4 of them are 0.116, at 10,000 the floor of 0.05 holds."""
    assert names(embeddings__n=100.0, embeddings__auc=0.615) == ["informationless projector"]
    assert names(embeddings__n=100.0, embeddings__auc=0.617) == []
    assert names(embeddings__n=1e4, embeddings__auc=0.549) == ["informationless projector"]
    assert names(embeddings__n=1e4, embeddings__auc=0.551) == []


def test_exactly_at_a_threshold_is_well() -> None:
    """Also where the number decides what another rule says."""
    chance = 0.5 + (diseases.CHANCE - 0.5)
    assert names(embeddings__n=1e6, embeddings__auc=chance) == []
    assert names(embeddings__n=1e6, embeddings__auc=0.5, views__auc=chance) == ["informationless projector"]
    assert names(features__spread=0.05, features__rank=1.0) == ["dimensional collapse"]
    assert names(features__spread=0.05, embeddings__spread=0.0) == ["dead projector"]
    assert names(embeddings__spread=0.05, embeddings__rank=1.0) == ["dimensional collapse"]
    assert "moves 9.0 times" in found(batch_share=0.25, mode_gap=9.0)[0].evidence


def test_encoder_or_projector() -> None:
    blind = {"embeddings__auc": 0.5}
    assert names(**blind, views__auc=0.557) == ["informationless encoder"]
    assert names(**blind, views__auc=0.559) == ["informationless projector"]
    (unknown,) = found(("views.",), **blind)
    assert unknown.name == "informationless projector"
    assert "in the features" not in unknown.evidence, "which nobody measured"
    (finding,) = found(**blind, views__auc=0.557)
    assert "in 50% of cases" in finding.evidence
    assert "in the features 56%" in finding.evidence


def test_what_is_unknown_is_not_judged() -> None:
    assert names(("embeddings.", "regularizer.")) == []
    assert names(("views.", "batch", "mode_gap", "regularizer.")) == []
    assert names(("embeddings.", "regularizer."), batch=1.0) == []
    assert names(("mode_gap",), batch_share=0.9) == ["batch-norm leakage"]
    assert names(("batch",), mode_gap=9.0) == ["batch-norm leakage"]


def test_where_features_do_not_vary_nothing_else_is_said_of_them() -> None:
    dead = {"features__spread": 0.01}
    assert names(**dead, features__rank=1.0, embeddings__spread=0.0, embeddings__auc=0.5) == ["complete collapse"]
    assert names(**dead, embeddings__rank=1.0) == ["complete collapse", "dimensional collapse"]
    assert names(embeddings__spread=0.01, embeddings__rank=1.0) == ["dead projector"]
    assert names(embeddings__dead=1.0) == ["dead projector"]


def test_one_rank_is_told_that_of_the_features_first() -> None:
    (finding,) = found(features__rank=1.0, embeddings__rank=1.0)
    assert finding.evidence.startswith("the features have an effective rank of 1.0 and 60 directions")
    assert "(400 images, 64 each) has a rank of 60" in finding.evidence
    (finding,) = found(embeddings__rank=1.0)
    assert finding.evidence.startswith("the embeddings have")
    assert names(("regularizer.",), embeddings__rank=1.0) == [], "without a regularizer nothing was promised"


def test_a_rank_needs_four_features() -> None:
    assert names(features__d=3.0, features__rank=1.0) == []
    assert names(features__d=4.0, features__rank=1.0) == ["dimensional collapse"]


def test_a_classifier_needs_its_classes_and_no_more() -> None:
    """Half of classes - 1 directions, where that is less than what is asked of others."""
    few = {"features__rank": 1.5, "features__directions": 1.5}
    assert names(**few, classes=4.0) == []
    assert names(**few, classes=5.0) == ["dimensional collapse"]
    assert names(**few | {"features__rank": 1.49}, classes=4.0) == ["dimensional collapse"]
    assert names(features__directions=4.5, classes=10.0) == []
    assert names(features__directions=4.4, classes=10.0) == ["dimensional collapse"]
    assert names(features__directions=5.9, classes=100.0) == ["dimensional collapse"]
    # Without classes a rank of d / 2 is enough, however small d is.
    assert names(features__d=8.0, features__noise_rank=60.0, features__directions=4.0) == []
    assert names(features__d=8.0, features__noise_rank=60.0, features__directions=3.99) == ["dimensional collapse"]


def test_too_few_samples() -> None:
    (finding,) = found(features__n=40.0)
    assert "40 images, and features of 64 numbers each" in finding.evidence
    assert "better 640, ten for each number" in finding.next_step


def test_evidence_of_batches_and_gradients() -> None:
    assert "decide 90% of an embedding in batches of 128" in found(batch_share=0.9, mode_gap=9.0)[0].evidence
    assert "moves 9.0 times its variance" in found(mode_gap=9.0)[0].evidence
    weak, strong = found(regularizer__share=0.001)[0], found(regularizer__share=0.999)[0]
    assert "0.1% of the gradient is the regularizer's, 99.9%" in weak.evidence
    assert weak.next_step.startswith("raise")
    assert strong.next_step.startswith("lower")
