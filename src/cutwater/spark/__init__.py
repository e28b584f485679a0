"""The only package that knows Spark: session settings, the plan, Spark's transport, submitting and watching attempts.

May import everything but ``cli`` and ``testing``; nothing below it imports it.
"""
