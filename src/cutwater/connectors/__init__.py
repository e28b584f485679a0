"""Systems that streams come from and go to: one file per system, source and sink beside each other.

May import ``flow``, ``schema``, ``errors``, ``duration``; never ``spark``, ``subtask`` or ``checkpoint``.
"""
