"""From what users write to what runs: logical graph, chains, levels, channels. Pure data, no Spark.

May import ``flow.ids`` and ``errors`` only; operators and sources are opaque bodies here.
"""
