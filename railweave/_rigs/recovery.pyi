"""Which rails live, agreed among all ranks."""

from collections.abc import Sequence
import enum


class State(enum.Enum):
    UP = 0

    DOWN = 1

    RECOVERING = 2

class ChannelState(enum.Enum):
    UP = 0

    HALTING = 1

    HALTED = 2

    RESTARTING = 3

    PASSED = 4

    FAILED = 5

class ChannelInput(enum.Enum):
    EXCLUDE = 0

    HALT = 1

    HALTED = 2

    RESTART = 3

    PASSED = 4

    FAILED = 5

    ADMIT = 6

class Round(enum.Enum):
    NONE = 0

    PREPARING = 1

    PREPARED = 2

class RoundInput(enum.Enum):
    PREPARE = 0

    PREPARED = 1

    COMMIT = 2

class Phase(enum.Enum):
    UP = 0

    DOWN = 1

    TRYING = 2

    PASSED = 3

class PhaseInput(enum.Enum):
    OUT = 0

    TRY = 1

    PASS = 2

    FAIL = 3

    INTERRUPT = 4

    ADMIT = 5

def next_channel_state(state: ChannelState, input: ChannelInput) -> ChannelState | None:
    """None: not allowed in that state."""

def next_round_state(state: Round, input: RoundInput) -> Round | None:
    """None: not allowed in that state."""

def next_phase(phase: Phase, input: PhaseInput) -> Phase | None:
    """None: not allowed in that phase."""

class Options:
    """Times in nanoseconds."""

    def __init__(self, *, rank: int, world_size: int, rails: int, secret: bytes | None = None, peer_timeout: int = 5000000000) -> None: ...

    @property
    def heartbeat(self) -> int: ...

    @heartbeat.setter
    def heartbeat(self, arg: int, /) -> None: ...

    @property
    def least_silence(self) -> int: ...

    @least_silence.setter
    def least_silence(self, arg: int, /) -> None: ...

    @property
    def most_silence(self) -> int: ...

    @most_silence.setter
    def most_silence(self, arg: int, /) -> None: ...

    @property
    def most_leeway(self) -> int: ...

    @most_leeway.setter
    def most_leeway(self, arg: int, /) -> None: ...

    @property
    def memory(self) -> int: ...

    @memory.setter
    def memory(self, arg: int, /) -> None: ...

    @property
    def settling(self) -> int: ...

    @settling.setter
    def settling(self, arg: int, /) -> None: ...

    @property
    def hold(self) -> int: ...

    @hold.setter
    def hold(self, arg: int, /) -> None: ...

    @property
    def most_hold(self) -> int: ...

    @most_hold.setter
    def most_hold(self, arg: int, /) -> None: ...

    @property
    def health(self) -> int: ...

    @health.setter
    def health(self, arg: int, /) -> None: ...

    @property
    def trial(self) -> int: ...

    @trial.setter
    def trial(self, arg: int, /) -> None: ...

    @property
    def peer_timeout(self) -> int: ...

    @peer_timeout.setter
    def peer_timeout(self, arg: int, /) -> None: ...

class Position:
    def __init__(self, submitted: int, main: Sequence[int], repair: Sequence[int]) -> None: ...

    @property
    def submitted(self) -> int: ...

    @submitted.setter
    def submitted(self, arg: int, /) -> None: ...

    @property
    def main(self) -> list[int]: ...

    @main.setter
    def main(self, arg: Sequence[int], /) -> None: ...

    @property
    def repair(self) -> list[int]: ...

    @repair.setter
    def repair(self, arg: Sequence[int], /) -> None: ...

class Reach:
    def __init__(self) -> None: ...

    @property
    def done(self) -> int: ...

    @done.setter
    def done(self, arg: int, /) -> None: ...

    @property
    def rank(self) -> int: ...

    @rank.setter
    def rank(self, arg: int, /) -> None: ...

    @property
    def least(self) -> int: ...

    @least.setter
    def least(self, arg: int, /) -> None: ...

    def __eq__(self, arg: Reach, /) -> bool: ...

