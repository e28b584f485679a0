"""A job as the driver runs it: definition, deployment, one attempt's bookkeeping, and the handle users hold.

Knows nothing of Spark: the same attempt code serves the simulation. May import everything below; never ``spark``,
``testing`` or ``cli``.
"""
