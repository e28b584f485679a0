import dataclasses
from datetime import timedelta

import polars as pl
import pytest

from cutwater.byte_size import parse_byte_size
from cutwater.config import Checkpointing, MemoryStorageSetting, memory_storage
from cutwater.errors import ConfigError


def test_the_defaults_are_those_of_the_public_contract():
    settings = Checkpointing()
    assert settings.interval == timedelta(seconds=10)
    assert settings.storage == "file:checkpoints"
    assert settings.mode == "exactly_once"
    assert settings.min_pause is None
    assert settings.timeout == timedelta(minutes=10)
    assert (settings.max_concurrent, settings.tolerable_failures, settings.retain) == (1, 3, 2)
    assert (settings.unaligned, settings.aligned_timeout, settings.max_in_flight) == (False, None, 256 * 2**20)
    assert (settings.on_cancel, settings.on_damaged) == ("retain", "fail")


def test_the_interval_may_stand_alone():
    assert Checkpointing("500ms").interval == timedelta(milliseconds=500)


def test_settings_can_be_changed_only_by_making_new_ones():
    settings = Checkpointing("1s", unaligned=True, aligned_timeout="2s")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.retain = 5
    changed = dataclasses.replace(settings, retain=5)
    assert (changed.retain, changed.interval, changed.aligned_timeout) == (5, settings.interval, timedelta(seconds=2))
    assert changed != settings


def test_a_minimum_pause_forces_one_concurrent_checkpoint():
    assert Checkpointing(min_pause="1s", max_concurrent=4).max_concurrent == 1
    assert Checkpointing(min_pause="0s", max_concurrent=4).max_concurrent == 4


@pytest.mark.parametrize(
    "storage", ["file:checkpoints", "file:/tmp/x", "hdfs://host/x", "s3://bucket/x", "gs://b", "az://b"]
)
def test_storage_urls_are_taken_as_written(storage):
    assert Checkpointing(storage=storage).storage == storage


def test_memory_is_short_for_memory_storage_of_five_megabytes():
    assert Checkpointing(storage="memory").storage == memory_storage() == MemoryStorageSetting(5 * 2**20)
    assert Checkpointing(storage=memory_storage(max_state="1 MB")).storage == MemoryStorageSetting(2**20)


@pytest.mark.parametrize(
    ("wrong", "named", "allowed"),
    [
        ({"interval": 10}, "interval=10", "'10s'"),
        ({"interval": "0s"}, "interval='0s'", "greater than zero"),
        ({"interval": "soon"}, "interval='soon'", "'500ms'"),
        ({"interval": None}, "interval=None", "'500ms'"),
        ({"storage": "/var/checkpoints"}, "storage='/var/checkpoints'", "'file:/var/checkpoints'"),
        ({"storage": "ftp://host"}, "storage='ftp://host'", "'hdfs://...'"),
        ({"storage": "file://"}, "'file://'", "names no folder"),
        ({"storage": "file://host/x"}, "'file://host/x'", "names the host 'host'"),
        ({"storage": "file:a\0b"}, "NUL", "no path"),
        ({"storage": "file:"}, "storage='file:'", "'file:...'"),
        ({"storage": ""}, "storage=''", "'file:...'"),
        ({"storage": None}, "storage=None", "'memory'"),
        ({"mode": "twice"}, "mode='twice'", "'exactly_once', 'at_least_once', 'at_most_once'"),
        ({"min_pause": 1}, "min_pause=1", "'1s'"),
        ({"timeout": 0}, "timeout=0", "greater than zero and have a unit. Write for example timeout='500ms'"),
        ({"timeout": -5}, "timeout=-5", "greater than zero and have a unit"),
        ({"timeout": float("inf")}, "timeout=inf", "is not a duration"),
        ({"min_pause": 0}, "min_pause=0", "'0s'"),
        ({"timeout": "0s"}, "timeout='0s'", "greater than zero"),
        ({"max_concurrent": 0}, "max_concurrent=0", "at least 1"),
        ({"max_concurrent": True}, "max_concurrent=True", "at least 1"),
        ({"tolerable_failures": -1}, "tolerable_failures=-1", "at least 0"),
        ({"unaligned": "yes"}, "unaligned='yes'", "True and False"),
        ({"unaligned": True, "max_concurrent": 2}, "max_concurrent=2", "max_concurrent=1"),
        ({"unaligned": True, "aligned_timeout": "1s", "max_concurrent": 2}, "max_concurrent=2", "max_concurrent=1"),
        ({"unaligned": True, "mode": "at_least_once"}, "mode='at_least_once'", "mode='exactly_once'"),
        ({"aligned_timeout": "1s"}, "aligned_timeout='1s'", "unaligned=True"),
        ({"unaligned": True, "aligned_timeout": 5}, "aligned_timeout=5", "'5s'"),
        ({"unaligned": True, "aligned_timeout": "2s", "timeout": "2s"}, "aligned_timeout='2s'", "the shorter one"),
        ({"unaligned": True, "stop_the_world": True}, "stop_the_world=True with unaligned=True", "one of the two"),
        ({"unaligned": True, "max_in_flight": "much"}, "max_in_flight='much'", "'64 MiB'"),
        ({"max_in_flight": 0}, "max_in_flight=0", "at least one byte"),
        ({"retain": 0}, "retain=0", "at least 1"),
        ({"retain": "2"}, "retain='2'", "at least 1"),
        ({"on_cancel": "keep"}, "on_cancel='keep'", "'retain', 'delete'"),
        ({"on_damaged": []}, "on_damaged=[]", "'fail', 'fallback'"),
        ({"storage": pl.col("a")}, "storage=<Expr", "'memory'"),
        ({"mode": pl.col("a")}, "mode=<Expr", "'exactly_once'"),
        ({"on_cancel": pl.col("a")}, "on_cancel=<Expr", "'retain', 'delete'"),
        ({"on_damaged": pl.col("a")}, "on_damaged=<Expr", "'fail', 'fallback'"),
        ({"unaligned": pl.col("a")}, "unaligned=<Expr", "True and False"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call_by_name_value_and_what_is_allowed(wrong, named, allowed):
    with pytest.raises(ConfigError) as refused:
        Checkpointing(**wrong)
    assert named in str(refused.value)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("5MB", 5 * 2**20), ("64 MiB", 2**26), ("1.5 kb", 1536), ("2GB", 2**31), ("7 bytes", 7), ("7b", 7), (4096, 4096)],
)
def test_byte_sizes_mean_what_they_say(written, meant):
    assert parse_byte_size("max_state", written) == meant


@pytest.mark.parametrize("written", ["5", "MB", "5 boxes", "-5MB", "0MB", 0, -1, 1.5, True, None])
def test_a_wrong_byte_size_is_refused_by_name_and_value(written):
    with pytest.raises(ConfigError) as refused:
        memory_storage(max_state=written)
    assert f"max_state={written!r}" in str(refused.value)
