"""What commands print has names as they are: [photo] is a domain, not a style of rich's."""

import io

import pytest
from tests.report.test_tables import evaluation

from reglet.cli import eval_table, task_table
from reglet.cli.screen import screen

NAME = "[photo] :apple: [/x]"


def test_names_with_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    eval_table.show(evaluation({NAME: 0.5}))
    config = {"loss": NAME, "model": "m", "seeds": 1, "selection": NAME}
    row = {"domain": NAME, "mean": 0.5, "standard_error": None, "chosen": [{"lr": 1e-3, "checkpoint": 1}]}
    data = {"config": config, "notes": [NAME], "data": {"name": NAME}, "held_out": [row], "average": row}
    task_table.show(data)
    score = {"mean": 0.5, "standard_error": None}
    rows = {NAME: {"without": score, "with": None}}
    given = {"model": NAME, "seeds": 1, "sim_weight": "1", "sim.rho": 0.5}
    task_table.show({"task": NAME, "config": given, "blocks": [NAME], "scores": rows})
    assert capsys.readouterr().out.count(NAME) == 1 + 5 + 4


def test_progress_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from reglet.engine import progress

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = progress._bar(0, 3)
    assert bar is not None
    bar.stop()
    bar.console.file = io.StringIO()
    bar.update(bar.task_ids[0], numbers="loss[photo] 3", speed=1.0)
    with bar.console.capture() as seen:
        bar.console.print(bar.get_renderable())
    assert "loss[photo] 3" in seen.get()
    assert not screen(stderr=True)._markup
