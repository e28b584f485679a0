"""The command line: ``cutwater run``, ``demo``, ``doctor``, ``conf``, ``checkpoints``. Stands above everything else.

A command answers on standard output (one JSON value with ``--json``, in which NaN and the infinities are null) and says how it
goes on standard error. It ends with 0, with 1 when what was asked for failed, and with 2 when it was asked for wrongly.
"""
