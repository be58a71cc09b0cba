"""The checks of ``coral_pipeline.audit`` as Dagster asset checks: a step per asset, each check selectable by itself."""

import itertools
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.tags import PARTITION_NAME_TAG

from coral_pipeline.audit.checks import CHECKS, Check
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.defs.failures import failing_plainly
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.metadata import table_of
from coral_pipeline.defs.partitions import ROOTS, STUDENT_RUNS
from coral_pipeline.defs.versions import DATA_VERSION_TAG
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import PipelineSettings

OF_ROOTS = ("root_folders", *PER_ROOT)
"""Assets whose partitions are roots."""
SHOWN_FINDINGS = 20
"""Findings in a check's metadata; `coral-pipeline audit` lists them all."""


def asset_checks() -> list[dg.AssetChecksDefinition]:
    """The checks of every asset, partitioned as it is."""
    by_asset: dict[str, list[Check]] = {}
    for check in CHECKS:
        if not check.audit_only:
            by_asset.setdefault(check.asset, []).append(check)
    with warnings.catch_warnings():
        # Without partitions of their own, checks would not tell of which partition they speak.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [_checks_of(asset, checks) for asset, checks in by_asset.items()]


def _checks_of(asset: str, checks: Sequence[Check]) -> dg.AssetChecksDefinition:
    specs = [
        dg.AssetCheckSpec(
            check.name,
            asset=asset,
            description=check.description,
            blocking=check.blocking,
            partitions_def=ROOTS if asset in OF_ROOTS else STUDENT_RUNS,
        )
        for check in checks
    ]

    @dg.multi_asset_check(name=f"{asset}_checks", specs=specs, can_subset=True, description=f"Verifies {asset}")
    def verify(
        context: dg.AssetCheckExecutionContext, folders: Folders, settings: dg.ResourceParam[PipelineSettings]
    ) -> Iterator[dg.AssetCheckResult]:
        source = Source(folders.storage, folders.student_run, settings.credit.tokenizer)
        with failing_plainly(context):
            partition = _partition(context, asset)
        wanted = {key.name for key in context.selected_asset_check_keys}
        for check in checks:
            if check.name in wanted:
                with failing_plainly(context):
                    review = check.review(source, partition)
                yield _result(check, review)

    return verify


def _partition(context: dg.AssetCheckExecutionContext, asset: str) -> str:
    """The partition that is to be verified. Raises ``BadInput`` where the run has none: Dagster lets it begin."""
    if context.has_partition_key:
        return str(context.partition_key)
    form = "<student_run>|<root>" if asset in OF_ROOTS else "<student_run>"
    mend = f"tag the run with {PARTITION_NAME_TAG}: {form}, or use `coral-pipeline audit`"
    raise BadInput(f"checks of {asset}", "no partition was chosen", mend)


def _result(check: Check, review: Review) -> dg.AssetCheckResult:
    numbers: dict[str, Any] = {"findings": review.total, **review.looked_at}
    if review.largest_difference:
        numbers["largest difference"] = review.largest_difference
    if review.notes:
        numbers["notes"] = review.notes
    if review.findings:
        shown = review.findings[:SHOWN_FINDINGS]
        numbers["first findings"] = table_of({"where": one.where, "problem": one.problem} for one in shown)
    return dg.AssetCheckResult(
        asset_key=check.asset,
        check_name=check.name,
        passed=not review.total,
        severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
        description=_summary(review),
        metadata=numbers,
    )


def _summary(review: Review) -> str | None:
    """The first finding, and how many more there are; None without any."""
    if not review.findings:
        return None
    first, more = review.findings[0], review.total - 1
    return f"{first.where}: {first.problem}" + (f" (and {more} more)" if more else "")


def refused_partitions(instance: dg.DagsterInstance, assets: Collection[str]) -> set[str]:
    """Partitions of these assets whose contents, as they are now, a blocking check refused when it last looked.

    A run that waits, or that ended before its check, does not lift a refusal; contents of another version do.
    """
    refused = set[str]()
    for check, partition in _ever_failed(instance, assets):
        if partition not in refused and _is_refused(instance, check, partition):
            refused.add(partition)
    return refused


def lifted_refusals(instance: dg.DagsterInstance, assets: Collection[str]) -> dict[str, float]:
    """Partitions of these assets that a blocking check refused once and passed since, by when it first did.

    In seconds since the epoch; of several checks the last.
    """
    lifted: dict[str, float] = {}
    for check, partition in _ever_failed(instance, assets):
        outcomes = _outcomes(instance, check, partition, limit=sys.maxsize)
        passed = list(itertools.takewhile(lambda one: one.status != AssetCheckExecutionRecordStatus.FAILED, outcomes))
        if passed and passed[-1].event:
            lifted[partition] = max(passed[-1].event.timestamp, lifted.get(partition, 0.0))
    return lifted


def _ever_failed(instance: dg.DagsterInstance, assets: Collection[str]) -> Iterator[tuple[dg.AssetCheckKey, str]]:
    """Blocking checks of the assets, each with the partitions that it has refused at any time."""
    for check in CHECKS:
        if check.blocking and not check.audit_only and check.asset in assets:
            key = dg.AssetCheckKey(dg.AssetKey(check.asset), check.name)
            records = instance.event_log_storage.get_asset_check_execution_history(
                key, limit=sys.maxsize, status={AssetCheckExecutionRecordStatus.FAILED}
            )
            for partition in {record.partition for record in records if record.partition}:
                yield key, partition


def _outcomes(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, partition: str, limit: int
) -> Sequence[AssetCheckExecutionRecord]:
    """What the check said of the partition, the latest first."""
    return instance.event_log_storage.get_asset_check_execution_history(
        check,
        limit=limit,
        status={AssetCheckExecutionRecordStatus.FAILED, AssetCheckExecutionRecordStatus.SUCCEEDED},
        partition_filter=PartitionKeyFilter(key=partition),
    )


def _is_refused(instance: dg.DagsterInstance, check: dg.AssetCheckKey, partition: str) -> bool:
    (last,) = _outcomes(instance, check, partition, limit=1)
    if last.status != AssetCheckExecutionRecordStatus.FAILED:
        return False
    target = last.evaluation and last.evaluation.target_materialization_data
    if not target:  # an asset that is only observed
        return True

    def version(**bounds: Any) -> Mapping[str, Mapping[str, str]]:
        made = dg.DagsterEventType.ASSET_MATERIALIZATION
        return instance.event_log_storage.get_latest_tags_by_partition(
            check.asset_key, made, [DATA_VERSION_TAG], asset_partitions=[partition], **bounds
        )

    return version() == version(before_cursor=target.storage_id + 1)


def failed_checks(result: dg.ExecuteInProcessResult, blocking: bool) -> list[str]:
    """One line per check of a run that failed, ``blocking`` ones or those that only warn."""
    return [
        f"check {evaluation.check_name} of {evaluation.asset_key.to_user_string()} failed: {evaluation.description}"
        for evaluation in result.get_asset_check_evaluations()
        if not evaluation.passed and (evaluation.severity == dg.AssetCheckSeverity.ERROR) == blocking
    ]
