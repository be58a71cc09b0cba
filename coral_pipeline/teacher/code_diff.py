"""What a turn changed in the code, as readers see it.

It is kept in the tables because the states, and with them the commits, do not outlive the search.
"""

from __future__ import annotations

DIFF = (
    # Larger files are named as binary ones are, so that no turn waits for the diff of a data set.
    "-c",
    "core.bigFileThreshold=4m",
    "diff-tree",
    "-r",
    "--patch",
    "--find-renames",
    # Whatever the agent's own configuration and attributes ask for:
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
"""git's arguments, the two commits left out. Binary files are named, not dumped."""


def shown_diff(output: bytes, limit: int) -> str:
    """git's output as text; what is beyond ``limit`` bytes is cut after a whole line, and a last line says so."""
    if len(output) <= limit:
        return output.decode(errors="replace")
    kept = output[: output.rfind(b"\n", 0, limit) + 1].decode(errors="replace")
    return f"{kept}\\ Cut here: the diff is longer than {limit} bytes\n"
