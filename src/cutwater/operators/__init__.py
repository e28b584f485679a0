"""What is done to records: each operator works on columns or rows, without threads, clocks or I/O of its own.

May import ``flow``, ``state``, ``connectors`` (contracts), ``schema``; never ``subtask``, ``spark``, ``checkpoint``.
"""
