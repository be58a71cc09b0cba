"""Every check there is, by asset: what ``defs/checks.py`` gives to Dagster and ``coral-pipeline audit`` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from coral_pipeline.audit import chain, credit, exports, journal, messages, replay, round_rules, student_run, tree_rules
from coral_pipeline.audit.findings import Review
from coral_pipeline.audit.sources import Source
from coral_pipeline.student_run.reading import read_direction

Verify = Callable[[Review, Source, str], None]
"""Verifies the partition of ``review.asset`` and writes into the review."""


@dataclass(frozen=True)
class Check:
    """One check of one asset's partitions."""

    asset: str
    name: str
    description: str
    verify: Verify
    blocking: bool = True
    """Going on with what fails it would spread wrong data."""
    recomputes: bool = True
    """It computes anew what it verifies, and is not a comparison of checksums."""
    audit_only: bool = False
    """Not worth its cost in every run of the pipeline: of interest where someone may have tampered with provenance."""

    def review(self, source: Source, partition: str) -> Review:
        """Run the check.

        Raises ``Changed`` where it finds something, and what it read was replaced meanwhile: that says nothing.
        """
        review, source = Review(self.asset, partition), source.anew()
        with review.guarded(self.name):
            self.verify(review, source, partition)
        if review.findings:
            source.require_unchanged()
        return review


def _snapshots(review: Review, source: Source, key: str) -> None:
    student_run.verify_snapshots(review, source.fetch("filtered_snapshots", key), source.student_run(key))


def _stages(review: Review, source: Source, key: str) -> None:
    settings, direction = source.settings("stage_labels", key).selection, read_direction(source.student_run(key))
    folders = source.fetch("stage_labels", key), source.fetch("filtered_snapshots", key)
    student_run.verify_stages(review, *folders, direction, settings)


def _choice(review: Review, source: Source, key: str) -> None:
    settings = source.settings("selected_roots", key).selection
    roots, snapshots, labels = (
        source.fetch(asset, key) for asset in ("selected_roots", "filtered_snapshots", "stage_labels")
    )
    student_run.verify_choice(review, roots, snapshots, labels, key, settings)


def _copies(review: Review, source: Source, key: str) -> None:
    student_run.verify_copies(review, source.copied(key), source.student_run(key))


def _replay(review: Review, source: Source, key: str) -> None:
    settings = source.settings("explored_trees", key).search
    replay.verify_replay(review, source.fetch("explored_trees", key), source.root(key), settings)


def _rules(review: Review, source: Source, key: str) -> None:
    folder = source.fetch("explored_trees", key)
    tree_rules.verify_edges_and_nodes(review, folder)
    round_rules.verify_rounds(review, folder)


def _tree(verify: Callable[..., None], review: Review, source: Source, key: str) -> None:
    verify(review, source.fetch("explored_trees", key))


def _paths(review: Review, source: Source, key: str) -> None:
    folders = source.fetch("ranked_paths", key), source.fetch("explored_trees", key)
    credit.verify_ranked_paths(review, *folders, source.settings("ranked_paths", key).paths)


def _credit(review: Review, source: Source, key: str) -> None:
    folders = source.fetch("advantage_batches", key), source.fetch("explored_trees", key)
    credit.verify_credit(review, *folders, source.settings("advantage_batches", key).credit)


def _tokens(review: Review, source: Source, key: str) -> None:
    folders = source.fetch("advantage_batches", key), source.fetch("explored_trees", key)
    recorded = source.settings("advantage_batches", key).credit.tokenizer
    credit.verify_tokens(review, *folders, recorded, source.tokenizer)


def _trace(review: Review, source: Source, key: str) -> None:
    credit.verify_trace(review, source.fetch("advantage_batches", key), source.fetch("explored_trees", key))


def _readable(review: Review, source: Source, key: str) -> None:
    exports.read_episodes(review, source.fetch("advantage_batches", key))


def _samples(review: Review, source: Source, key: str) -> None:
    exports.verify_exports(review, source.fetch("advantage_batches", key), [source.of_root(key)], ["sft"])


def _dataset(review: Review, source: Source, key: str) -> None:
    exports.verify_exports(review, source.fetch("sft_dataset", key), source.roots_of_dataset(key))


