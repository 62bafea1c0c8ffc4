"""What the other commands print fits 80 columns and needs no colour."""

import io
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from reglet.cli import compare_table, eval_table, main, robust_table
from reglet.compare import Comparison
from reglet.cost import Cost, Ratio
from reglet.diagnostics.robustness import CORRUPTIONS, Robustness
from reglet.evaluate import Evaluation
from reglet.evaluate.robust import Robust
from reglet.runs import Paired

LONG = "a-data-set-with-quite-a-long-name/train/tail-100/0.1"


def narrow() -> Console:
    """As a pipe is: 80 columns, no colour."""
    return Console(file=io.StringIO(), width=80, color_system=None, highlight=False)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "…" not in text  # nothing is cut off
    return text


def evaluation(domains: dict[str, float] | None = None) -> Evaluation:
    row = {
        "accuracy": 1.0,
        "interval": [0.9925, 1.0],
        "top_5": 1.0,
        "macro_f1": 1.0,
        "balanced_accuracy": 1.0,
        "auroc": 1.0,
        "calibration_error": 0.1234,
    }
    by = {"by_domain": domains} if domains else {}
    probes = {
        "knn": {**row, "k": 20, **by},
        "linear": {**row, "rate": 0.0005, **by},
        "exact": {**row, "strength": 0.0001, **by},
        "ridge": {**row, "strength": 10000.0, **by},
        "mlp": {**row, "rate": 0.001, **by},
        "few": {"accuracy": 0.5, "std": 0.01, "per_class": 10},
    }
    numbers = {
        "samples": 5000,
        "features": 2048,
        "rankme": 1234.5,
        "components_90": 1000,
        "alpha_req": None,
        "mean_std": 1e-5,
        "constant_features": 12,
        "class_alignment": 1.234,
        "uniformity": -3.9,
    }
    part = {"name": LONG, "images": 1_281_167, "fingerprint": "x"}
    seconds = dict.fromkeys(("features", *probes, "representation"), 1234.5)
    about = {"train": part, "test": part, "classes": 1000, "chance": ("cat", 0.001)}
    return Evaluation(about, probes, numbers, seconds)


def test_eval_at_its_widest() -> None:
    console = narrow()
    eval_table.show(evaluation({"a domain with a long name, as photographs have": 0.5, "b": 0.25}), console)
    text = said(console)
    for value in ("99.2..100.0", "lr 0.0005", "L2 10000", "10 of each", "1234.5 of 2048", "12.3"):
        assert value in text
    assert text.count("100.0") >= 15


def test_compare_at_its_widest() -> None:
    pair = Paired(0.5, 1.0, 0.5, -math.inf, math.inf, 1.0, 1, None, "cannot be told")
    other = Paired(0.1234, 0.2345, 0.1111, -0.0123, 0.2345, 0.0625, 5, 12, "cannot be told")
    cost = Cost(256, 12.3456, 304_000_000, 94_000 * 10**9, 79 * 10**9)
    ratio = Ratio(1.2345, 1.1, 1.4, 1.0, 1.0, 1.5)
    scores = {"accuracy": pair, "linear": other, "knn": other, "corrupted": other, "rank": other}
    sentence = "It cannot be told at 5 seeds: linear probe +11.11 points (-1.23 to +23.45) over 5 seeds; 12 would."
    console = narrow()
    compare_table.show(Comparison(scores, (cost, cost), ratio, "linear", sentence), console)
    text = said(console)
    for value in ("accuracy, corrupted", "-1.23 .. +23.45", "p 0.062", "12345.6", "94000.00", "1.234 (1.10 .. 1.40)"):
        assert value in text


def test_robust() -> None:
    found = Robust(
        1000,
        Robustness(1.0, (1, 2, 3, 4, 5), dict.fromkeys(CORRUPTIONS, (1.0,) * 5)),
        None,
        torch.ones(1000).bool(),
        torch.ones(1000),
    )
    console = narrow()
    robust_table.show(found, console)
    assert "jpeg compression" in said(console)


def test_doctor(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main(["doctor", str(run), "images=20"])  # too few to tell, so that there is much to say
    shown = capsys.readouterr().out
    body = shown.splitlines()[1:-1]  # the first and the last line have the run's path, which may be of any length
    assert max(map(len, body)) <= 80
    assert "\x1b" not in shown
    assert "evidence" in shown
