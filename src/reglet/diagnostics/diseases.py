"""Diseases of a representation.  Each is a judgement on numbers that `verdict.measure` made.

Thresholds lie between encoders that were trained well and encoders that were made sick on purpose, on the embedded
digits (tests/diagnostics/test_doctor_trained.py trains both kinds).  They account for n and d: a rank is compared with
that of Gaussian noise of the same n and d.
"""

from dataclasses import dataclass
from typing import Literal

Level = Literal["sick", "unclear", "healthy", "remark"]  # a remark is about settings, not about the run

FEW = 64  # with fewer samples an effective rank says little
SHORT = 50  # with fewer steps there is nothing to judge
SPREAD = 0.05  # of samples, relative to their size; trained encoders have 0.5 and more
LINE = 2.0  # with a smaller effective rank the variance lies more or less on a line
CLIFF = 0.1  # share of the rank of noise; at least so many directions must hold 99.9 % of the variance
CHANCE = 0.55  # of telling a view of the same image from one of another; trained encoders have 0.8 and more
MATES = 0.25  # share of an embedding's variance that is decided by its batch mates
MODES = 1.0  # distance between training and evaluation mode, relative to the spread over images
NEGLIGIBLE = 0.01  # share of the gradient


@dataclass(frozen=True)
class Finding:
    name: str
    level: Level
    evidence: str
    cause: str
    next_step: str


def of_features(x: dict[str, float]) -> list[Finding]:
    if x["features.spread"] < SPREAD:
        return [
            Finding(
                "complete collapse",
                "sick",
                f"all images get nearly the same features: their spread is {x['features.spread']:.2g} of their size",
                "nothing holds against invariance: no regularizer, one of too little weight, or a diverged run",
                "raise the regularizer's weight or lower the learning rate, and start again",
            )
        ]
    return []


def of_embeddings(x: dict[str, float]) -> list[Finding]:
    """Diseases of the projector, if the features themselves are alive."""
    if "embeddings.spread" not in x or x["features.spread"] < SPREAD:
        return []
    if x["embeddings.spread"] < SPREAD or x["embeddings.dead"] > 0.9:
        return [
            Finding(
                "dead projector",
                "sick",
                f"features vary (spread {x['features.spread']:.2g}), embeddings do not: spread "
                f"{x['embeddings.spread']:.2g}, {x['embeddings.dead']:.0%} of the dimensions constant",
                "the projector solves invariance by itself, or its units died; the encoder learns nothing",
                "raise the regularizer's weight; if the units died, lower the learning rate or add batch norm",
            )
        ]
    chance = 0.5 + max(CHANCE - 0.5, 4 * 0.29 / x["embeddings.n"] ** 0.5)  # a uniform rank has a deviation of 0.29
    if x["embeddings.auc"] < chance:
        return [_informationless(x, chance)]
    return []


def _informationless(x: dict[str, float], chance: float) -> Finding:
    encoder = x.get("views.auc")
    evidence = (
        f"two views of an image are closer than views of two in {x['embeddings.auc']:.0%} of cases, by chance 50 %"
        f"{'' if encoder is None else f'; in the features {encoder:.0%}'}"
    )
    if encoder is not None and encoder < chance:
        return Finding(
            "informationless encoder",
            "sick",
            evidence,
            "views of an image have nothing in common, or the encoder does not look at the image",
            "look at the views: weaken the augmentation, and check that views come from the same image",
        )
    return Finding(
        "informationless projector",
        "sick",
        evidence,
        "the embeddings vary with something else than the image, so the loss teaches the encoder nothing about it",
        "check what the projector gets (detached? shuffled? other samples?), and start again with a fresh one",
    )


def of_batches(x: dict[str, float]) -> list[Finding]:
    share, gap = x.get("batch_share", 0.0), x.get("mode_gap", 0.0)
    if share <= MATES and gap <= MODES:
        return []
    size = f" of {x['batch']:.0f}" if "batch" in x else ""
    evidence = (
        f"batch mates decide {share:.0%} of an embedding in batches{size}"
        if share > MATES
        else f"from training to evaluation mode an embedding moves {gap:.1f} times its variance over images"
    )
    return [
        Finding(
            "batch-norm leakage",
            "sick",
            evidence,
            "the network reads the statistics of its batch instead of the image, or its running statistics are stale",
            "larger batches per device, sync_batchnorm, or layer norm in its place; more steps",
        )
    ]


