"""One self-contained HTML page of a Student run and all that was made of it, for a person to be sent.

``reading`` reads the tables, ``texts`` makes what agents wrote safe and short enough to show, ``trees`` and
``overview`` put together what is shown, ``pictures`` the drawings, ``page`` the file. The page's own looks and
ways are in ``parts``: templates, style, scripts.
"""
