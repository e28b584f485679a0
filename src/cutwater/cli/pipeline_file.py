"""The user's file: found, loaded and asked for its pipeline. Whatever is wrong with it is said with file and line."""

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # ships no types

from cutwater.environment import Environment
from cutwater.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PipelineFile:
    path: Path
    pipeline: Callable[[Environment], Any]
    environment: Callable[[], Environment] | None

    def new_environment(self) -> Environment | None:
        """What the file's ``environment()`` returns; None: it has no such function."""
        if self.environment is None:
            return None
        env = _called(self.path, self.environment)
        if not isinstance(env, Environment):
            raise ConfigError(f"{self.path}: environment() returned {env!r}; it must return a cw.Environment.")
        return env

    def write_into(self, env: Environment) -> None:
        _called(self.path, self.pipeline, env)
        if not env.drafts:
            raise ConfigError(f"{self.path}: pipeline(env) read nothing: begin with env.read(...).")


def load(file: str) -> PipelineFile:
    """Raises ConfigError. Modules beside the file can be imported, here and in local workers."""
    path = Path(file)
    if path.is_dir():
        raise ConfigError(f"{file}: this is a folder; give the Python file that defines pipeline(env).")
    if not path.is_file():
        raise ConfigError(f"{file}: there is no such file.")
    _make_importable(path.resolve().parent)
    module = _loaded(path)
    pipeline = getattr(module, "pipeline", None)
    if not callable(pipeline):
        raise ConfigError(f"{file} defines no pipeline. Write: def pipeline(env): env.read(...)...")
    environment = getattr(module, "environment", None)
    return PipelineFile(path, pipeline, environment if callable(environment) else None)


def _loaded(path: Path) -> ModuleType:
    name = f"cutwater_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _called(path, spec.loader.exec_module, module)
    # Workers cannot import a file by this name, so its functions travel with their code.
    cloudpickle.register_pickle_by_value(module)
    return module


def _make_importable(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def _called(path: Path, fn: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return fn(*arguments)
    except SyntaxError as error:
        where = Path(error.filename).name if error.filename else path.name
        code = f"\n    {error.text.strip()}" if error.text else ""
        raise ConfigError(f"{where}:{error.lineno}: {error.msg}{code}") from None
    except ConfigError as error:
        raise type(error)(f"{_line_in(path, error)}: {error}") from None
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{_line_in(path, error)}: {type(error).__name__}: {error}") from error


def _line_in(path: Path, error: BaseException) -> str:
    """The innermost line of the user's file that was running."""
    whole = path.resolve()
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == whole
    ]
    return f"{path.name}:{lines[-1]}" if lines else path.name
