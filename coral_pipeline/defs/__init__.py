"""The Dagster side, thin: partitions, assets, resources, IO manager."""
