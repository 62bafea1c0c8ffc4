"""SIGTERM and Ctrl-C ask a run to save and stop after its step.  A second signal ends it at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupt:
    """True once a signal has come.  Always False outside the main thread, where Python delivers no signals.

    An ignored signal stays ignored: workers of `reglet.runs` leave Ctrl-C to their parent.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self.before = {number: signal.signal(number, self._receive) for number in heard}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}
