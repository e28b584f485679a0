"""When does a subtask cut? Pure state machines over barriers in arrival order: no I/O, threads, clocks or pyarrow.

Events are method calls, each returns the next state and the effects to carry out, in order. Imports ``flow.ids`` only.
"""
