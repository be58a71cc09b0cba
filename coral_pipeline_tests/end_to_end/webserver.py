"""A real ``dagster dev`` on a free port, and what GraphQL says."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Dagster:
    """A running ``dagster dev``."""

    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, query: str, **variables: Any) -> Any:
        """The data that answers a GraphQL query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = json.load(answer)
        assert "errors" not in content, content["errors"]
        return content["data"]

    def launch(self, assets: Sequence[str], partition: str, config: dict[str, Any]) -> str:
        """Launch a run as the UI does; returns its id."""
        parameters = {
            "selector": {
                "repositoryLocationName": "coral_pipeline",
                "repositoryName": "__repository__",
                "jobName": "__ASSET_JOB",
                "assetSelection": [{"path": [asset]} for asset in assets],
            },
            "runConfigData": json.dumps(config),
            "mode": "default",
            "executionMetadata": {"tags": [{"key": "dagster/partition", "value": partition}]},
        }
        query = (
            "mutation($p: ExecutionParams!) {launchRun(executionParams: $p) {... on LaunchRunSuccess {run {runId}}}}"
        )
        return str(self.ask(query, p=parameters)["launchRun"]["run"]["runId"])

    def status(self, run: str) -> str:
        return str(
            self.ask("query($r: ID!) {runOrError(runId: $r) {... on Run {status}}}", r=run)["runOrError"]["status"]
        )

    def terminate(self, run: str) -> None:
        """Ask for the run's end as the UI does, in the middle of what its worker does."""
        query = "mutation($r: String!) {terminateRun(runId: $r) {__typename}}"
        with ThreadPoolExecutor() as threads:
            with self.held(run):
                answer = threads.submit(self.ask, query, r=run)  # comes when the worker has got the signal
                while self.status(run) != "CANCELING":
                    time.sleep(0.1)
            answer.result()

    def wait_until_ended(self, run: str) -> str:
        while (status := self.status(run)) not in ("SUCCESS", "FAILURE", "CANCELED"):
            time.sleep(0.5)
        return status

    def worker(self, run: str) -> int | None:
        """Process id of the run's worker, once it executes steps."""
        query = (
            "query($r: ID!) {logsForRun(runId: $r) {... on EventConnection {events {... on MessageEvent {message}}}}}"
        )
        events = self.ask(query, r=run)["logsForRun"]["events"]
        found = re.search(r"Executing steps in process \(pid: (\d+)\)", "\n".join(e.get("message", "") for e in events))
        return int(found[1]) if found else None

    @contextmanager
    def held(self, run: str) -> Iterator[None]:
        """The run's worker stands still for the length of the block: what is looked at is not over meanwhile."""
        worker = self.worker(run)
        assert worker, "executes no steps yet"
        os.kill(worker, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(worker, signal.SIGCONT)


@contextmanager
def dagster_dev(environment: dict[str, str], log: Path) -> Iterator[Dagster]:
    """``dagster dev -w workspace.yaml`` in the checkout, for the length of the block; nothing of it is left behind."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        dagster = Dagster(port, log)
        while not _answers(dagster):
            assert process.poll() is None, log.read_text()
            time.sleep(0.5)
        yield dagster
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):  # on a busy machine it waits long for its own servers
            process.wait(60)
        _kill_session(process.pid)
        process.wait()


def _answers(dagster: Dagster) -> bool:
    try:
        dagster.ask("{version}")
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def _kill_session(session: int) -> None:
    """What ``dagster dev`` did not end itself: it leaves runs going."""
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        pass