_CONTENT: tuple[tuple[str, str, str, Verify], ...] = (
    (
        "filtered_snapshots",
        "every_snapshot_told_once",
        "Kept + rejected = folders of the Student run; every row as the run's files say; eligibility (S1–S6)",
        _snapshots,
    ),
    (
        "stage_labels",
        "stages_computed_anew",
        "Exactly the kept snapshots in run order; scores, smoothing, gains and stages computed anew (S5–S8)",
        _stages,
    ),
    (
        "selected_roots",
        "choice_computed_anew",
        "Roots are eligible; quotas are met, or the shortage is explained; the even picks computed anew (S9–S11)",
        _choice,
    ),
    (
        "selected_roots",
        "copies_equal_snapshots",
        "Copied folders and task equal what they were copied from, but for the fields that selection adds (S12)",
        _copies,
    ),
    (
        "explored_trees",
        "decisions_replayed",
        "The search fed with turns.parquet gives the same nodes, edges, rounds and tree.json, to the last bit",
        _replay,
    ),
    (
        "explored_trees",
        "rules_of_the_method_hold",
        "The tables keep T1–T14: sums, failures, soft scores, links, leaves; candidates, ranks, dispatch, end",
        _rules,
    ),
    (
        "explored_trees",
        "messages_linked",
        "Messages are there once, linked along the edges, forks sharing their parent's; roles, parts, recorded tokens",
        partial(_tree, messages.verify_messages),
    ),
    (
        "ranked_paths",
        "paths_computed_anew",
        "Every field of every path computed anew; the best top_k candidates are selected (P1–P3)",
        _paths,
    ),
    (
        "advantage_batches",
        "credit_computed_anew",
        "Rewards, durations, values, targets and advantages computed anew, finite; unassigned is not zero (C1–C6)",
        _credit,
    ),
    (
        "advantage_batches",
        "tokens_carry_their_credit",
        "Token ids, masks and log-probabilities anew; each sampled token carries its edge's advantage, once (C7)",
        _tokens,
    ),
    (
        "advantage_batches",
        "trace_equals_tables",
        "traces.jsonl holds what messages.parquet and tokens.parquet hold",
        _trace,
    ),
    (
        "advantage_batches",
        "samples_equal_tables",
        "The root's SFT samples are its selected paths, message by message",
        _samples,
    ),
    (
        "sft_dataset",
        "exports_equal_tables",
        "Samples, episodes and token streams are readable, and are the selected paths of the roots, token by token",
        _dataset,
    ),
)
_READ_AGAIN = {"every_snapshot_told_once", "copies_equal_snapshots"}
"""Of these: those that compare files with what they were made from, and compute nothing."""
_ASSETS = tuple(dict.fromkeys(asset for asset, *_ in _CONTENT))

CHECKS: tuple[Check, ...] = (
    *(
        Check(
            asset,
            "files_as_written",
            "Every file has the bytes that provenance.json recorded; none is missing or too many",
            chain.verify_files,
            recomputes=False,
        )
        for asset in _ASSETS
    ),
    *(
        Check(
            asset,
            "made_from_what_is_there",
            "What it was made from has not changed since",
            chain.verify_inputs,
            blocking=False,
            recomputes=False,
        )
        for asset in _ASSETS
    ),
    *(
        Check(asset, name, description, verify, recomputes=name not in _READ_AGAIN)
        for asset, name, description, verify in _CONTENT
    ),
    *(
        Check(
            asset,
            "version_of_contents",
            "The version of the tables' contents, which others refer to, is the recorded one",
            chain.verify_contents,
            blocking=False,
            audit_only=True,
        )
        for asset in _ASSETS
    ),
    Check(
        "explored_trees",
        "told_as_journaled",
        "Turns, messages and settings are those in the journal of the search, where that is still there",
        partial(_tree, journal.verify_journal),
        audit_only=True,
    ),
    Check("advantage_batches", "trace_is_readable", "verifiers reads traces.jsonl", _readable, audit_only=True),
    Check(
        "explored_trees",
        "turns_count_what_messages_hold",
        "Tool calls and model calls of each turn are those in its messages (T2)",
        partial(_tree, messages.verify_counts),
        blocking=False,
    ),
    Check(
        "root_folders",
        "copied_root_as_it_was",
        "Every file of the root's copied folder has the checksum taken when it was copied",
        chain.verify_copied_root,
        recomputes=False,
    ),
)
"""In the order in which they are run and shown."""
