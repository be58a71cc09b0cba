"""What people look at in the Dagster UI: pictures, previews, column schemas, in the forms that it paints."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from coral_pipeline.tables import TABLES, Table

PREVIEW_ROWS = 12
SIGNIFICANT_DIGITS = 6
"""Floats in previews; the UI does not round them itself."""


def picture(title: str, svg: str) -> dg.MarkdownMetadataValue:
    """An SVG as a Markdown image; raw ``<svg>`` and ``<img>`` are not painted."""
    return dg.MetadataValue.md(f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})")


def preview(table: pa.Table, columns: Sequence[str] | None = None, rows: int = PREVIEW_ROWS) -> dg.TableMetadataValue:
    """The first rows of a table (some of its columns), made readable."""
    shown = table.select(list(columns or table.column_names))
    records = [
        dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in shown.slice(0, rows).to_pylist()
    ]
    schema = dg.TableSchema([dg.TableColumn(field.name, str(field.type)) for field in shown.schema])
    return dg.MetadataValue.table(records, schema)


def table_of(rows: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Rows of plain values as a table."""
    return preview(pa.Table.from_pylist(list(rows)), rows=sys.maxsize)


def count_table(what: str, counted: Mapping[str, int]) -> dg.TableMetadataValue:
    """How many there are of each ``what``."""
    schema = pa.schema([(what, pa.string()), ("count", pa.int64())])
    return preview(pa.Table.from_pylist([{what: name, "count": count} for name, count in counted.items()], schema))


def column_schemas(asset: str) -> dict[str, dg.TableColumnSchemaMetadataValue | dg.TableSchema]:
    """Definition metadata: the columns of an asset's tables, the first one's where the UI looks for them."""
    first, *others = TABLES[asset]
    schemas = {f"columns of {table.name}": dg.MetadataValue.table_schema(_schema(table)) for table in others}
    return {"dagster/column_schema": _schema(first), **schemas}


def _schema(table: Table) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(c.name, str(c.type), c.description, dg.TableColumnConstraints(nullable=c.nullable))
            for c in table.columns
        ]
    )


def _cell(value: Any) -> str | int | float | bool:
    if value is None:
        return ""
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    if isinstance(value, (str, int)):
        return value
    return json.dumps(value)
