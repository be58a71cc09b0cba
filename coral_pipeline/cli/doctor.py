"""``coral-pipeline doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(
    endpoint: Annotated[str | None, typer.Option(help="Model endpoint, such as http://gpu1:30000/v1.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, as the endpoint lists it.")] = None,
    out: Annotated[Path, typer.Option(help="Folder in which trees are to grow.")] = Path("data/output"),
    settings: Annotated[Path | None, typer.Option(help="YAML or JSON file with a section opencode.")] = None,
) -> None:
    """Check what the opencode teacher needs, and say for each lack how to mend it.

    Looks at OpenCode and its version, rg, git, bubblewrap, overlayfs in the output folder, CORAL, free disk
    space, and, where an endpoint is given, whether it answers, lists the model, has the context length and
    gives token ids (three short requests). Writes nothing that stays. The endpoint's key is read from the variable
    CORAL_PIPELINE_API_KEY.

    Exit code 0: the teacher can work, 1: something it needs is missing.

    Example: `coral-pipeline doctor --endpoint http://gpu1:30000/v1 --model qwen3-coder`
    """
    from coral_pipeline.settings_file import read_settings, with_opencode
    from coral_pipeline.teacher.opencode.checks import run_checks
    from coral_pipeline.teacher.registry import api_key_of

    chosen = with_opencode(read_settings(settings), endpoint, model).opencode
    missing = False
    for check in run_checks(chosen, out, api_key_of(chosen)):
        sign = "ok  " if check.ok else "note" if check.optional else "LACK"
        missing = missing or not (check.ok or check.optional)
        typer.echo(f"{sign}  {check.name:<10}  {check.found}")
        if not check.ok:
            typer.echo(f"      {'':<10}  -> {check.mend}")
    if missing:
        raise typer.Exit(1)
