"""Assets per root: its tree, the ranked paths, advantages and what trainers load."""

from collections.abc import Mapping

import dagster as dg

from coral_pipeline import content, tables
from coral_pipeline.credit import estimator_named, prepare, value_model_named
from coral_pipeline.credit.tokens import write_tokens
from coral_pipeline.defs import pages, versions
from coral_pipeline.defs.failures import plainly
from coral_pipeline.defs.folders import PER_ROOT, TREES, Folders
from coral_pipeline.defs.growing import Plot, Versions
from coral_pipeline.defs.latest import latest_tags
from coral_pipeline.defs.lineage import INPUTS, METHOD, Lineage, Making
from coral_pipeline.defs.overview import watched
from coral_pipeline.defs.partitions import ROOTS, STUDENT_RUNS, RootKey, roots_of
from coral_pipeline.defs.pools import POOL
from coral_pipeline.defs.progress import ProgressLog, SearchControl
from coral_pipeline.defs.retries import pause_before_retry
from coral_pipeline.defs.student_run import root_folders
from coral_pipeline.export.dataset import write_dataset
from coral_pipeline.export.layout import RootFolders
from coral_pipeline.paths.rank import rank_paths
from coral_pipeline.search.explore import TreeSummary
from coral_pipeline.search.output import FILES
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.teacher.protocol import Stopped
from coral_pipeline.tree_file import TREE_FILE, read_tree_info

GROUP = "roots"
PATHS, ADVANTAGES = PER_ROOT[1:]


@dg.asset(partitions_def=ROOTS, deps=[root_folders], group_name=GROUP, pool=POOL, kinds={"python", "parquet"})
@plainly
@watched
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
    making = lineage.making(TREES, key, context.run.run_id)
    plot = Plot.of(folders, settings, key, making.tags[INPUTS])
    for notice in plot.root.notices:
        context.log.warning(notice)
    with folders.storage.alone(TREES, str(key)):
        if making.is_done:  # whatever grows here: it may have been finished on another machine
            summary = TreeSummary.of_tables(plot.root.node, folders.fetch(TREES, str(key)))
        else:
            summary = _grow(context, plot, making, control)
    tree = folders.fetch(TREES, str(key))
    return dg.MaterializeResult(
        data_version=dg.DataVersion(lineage.content(TREES, key)),
        tags=making.tags,
        metadata=pages.tree_page(
            summary,
            tables.NODES.read(tree),
            tables.EDGES.read(tree),
            (tree / TREE_FILE).read_text(),
            folders.address(TREES, str(key)),
        ),
    )


def _grow(context: dg.AssetExecutionContext, plot: Plot, making: Making, control: SearchControl) -> TreeSummary:
    """Grow the tree to its end and publish it."""
    key, lineage, tags = plot.key, making.lineage, making.tags
    if plot.has_begun and lineage.is_damaged(TREES, key, context.instance):
        context.log.warning("the tables are not as they were written; they are written anew from the journal")
        (plot.out / TREE_FILE).unlink(missing_ok=True)
    try:
        pause_before_retry(context, lineage.settings.automation, control.stop)
        made_from = Versions(root=tags[INPUTS], settings=tags[METHOD])
        summary = plot.grow(made_from, control.stop, ProgressLog(context, control), context.log.warning)
    except Stopped as stopped:
        context.instance.report_run_canceling(context.run)
        raise dg.DagsterExecutionInterruptedError(f"{stopped}: stopped, and can be resumed") from stopped
    lineage.folders.seal(TREES, str(key), making.describe, FILES)
    return summary


@dg.asset(partitions_def=ROOTS, deps=[explored_trees], group_name=GROUP, kinds={"python", "parquet"})
@plainly
def ranked_paths(
    context: dg.AssetExecutionContext, folders: Folders, settings: dg.ResourceParam[PipelineSettings]
) -> dg.MaterializeResult[None]:
    """Every root-to-leaf path of the tree with its PathScore, the best ones selected (method P1–P3)."""
    key = RootKey.parse(context.partition_key)
    making = Lineage(folders, settings).making(PATHS, key, context.run.run_id)
    tree = folders.fetch(TREES, str(key))
    ranked = rank_paths(tree, settings.paths)
    with folders.writing(PATHS, str(key), making.describe) as out:
        tables.RANKED_PATHS.write(ranked, out)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(content.tables_version({"ranked_paths": ranked})),
        tags=making.tags,
        metadata=pages.paths_page(
            ranked,
            settings.paths,
            tables.NODES.read(tree),
            tables.EDGES.read(tree),
            read_tree_info(tree)["direction"],
        )
        | {
            "folder": dg.MetadataValue.path(folders.address(PATHS, str(key))),
            "dagster/row_count": ranked.num_rows,
        },
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
    lineage = Lineage(folders, settings)
    making = lineage.making(ADVANTAGES, key, context.run.run_id)
    sources = RootFolders(folders.fetch(TREES, str(key)), folders.fetch(PATHS, str(key)))
    recipe, critic = estimator_named(credit.estimator, credit), value_model_named(credit.value_model, credit)
    batch = prepare(sources.tree, recipe, credit.rewards, critic)
    with folders.writing(ADVANTAGES, str(key), making.describe) as out:
        batch.write(out)
        tokens = write_tokens(sources.tree, batch.advantage_by_edge(), out, credit.tokenizer)
        dataset = write_dataset([sources], out, formats=["sft"])
    version = lineage.content(ADVANTAGES, key)
    _report_finished(context, key, {versions.DATA_VERSION_TAG: version, **making.tags})
    return dg.MaterializeResult(
        data_version=dg.DataVersion(version),
        tags=making.tags,
        metadata=pages.advantages_page(batch, tokens, dataset.samples, folders.address(ADVANTAGES, str(key))),
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
    roots = list(map(str, roots_of(key.student_run, context.instance)))
    made = latest_tags(ADVANTAGES, roots, context.instance) | {str(key): tags}
    version = content.combined(
        *(
            f"{root} {told[INPUTS]} {told[versions.DATA_VERSION_TAG]}"
            for root, told in sorted(made.items())
            if INPUTS in told  # else someone has reported it by hand, and made nothing
        )
    )
    context.log_event(
        dg.AssetObservation(finished_roots.key, partition=key.student_run, tags={versions.DATA_VERSION_TAG: version})
    )
