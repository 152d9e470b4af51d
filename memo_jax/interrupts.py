"""SIGTERM and Ctrl-C as a request that the training loop can answer by saving first."""

import signal


class Interrupts:
    """While active, a first SIGTERM or SIGINT only sets `requested`; a second one acts at once."""

    def __init__(self):
        self.requested: signal.Signals | None = None
        self._before = {}

    def __enter__(self) -> "Interrupts":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_) -> None:
        self._restore()

    def _note(self, number: int, _) -> None:
        self.requested = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Interrupted(Exception):
    """The run was asked to stop and everything is saved; carries the line to print."""

    def __init__(self, message: str, number: signal.Signals):
        super().__init__(message)
        self.exit_code = 128 + int(number)
