"""The event loop that threads share, for tests"""

from collections.abc import Callable, Sequence
import enum


class Outcome(enum.Enum):
    DONE = 0

    TIMEOUT = 1

    INTERRUPTED = 2

class Counter:
    """A number that threads wait for on a shared loop"""

    def __init__(self, on_failure: Callable[[], None]) -> None:
        """`on_failure` is called when a turn has thrown"""

    def run(self, task: Callable[[], None]) -> None:
        """Run on the loop"""

    def wait(self, until: int, timeout_s: float) -> Outcome: ...

    def wait_leading(self, until: int, timeout_s: float) -> Outcome: ...

    def lead_on(self, cpus: Sequence[int]) -> None:
        """ValueError for CPUs that there are not"""

    def prompt(self) -> None: ...

    def close(self, task: Callable[[], None]) -> None:
        """Run on the loop, at last"""

    def turn_until(self, until: int, timeout_s: float) -> None:
        """From inside of a task"""

    def set(self, value: int) -> None: ...

    def set_next(self, value: int) -> None:
        """Set by what comes before the next turn"""

    def fail_next(self, what: str) -> None:
        """Let what comes before the next turn throw"""

    def watch_broken(self, fd: int) -> None:
        """Let its handler throw"""

    def set_alarm(self, after_s: float, task: Callable[[], None]) -> None:
        """Run on the loop then, not before"""

    def add_broken_timer(self) -> None:
        """One that is due at once and throws"""

    def turns(self) -> int:
        """How many have begun"""

    def failures(self) -> list[str]:
        """What turns have thrown"""
