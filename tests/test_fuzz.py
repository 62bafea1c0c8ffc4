"""Random calls keep the law of tests/fuzz.py.

In a process of its own: here jaxtyping would refuse wrong shapes before reglet sees them, and a user has no jaxtyping.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests import fuzz

import reglet

CALLS = 3000


def test_every_public_name_has_a_row_or_a_reason() -> None:
    names, exempt = set(fuzz.public()), {name for names in fuzz.EXEMPT.values() for name in names.split()}
    assert names - set(fuzz.ROWS) - exempt == set(), "add a row to tests/fuzz.py"
    assert set(fuzz.ROWS) | exempt == names, "rows of what is not public"
    assert not set(fuzz.ROWS) & exempt


def test_finite_in_finite_out_or_an_error_that_says_what_was_expected() -> None:
    """About 15 s.  To see one failure again: python -m tests.fuzz --only ROW --seed SEED."""
    paths = [str(Path(reglet.__file__).parents[1]), str(Path(__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--calls", str(CALLS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_the_law_sees_what_breaks_it() -> None:
    """Of each kind of failure one, made here."""
    import torch

    broken = {
        "value not finite": lambda draw: draw.tensor("n d", scale=1).sum() / 0,
        "gradient not finite": lambda draw: (0 * draw.tensor("n d", scale=0)).sum().sqrt(),
        "RuntimeError": lambda draw: torch.zeros(2) @ torch.zeros(3),
        "ValueError from the depths": lambda draw: float("a"),
        "refused though all is usual": lambda draw: reglet.check.positive(alpha=-1),
        "=nan accepted": lambda draw: setattr(draw, "nan", "eps"),
    }
    for what, call in broken.items():
        fuzz.ROWS["broken"] = call
        try:
            found = [fuzz.attempt("broken", seed) for seed in range(8)]
        finally:
            del fuzz.ROWS["broken"]
        assert any(isinstance(each, fuzz.Failure) and what in each.what for each in found), what
