"""The Dagster code location."""

import os

from coral_pipeline.defs.build import definitions_from

defs = definitions_from(os.environ)
