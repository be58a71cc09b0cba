"""The Dagster code location."""

import dagster as dg

defs = dg.Definitions()
