"""Keyed state: descriptors that users declare, backends that keep it, frozen tables that snapshots write.

May import ``flow``, ``schema``, ``errors``; never ``operators``, ``subtask``, ``spark``.
"""
