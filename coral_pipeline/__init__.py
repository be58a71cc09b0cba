"""Turns a CORAL run of coding agents into training data.

The stages, in the order the data goes: ``student_run`` (snapshots, stages, roots), ``search`` and
``teacher`` (one tree per root), ``paths`` (ranked root-to-leaf paths), ``credit`` (advantages) and
``export`` (what trainers load). ``defs`` holds the Dagster side of each, ``cli`` the shell side.
"""
