# SPDX-License-Identifier: Apache-2.0
"""Programs as machine code: the engine translates them to C++, which is compiled once and kept.

The name of a library is a hash of its sources (program and engine), the compiler, its flags and the
processor. Without a compiler, or with RAILWEAVE_COMPILE=0, programs are interpreted.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from railweave._native.engine import Engine
from railweave.errors import UserError
from railweave.switch.pipeline import Pipeline

_HOME = Path(__file__).resolve().parent.parent  # of a checkout, or of an installed package
_SOURCES = _HOME / "native"
_AHEAD = _HOME / "build" / "programs"  # libraries compiled ahead, as trusted as this code
_FOLDERS = ("engine", "core")
_FLAGS = [
    "-std=c++20",
    "-O3",
    # A branch behind a thousand others is as hot as any, but gcc would take it for cold. It neither inlines
    # nor vectorises cold code.
    "--param=hot-bb-frequency-fraction=1000000",
    # Words in packets are not aligned: every load of 64 bytes would touch two cache lines.
    *(["-mprefer-vector-width=256"] if platform.machine() == "x86_64" else []),
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-semantic-interposition",
    "-w",
    "-pipe",
    "-xc++",
]

_MOST_SOURCE = 8 << 20  # bytes of C++: some 50 times the aggregation program's
_MOST_S = 300.0  # that one compilation may take
_ENDING_S = 2.0  # for a compilation to end with the process
_MOST_KIB = 2 << 20  # of memory for it: five times what the aggregation program needs
_MOST_CACHE = 256 << 20  # bytes of libraries; the least recently used are removed


class NotCompiled(UserError):
    """The program stays interpreted; the message says why."""


def compiled(
    engine: Engine,
    on_start: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
    folder: Path | None = None,
) -> None:
    """Compile the engine's program and run it compiled from now on; NotCompiled if that is impossible.

    This takes seconds the first time. `on_start` gets the compiler's process, which leads a process group.
    New libraries go to `folder`, or to the user's cache.
    """
    if os.environ.get("RAILWEAVE_COMPILE") == "0":
        raise NotCompiled("RAILWEAVE_COMPILE is 0", "another value or none", "unset it")
    source = engine.source()
    if not source:
        raise NotCompiled(
            "the program jumps backwards where actions end",
            "jumps forwards only",
            "use the program as it is, or compile it again",
        )
    if len(source) > _MOST_SOURCE:
        raise NotCompiled(
            f"the program is {len(source):,} bytes of C++",
            f"up to {_MOST_SOURCE:,}",
            "use the program as it is, or make it smaller",
        )
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    if shutil.which(compiler[0]) is None:
        raise NotCompiled(f"no compiler {compiler[0]!r}", "a C++20 compiler", "install g++, or set CXX")
    try:
        engine.use(str(_library(source, compiler, on_start, folder)))
    except (OSError, ValueError) as error:
        raise NotCompiled(
            str(error),
            "a library in the cache folder",
            "make room on the disk, or set XDG_CACHE_HOME to another folder",
        ) from None


_in_progress: weakref.WeakSet[Background] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Let no thread be in the engine when the interpreter ends: this would abort the process."""
    for background in list(_in_progress):
        background.stop()
        background.join(_ENDING_S)


class Background:
    """Compiles an engine's program in a thread, while packets are interpreted."""

    def __init__(self, engine: Engine) -> None:
        """Start to compile."""
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()
        self.state = "interpreted, being compiled"
        self._thread = threading.Thread(target=self._run, args=(engine,), daemon=True)
        self._thread.start()
        _in_progress.add(self)

    def stop(self) -> None:
        """End the compiler, if it runs."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the compilation has ended, or until the time is up."""
        self._thread.join(timeout_s)

    def _run(self, engine: Engine) -> None:
        try:
            compiled(engine, self._started)
            self.state = "compiled"
        except NotCompiled as reason:
            self.state = f"interpreted: {reason}"

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._process = process
        if self._stopped:
            self.stop()


def _flags() -> list[str]:
    return [f"-march={os.environ.get('RAILWEAVE_CPU', 'native')}", *_FLAGS]


def _library(
    source: str, compiler: list[str], on_start: Callable[[subprocess.Popen[bytes]], None], folder: Path | None
) -> Path:
    """Return the library of a source. A lock lets one process compile it while others wait."""
    key = hashlib.sha256()
    for part in (source, _engine(), _version(tuple(compiler)), _processor(), " ".join(_flags())):
        key.update(hashlib.sha256(part.encode()).digest())
    name = f"{key.hexdigest()[:32]}.so"
    if (_AHEAD / name).exists():
        return _AHEAD / name
    folder = folder or _cache()
    library = folder / name
    if library.exists():
        library.touch()
        return library
    with (folder / f"{library.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(source, compiler, library, on_start)
            _make_room(folder)
        Path(lock.name).unlink(missing_ok=True)
    return library


def _make_room(folder: Path) -> None:
    """Remove the least recently used libraries until the rest is within the limit."""
    found = []
    for library in folder.glob("*.so"):
        with contextlib.suppress(FileNotFoundError):  # another switch has removed it
            status = library.stat()
            found.append((status.st_mtime, status.st_size, library))
    excess = sum(size for _, size, _ in found) - _MOST_CACHE
    for _, size, library in sorted(found):
        if excess <= 0:
            break
        library.unlink(missing_ok=True)
        excess -= size


def _compile(
    source: str, compiler: list[str], library: Path, on_start: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        out = Path(folder) / library.name
        command = ["sh", "-c", f'ulimit -v {_MOST_KIB} && exec nice -n 10 "$@"', "sh", *compiler]
        command += [*_flags(), f"-I{_SOURCES}", "-o", str(out), "-"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        on_start(process)
        try:
            _, messages = process.communicate(source.encode(), timeout=_MOST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise NotCompiled(
                f"{compiler[0]} is too slow",
                f"an end within {_MOST_S:g} s",
                "end other work, then start the switch again",
            ) from None
        if process.returncode != 0:
            first = next(
                iter(messages.decode(errors="replace").splitlines()), f"exit status {process.returncode}"
            )
            raise NotCompiled(
                f"{compiler[0]} failed: {first}",
                f"a C++20 compiler that needs up to {_MOST_KIB >> 20} GiB of memory",
                "install a newer g++, or set CXX",
            )
        out.rename(library)


def _cache() -> Path:
    """Return the folder of libraries. Nobody else may write it, because the libraries are run."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "railweave" / "programs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise NotCompiled(
            f"others may write {folder}",
            "a folder of your own",
            "remove it, or set XDG_CACHE_HOME to another folder",
        )
    return folder


@functools.cache
def _engine() -> str:
    files = sorted(path for name in _FOLDERS for path in (_SOURCES / name).glob("*.?pp"))
    if not files:
        raise NotCompiled(
            f"{_SOURCES} is incomplete", "the engine's sources there", "install railweave again"
        )
    return "".join(path.read_text() for path in files)


@functools.cache
def _version(compiler: tuple[str, ...]) -> str:
    return subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout


def _processor() -> str:
    """Return the properties of the processor that -march=native depends on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    wanted = ("vendor_id", "cpu family", "model\t", "model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def main(programs: list[str]) -> int:
    """Compile BMv2 JSON programs ahead of their use, so that no switch of this installation has to."""
    _AHEAD.mkdir(parents=True, exist_ok=True)
    for program in programs:
        try:
            compiled(Pipeline.load(Path(program).read_bytes()).native, folder=_AHEAD)
        except NotCompiled as reason:
            print(f"{program} will be interpreted: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
