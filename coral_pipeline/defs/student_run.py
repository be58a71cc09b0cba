"""Assets per Student run: kept snapshots, stages, roots."""

import dagster as dg
import pyarrow as pa

from coral_pipeline import content, provenance
from coral_pipeline.defs import pages, versions
from coral_pipeline.defs.failures import plainly
from coral_pipeline.defs.folders import Folders
from coral_pipeline.defs.io_manager import Tables
from coral_pipeline.defs.lineage import Lineage
from coral_pipeline.defs.metadata import number
from coral_pipeline.defs.overview import SCORE, STAGE
from coral_pipeline.defs.partitions import ROOTS, STUDENT_RUNS, RootKey, student_run_key
from coral_pipeline.defs.pools import limit_trees_at_once
from coral_pipeline.defs.superseding import replace_roots
from coral_pipeline.errors import Changed
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.storage import archive
from coral_pipeline.student_run.copying import TASK_FOLDER, copy_roots
from coral_pipeline.student_run.reading import read_direction, read_student_run
from coral_pipeline.student_run.roots import account, select_roots, shortages
from coral_pipeline.student_run.stages import label_stages
from coral_pipeline.tables import FILTERED_SNAPSHOTS, SELECTED_ROOTS, STAGE_LABELS

GROUP = "student_run"


@dg.asset(partitions_def=STUDENT_RUNS, group_name=GROUP, kinds={"python", "parquet"})
@plainly
def filtered_snapshots(context: dg.AssetExecutionContext, folders: Folders) -> dg.MaterializeResult[Tables]:
    """Snapshots of a Student run that were kept; the rejected ones with the reason (method S1–S6)."""
    key = student_run_key(context.partition_key)
    run = read_student_run(folders.student_run(key))
    for warning in run.warnings:
        context.log.warning(warning)
    tables = {"filtered_snapshots": run.filtered, "rejected_snapshots": run.rejected}
    return dg.MaterializeResult(
        value=tables,
        data_version=dg.DataVersion(content.tables_version(tables)),
        metadata=pages.snapshots_page(run),
    )


@dg.asset(partitions_def=STUDENT_RUNS, group_name=GROUP, kinds={"python", "parquet"})
@plainly
def stage_labels(
    context: dg.AssetExecutionContext,
    filtered_snapshots: Tables,
    folders: Folders,
    settings: dg.ResourceParam[PipelineSettings],
) -> dg.MaterializeResult[Tables]:
    """Smoothed score of each kept snapshot, and whether it lies early, in the middle or late (method S5–S8)."""
    student_run = folders.student_run(context.partition_key)
    filtered, direction = filtered_snapshots["filtered_snapshots"], read_direction(student_run)
    labels = label_stages(filtered, direction, settings.selection, student_run=student_run)
    tables = {"stage_labels": labels}
    return dg.MaterializeResult(
        value=tables,
        data_version=dg.DataVersion(content.tables_version(tables)),
        metadata=pages.stages_page(labels, direction),
    )


@dg.asset(
    partitions_def=STUDENT_RUNS,
    deps=[filtered_snapshots, stage_labels],
    group_name=GROUP,
    kinds={"python", "parquet"},
)
@plainly
def selected_roots(
    context: dg.AssetExecutionContext, folders: Folders, settings: dg.ResourceParam[PipelineSettings]
) -> dg.MaterializeResult[None]:
    """The snapshots chosen as roots and their copied folders (method S9–S12); each becomes a partition of ``roots``."""
    key = context.partition_key
    student_run = folders.student_run(key)
    making = Lineage(folders, settings).making("selected_roots", key, context.run.run_id)
    filtered, labels = (table.read(folders.fetch(table.name, key)) for table in (FILTERED_SNAPSHOTS, STAGE_LABELS))
    roots = select_roots(labels, filtered, key, settings.selection)
    keys = [RootKey(key, root) for root in roots["root"].to_pylist()]
    with folders.writing("selected_roots", key, making.describe) as out:
        for line in copy_roots(student_run, roots, out, task_folder=out / TASK_FOLDER):
            context.log.warning(f"left out of a copy: {line}")
        for copied in (TASK_FOLDER, *roots["root"].to_pylist()):
            provenance.write_checksums(out / copied, out / archive.checksums_of(copied))
        SELECTED_ROOTS.write(roots, out)
    limit_trees_at_once(context.instance, settings.trees_at_once)
    dropped = replace_roots(key, keys, folders, context.instance, context.run.run_id)
    if dropped:
        context.log.warning(f"no longer chosen, kept as superseded: {', '.join(other.root for other in dropped)}")
    root_versions = _report(context, folders, roots)
    accounts = account(labels, roots, settings.selection)
    short = shortages(accounts, settings.selection)
    for sentence in short:
        context.log.warning(sentence)
    table_version = content.tables_version({SELECTED_ROOTS.name: roots})
    return dg.MaterializeResult(
        data_version=dg.DataVersion(content.combined(table_version, *root_versions)),
        metadata=pages.roots_page(
            labels, roots, accounts, short, [other.root for other in dropped], read_direction(student_run)
        )
        | {
            "folder": dg.MetadataValue.path(folders.address("selected_roots", key)),
            "dagster/row_count": roots.num_rows,
        },
    )


root_folders = dg.AssetSpec(
    "root_folders",
    deps=[dg.AssetDep(selected_roots, partition_mapping=dg.AllPartitionMapping())],
    partitions_def=ROOTS,
    group_name=GROUP,
    kinds={"folder"},
    description=(
        "The copied folder of one root. `selected_roots` writes it and reports its version here, so that a tree "
        "becomes stale when its own root has changed, and only then."
    ),
)


def _report(context: dg.AssetExecutionContext, folders: Folders, roots: pa.Table) -> list[str]:
    """Report the version of each root's folder; returns the versions. Raises ``Changed``."""
    run, rows = context.partition_key, roots.to_pylist()
    made = folders.storage.provenance(SELECTED_ROOTS.name, run)
    if made is None or not made.folders.keys() >= {row["root"] for row in rows}:
        raise Changed(f"{SELECTED_ROOTS.name} of {run}", "made anew meanwhile")
    for row in rows:
        context.log_event(
            dg.AssetObservation(
                root_folders.key,
                partition=str(RootKey(run, row["root"])),
                metadata={STAGE: row["stage"], SCORE: number(row["score"])},
                tags={versions.DATA_VERSION_TAG: made.folders[row["root"]]},
            )
        )
    return [made.folders[row["root"]] for row in rows]
