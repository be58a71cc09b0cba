"""Tables in Parquet files, one folder per asset and partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import dagster as dg
import pyarrow as pa

from coral_pipeline.defs.failures import failing_plainly
from coral_pipeline.defs.folders import Folders
from coral_pipeline.defs.lineage import Lineage
from coral_pipeline.defs.retries import RunContext
from coral_pipeline.errors import Changed
from coral_pipeline.settings import PipelineSettings
from coral_pipeline.tables import TABLES

Tables = dict[str, pa.Table]
"""The tables of one asset and partition, by table name."""


class ParquetTables(dg.IOManager):
    """Stores an asset's tables as ``tables.TABLES`` declares them, all of them or none, and their provenance."""

    def __init__(self, folders: Folders, settings: PipelineSettings) -> None:
        """``settings``: those that the assets of this run are made with."""
        self._folders, self._lineage = folders, Lineage(folders, settings)
        self._read: dict[tuple[str, str], str | None] = {}
        """Which making of each partition was read last, by its seal."""

    def handle_output(self, context: dg.OutputContext, obj: Mapping[str, pa.Table]) -> None:
        """Write the tables of the context's asset and partition. Raises ``Changed`` where its inputs were made anew."""
        asset, key = context.asset_key.path[-1], context.asset_partition_key
        declared = TABLES[asset]
        if obj.keys() != {table.name for table in declared}:
            raise ValueError(f"{asset}: got tables {sorted(obj)}, declared are {[table.name for table in declared]}")
        making = self._lineage.making(asset, key, context.run_id)
        for one in making.inputs:
            if (one.asset, one.partition) in self._read:
                self._require_as_read(one.asset, one.partition)
        with self._folders.writing(asset, key, making.describe) as aside:
            for table in declared:
                table.write(obj[table.name], aside)
        context.add_output_metadata(
            {
                "folder": dg.MetadataValue.path(str(self._folders.address(asset, key))),
                "dagster/row_count": obj[declared[0].name].num_rows,
                **{f"rows of {table.name}": obj[table.name].num_rows for table in declared[1:]},
            }
        )

    def load_input(self, context: dg.InputContext) -> Tables:
        """Read the tables back, all of one making, checked against the declaration. Raises ``Changed``."""
        asset, key = context.asset_key.path[-1], context.asset_partition_key
        self._read[asset, key] = self._lineage.seal(asset, key)
        folder = self._folders.fetch(asset, key)
        tables = {table.name: table.read(folder) for table in TABLES[asset]}
        self._require_as_read(asset, key)
        return tables

    def _require_as_read(self, asset: str, key: str) -> None:
        if self._lineage.seal(asset, key) != self._read[asset, key]:
            raise Changed(f"{asset} of {key}", "made anew meanwhile")


class Plainly(dg.IOManager):
    """Another IO manager, whose expected failures show and are tried again as those of an asset itself are."""

    def __init__(self, inner: dg.IOManager, run: RunContext) -> None:
        """``inner``: does all the work."""
        self._inner, self._run = inner, run

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """As the other does."""
        with failing_plainly(self._run):
            self._inner.handle_output(context, obj)

    def load_input(self, context: dg.InputContext) -> Any:
        """As the other does."""
        with failing_plainly(self._run):
            return self._inner.load_input(context)


@dg.io_manager(required_resource_keys={"folders", "settings"}, description=ParquetTables.__doc__)
def parquet_tables(context: dg.InitResourceContext) -> dg.IOManager:
    """The IO manager of a run, or of someone who looks at an asset's tables by hand."""
    tables = ParquetTables(context.resources.folders, context.resources.settings)
    return Plainly(tables, cast(RunContext, context)) if context.run else tables