class Prepare:
    @property
    def epoch(self) -> int: ...

    @property
    def attempt(self) -> int: ...

    @property
    def alive(self) -> int: ...

class Commit:
    def __init__(self) -> None: ...

    @property
    def epoch(self) -> int: ...

    @epoch.setter
    def epoch(self, arg: int, /) -> None: ...

    @property
    def alive(self) -> int: ...

    @alive.setter
    def alive(self, arg: int, /) -> None: ...

    @property
    def boundary(self) -> int: ...

    @boundary.setter
    def boundary(self, arg: int, /) -> None: ...

    @property
    def main(self) -> list[Reach]: ...

    @main.setter
    def main(self, arg: Sequence[Reach], /) -> None: ...

    @property
    def repair(self) -> list[Reach]: ...

    @repair.setter
    def repair(self, arg: Sequence[Reach], /) -> None: ...

    def __eq__(self, arg: Commit, /) -> bool: ...

class Restart:
    @property
    def rail(self) -> int: ...

    @property
    def incarnation(self) -> int: ...

    @property
    def bases(self) -> list[int]: ...

class Halt:
    @property
    def rail(self) -> int: ...

    @property
    def incarnation(self) -> int: ...

class PeerLost:
    @property
    def rank(self) -> int: ...

    @property
    def reason(self) -> str: ...

class AllCompleted:
    @property
    def op(self) -> int: ...

class AllSubmitted:
    @property
    def op(self) -> int: ...

class RailChanged:
    @property
    def rail(self) -> int: ...

    @property
    def state(self) -> State: ...

    @property
    def reason(self) -> str: ...

class ChannelStatus:
    def __init__(self) -> None: ...

    @property
    def state(self) -> ChannelState: ...

    @state.setter
    def state(self, arg: ChannelState, /) -> None: ...

    @property
    def incarnation(self) -> int: ...

    @incarnation.setter
    def incarnation(self, arg: int, /) -> None: ...

    @property
    def unfit(self) -> bool: ...

    @unfit.setter
    def unfit(self, arg: bool, /) -> None: ...

    @property
    def broken(self) -> bool: ...

    @broken.setter
    def broken(self, arg: bool, /) -> None: ...

    @property
    def reason(self) -> str: ...

    @reason.setter
    def reason(self, arg: str, /) -> None: ...

    @property
    def next_chunks(self) -> list[int]: ...

    @next_chunks.setter
    def next_chunks(self, arg: Sequence[int], /) -> None: ...

class Prepared:
    def __init__(self, attempt: int, position: Position) -> None: ...

    @property
    def attempt(self) -> int: ...

    @attempt.setter
    def attempt(self, arg: int, /) -> None: ...

    @property
    def position(self) -> Position: ...

    @position.setter
    def position(self, arg: Position, /) -> None: ...

class Status:
    def __init__(self) -> None: ...

    @property
    def epoch(self) -> int: ...

    @epoch.setter
    def epoch(self, arg: int, /) -> None: ...

    @property
    def channels(self) -> list[ChannelStatus]: ...

    @channels.setter
    def channels(self, arg: Sequence[ChannelStatus], /) -> None: ...

    @property
    def prepared(self) -> Prepared | None: ...

    @prepared.setter
    def prepared(self, arg: Prepared | None, /) -> None: ...

class ChannelDecision:
    def __init__(self) -> None: ...

    @property
    def incarnation(self) -> int: ...

    @incarnation.setter
    def incarnation(self, arg: int, /) -> None: ...

    @property
    def active(self) -> bool: ...

    @active.setter
    def active(self, arg: bool, /) -> None: ...

    @property
    def reason(self) -> str: ...

    @reason.setter
    def reason(self, arg: str, /) -> None: ...

    @property
    def bases(self) -> list[int]: ...

    @bases.setter
    def bases(self, arg: Sequence[int], /) -> None: ...

