"""A Student run, an output folder and a Dagster instance, and the assets materialized on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from coral_pipeline.defs.build import build_definitions
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.lineage import Lineage
from coral_pipeline.defs.partitions import RootKey
from coral_pipeline.defs.progress import SearchControl
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.teacher.protocol import ContentPart, EdgeRequest, Message, Turn
from coral_pipeline_tests.search.test_properties import Dice
from coral_pipeline_tests.student_runs import write_student_run

RUN = "small-run"
SCORES = [1.0, 1.2, None, 1.4, 1.9, 2.0, 2.3, 2.6, None, 2.8, 2.9, 3.0]
TO_ROOTS = ("filtered_snapshots", "stage_labels", "selected_roots")
SMALL: dict[str, Any] = {
    "selection": {"num_roots": 3},
    "teacher": {"name": "talkative"},
    "search": {"max_depth": 2, "max_logical_edges": 7, "parallel_width": 2},
}
"""Three roots; trees of at most seven edges, grown by a teacher of the tests (see ``conftest``) in no time."""
_DICE = Dice(seed=3, no_score=0.0, tool_errors=0.0, levels=40, growth=9_000)


def talk(edge: EdgeRequest, number: int) -> Turn:
    """An answer with a transcript, the same whenever it is asked for."""
    prompt = Message(role="user", content=(ContentPart(type="text", text=f"turn {number}"),))
    said = ContentPart(type="text", text=f"tried edge {edge.name}")
    reply = Message(role="assistant", content=(said,), sampled=True)
    return _DICE(edge, number).model_copy(update={"messages": (prompt, reply)})


def settings(**sections: dict[str, Any]) -> PipelineSettings:
    """The small settings with some of their values changed."""
    merged = {name: SMALL.get(name, {}) | sections.get(name, {}) for name in SMALL | sections}
    return PipelineSettings.model_validate(merged)


@dataclass
class World:
    """Everything Dagster works on; ``settings`` and ``control`` may be replaced between runs."""

    folder: Path
    settings: PipelineSettings = field(default_factory=settings)
    control: SearchControl = field(default_factory=SearchControl)
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def __post_init__(self) -> None:
        write_student_run(self.folder / "student_runs" / RUN, SCORES)
        self.instance.add_dynamic_partitions("student_runs", [RUN])

    @property
    def folders(self) -> Folders:
        return Folders(output=str(self.folder / "output"), student_runs=str(self.folder / "student_runs"))

    @property
    def definitions(self) -> dg.Definitions:
        return build_definitions(self.folders.output, self.folder / "student_runs", self.settings, control=self.control)

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.folders, self.settings)

    @property
    def keys(self) -> list[RootKey]:
        return [RootKey.parse(key) for key in sorted(self.instance.get_dynamic_partitions("roots"))]

    def run(self, assets: Sequence[str], partition: str, **config: Any) -> dg.ExecuteInProcessResult:
        """Materialize the assets, quietly, without raising what they raise."""
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        return self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(asset) for asset in assets],
            partition_key=partition,
            raise_on_error=False,
            run_config=quiet | config,
        )

    def materialize(self, assets: Sequence[str], partition: str, **config: Any) -> dg.ExecuteInProcessResult:
        result = self.run(assets, partition, **config)
        assert result.success, failure(result)
        return result

    def materialize_all(self) -> None:
        self.materialize(TO_ROOTS, RUN)
        for key in self.keys:
            self.materialize(PER_ROOT, str(key))
        self.materialize(["sft_dataset"], RUN)

    def metadata(self, asset: str, partition: str) -> dict[str, Any]:
        """Metadata of the latest materialization."""
        return dict(self._latest(asset, partition).metadata)

    def tags(self, asset: str, partition: str) -> dict[str, str]:
        """Tags of the latest materialization."""
        return dict(self._latest(asset, partition).tags or {})

    def _latest(self, asset: str, partition: str) -> dg.AssetMaterialization:
        wanted = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[partition])
        made = self.instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization
        assert made is not None
        return made

    def observations(self, asset: str, partition: str) -> list[dg.AssetObservation]:
        """Observations of the partition, latest first."""
        wanted = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[partition])
        records = self.instance.fetch_observations(wanted, limit=100).records
        return [record.asset_observation for record in records if record.asset_observation is not None]


def failure(result: dg.ExecuteInProcessResult) -> str:
    """What the first failed step says."""
    step = next(event for event in result.all_events if event.is_step_failure)
    data = step.step_failure_data
    if data.user_failure_data is not None and data.user_failure_data.description:
        return data.user_failure_data.description
    return str(data.error)
