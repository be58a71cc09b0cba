"""The asset per Student run that gathers what its roots have given."""

import dagster as dg

from coral_pipeline import tables
from coral_pipeline.defs import pages
from coral_pipeline.defs.checks import refused_partitions
from coral_pipeline.defs.failures import plainly
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.lineage import Lineage
from coral_pipeline.defs.partitions import STUDENT_RUNS, RootKey
from coral_pipeline.defs.root import finished_roots
from coral_pipeline.defs.student_run import selected_roots
from coral_pipeline.export.dataset import write_dataset
from coral_pipeline.report.coverage import stage_coverage
from coral_pipeline.settings import PipelineSettings

DATASET = "sft_dataset"


@dg.asset(
    partitions_def=STUDENT_RUNS,
    deps=[selected_roots, finished_roots],
    group_name="dataset",
    kinds={"python", "parquet"},
)
@plainly
def sft_dataset(
    context: dg.AssetExecutionContext, folders: Folders, settings: dg.ResourceParam[PipelineSettings]
) -> dg.MaterializeResult[None]:
    """The selected paths of a Student run's roots, those that are done, as trainers load them."""
    run, lineage = context.partition_key, Lineage(folders, settings)
    making = lineage.making(DATASET, run, context.run.run_id)
    roots = tables.SELECTED_ROOTS.read(folders.fetch(tables.SELECTED_ROOTS.name, run))
    stages = dict(zip(roots["root"].to_pylist(), roots["stage"].to_pylist(), strict=True))
    keys = [RootKey(run, root) for root in stages]
    refused = sorted(refused_partitions(context.instance, PER_ROOT) & set(map(str, keys)))
    done = lineage.whole([key for key in keys if str(key) not in refused], context.instance)
    missing = [key.root for key in keys if key not in done]
    if missing:
        context.log.warning(f"{len(missing)} of {len(keys)} roots are not done: {', '.join(missing)}")
    if refused:
        context.log.warning(f"refused by a blocking check: {', '.join(refused)}")
    making = making.also_from(one for inputs in done.values() for one in inputs)
    sources = {key.root: folders.of_root(key, stages[key.root]) for key in done}
    with folders.writing(DATASET, run, making.describe) as aside:
        summary = write_dataset(sources.values(), aside)
    out = folders.fetch(DATASET, run)
    ranked = {root: tables.RANKED_PATHS.read(source.ranked) for root, source in sources.items()}
    return dg.MaterializeResult(
        data_version=dg.DataVersion(lineage.content(DATASET, run)),
        metadata=pages.dataset_page(
            summary,
            stage_coverage(roots, ranked),
            missing,
            sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()),
            folders.address(DATASET, run),
        ),
    )
