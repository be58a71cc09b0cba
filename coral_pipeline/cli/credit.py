"""``coral-pipeline credit``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coral_pipeline.settings import CreditSettings


def credit(
    tree_dir: Annotated[Path, typer.Argument(help="Folder that `explore` wrote: nodes.parquet … tree.json.")],
    out: Annotated[Path, typer.Option(help="Folder to write into; made if need be.")],
    estimator: Annotated[
        str | None,
        typer.Option(
            show_default="direct_branch_td",
            help="direct_branch_td, grpo, an installed one's name, or module:attribute.",
        ),
    ] = None,
    value_model: Annotated[
        str | None,
        typer.Option(show_default="constant", help="constant, http, an installed one's name, or module:attribute."),
    ] = None,
    prior: Annotated[float | None, typer.Option(show_default="0.0", help="What `constant` predicts.")] = None,
    value_url: Annotated[str | None, typer.Option(help="Where `http` asks.")] = None,
    gamma: Annotated[float | None, typer.Option(min=0, max=1, show_default="1", help="Discount per step turn.")] = None,
    kappa: Annotated[
        float | None, typer.Option(min=0, show_default="1", help="How many branches a prediction weighs as much as.")
    ] = None,
    gain_weight: Annotated[
        float | None, typer.Option(show_default="1", help="Weight of the gain in score rank in a reward.")
    ] = None,
    soft_weight: Annotated[
        float | None, typer.Option(show_default="0", help="Weight of the soft verifier score in a reward.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(show_default="byte", help="`byte`, or a Hugging Face tokenizer's folder or name.")
    ] = None,
) -> None:
    """Give every edge of a finished tree its advantage, and the critic its targets.

    Reads TREE_DIR and writes into the output folder

    - `edges.parquet`: reward and advantage of every searched edge

    - `critic_targets.parquet`: prior, target and refined value of every node

    - `tokens.parquet` and `traces.jsonl` (verifiers): the messages, the advantages on their sampled tokens

    - `batch.json`: what went in, and how the numbers are spread

    A recipe of your own is a class: with `class RewardOnly(Estimator)` in `my_recipes.py` in the current folder,
    `--estimator my_recipes:RewardOnly`. A value model likewise.

    Example: `coral-pipeline credit data/output/tree --estimator grpo --out data/output/batch`
    """
    from coral_pipeline.cli.console import stdout, writing
    from coral_pipeline.credit import estimator_named, prepare, value_model_named
    from coral_pipeline.credit.tokens import write_tokens
    from coral_pipeline.report.advantages import batch_table

    settings = _settings(
        {"estimator": estimator, "value_model": value_model, "prior": prior, "tokenizer": tokenizer},
        {"value_prior_strength": kappa, "gamma": gamma, "gain_weight": gain_weight, "soft_weight": soft_weight},
        {"url": value_url},
    )
    sys.path.insert(0, str(Path.cwd()))  # module:attribute may lie here, as with python -m
    recipe = estimator_named(settings.estimator, settings)
    critic = value_model_named(settings.value_model, settings)
    batch = prepare(tree_dir, recipe, settings.rewards, critic)
    with writing(out):
        batch.write(out)
        tokens = write_tokens(tree_dir, batch.advantage_by_edge(), out, settings.tokenizer)
    stdout.print(batch_table(batch.describe()))
    counts = f"{tokens.messages} messages, {tokens.tokens:,} tokens, {tokens.sampled_tokens:,} of them sampled"
    stdout.print(f"{counts}: {out}", soft_wrap=True)


def _settings(
    options: dict[str, str | float | None], rewards: dict[str, float | None], http: dict[str, str | None]
) -> CreditSettings:
    """The settings from the options that were given; the others have their defaults."""
    from pydantic import ValidationError

    from coral_pipeline.settings import CreditSettings

    def given(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}

    try:
        return CreditSettings.model_validate(given(options) | {"rewards": given(rewards), "http": given(http)})
    except ValidationError as error:
        problems = [f"{found['loc'][-1]} = {found['input']!r}: {found['msg']}" for found in error.errors()]
        raise typer.BadParameter("; ".join(problems)) from error
