"""How many trees grow at once."""

from __future__ import annotations

import dagster as dg

POOL = "trees"
"""Concurrency pool of explored_trees."""


def limit_trees_at_once(instance: dg.DagsterInstance, limit: int) -> None:
    """Give the pool its limit, unless someone has set one already (in the UI or with ``dagster instance concurrency``).

    An explicit limit, because Dagster ignores the default one the first time runs of a pool are taken
    from the queue.
    """
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    if not any(pool.name == POOL and not pool.from_default for pool in storage.get_pool_limits()):
        storage.set_concurrency_slots(POOL, limit)