class PrepareRequest:
    def __init__(self, attempt: int, alive: int) -> None: ...

    @property
    def attempt(self) -> int: ...

    @attempt.setter
    def attempt(self, arg: int, /) -> None: ...

    @property
    def alive(self) -> int: ...

    @alive.setter
    def alive(self, arg: int, /) -> None: ...

class Decision:
    def __init__(self) -> None: ...

    @property
    def committed(self) -> Commit: ...

    @committed.setter
    def committed(self, arg: Commit, /) -> None: ...

    @property
    def channels(self) -> list[ChannelDecision]: ...

    @channels.setter
    def channels(self, arg: Sequence[ChannelDecision], /) -> None: ...

    @property
    def prepare(self) -> PrepareRequest | None: ...

    @prepare.setter
    def prepare(self, arg: PrepareRequest | None, /) -> None: ...

class Standing:
    def __init__(self, completed: int, submitted: int, tick: int) -> None: ...

    @property
    def completed(self) -> int: ...

    @completed.setter
    def completed(self, arg: int, /) -> None: ...

    @property
    def submitted(self) -> int: ...

    @submitted.setter
    def submitted(self, arg: int, /) -> None: ...

    @property
    def tick(self) -> int: ...

    @tick.setter
    def tick(self, arg: int, /) -> None: ...

class Heartbeat:
    def __init__(self) -> None: ...

    @property
    def tick(self) -> int: ...

    @tick.setter
    def tick(self, arg: int, /) -> None: ...

    @property
    def first(self) -> int: ...

    @first.setter
    def first(self, arg: int, /) -> None: ...

    @property
    def standings(self) -> list[Standing]: ...

    @standings.setter
    def standings(self, arg: Sequence[Standing], /) -> None: ...

class Stamp:
    def __init__(self) -> None: ...

    @property
    def serial(self) -> int: ...

    @serial.setter
    def serial(self, arg: int, /) -> None: ...

    @property
    def seen(self) -> int: ...

    @seen.setter
    def seen(self, arg: int, /) -> None: ...

    @property
    def answer(self) -> bool: ...

    @answer.setter
    def answer(self, arg: bool, /) -> None: ...

class Stamped:
    def __init__(self) -> None: ...

    @property
    def stamp(self) -> Stamp: ...

    @stamp.setter
    def stamp(self, arg: Stamp, /) -> None: ...

    @property
    def state(self) -> Status | Decision: ...

    @state.setter
    def state(self, arg: Status | Decision, /) -> None: ...

class Goodbye:
    def __init__(self) -> None: ...

    @property
    def rank(self) -> int: ...

    @rank.setter
    def rank(self, arg: int, /) -> None: ...

    @property
    def dead(self) -> bool: ...

    @dead.setter
    def dead(self, arg: bool, /) -> None: ...

    @property
    def reason(self) -> str: ...

    @reason.setter
    def reason(self, arg: str, /) -> None: ...

class Inquiry:
    def __init__(self) -> None: ...

    @property
    def answer(self) -> bool: ...

    @answer.setter
    def answer(self, arg: bool, /) -> None: ...

class Datagram:
    def __init__(self) -> None: ...

    @property
    def sequence(self) -> int: ...

    @sequence.setter
    def sequence(self, arg: int, /) -> None: ...

    @property
    def sender(self) -> int: ...

    @sender.setter
    def sender(self, arg: int, /) -> None: ...

    @property
    def rail(self) -> int: ...

    @rail.setter
    def rail(self, arg: int, /) -> None: ...

    @property
    def body(self) -> Heartbeat | Stamped | Goodbye | Inquiry: ...

    @body.setter
    def body(self, arg: Heartbeat | Stamped | Goodbye | Inquiry, /) -> None: ...

    def __eq__(self, arg: Datagram, /) -> bool: ...

class Refusal(enum.Enum):
    STRANGER = 0

    MALFORMED = 1

    REPLAYED = 2

