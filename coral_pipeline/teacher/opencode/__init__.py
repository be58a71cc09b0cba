"""The real Teacher: OpenCode agents in sandboxed forks of a CORAL run, each turn ended by one graded eval.

``teacher`` is the door. ``states`` and ``forks`` keep and fork what a node is, ``setup``, ``sandbox`` and ``server``
run OpenCode in a fork, ``endpoint`` and ``line`` join it to the model and record what passes, ``desk`` grades its
eval, ``turns`` has all of them play one turn, ``transcripts`` and ``records`` read and keep what came of it.
"""
