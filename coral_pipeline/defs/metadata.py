"""Values of metadata in the forms that the Dagster UI paints: pictures, tables, numbers."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

from coral_pipeline.report import sketch

PREVIEW_ROWS = 12
SIGNIFICANT_DIGITS = 6
"""Of floats."""


def picture(title: str, svg: str) -> dg.MarkdownMetadataValue:
    """An SVG as a Markdown image, behind a click; raw ``<svg>`` and ``<img>`` are not painted."""
    return dg.MetadataValue.md(f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})")


def at_a_glance(svg: str) -> dg.MarkdownMetadataValue:
    """A picture of ``report.sketch``, which the UI paints in the page; any other is shown in a window of its own."""
    return dg.MetadataValue.md(sketch.as_markdown(svg))


def number(value: float) -> float:
    """The value in as many digits as people read; the UI does not round."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


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


def _cell(value: Any) -> str | int | float | bool:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, (str, int)):
        return value
    return json.dumps(value)
