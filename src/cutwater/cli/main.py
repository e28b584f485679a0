"""The commands and their options."""

from importlib.metadata import version
from typing import Annotated

import typer

from cutwater.cli.answer import exit_codes

app = typer.Typer(
    name="cutwater",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[
    bool, typer.Option("--json", help="Answer with one JSON value on standard output (NaN and infinities are null).")
]


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cutwater {version('cutwater')}")
        raise typer.Exit


@app.callback()
def main(
    tell_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Consistent checkpoints of running PySpark streams."""


@app.command()
def run(
    file: Annotated[str, typer.Argument(metavar="PIPELINE.PY", help="A file that defines pipeline(env).")],
    restore: Annotated[str, typer.Option(help="auto, latest, fresh, or the path of a checkpoint.")] = "auto",
    parallelism: Annotated[int | None, typer.Option(help="Subtasks of each operator.")] = None,
    checkpoints: Annotated[str | None, typer.Option(metavar="URL", help="Where checkpoints go: file:FOLDER.")] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master; without it, a local one.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="spark.*, interval, mode, min_pause, ...")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The job's name; without it, that of the file.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the stack trace of code of yours that failed.")] = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline to its end. Killed, it goes on from its latest checkpoint when it is run again."""
    from cutwater.cli import run as command

    with exit_codes(as_json=as_json, trace=trace):
        command.run(
            file,
            restore=restore,
            parallelism=parallelism,
            checkpoints=checkpoints,
            master=master,
            pairs=settings or [],
            name=name,
            as_json=as_json,
        )


@app.command()
def demo(as_json: Json = False) -> None:
    """A word count that kills one of its own workers, recovers, and proves its result."""
    from cutwater.cli import demo as command

    with exit_codes(as_json=as_json):
        command.demo(as_json=as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look at Java, Python, Spark and the limits of this machine, and say what to do about what is wrong."""
    from cutwater.cli import doctor as command

    with exit_codes(as_json=as_json):
        command.doctor(as_json=as_json)


@app.command()
def conf(as_json: Json = False) -> None:
    """Print the Spark settings that are needed, as lines for spark-defaults.conf."""
    from cutwater.cli import conf as command

    with exit_codes(as_json=as_json):
        command.conf(as_json=as_json)


@app.command()
def checkpoints(
    place: Annotated[
        str,
        typer.Argument(
            metavar="JOB|URL", help="A storage folder (file:checkpoints), a job's folder in it, or a job's name."
        ),
    ],
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    as_json: Json = False,
) -> None:
    """List the checkpoints that a storage folder holds. A job's name is looked for in file:checkpoints."""
    from cutwater.cli import checkpoints as command

    with exit_codes(as_json=as_json):
        command.checkpoints(place, job, as_json=as_json)


if __name__ == "__main__":
    app()
