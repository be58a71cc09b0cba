"""A real Postgres and a real S3 server on this machine, for as long as a test needs them."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psycopg2
from botocore.exceptions import ClientError, EndpointConnectionError

HOST = "127.0.0.1"
PASSWORD = "correct horse"
BUCKET, LOGS = "trees", "logs"
BINARIES = "/usr/lib/postgresql"
"""Where Debian's package puts the server's programs, one folder per version, on no ``PATH``."""


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """A cluster of its own; gives what ``dagster_postgres.yaml`` reads from the environment.

    Postgres refuses to run as root, so it runs as a user without rights where the tests run as root.
    """
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="coral-pipeline-postgres-"))
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if account:
            for path in (folder, secret):
                os.chown(path, account["user"], account["group"])
        data, port = folder / "data", free_port()
        make = [_program("initdb"), "-D", data, "-U", "dagster", "--auth=scram-sha-256", f"--pwfile={secret}"]
        subprocess.run([*make, "--no-sync"], check=True, capture_output=True, cwd=folder, **account)
        serve = [_program("postgres"), "-D", data, "-k", folder, "-h", HOST, "-p", str(port), "-c", "fsync=off"]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(serve, stdout=log, stderr=log, cwd=folder, **account)
        try:
            _soon(lambda: _connect(port), psycopg2.OperationalError, server, folder / "log").close()
            yield {
                "CORAL_PIPELINE_POSTGRES_HOST": HOST,
                "CORAL_PIPELINE_POSTGRES_PORT": str(port),
                "CORAL_PIPELINE_POSTGRES_USER": "dagster",
                "CORAL_PIPELINE_POSTGRES_PASSWORD": PASSWORD,
                "CORAL_PIPELINE_POSTGRES_DB": "postgres",
            }
        finally:
            server.send_signal(signal.SIGINT)  # by SIGTERM it would wait until everyone has gone
            server.wait(30)
    finally:
        shutil.rmtree(folder)


@contextmanager
def s3(folder: Path) -> Iterator[dict[str, str]]:
    """A server that keeps objects in ``folder`` and checks signatures; gives what every S3 client reads."""
    port = free_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "coral",
        "AWS_SECRET_ACCESS_KEY": "correct-horse-battery",
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    keys = {"NANIO_ACCESS_KEY": "coral", "NANIO_SECRET_KEY": "correct-horse-battery"}
    command = [sys.executable, "-m", "nanio", "serve", "--data-dir", folder, "--host", HOST, "--port", str(port)]
    folder.mkdir()
    with (folder.parent / "s3.log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | keys, stdout=log, stderr=log)
    try:
        client = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            region_name=environment["AWS_DEFAULT_REGION"],
        )
        for bucket in (BUCKET, LOGS):
            _soon(
                lambda name=bucket: client.create_bucket(Bucket=name),
                (EndpointConnectionError, ClientError),
                server,
                folder.parent / "s3.log",
            )
        yield environment
    finally:
        server.terminate()
        server.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _account() -> dict[str, Any]:
    """Whom the server runs as; nobody else where this is not root."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _program(name: str) -> str:
    found = shutil.which(name) or next(map(str, sorted(Path(BINARIES).glob(f"*/bin/{name}"), reverse=True)), None)
    assert found, f"{name} is missing: `make system-packages` installs Postgres"
    return found


def _connect(port: int) -> Any:
    return psycopg2.connect(host=HOST, port=port, user="dagster", password=PASSWORD, dbname="postgres")


def _soon(try_it: Callable[[], Any], not_yet: Any, server: subprocess.Popen[bytes], log: Path) -> Any:
    """The result, as soon as the server gives one."""
    while True:
        try:
            return try_it()
        except not_yet:
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
