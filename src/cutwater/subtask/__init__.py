"""One subtask: intake, loop, outputs, snapshot. The same code runs on Spark and in simulation.

The core never blocks: threads, sockets and waiting belong to the transports. May import ``flow``, ``barrier``, ``operators``,
``state``, ``connectors`` (contracts), ``control.messages``, ``graph``, and of ``checkpoint`` the snapshot format; never
``spark``.
"""