MAX_DATAGRAM: int = 8192

MAX_REASON: int = 96

def encode(datagram: Datagram, key: bytes, world_size: int, rails: int) -> bytes:
    """Lists must be as long as world size and rails say."""

def decode(bytes: bytes, key: bytes, world_size: int, rails: int) -> Datagram | Refusal:
    """The datagram, or why it is refused."""

class Pulse:
    """The ring predecessor's ticks, rail by rail."""

    def __init__(self, options: Options, now: int) -> None: ...

    def hear(self, rail: int, tick: int, now: int) -> None: ...

    def slept(self, duration: int, now: int) -> None: ...

    def judge(self, now: int) -> bool: ...

    @property
    def silent(self) -> int: ...

    def leeway(self, now: int) -> int: ...

    def patience(self, rail: int, now: int) -> int: ...

    def deadline(self, now: int) -> int | None: ...

class Probation:
    """Rank 0's view of one rail."""

    def __init__(self, options: Options, now: int) -> None: ...

    def apply(self, input: PhaseInput, now: int) -> None: ...

    def judge(self, fit: bool, now: int) -> None: ...

    @property
    def phase(self) -> Phase: ...

    def deadline(self) -> int | None: ...

class Coordinator:
    """Rank 0's part in the agreement."""

    def __init__(self, options: Options, now: int) -> None: ...

    def take(self, rank: int, status: Status, now: int) -> bool: ...

    def expire(self, now: int) -> None: ...

    def deadline(self) -> int | None: ...

    def decision(self) -> Decision: ...

    @property
    def settled(self) -> bool: ...

class Member:
    """A rank's part in the agreement."""

    def __init__(self, options: Options) -> None: ...

    def set_obstacle(self, rail: int, reason: str) -> None: ...

    def suspect(self, rail: int, reason: str) -> None: ...

    def prepared(self, prepare: Prepare, position: Position) -> None: ...

    def halted(self, rail: int, next_chunks: Sequence[int]) -> None: ...

    def restarted(self, rail: int, incarnation: int, passed: bool) -> None: ...

    def follow(self, decision: Decision) -> bool: ...

    def status(self) -> Status: ...

    def poll(self) -> Prepare | Commit | Restart | Halt | PeerLost | AllCompleted | AllSubmitted | RailChanged | None: ...

    @property
    def round(self) -> Round: ...

class Recovery:
    """The recovery machine of one rank."""

    def __init__(self, options: Options, now: int) -> None: ...

    def receive(self, rail: int, rank: int, datagram: bytes, now: int) -> Refusal | None:
        """Why it is refused; None: it is not."""

    def unreachable(self, rail: int, rank: int, quoted: bytes, now: int) -> Refusal | None:
        """Why it is refused; None: it is not."""

    def suspect(self, rail: int, reason: str, now: int) -> None: ...

    def set_obstacle(self, rail: int, reason: str, now: int) -> None: ...

    def completed(self, op: int) -> None: ...

    def submitted(self, op: int) -> None: ...

    def prepared(self, prepare: Prepare, position: Position, now: int) -> None: ...

    def halted(self, rail: int, next_chunks: Sequence[int], now: int) -> None: ...

    def restarted(self, rail: int, incarnation: int, passed: bool, now: int) -> None: ...

    def leave(self, now: int) -> None: ...

    def deadline(self) -> int | None: ...

    def expire(self, now: int) -> None: ...

    def transmit(self, now: int) -> tuple[int, int, bytes] | None:
        """The next datagram to send as (rail, rank, bytes), or None."""

    def poll(self) -> Prepare | Commit | Restart | Halt | PeerLost | AllCompleted | AllSubmitted | RailChanged | None:
        """The next event, or None."""

    @property
    def epoch(self) -> int: ...

    @property
    def alive(self) -> int: ...

    @property
    def ran(self) -> int:
        """How long all ranks have run, as far as is known."""

    def stats(self) -> dict: ...
