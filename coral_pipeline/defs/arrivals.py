"""New Student runs: noticed when their folders have been copied, made partitions, read, and their roots chosen.

A run of the first three assets is asked for under a key made of the Student run's name and how it looked when
it had arrived. Dagster starts no two runs of one key, so neither a restart of the daemon, nor a lost cursor, nor a
second tick starts anything twice; a Student run that has grown, or in which anything was replaced, mended or put
back, has another key, and its roots are chosen anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import dagster as dg

from coral_pipeline.defs.partitions import STUDENT_RUNS, student_run_key
from coral_pipeline.defs.settings import sensor_status
from coral_pipeline.defs.student_run import filtered_snapshots, selected_roots, stage_labels
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import AutomationSettings
from coral_pipeline.student_run.arrival import Incomplete, close_look, glance


@dataclass(frozen=True)
class Seen:
    """What a tick knows of one folder from the ticks before."""

    glance: str
    look: str | None = None
    """The close look that has to stay the same; None where the run has arrived."""
    since: float = 0.0
    """When it first looked like that, in seconds since the epoch."""


@dataclass
class Looks:
    """What one tick found."""

    seen: dict[str, Seen] = field(default_factory=dict)
    arrived: dict[str, str] = field(default_factory=dict)
    """The close looks of the Student runs that are complete, by name."""
    waiting: list[str] = field(default_factory=list)
    """One line per folder that is not, or cannot be used."""


def look_around(student_runs: Path, before: Mapping[str, Seen], now: float, quiet_seconds: float) -> Looks:
    """Look at every folder in ``student_runs``; ``before``: what the last tick has seen. Raises ``OSError``."""
    looks = Looks()
    for folder in sorted(student_runs.iterdir()):
        if folder.name.startswith(".") or not folder.is_dir():
            continue
        try:
            name = student_run_key(folder.name)
            _look_at(folder, before.get(name), now, quiet_seconds, looks)
        except Incomplete as incomplete:
            looks.waiting.append(f"{folder.name}: {incomplete}")
        except BadInput as bad:
            looks.waiting.append(str(bad))
        except OSError as error:
            looks.waiting.append(f"{error.filename or folder}: {error.strerror or error}; looked at again soon")
    return looks


def _look_at(folder: Path, seen: Seen | None, now: float, quiet_seconds: float, looks: Looks) -> None:
    at_a_glance = glance(folder)
    if seen and seen.look is None and seen.glance == at_a_glance:
        looks.seen[folder.name] = seen
        return
    look = close_look(folder)
    if seen is None or seen.look != look:
        looks.seen[folder.name] = Seen(at_a_glance, look, since=now)
        looks.waiting.append(f"{folder.name}: seen; it is read when nothing in it has changed for {quiet_seconds:g} s")
    elif now - seen.since < quiet_seconds:
        looks.seen[folder.name] = seen
        looks.waiting.append(f"{folder.name}: unchanged for {now - seen.since:.0f} s of {quiet_seconds:g} s")
    else:
        looks.arrived[folder.name] = look
        looks.seen[folder.name] = Seen(at_a_glance)


def arrivals_sensor(student_runs: Path, automation: Callable[[], AutomationSettings]) -> dg.SensorDefinition:
    """The sensor ``arrivals``. ``automation`` gives the settings of the moment."""
    started = automation()

    @dg.sensor(
        target=[filtered_snapshots, stage_labels, selected_roots],
        minimum_interval_seconds=started.seconds_between_looks,
        default_status=sensor_status(started),
        description=(
            f"Looks for Student runs in {student_runs}. One that has been copied to its end becomes a partition, its "
            "snapshots are read and its roots chosen; so again when it has grown."
        ),
    )
    def arrivals(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            looks = look_around(student_runs, _from_cursor(context.cursor), time.time(), automation().quiet_seconds)
        except OSError as error:
            is_none = isinstance(error, (FileNotFoundError, NotADirectoryError))
            mend = "make it, or name another folder" if is_none else "looked at again soon"
            return dg.SensorResult(skip_reason=f"{student_runs}: {error.strerror}; {mend}")
        for line in looks.waiting:
            context.log.info(line)
        return dg.SensorResult(
            run_requests=[
                dg.RunRequest(run_key=f"{name} {look}", partition_key=name) for name, look in looks.arrived.items()
            ],
            skip_reason=None if looks.arrived else "\n".join(looks.waiting) or "no new Student run",
            dynamic_partitions_requests=[STUDENT_RUNS.build_add_request(list(looks.arrived))] if looks.arrived else [],
            cursor=json.dumps({name: asdict(seen) for name, seen in looks.seen.items()}),
        )

    return arrivals


def _from_cursor(cursor: str | None) -> dict[str, Seen]:
    return {name: Seen(**seen) for name, seen in json.loads(cursor or "{}").items()}
