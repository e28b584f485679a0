"""Checkpoints as the driver sees them: trigger, pending, completed, retention, restore; and where they are stored.

The decisions (``coordinator``, ``trigger``, ``pending``, ``retention``, ``failures``) import no I/O, threads, clocks or
pyarrow. May import ``flow``, ``errors``, ``duration``, ``control.messages``; never ``subtask``, ``operators``, ``spark``.
"""
