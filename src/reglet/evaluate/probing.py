"""Probes by name: features and labels in, numbers out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from reglet import progress
from reglet.data import Images
from reglet.evaluate.classes import own_probabilities
from reglet.probes import few_label_probe, knn_votes, linear_probe, linear_sgd_probe, metrics, mlp_probe, ridge_probe

Json = dict[str, Any]


@dataclass(frozen=True)
class ProbeData:
    """Training and test features with labels.

    wide: the same of several blocks side by side, for the linear probes; else the same tensors.
    """

    train: Float[Tensor, "m d"]
    train_labels: Int64[Tensor, " m"]
    test: Float[Tensor, "n d"]
    test_labels: Int64[Tensor, " n"]
    wide_train: Float[Tensor, "m e"]
    wide_test: Float[Tensor, "n e"]
    seed: int = 0

    def summary(self, scores: Float[Tensor, "n classes"], *, probabilities: bool = True) -> Json:
        """Every metric that applies.  `probabilities`: whether rows of `scores` are such."""
        y, guess, n = self.test_labels, scores.argmax(1), len(scores)
        right = metrics.accuracy(scores, y)
        found: Json = {"accuracy": right, "interval": list(metrics.wilson_interval(right, n))}
        if scores.shape[1] > 5:
            found["top_5"] = metrics.top_k_accuracy(scores, y, k=5)
        found["macro_f1"] = metrics.macro_f1(guess, y)
        found["balanced_accuracy"] = metrics.balanced_accuracy(guess, y)
        found["auroc"] = metrics.auroc(scores, y)
        if probabilities:
            found["calibration_error"] = metrics.expected_calibration_error(scores, y)
        counts = self.train_labels.bincount(minlength=int(y.max()) + 1)
        groups = metrics.many_medium_few(guess, y, counts)._asdict()
        present = {name: value for name, value in groups.items() if value == value}
        return found | ({"by_frequency": present} if len(present) > 1 else {})


def knn(task: ProbeData) -> tuple[Json, Tensor]:
    k = min(20, len(task.train))
    votes = knn_votes(task.train, task.train_labels, task.test, k=k)
    return {**task.summary(votes), "k": k}, votes.argmax(1)


def linear(task: ProbeData) -> tuple[Json, Tensor]:
    score = linear_sgd_probe(task.wide_train, task.train_labels, task.wide_test, task.test_labels, seed=task.seed)
    numbers = {"rate": score.rate, "log_likelihood_by_rate": score.validation}
    return {**task.summary(score.logits.softmax(1)), **numbers}, score.logits.argmax(1)


def exact(task: ProbeData) -> tuple[Json, Tensor]:
    score = linear_probe(task.wide_train, task.train_labels, task.wide_test, task.test_labels, seed=task.seed)
    numbers = {"strength": score.strength, "accuracy_by_strength": score.validation}
    return {**task.summary(score.logits.softmax(1)), **numbers}, score.logits.argmax(1)


def ridge(task: ProbeData) -> tuple[Json, Tensor]:
    score = ridge_probe(task.wide_train, task.train_labels, task.wide_test, task.test_labels, seed=task.seed)
    numbers = {"strength": score.strength, "accuracy_by_strength": score.validation}
    return {**task.summary(score.outputs, probabilities=False), **numbers}, score.outputs.argmax(1)


def mlp(task: ProbeData) -> tuple[Json, Tensor]:
    score = mlp_probe(task.train, task.train_labels, task.test, task.test_labels, seed=task.seed)
    numbers = {"rate": score.rate, "accuracy_by_rate": score.validation}
    return {**task.summary(score.logits.softmax(1)), **numbers}, score.logits.argmax(1)


def few(task: ProbeData) -> tuple[Json, Tensor | None]:
    """Train on ten labels of each class, or as many as the rarest has; five draws."""
    counts = task.train_labels.bincount()
    each = min(10, int(counts[counts > 0].min()))
    parts = task.train, task.train_labels, task.test, task.test_labels
    score = few_label_probe(*parts, per_class=each, seed=task.seed)
    return {"accuracy": score.mean, "std": score.std, "per_class": each, "draws": score.scores}, None


# name -> numbers, and where there is one prediction for each test sample, that
PROBES: dict[str, Callable[[ProbeData], tuple[Json, Tensor | None]]] = {
    "knn": knn,
    "linear": linear,
    "exact": exact,
    "ridge": ridge,
    "mlp": mlp,
    "few": few,
}
DEFAULT = ("knn", "linear")


def score(
    task: ProbeData,
    probes: Sequence[str],
    *,
    test: Images,
    names: Sequence[str] = (),
    own: tuple[nn.Linear, list[str]] | None = None,
    lap: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Json], dict[str, Tensor]]:
    """What the probes read: probe -> numbers, and probe -> the class that each of the images `test` was given.

    own: a trained classifier and its classes.  It is scored first, if it knows the classes `names`.
    lap: called after each probe.
    """
    numbers: dict[str, Json] = {}
    guesses: dict[str, Tensor] = {}
    known = own and own_probabilities(*own, task.test, names)
    if known is not None:
        numbers["classifier"], guesses["classifier"] = task.summary(known), known.argmax(1)
    for name in progress.track(probes, "probes"):
        numbers[name], guess = PROBES[name](task)
        if guess is not None:
            guesses[name] = guess
        lap(name)
    if test.domain is not None and test.domains is not None:
        domain = test.domain.to(task.test_labels.device)
        for name, guess in guesses.items():
            numbers[name]["by_domain"] = by_domain(guess, task.test_labels, domain, test.domains)
    return numbers, guesses


def by_domain(guess: Int64[Tensor, " n"], labels: Int64[Tensor, " n"], domain: Tensor, names: list[str]) -> Json:
    """Accuracy on the samples of each domain that occurs."""
    right = (guess == labels).double()
    return {names[int(d)]: float(right[domain == d].mean()) for d in torch.unique(domain)}
