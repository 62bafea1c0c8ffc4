"""Before torch is loaded: what `reglet --help` and `import reglet` cost, and that nothing is lost by waiting."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import reglet
from reglet.cli import main

HEAVY = ("torch", "numpy", "jaxtyping", "lightning_fabric", "rich", "sklearn", "PIL", "matplotlib", "plotly")
COUNT = """
import sys
from reglet.cli import main
code = main(sys.argv[1:])
loaded = {name.partition(".")[0] for name in sys.modules}
print(code, len(sys.modules), *sorted(loaded & set(%r)))
"""


@pytest.mark.parametrize("words", [["--help"], ["--version"], [], ["pretrian"]])
def test_the_first_words_need_no_torch(words: list[str]) -> None:
    given = [sys.executable, "-c", COUNT % (HEAVY,), *words]
    said = subprocess.run(given, capture_output=True, text=True, check=True).stdout
    code, modules, *heavy = said.splitlines()[-1].split()
    assert code in "02"
    assert heavy == []
    assert int(modules) < 250  # torch alone has over a thousand


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"reglet {reglet.__version__}\n"
    assert reglet.__version__[0].isdigit()


def test_what_checkers_see_is_what_is_there() -> None:
    """The imports for mypy and editors, under TYPE_CHECKING, are the table that is used when a name is asked for."""
    tree = ast.parse(Path(reglet.__file__).read_text())
    lines = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    static = {a.asname: node.module for node in lines if str(node.module).startswith("reglet.") for a in node.names}
    assert static == reglet._HOME
    assert sorted(static) == reglet.__all__
    assert set(static) <= set(dir(reglet))
    for name, room in static.items():
        assert getattr(reglet, name) is getattr(sys.modules[room], name)


def test_a_function_keeps_its_name_when_the_room_of_that_name_is_imported() -> None:
    code = """
import reglet.attach.select, reglet
assert callable(reglet.attach) and reglet.attach.__module__ == "reglet.attach.attachment"
assert reglet.losses.VISRegLoss is reglet.VISRegLoss
try:
    reglet.nothing
except AttributeError as error:
    assert "no attribute 'nothing'" in str(error)
else:
    raise SystemExit("reglet.nothing is there")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
