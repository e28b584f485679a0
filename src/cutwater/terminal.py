"""A console whose reader may leave."""

from rich.console import Console


class Terminal(Console):
    """A closed pipe is told as BrokenPipeError, as ``print`` tells it, instead of ending the process on the spot: a job that runs
    has to be ended first."""

    def on_broken_pipe(self) -> None:
        self.quiet = True  # what is printed on the way out would meet the same pipe
        raise  # noqa: PLE0704  # called where the error is handled
