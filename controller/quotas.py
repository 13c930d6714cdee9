# SPDX-License-Identifier: Apache-2.0
"""Quotas: the slots and trees that a job may have on each plane."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from railweave.controller.errors import ControllerError, Refused
from railweave.controller.slots import MIN_SLOTS
from railweave.errors import of_file

EXPECTED = "[JOB:]slots=NUMBER,trees=NUMBER, where JOB may contain * and ?"
_QUOTA = re.compile(r"(?:(?P<jobs>[^=]+):)?(?P<limits>\w+=\d+(?:,\w+=\d+)*)")


@dataclass(frozen=True)
class Quota:
    """A job's limits on each plane."""

    slots: int = 512  # chunks in flight over all trees of the job on a plane; 0: no in-network aggregation
    trees: int = 4  # most trees of an ina rail


@dataclass(frozen=True)
class Quotas:
    """The limits of jobs by name. The first matching pattern (with `*` and `?`) counts."""

    default: Quota = field(default_factory=Quota)
    jobs: tuple[tuple[str, Quota], ...] = ()

    def of(self, job: str) -> Quota:
        """Return the limits of a job."""
        return next((quota for pattern, quota in self.jobs if fnmatchcase(job, pattern)), self.default)

    def share(self, job: str) -> Quota:
        """Return a job's limits. Refused if they are too small for any group."""
        quota = self.of(job)
        if quota.slots < MIN_SLOTS or not quota.trees:
            raise Refused(
                f"the quota of job {job!r} is {quota.slots} slots and {quota.trees} trees per plane",
                f"a tree of {MIN_SLOTS} slots at least",
                "raise --quota, or --slots and --trees, of the controller",
            )
        return quota


def slots_per_tree(slots: int, trees: int) -> int:
    """Return the slots of each tree: the largest power of two that fits, because a mask checks the range."""
    return max(MIN_SLOTS, 1 << (slots // trees).bit_length() - 1)


def read(texts: Iterable[str], file: Path | None, default: Quota) -> Quotas:
    """Read quotas from options, and from a file with the keys `default` and `jobs`. Options take precedence.

    Raises ControllerError, which names the given and the expected value.
    """
    quotas = Quotas(default)
    if file is not None:
        try:
            data = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
            usual = _with(default, data.pop("default", {}))
            jobs = data.pop("jobs", {})
            quotas = Quotas(usual, tuple((str(job), _with(usual, jobs[job])) for job in jobs))
        except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError) as error:
            raise of_file(
                ControllerError, f"--quotas {file}", error, "YAML with the keys default and jobs"
            ) from error
        if data:
            raise ControllerError(
                f"--quotas {file}: unknown key {next(iter(data))!r}",
                "default or jobs",
                "correct or remove it",
            )
    named = []
    for text in texts:
        match = _QUOTA.fullmatch(text)
        if match is None:
            raise ControllerError(f"--quota {text!r}", EXPECTED, "correct --quota")
        limits = {key: int(value) for key, value in (part.split("=") for part in match["limits"].split(","))}
        if match["jobs"]:
            named.append((match["jobs"], _with(quotas.default, limits)))
        else:
            quotas = replace(quotas, default=_with(quotas.default, limits))
    return replace(quotas, jobs=(*named, *quotas.jobs))


def _with(quota: Quota, limits: object) -> Quota:
    known = [each.name for each in fields(Quota)]
    if not isinstance(limits, dict) or any(
        key not in known or type(value) is not int or value < 0 for key, value in limits.items()
    ):
        raise ControllerError(
            f"quota {limits!r}", f"{' and '.join(known)}, each a number from 0", "correct the quota"
        )
    return replace(quota, **limits)
