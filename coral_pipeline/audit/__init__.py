"""Verifying what lies on disk against what it was made from; without Dagster.

One module per asset. Each function takes a ``Review`` and the folders to look at, and writes down what is not as it
should be. The Dagster asset checks and ``coral-pipeline audit`` are made of these.
"""
