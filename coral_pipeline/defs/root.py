"""Assets per root: its tree, the ranked paths, advantages and what trainers load."""

from collections.abc import Mapping

import dagster as dg

from coral_pipeline import tables
from coral_pipeline.credit import estimator_named, prepare, value_model_named
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.defs import pages, versions
from coral_pipeline.defs.failures import plainly
from coral_pipeline.defs.folders import Folders
from coral_pipeline.defs.growing import Plot, Versions
from coral_pipeline.defs.io_manager import Tables
from coral_pipeline.defs.lineage import INPUTS, METHOD, Lineage, latest_tags
from coral_pipeline.defs.partitions import ROOTS, ROOTS_NAME, STUDENT_RUNS, RootKey
from coral_pipeline.defs.pools import TREES
from coral_pipeline.defs.progress import ProgressLog, SearchControl
from coral_pipeline.defs.retries import pause_before_retry
from coral_pipeline.defs.student_run import root_folders
from coral_pipeline.explored import TREE_FILE
from coral_pipeline.export.dataset import write_dataset
from coral_pipeline.paths.rank import rank_paths
from coral_pipeline.search.output import FILES
from coral_pipeline.search.root_folder import read_root
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.teacher.protocol import Stopped

GROUP = "roots"
ADVANTAGES = "advantage_batches"


@dg.asset(partitions_def=ROOTS, deps=[root_folders], group_name=GROUP, pool=TREES, kinds={"python", "parquet"})
@plainly
def explored_trees(
    context: dg.AssetExecutionContext,
    folders: Folders,
    settings: dg.ResourceParam[PipelineSettings],
    control: dg.ResourceParam[SearchControl],
) -> dg.MaterializeResult[None]:
    """The tree that the Teacher grows from a root, edge by edge (method T1–T14).

    Stopped or killed at any time it goes on where it was when it is run again; a finished tree stays as it is.
    """
    key, lineage = RootKey.parse(context.partition_key), Lineage(folders, settings)
    plot, tags = Plot.of(folders, settings, key), lineage.tags("explored_trees", key)
    for notice in plot.root.notices:
        context.log.warning(notice)
    if lineage.is_damaged("explored_trees", key, context.instance):
        context.log.warning("the tables are not as they were written; they are written anew from the journal")
        (plot.out / TREE_FILE).unlink(missing_ok=True)
    try:
        pause_before_retry(context, settings.automation, control.stop)
        made_from = Versions(root=tags[INPUTS], settings=tags[METHOD])
        summary = plot.grow(made_from, control.stop, ProgressLog(context, control), context.log.warning)
    except Stopped as stopped:
        context.instance.report_run_canceling(context.run)
        raise dg.DagsterExecutionInterruptedError(f"{stopped}: stopped, and can be resumed") from stopped
    nodes, edges = tables.NODES.read(plot.out), tables.EDGES.read(plot.out)
    describe = lineage.describing("explored_trees", str(key), context.run.run_id)
    folders.seal("explored_trees", str(key), describe, FILES)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(lineage.content("explored_trees", key)),
        tags=tags,
        metadata=pages.tree_page(summary, nodes, edges, plot.out),
    )


@dg.asset(partitions_def=ROOTS, deps=[explored_trees], group_name=GROUP, kinds={"python", "parquet"})
@plainly
def ranked_paths(
    context: dg.AssetExecutionContext, folders: Folders, settings: dg.ResourceParam[PipelineSettings]
) -> dg.MaterializeResult[Tables]:
    """Every root-to-leaf path of the tree with its PathScore, the best ones selected (method P1–P3)."""
    key = RootKey.parse(context.partition_key)
    tags = Lineage(folders, settings).tags("ranked_paths", key)
    tree = folders.fetch("explored_trees", str(key))
    ranked = rank_paths(tree, settings.paths)
    return dg.MaterializeResult(
        value={"ranked_paths": ranked},
        data_version=dg.DataVersion(versions.tables_version({"ranked_paths": ranked})),
        tags=tags,
        metadata=pages.paths_page(
            ranked,
            settings.paths,
            tables.NODES.read(tree),
            tables.EDGES.read(tree),
            read_root(folders.root(key)).direction,
        ),
    )


@dg.asset(partitions_def=ROOTS, deps=[explored_trees, ranked_paths], group_name=GROUP, kinds={"python", "parquet"})
@plainly
def advantage_batches(
    context: dg.AssetExecutionContext, folders: Folders, settings: dg.ResourceParam[PipelineSettings]
) -> dg.MaterializeResult[None]:
    """What one tree gives a trainer: rewards, advantages, critic targets and tokens (method C1–C7).

    With them lie the same message graph as a verifiers trace and the selected paths as SFT samples.
    """
    key, credit = RootKey.parse(context.partition_key), settings.credit
    lineage, sources = Lineage(folders, settings), folders.of_root(key)
    tags, describe = lineage.tags(ADVANTAGES, key), lineage.describing(ADVANTAGES, str(key), context.run.run_id)
    recipe, critic = estimator_named(credit.estimator, credit), value_model_named(credit.value_model, credit)
    batch = prepare(sources.tree, recipe, credit.rewards, critic)
    with folders.writing(ADVANTAGES, str(key), describe) as out:
        batch.write(out)
        tokens = write_tokens(sources.tree, batch.advantage_by_edge(), out, credit.tokenizer)
        dataset = write_dataset([sources], out, formats=["sft"])
    version = lineage.content(ADVANTAGES, key)
    _report_finished(context, key, {versions.DATA_VERSION_TAG: version, **tags})
    return dg.MaterializeResult(
        data_version=dg.DataVersion(version),
        tags=tags,
        metadata=pages.advantages_page(batch, tokens, dataset.samples, folders.asset(ADVANTAGES, str(key))),
    )


finished_roots = dg.AssetSpec(
    "finished_roots",
    deps=[dg.AssetDep(advantage_batches, partition_mapping=dg.AllPartitionMapping())],
    partitions_def=STUDENT_RUNS,
    group_name=GROUP,
    kinds={"folder"},
    description=(
        "The finished roots of one Student run. `advantage_batches` reports their common version here, so that a "
        "dataset becomes stale when a root of its own run has changed, and only then."
    ),
)


def _report_finished(context: dg.AssetExecutionContext, key: RootKey, tags: Mapping[str, str]) -> None:
    """Report the version of all finished roots of the Student run; ``tags`` are those this root is about to get."""
    names = context.instance.get_dynamic_partitions(ROOTS_NAME)
    others = [other for other in map(RootKey.parse, names) if other.student_run == key.student_run and other != key]
    made = {other: latest_tags("advantage_batches", other, context.instance) for other in others} | {key: tags}
    version = versions.combined(
        *(
            f"{root} {made[root][INPUTS]} {made[root][versions.DATA_VERSION_TAG]}"
            for root in sorted(made, key=str)
            if made[root]
        )
    )
    context.log_event(
        dg.AssetObservation(finished_roots.key, partition=key.student_run, tags={versions.DATA_VERSION_TAG: version})
    )
