"""Shows work that takes more than a second: as a bar on a terminal and in a notebook, as lines in a log.

    with progress.shown():                                  # the command does this; a call from Python is silent
        for batch in progress.track(batches, "features"):   # a list, or give total=
            ...
        with progress.work("t-SNE") as work:                # one piece, or with work.advance() and work.note("text")
            ...
        progress.line("a sentence, above the bar")

Everything goes to stderr.  In a log, a thread prints the name of a piece of work after a second, and again after every
25 s without a line.  Of many pieces it soon says how long all of them will take.  Short pieces are shown too, if there
was nothing to see for a second.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")
SLOW, QUIET = 1.0, 25.0  # seconds until work is shown, and between the lines of a log
STEADY = 3  # parts of the first piece of many after which a log says how long all of them take


class Work:
    """A piece of work: how much of it is done, and a note."""

    def __init__(self, name: str, total: int | None = None, *, done: int = 0) -> None:
        self.name, self.total, self.done, self.text = name, total, done, ""
        self.first, self.since = done, time.perf_counter()
        self.advanced, self.part = self.since, 0.0  # when it last advanced, and how far the next part is

    def advance(self, count: int = 1) -> None:
        self.done += count
        self.advanced, self.part = time.perf_counter(), 0.0

    def note(self, text: str) -> None:
        """Sets the text behind the bar."""
        self.text = text

    def __str__(self) -> str:
        """
        >>> str(Work("features", 800)), str(Work("t-SNE"))
        ('features 0/800', 't-SNE')
        """
        count = f" {self.done}" if self.done else ""
        return self.name + (count if self.total is None else f" {self.done}/{self.total}")

    def left(self, inside: "Work | None" = None) -> str:
        """The time that is left, if it is known.

        Parts that are done tell how long the others take.  Before the first is done, what is done of its own pieces
        tells it.

        inside: the piece of this work that is under way.
        """
        if inside is not None and inside.total:
            self.part = max(self.part, inside.done / inside.total)  # a second piece does not undo the first
        now = time.perf_counter()
        if self.total is None or self.done + self.part <= self.first:
            return ""
        if self.done > self.first:
            each = (self.advanced - self.since) / (self.done - self.first)
            begun = min(now - self.advanced, each)
        else:
            begun = now - self.since
            each = begun / self.part
        return f", {duration(each * (self.total - self.done) - begun)} left"


def duration(seconds: float) -> str:
    """
    >>> duration(4.2), duration(200.0), duration(7300.0), duration(2e5)
    ('4 s', '3 min 20 s', '2 h 1 min', '55 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole < 36_000 else "")


class Screen:
    """Shows nothing: for library calls, and for all ranks except the first."""

    bars = False  # whether a changed note is seen at once

    def __init__(self) -> None:
        self.stack: list[Work] = []  # the innermost last

    def begin(self, work: Work) -> None:
        self.stack.append(work)

    def end(self, work: Work) -> None:
        self.stack.remove(work)

    def line(self, text: str) -> None: ...

    def close(self) -> None: ...


class Lines(Screen):
    """For a log file, a pipe, or a terminal without rich."""

    def __init__(self) -> None:
        super().__init__()
        self.said, self.named = time.perf_counter(), set[int]()
        self.patience = SLOW  # how long it is silent: short before the first line
        self.latest: Work | None = None  # the last that began; it may be done
        self.foreseen = 0  # the work of which the time that it takes was said
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def line(self, text: str) -> None:
        self.said, self.patience = time.perf_counter(), QUIET
        print(text, file=sys.stderr, flush=True)

    def begin(self, work: Work) -> None:
        super().begin(work)
        self.latest = work

    def _watch(self) -> None:
        while not self.closed.wait(0.25):
            if stack := list(self.stack):
                self._look(stack)
            elif self.latest is not None and time.perf_counter() - self.said > self.patience:
                self.line(f"after {self.latest.name}: still at work")

    def _look(self, stack: list[Work]) -> None:
        now, work = time.perf_counter(), stack[-1]
        unknown = id(work) not in self.named and now - work.since > SLOW
        whole = stack[0]
        foreseen = len(stack) > 1 and bool(whole.left(stack[1])) and stack[1].done >= STEADY
        if unknown or now - self.said > self.patience or (foreseen and self.foreseen != id(whole)):
            self.named.update(map(id, stack))
            if foreseen:
                self.foreseen = id(whole)
            around = [f"{outer}{outer.left(inner)}: " for outer, inner in pairwise(stack)]
            after = f", {duration(now - work.since)}" if now - work.since > QUIET else ""
            self.line("".join(around) + str(work) + (f"  {work.text}" if work.text else "") + after + work.left())

    def end(self, work: Work) -> None:
        super().end(work)
        self.named.discard(id(work))

    def close(self) -> None:
        self.closed.set()
        self.thread.join()


class Bars(Screen):
    """For a terminal or a notebook, by rich.  Each piece of work has a bar until it is done."""

    bars = True

    def __init__(self, console: Any) -> None:
        super().__init__()
        self.console = console
        self.live: Any = None
        self.seen = time.perf_counter()  # when there was last something to see

    def begin(self, work: Work) -> None:
        super().begin(work)
        if self.live is None:
            self.live = _live(self)
            self.live.start()

    def end(self, work: Work) -> None:
        super().end(work)
        if not self.stack:
            self.close()

    def line(self, text: str) -> None:
        self.seen = time.perf_counter()
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def worth_showing(self, works: list[Work]) -> list[bool]:
        """Which of the works, the innermost last: those that take more than a second.  If there are none and nothing
        was to be seen for a second, the innermost."""
        now = time.perf_counter()
        slow = [now - work.since >= SLOW for work in works]
        if any(slow):
            self.seen = now
        elif works and now - self.seen > SLOW:
            slow[-1] = True
        return slow


def _live(screen: Bars) -> Any:
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    spinner = Spinner("dots")

    def draw() -> Table:
        table = Table.grid(padding=(0, 1))
        works = list(screen.stack)
        for i, worth in enumerate(screen.worth_showing(works)):
            if not worth:
                continue
            work = works[i]
            passed = time.perf_counter() - work.since
            bar = spinner if work.total is None else ProgressBar(total=work.total, completed=work.done, width=20)
            inside = works[i + 1] if i + 1 < len(works) else None
            words = duration(passed) + work.left(inside) + ("  " if work.text else "") + work.text
            table.add_row(Text(str(work)), bar, Text(words, overflow="ellipsis", no_wrap=True))
        return table

    # Text printed to a file still goes there; text printed to the terminal appears above the bar.
    catch: dict[str, Any] = {"redirect_stdout": sys.stdout.isatty(), "redirect_stderr": sys.stderr.isatty()}
    return Live(get_renderable=draw, console=screen.console, transient=True, refresh_per_second=4, **catch)


_screen = Screen()


@contextmanager
def shown(on: bool = True) -> Iterator[None]:
    """Inside, work is shown on the first rank.  Inside another `shown` it does nothing."""
    global _screen
    rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
    if not on or type(_screen) is not Screen or rank != "0":
        yield
        return
    outside, _screen = _screen, _open()
    try:
        yield
    finally:
        _screen.close()
        _screen = outside


def _open() -> Screen:
    try:
        from rich.console import Console
    except ImportError:
        return Lines()
    console = Console(stderr=True)
    if console.is_jupyter:
        from importlib.util import find_spec

        return Bars(console) if find_spec("ipywidgets") else Lines()
    return Bars(console) if console.is_terminal and not console.is_dumb_terminal else Lines()


@contextmanager
def work(name: str, *, total: int | None = None, done: int = 0) -> Iterator[Work]:
    """A piece of work with `total` parts."""
    screen, piece = _screen, Work(name, total, done=done)
    screen.begin(piece)
    try:
        yield piece
    finally:
        screen.end(piece)


def track(items: Iterable[T], name: str, *, total: int | None = None) -> Iterator[T]:
    """The items, one after another.  Each counts as done when the next is asked for."""
    count = len(items) if total is None and isinstance(items, Sized) else total
    with work(name, total=count) as piece:
        for item in items:
            yield item
            piece.advance()


def line(text: str) -> None:
    _screen.line(text)


def in_bars() -> bool:
    """Whether a bar shows notes, so that lines need not repeat them."""
    return _screen.bars
