"""Tables in Parquet files, one folder per asset and partition."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pyarrow as pa

from coral_pipeline.defs.folders import Folders
from coral_pipeline.tables import TABLES

Tables = dict[str, pa.Table]
"""The tables of one asset and partition, by table name."""


class ParquetTables(dg.ConfigurableIOManager):
    """Stores an asset's tables as ``tables.TABLES`` declares them, all of them or none.

    They are written aside and renamed into place when the last one is complete. What else lies in the
    folder stays.
    """

    folders: dg.ResourceDependency[Folders]

    def handle_output(self, context: dg.OutputContext, obj: Mapping[str, pa.Table]) -> None:
        """Write the tables of the context's asset and partition."""
        asset, folder = self._place(context)
        declared = TABLES[asset]
        if obj.keys() != {table.name for table in declared}:
            raise ValueError(f"{asset}: got tables {sorted(obj)}, declared are {[table.name for table in declared]}")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as aside:
            written = [table.write(obj[table.name], Path(aside)) for table in declared]
            for path in written:
                path.replace(folder / path.name)
        context.add_output_metadata(
            {
                "folder": dg.MetadataValue.path(str(folder)),
                "dagster/row_count": obj[declared[0].name].num_rows,
                **{f"rows of {table.name}": obj[table.name].num_rows for table in declared[1:]},
            }
        )

    def load_input(self, context: dg.InputContext) -> Tables:
        """Read the tables back, checked against the declaration."""
        asset, folder = self._place(context)
        return {table.name: table.read(folder) for table in TABLES[asset]}

    def _place(self, context: dg.OutputContext | dg.InputContext) -> tuple[str, Path]:
        asset = context.asset_key.path[-1]
        return asset, self.folders.asset(asset, context.asset_partition_key)
