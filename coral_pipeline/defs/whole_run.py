"""Every asset of one Student run, materialized in this process: its roots, then root by root, then the dataset."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from coral_pipeline.defs.build import build_definitions
from coral_pipeline.defs.checks import failed_checks
from coral_pipeline.defs.dataset import DATASET
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.instance import IN_PROCESS_RUN
from coral_pipeline.defs.lineage import Lineage
from coral_pipeline.defs.partitions import STUDENT_RUNS_NAME, RootKey, student_run_key
from coral_pipeline.defs.progress import SearchControl
from coral_pipeline.errors import PipelineError
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.student_run.layout import student_run_name
from coral_pipeline.tables import SELECTED_ROOTS

TO_ROOTS = ("filtered_snapshots", "stage_labels", "selected_roots")
ASSETS = (*TO_ROOTS, *PER_ROOT, DATASET)


class StageFailed(PipelineError):
    """A stage failed; the message is its one line."""


class Interrupted(Exception):
    """The run was stopped on request and can be resumed."""


@dataclass(frozen=True)
class RootOutcome:
    """What became of one root."""

    key: RootKey
    was_current: bool = False
    """Nothing was run: all of it is what would be made now."""
    failure: str | None = None
    """Why it failed, in one line."""
    warnings: tuple[str, ...] = ()
    """Checks that failed and need not stop anything, one line each."""


@dataclass(frozen=True)
class Ended:
    """How a run of some assets ended."""

    failure: str | None
    """Why it failed, in one line; None where it did not."""
    warnings: tuple[str, ...]
    """As in ``RootOutcome``."""


class WholeRun:
    """The stages of one Student run, in the order in which they are to be called."""

    def __init__(
        self,
        student_run: Path,
        output: Path,
        settings: PipelineSettings,
        instance: dg.DagsterInstance,
        control: SearchControl,
    ) -> None:
        """Raises ``BadInput`` where the run's folder has a name that cannot be a partition key."""
        self.key = student_run_key(student_run_name(student_run))
        self.folders = Folders(output=str(output.absolute()), student_runs=str(student_run.resolve().parent))
        self._lineage = Lineage(self.folders, settings)
        self._settings, self._instance, self._control = settings, instance, control
        definitions = build_definitions(output, student_run.resolve().parent, settings, control=control)
        self._job = definitions.resolve_implicit_global_asset_job_def()
        self.warnings: list[str] = []
        """Of the Student run's own assets: as in ``RootOutcome``."""
        self.log = Path(instance.root_directory, "coral_pipeline_run.log")
        instance.add_dynamic_partitions(STUDENT_RUNS_NAME, [self.key])

    def select_roots(self) -> list[RootKey]:
        """Read the Student run and choose its roots. Raises ``StageFailed``."""
        failure = self._aside(TO_ROOTS)
        if failure:
            raise StageFailed(failure)
        rows = SELECTED_ROOTS.rows(self.folders.asset("selected_roots", self.key))
        if not rows:
            raise StageFailed(f"{self.key}: no snapshot is eligible, so there are no roots; choose another Student run")
        return [RootKey(self.key, row["root"]) for row in rows]

    def explore(self, keys: Sequence[RootKey]) -> Iterator[RootOutcome]:
        """Each root's tree, paths and advantages, ``trees_at_once`` at a time; outcomes as they come.

        A failing root does not stop the others. Raises ``Interrupted`` when ``stop`` was set, after what
        was running has come to its end.
        """
        with ThreadPoolExecutor(self._settings.trees_at_once, thread_name_prefix="root") as pool:
            futures = [pool.submit(self._root, key) for key in keys]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def gather(self) -> str | None:
        """The dataset of the roots that are done; why it failed, in one line, or None."""
        return self._aside([DATASET])

    def _aside(self, assets: Sequence[str]) -> str | None:
        """``_materialize`` for the Student run, in a thread: in the main one Dagster takes the signals for itself."""
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self._materialize, assets, self.key).result()
        self.warnings += ended.warnings
        return ended.failure

    def _root(self, key: RootKey) -> RootOutcome:
        if self._control.stop.is_set():
            raise Interrupted
        try:
            stale = self._lineage.stale(key, self._instance)
        except (PipelineError, OSError) as error:
            return RootOutcome(key, failure=str(error))
        if not stale:
            return RootOutcome(key, was_current=True)
        ended = self._materialize(stale, str(key))
        return RootOutcome(key, failure=ended.failure, warnings=ended.warnings)

    def _materialize(self, assets: Sequence[str], partition: str) -> Ended:
        """Run the assets and their checks."""
        run_id = str(uuid.uuid4())
        result = self._job.execute_in_process(
            run_id=run_id,
            run_config={"loggers": {"file": {"config": {"path": str(self.log)}}}},
            instance=self._instance,
            partition_key=partition,
            raise_on_error=False,
            asset_selection=[dg.AssetKey(asset) for asset in assets],
            tags={IN_PROCESS_RUN: run_id},
        )
        warnings = tuple(failed_checks(result, blocking=False))
        if result.success:
            return Ended(None, warnings)
        if self._control.stop.is_set():
            raise Interrupted
        return Ended(self._why(result), warnings)

    def _why(self, result: dg.ExecuteInProcessResult) -> str:
        """The first failure of a run: an expected one is its own line, any other names the log."""
        for line in failed_checks(result, blocking=True):
            return line
        for event in result.all_events:
            if event.is_step_failure:
                failure = event.step_failure_data
                if failure.user_failure_data and failure.user_failure_data.description:
                    return failure.user_failure_data.description
                error = failure.error
                if error:
                    cause = error.cause or error
                    return f"{event.step_key}: {cause.message.strip().splitlines()[0]}; see {self.log}"
        return f"the run could not be carried out; see {self.log}"
