"""The checks of ``coral_pipeline.audit`` as Dagster asset checks: a step per asset, each check selectable by itself."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from coral_pipeline.audit.checks import CHECKS, Check
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.defs.folders import PER_ROOT, Folders
from coral_pipeline.defs.metadata import table_of
from coral_pipeline.defs.partitions import ROOTS, ROOTS_NAME, STUDENT_RUNS, STUDENT_RUNS_NAME
from coral_pipeline.defs.student_run import root_folders

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
    def verify(context: dg.AssetCheckExecutionContext, folders: Folders) -> Iterator[dg.AssetCheckResult]:
        source = Source(folders.storage, folders.student_run)
        wanted = {key.name for key in context.selected_asset_check_keys}
        partitions = _partitions(context, source, asset)
        for check in checks:
            if check.name in wanted:
                yield _result(check, [check.review(source, partition) for partition in partitions])

    return verify


def _partitions(context: dg.AssetCheckExecutionContext, source: Source, asset: str) -> Sequence[str]:
    """The run's partition; every one that is stored where the run has none, as when the UI is asked to run checks."""
    if context.has_partition_key:
        return [context.partition_key]
    stored = source.storage.partitions(PER_ROOT[0] if asset == root_folders.key.to_user_string() else asset)
    return [key for key in stored if key in _known(context.instance, asset)]


def _known(instance: dg.DagsterInstance, asset: str) -> Sequence[str]:
    """The partitions there are now: what is kept of superseded roots is nobody's input."""
    return instance.get_dynamic_partitions(ROOTS_NAME if asset in OF_ROOTS else STUDENT_RUNS_NAME)


def _result(check: Check, reviews: Sequence[Review]) -> dg.AssetCheckResult:
    total, findings = sum(review.total for review in reviews), [one for review in reviews for one in review.findings]
    numbers: dict[str, Any] = {"findings": total, **sum((review.looked_at for review in reviews), Counter())}
    difference = max((review.largest_difference for review in reviews), default=0.0)
    if difference:
        numbers["largest difference"] = difference
    if notes := [note for review in reviews for note in review.notes]:
        numbers["notes"] = notes
    if findings:
        shown = findings[:SHOWN_FINDINGS]
        rows = ({"partition": one.partition, "where": one.where, "problem": one.problem} for one in shown)
        numbers["first findings"] = table_of(rows)
    others = f" (and {total - 1} more)" if total > 1 else ""
    return dg.AssetCheckResult(
        asset_key=check.asset,
        check_name=check.name,
        passed=not total,
        severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
        description=f"{findings[0].where}: {findings[0].problem}{others}" if findings else None,
        metadata=numbers,
    )


def failed_checks(result: dg.ExecuteInProcessResult, blocking: bool) -> list[str]:
    """One line per check of a run that failed, ``blocking`` ones or those that only warn."""
    return [
        f"check {evaluation.check_name} of {evaluation.asset_key.to_user_string()} failed: {evaluation.description}"
        for evaluation in result.get_asset_check_evaluations()
        if not evaluation.passed and (evaluation.severity == dg.AssetCheckSeverity.ERROR) == blocking
    ]
