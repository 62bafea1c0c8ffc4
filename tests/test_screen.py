"""What commands print has names as they are: [photo] is a domain, not a style of rich's."""

import pytest
from tests.report.test_tables import evaluation

from reglet.cli import eval_table, task_table

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
