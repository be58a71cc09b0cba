"""Which failures are the machinery's, and which runs are tried again."""

import errno

import dagster as dg
import pytest

from coral_pipeline.defs.failures import failing_plainly, plainly
from coral_pipeline.defs.retries import FAULT, INFRASTRUCTURE, is_infrastructure
from coral_pipeline.errors import BadInput, Changed
from coral_pipeline.search.explorer import SearchHalted
from coral_pipeline.teacher.protocol import InfrastructureFault, TeacherError

RETRIED = "dagster/retry_on_asset_or_op_failure"


def because(error: Exception, *causes: Exception) -> Exception:
    """The error, raised from the first cause, which was raised from the second …"""
    if causes:
        error.__cause__ = because(*causes)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BadInput("root", "has no score", "give one"), False),
        (Changed("ranked_paths of run|root", "changed meanwhile"), True),
        (because(SearchHalted("edge 0"), TeacherError("no answer in the script")), False),
        (because(SearchHalted("gave up after 6 tries"), InfrastructureFault("endpoint is not reachable")), True),
        (because(SearchHalted("x"), InfrastructureFault("no sandbox"), FileNotFoundError(errno.ENOENT, "bwrap")), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
        (TimeoutError("timed out"), True),
        (because(BadInput("task.yaml", "is missing", "copy it"), FileNotFoundError(errno.ENOENT, "")), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (PermissionError("Access Denied"), False),  # as object stores say it
        (because(BadInput("x", "is damaged", "make it again"), OSError("Couldn't deserialize thrift")), False),
        (because(BadInput("x", "cannot be read", "make it again"), OSError(errno.EMFILE, "Too many open files")), True),
        (because(OSError(errno.EIO, "Access Denied"), PermissionError("Access Denied")), False),
        (because(OSError(errno.ETIMEDOUT, "timed out"), TimeoutError("timed out")), True),
        (because(BadInput("x", "cannot be read", "see"), Changed("y", "changed meanwhile")), True),
    ],
    ids=repr,
)
def test_the_machinery_s_failures_are_told_from_those_that_would_be_repeated(error: Exception, expected: bool) -> None:
    assert is_infrastructure(error) is expected


FULL = OSError(errno.ENOSPC, "No space left on device")
FAILURES: dict[str, tuple[Exception | None, bool, str]] = {
    "the machinery fails again": (FULL, True, "true"),
    "a bug": (KeyError("a bug of ours"), True, "false"),
    "bad input": (BadInput("root", "has no score", "give one"), True, "false"),
    "a check is red": (None, False, "false"),
    "all is well": (None, True, "false"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_whether_a_retry_is_tried_again_is_for_its_own_failure_to_say(what: str) -> None:
    error, passed, expected = FAILURES[what]

    @plainly
    def make(context: dg.AssetExecutionContext) -> None:
        if error is not None:
            raise error

    @dg.asset_check(asset="made", blocking=True)
    def verify(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with failing_plainly(context):
            return dg.AssetCheckResult(passed=passed)

    job = dg.Definitions([dg.asset(name="made")(make)], asset_checks=[verify]).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        inherited = {RETRIED: "true", FAULT: INFRASTRUCTURE}
        result = job.execute_in_process(instance=instance, tags=inherited, raise_on_error=False)
        run = instance.get_run_by_id(result.run_id)
    assert run is not None and result.success is (what == "all is well")
    assert run.tags[RETRIED] == expected


def test_a_check_that_alone_is_tried_again_forgets_the_mark_too() -> None:
    @dg.asset
    def made() -> None: ...

    @dg.asset_check(asset="made", blocking=True)
    def verify(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with failing_plainly(context):
            return dg.AssetCheckResult(passed=False)

    job = dg.Definitions([made], asset_checks=[verify]).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, tags={RETRIED: "true"}, raise_on_error=False)
        run = instance.get_run_by_id(result.run_id)
    assert run is not None and not result.success and run.tags[RETRIED] == "false"
