"""Dagster's log in a file."""

import logging

import dagster as dg


@dg.logger(config_schema={"path": str}, description="Events, warnings and stack traces in a file")
def file_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """A logger of one run that appends to the file."""
    logger = logging.Logger("dagster", logging.INFO)
    handler = logging.FileHandler(context.logger_config["path"], delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    return logger
