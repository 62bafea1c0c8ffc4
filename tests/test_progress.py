"""Work that takes long is seen: bars on a terminal, lines in a log, nothing from a library call."""

import io
import re
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from reglet import progress
from reglet.engine.progress import Progress


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second and half a minute, in a test's time."""
    monkeypatch.setattr(progress, "SLOW", 0.1)
    monkeypatch.setattr(progress, "QUIET", 0.6)


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    seen, until = "", time.perf_counter() + 10
    while not re.search(text, seen) and time.perf_counter() < until:
        time.sleep(0.05)
        seen += capsys.readouterr().err
    assert re.search(text, seen), seen
    return seen


def test_a_log_names_what_is_slow_and_is_never_silent(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown(), progress.work("quick"):
        pass
    assert capsys.readouterr().err == ""
    with progress.shown(), progress.work("runs", total=4) as runs:
        runs.advance()
        with progress.work("t-SNE") as work:
            wait_for(r"^runs 1/4, \d+ s left: t-SNE\n", capsys)
            work.note("round 2")
            wait_for(
                r"runs 1/4, \d+ s left: t-SNE  round 2, \d+ s\n", capsys
            )  # after the silence, though nothing advanced
        progress.line("one run is there")
        assert capsys.readouterr().err.endswith("one run is there\n")


def test_a_log_says_early_how_long_many_pieces_take(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown(), progress.work("runs", total=12), progress.work("training", total=300) as training:
        time.sleep(0.3)
        training.advance(2)
        time.sleep(0.6)
        assert capsys.readouterr().err == ""  # too early: the first steps are slow
        training.advance(1)
        wait_for(r"runs 0/12, \d+ min \d+ s left: training 3/300, \d+ min \d+ s left\n", capsys)


def test_what_is_left_counts_the_piece_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "perf_counter", lambda: 0.0)
    runs, training = progress.Work("runs", 4), progress.Work("training", 10)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: 30.0)
    assert runs.left(training) == ""
    training.advance(5)
    assert runs.left(training) == ", 3 min 30 s left"  # 30 s for an eighth
    assert runs.left(progress.Work("scores", 10)) == ", 3 min 30 s left"  # its next piece does not undo that
    runs.advance(1)
    assert runs.left() == ", 1 min 30 s left"
    monkeypatch.setattr(progress.time, "perf_counter", lambda: 40.0)
    assert runs.left() == ", 1 min 20 s left"
    monkeypatch.setattr(progress.time, "perf_counter", lambda: 99.0)
    assert runs.left() == ", 1 min 0 s left"  # the second takes longer than the first; those after it do not start late


def test_a_library_call_is_silent(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.work("work"):
        progress.line("a line")
        time.sleep(0.3)
    with progress.shown(False), progress.work("work"):
        time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_only_the_first_rank_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with progress.shown():
        progress.line("a line")
    assert capsys.readouterr().err == ""


def test_what_fails_is_not_left_on_the_screen(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError

    with progress.shown():
        with pytest.raises(ValueError):
            list(progress.track(items(), "reading"))
        time.sleep(0.4)
    assert not re.search("^reading", capsys.readouterr().err, re.MULTILINE)
    with progress.shown():
        assert list(progress.track([1, 2], "reading")) == [1, 2]


def test_bars_on_a_terminal(soon: None) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    screen = progress.Bars(console)
    work, inner = progress.Work("training", 10), progress.Work("[photo]")
    screen.begin(work)
    screen.begin(inner)
    work.advance(3)
    work.note("loss[photo] 3")
    time.sleep(0.6)  # it is drawn four times a second
    screen.line("above [photo]")
    screen.end(inner)
    screen.end(work)
    drawn = console.file.getvalue()
    for text in ("training 3/10", "loss[photo] 3", "\n[photo] ", "above [photo]", "left"):
        assert text in drawn
    assert drawn.endswith("\x1b[2K")  # nothing of the bars stays
    assert screen.live is None


def test_a_log_names_short_pieces_when_nothing_was_said_yet(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown():
        for _ in range(100):  # each shorter than what is shown by itself
            with progress.work("starting eval"):
                time.sleep(0.01)
        assert re.match(r"starting eval\n", capsys.readouterr().err)


def test_a_log_speaks_between_two_pieces(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown():
        time.sleep(0.3)
        assert capsys.readouterr().err == ""  # nothing has begun
        with progress.work("features"):
            pass
        wait_for(r"^after features: still at work\n", capsys)
        wait_for(r"after features: still at work\n", capsys)  # and again after the longer silence


def test_bars_name_a_short_piece_when_there_was_nothing_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    screen, slow = progress.Bars(None), progress.Work("slow")
    assert screen.worth_showing([slow]) == [False]
    now = 1.1
    quick = progress.Work("quick")
    assert screen.worth_showing([quick]) == [True]
    assert screen.worth_showing([slow, quick]) == [True, False]
    assert screen.worth_showing([quick]) == [False]  # the slow one was seen just now
    now = 2.2
    assert screen.worth_showing([progress.Work("next")]) == [True]
    assert screen.worth_showing([]) == []


def test_training_tells_the_time_that_its_steps_take(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    training = Progress(start=2, steps=10, per_epoch=10, batch=1, shown=False)
    now = 20.0
    training.tick(4)
    assert str(training.work) == "training 4/10"
    assert training.work.left() == ", 1 min 0 s left"
    training.close()
