"""The control channel: numbered, acknowledged, encrypted messages between the driver and every subtask.

May import ``flow`` and ``errors``; never ``subtask``, ``checkpoint`` or ``spark``.
"""
