"""`reglet report` on the command line."""

import json
import shutil
from pathlib import Path

import pytest

from reglet.cli import main


def test_a_page_beside_the_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "a"
    shutil.copytree(run, own)
    capsys.readouterr()
    assert main(["report", str(own), "robust=0"]) == 0
    said = capsys.readouterr()
    assert (own / "report.html").resolve().as_uri() in said.out
    text = (own / "report.html").read_text()
    assert 1.9e6 < len(text) < 6e6
    assert "it was not asked for" in text


def test_a_comparison_stands_for_its_arms(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arm in ("base", "candidate"):
        shutil.copytree(run, tmp_path / arm / "seed-0")
    pair = {"base": 0.5, "candidate": 0.6, "difference": 0.1, "low": 0.05, "high": 0.15, "p": 0.01, "seeds": 5}
    cost = {"images": 16, "seconds": 0.012, "parameters": 12_345, "flops": 2 * 10**9, "memory": 10**7}
    ratio = {"time": 1.25, "time_low": 1.1, "time_high": 1.4, "parameters": 1.0, "flops": 1.0, "memory": 1.5}
    stored = {
        "scores": {"linear": pair | {"seeds_needed": 4, "verdict": "helps"}},
        "costs": [cost, cost],
        "ratio": ratio,
        "sentence": "It helps: <b>this much</b>.",
    }
    (tmp_path / "compare.json").write_text(json.dumps(stored))
    assert main(["report", str(tmp_path), "robust=0"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "It helps: &lt;b&gt;this much&lt;/b&gt;." in text
    assert "reglet report: base, candidate" in text
    assert "12,345" in text
    assert "+5.00 to +15.00" in text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "reglet report needs one directory or more"),
        (["nowhere"], "there is no directory nowhere"),
        (["."], "is no directory of a run"),
        ([".", "."], "each run once"),
        (["nowhere", "points=2"], "points is a whole number, at least 4; got '2'"),
        (["nowhere", "output=x"], "unknown key 'output'. Did you mean out=?"),
    ],
)
def test_mistakes(
    given: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *given]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    assert "reglet report runs/a runs/b" in capsys.readouterr().out