def of_ranks(x: dict[str, float]) -> list[Finding]:
    """The rank of the features, and of the embeddings if a regularizer should spread them (not in BYOL, for example).

    If nothing varies there is no rank, and another finding says so.
    """
    found = []
    if x["features.spread"] >= SPREAD:
        found += _rank("features", x, "the regularizer does not spread variance over directions, or over a few only")
    if "regularizer.share" in x and x.get("embeddings.spread", 0.0) >= SPREAD:
        found += _rank("embeddings", x, "a few directions satisfy the loss: its decorrelating term is too weak")
    return found[:1]


def _rank(what: str, x: dict[str, float], cause: str) -> list[Finding]:
    n, d, rank, used = (x[f"{what}.{key}"] for key in ("n", "d", "rank", "directions"))
    if d < 4:
        return []
    if n < FEW:
        return [
            Finding(
                "too few samples to judge",
                "unclear",
                f"{n:.0f} images, and {what} of {d:.0f} numbers each: which of these matter, {FEW} images would tell",
                "a few images always lie in a few directions, whatever the encoder does",
                f"give the doctor {FEW} images or more, better {10 * d:.0f}, ten for each number",
            )
        ]
    needed = x.get("classes", d + 1) - 1  # a classifier's features may encode its classes and nothing else
    if rank >= min(LINE, needed / 2) and used >= min(CLIFF * x[f"{what}.noise_rank"], needed / 2):
        return []
    return [
        Finding(
            "dimensional collapse",
            "sick",
            f"the {what} have an effective rank of {rank:.1f} and {used:.0f} directions with 99.9 % of the variance; "
            f"pure noise in as many numbers ({x.get(f'{what}.rows', n):.0f} images, {d:.0f} each) has a rank of "
            f"{x[f'{what}.noise_rank']:.0f}",
            cause,
            "raise what decorrelates (covariance, redundancy, shape, slices), or give the projector more width",
        )
    ]


def of_slices(same: bool | None) -> list[Finding]:
    if not same:
        return []
    return [
        Finding(
            "ranks draw the same slices",
            "sick",
            "two ranks average over the same random directions of their own samples",
            "all ranks seed the directions alike, so W ranks see as many directions as one",
            "seed the slices by rank (shared_slices=false), or share them and gather the batch (gather=true)",
        )
    ]


def of_gradients(x: dict[str, float]) -> list[Finding]:
    share = x.get("regularizer.share")
    if share is None or NEGLIGIBLE <= share <= 1 - NEGLIGIBLE:
        return []
    weak = share < NEGLIGIBLE
    return [
        Finding(
            "negligible regularizer" if weak else "overwhelming regularizer",
            "sick",
            f"{share:.1%} of the gradient is the regularizer's, {1 - share:.1%} that of invariance or prediction",
            "its weight is of another convention (sums and means differ by factors of n and d), or mistyped",
            f"{'raise' if weak else 'lower'} the regularizer's weight until each side has some tenths of the gradient",
        )
    ]


def of_sizes(x: dict[str, float]) -> list[Finding]:
    if "batch" not in x or "embeddings.d" not in x or x["batch"] >= x["embeddings.d"]:
        return []
    return [
        Finding(
            "the batch is smaller than the embedding is wide",
            "remark",
            f"the loss sees {x['batch']:.0f} samples of {x['embeddings.d']:.0f} dimensions",
            "so few samples leave a part of the dimensions unseen in each step; many methods train well so",
            "nothing, if it trains well; else a larger batch, gather=true, or a narrower projector",
        )
    ]


def too_short(steps: int) -> Finding:
    return Finding(
        "too few steps to judge",
        "unclear",
        f"the run has made {steps} steps; below {SHORT} a network is still what it was at the start",
        "it was a trial of the command, or it was stopped early",
        "train longer, then ask again; what was seen so far stands below as remarks",
    )


def not_finite(broken: list[str]) -> Finding:
    return Finding(
        "not finite",
        "sick",
        f"NaN or infinity in the {' and '.join(broken)}",
        "the run diverged, or its weights are damaged",
        "take an earlier checkpoint, and lower the learning rate or clip the gradient",
    )


def healthy(x: dict[str, float]) -> Finding:
    return Finding(
        "healthy",
        "healthy",
        f"features spread over {x['features.rank']:.1f} directions, by effective rank; pure noise would over "
        f"{x['features.noise_rank']:.0f}",
        "no sign of collapse in what was looked at",
        "measure what it is good for: reglet eval",
    )
