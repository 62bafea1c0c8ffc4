"""One word for one thing in every signature: `weight`, `temperature`, `eps`; `lam` where two sides are balanced."""

import inspect
import sys
from importlib import import_module

import pytest

ROOMS = ("losses", "blocks", "latent", "tails", "methods", "methods.domains", "groups", "views", "attach")
OTHER_WORDS = {
    "weight": {"lambda_", "lambd", "lmbda", "coeff", "coef", "coefficient", "scale_loss", "loss_weight"},
    "temperature": {"temp", "t", "tau"},
    "eps": {"epsilon", "delta"},
    "fraction": {"share", "percent"},
    "seed": {"random_state", "manual_seed"},
    "gather": {"gather_distributed", "sync"},
    "slices": {"num_slices", "n_slices", "projections"},
}
# Menon et al.'s tau multiplies the log-prior; nothing is divided by it.
PAPERS_OWN = {("LogitAdjustment", "tau")}


def signatures() -> list[tuple[str, object, inspect.Signature]]:
    found = []
    for room in ROOMS:
        module = import_module(f"reglet.{room}")
        for name in vars(module):
            one = getattr(module, name)
            if not name.startswith("_") and callable(one) and str(getattr(one, "__module__", "")).startswith("reglet"):
                found.append((name, one, inspect.signature(one)))
    assert len(found) > 80
    return found


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_one_word_for_one_thing(word: str) -> None:
    wrong = {
        f"{name}({p}=) is {word}= elsewhere"
        for name, _, signature in signatures()
        for p in signature.parameters
        if p in OTHER_WORDS[word] and (name, p) not in PAPERS_OWN
    }
    assert not wrong


def test_lam_balances_two_sides() -> None:
    """lam * one + (1 - lam) * other: the equation stands in the docstring of the class or of its file."""
    for name, one, signature in signatures():
        p = signature.parameters.get("lam")
        if p is not None and p.kind is p.KEYWORD_ONLY:
            about = f"{inspect.getdoc(one)} {sys.modules[one.__module__].__doc__}"
            assert "1 - lam" in about, f"{name} takes lam= and does not balance two sides by it: weight="
