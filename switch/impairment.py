# SPDX-License-Identifier: Apache-2.0
"""Link impairments as values, and their text form in options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal, cast

from railweave import quantities
from railweave.switch.errors import SwitchError

Direction = Literal["in", "out"]
DIRECTIONS: tuple[Direction, ...] = ("in", "out")
CORRECT = "correct --impair"
_PROBABILITIES = ("loss", "duplicate", "reorder", "corrupt")
_TARGET = re.compile(r"(\d+|\*)(?:/(in|out|both))?")


@dataclass(frozen=True)
class Impairment:
    """The impairment of one port's packets in one direction.

    Probabilities are from 0 to 1. The fate of packet number n depends only on seed, port, direction and n, so
    that a run can be repeated.
    """

    loss: float = 0.0
    duplicate: float = 0.0  # a second copy behind the first
    reorder: float = 0.0  # one to three later packets overtake it, or 10 ms pass
    corrupt: float = 0.0  # one bit is flipped
    delay_ns: int = 0
    rate_bps: int = 0  # bits from the Ethernet header on; 0 is unlimited
    seed: int = 0
    queue_bytes: int = 4 << 20  # queue length; packets beyond it are dropped, and counted

    def __post_init__(self) -> None:
        """Refuse values out of range, by name."""
        for name in _PROBABILITIES:
            if not 0 <= getattr(self, name) <= 1:
                raise SwitchError(f"{name}={getattr(self, name)}", "a probability from 0 to 1", CORRECT)
        for name, largest in (("delay_ns", 10**10), ("rate_bps", 10**13), ("seed", 2**64 - 1)):
            if not 0 <= getattr(self, name) <= largest:
                raise SwitchError(f"{name}={getattr(self, name)}", f"0 to {largest}", CORRECT)
        if not 1 <= self.queue_bytes <= 1 << 30:
            raise SwitchError(f"queue={self.queue_bytes}", "1 byte to 1 GiB", CORRECT)

    @classmethod
    def parse(cls, text: str) -> Impairment:
        """Parse `loss=0.01,delay=2ms,rate=100M,seed=7` and so on; SwitchError names the wrong part.

        >>> Impairment.parse("loss=0.5,delay=1.5ms,rate=10M")
        Impairment(loss=0.5, duplicate=0.0, reorder=0.0, corrupt=0.0, delay_ns=1500000, rate_bps=10000000, \
seed=0, queue_bytes=4194304)
        """
        values: dict[str, float | int] = {}
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            field, read, expected = _FIELDS.get(name, ("", float, ""))
            if not equals or not field:
                raise SwitchError(f"{part!r}", f"NAME=VALUE of {', '.join(_FIELDS)}", CORRECT)
            if field in values:
                raise SwitchError(f"{name} twice in {text!r}", "each name once", "remove one")
            values[field] = _number(part, value, read, expected)
        return cls(**values)  # type: ignore[arg-type]

    def of(self, port: int, direction: Direction) -> Impairment:
        """Return a copy whose seed is specific to one port and direction."""
        place = 2 * port + DIRECTIONS.index(direction)
        return replace(self, seed=(self.seed + 0x9E3779B97F4A7C15 * (place + 1)) % 2**64)

    def as_dict(self) -> dict[str, float | int]:
        """Return the fields by name, as the native module takes them."""
        return asdict(self)


@dataclass(frozen=True)
class ImpairmentCounts:
    """Packet counts since the impairment was set."""

    packets: int
    lost: int
    duplicated: int
    reordered: int
    corrupted: int
    overflowed: int  # the queue was full


def _time_ns(text: str) -> int | None:
    seconds = quantities.time_s(text)
    return None if seconds is None else round(1e9 * seconds)


# Field, parser and expected value by key.
_FIELDS: dict[str, tuple[str, Callable[[str], float | int | None], str]] = {
    **{name: (name, quantities.number, "a probability from 0 to 1") for name in _PROBABILITIES},
    "delay": ("delay_ns", _time_ns, f"a number and one of {', '.join(quantities.TIMES)}"),
    "rate": ("rate_bps", quantities.rate_bps, "bit/s, such as 100M"),
    "seed": ("seed", quantities.whole, "a whole number"),
    "queue": ("queue_bytes", quantities.size_bytes, "bytes, such as 64K"),
}
assert {field for field, *_ in _FIELDS.values()} == {field.name for field in fields(Impairment)}  # noqa: S101


def _number(part: str, text: str, read: Callable[[str], float | int | None], expected: str) -> float | int:
    value = read(text)
    if value is None:
        raise SwitchError(f"{part!r}", expected, CORRECT)
    return value


def parse_impairments(texts: Iterable[str], ports: Iterable[int]) -> dict[tuple[int, Direction], Impairment]:
    """Parse `PORT[/in|/out|/both]:SETTINGS` into impairments by port and direction; `*` is every port.

    Without a direction, packets that leave the switch are impaired. SwitchError for anything else.
    """
    known = list(ports)
    impairments: dict[tuple[int, Direction], Impairment] = {}
    for text in texts:
        target, colon, settings = text.partition(":")
        found = _TARGET.fullmatch(target)
        if not colon or found is None:
            raise SwitchError(
                f"{text!r}", "PORT[/in|/out|/both]:loss=…,delay=…, such as 1/in:loss=0.01", CORRECT
            )
        if found[1] != "*" and int(found[1]) not in known:
            raise SwitchError(
                f"{text!r}: port {found[1]}", f"one of {', '.join(map(str, known))}", "correct the port"
            )
        impairment = Impairment.parse(settings)
        side = found[2] or "out"
        for port in known if found[1] == "*" else [int(found[1])]:
            for direction in DIRECTIONS if side == "both" else [cast(Direction, side)]:
                if (port, direction) in impairments:
                    raise SwitchError(
                        f"{text!r} for port {port}, direction {direction}",
                        "one impairment per port and direction",
                        "remove one",
                    )
                impairments[port, direction] = impairment
    return impairments
