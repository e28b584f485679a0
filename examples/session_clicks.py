"""Visits to a web site: the clicks of a user that follow each other within half an hour.

    cutwater run examples/session_clicks.py
    INPUT='clicks/*.json' cutwater run examples/session_clicks.py

The lines of the files are like {"user": "ada", "page": "/", "at": "2024-05-01T10:00:00Z"}; without files, clicks are made up.

When a visit is over is decided by the time in the clicks, not by when they arrive: clicks may come up to a minute out of order,
and a click between two visits makes one of them. A visit is told half an hour behind its last click. A click that comes later
than that is not lost: it stands in the second output.
"""

import os
import random
from datetime import UTC, datetime, timedelta

import cutwater as cw

INPUT = os.environ.get("INPUT")
SCHEMA = "user string, page string, at timestamp"
PAGES = ("/", "/search", "/item", "/cart", "/paid")
MORNING = datetime(2024, 5, 1, 8, tzinfo=UTC)


def made_up_clicks(users=20, visits=3, seed=1):
    """For a look without files of your own: everybody comes a few times a day, and clicks a few times."""
    chance = random.Random(seed)
    clicks = []
    for user in range(users):
        for visit in range(visits):
            at = MORNING + timedelta(hours=4 * visit, minutes=chance.randrange(120))
            for _ in range(chance.randrange(1, 8)):
                clicks.append((f"user-{user}", chance.choice(PAGES), at))
                at += timedelta(seconds=chance.randrange(5, 600))
    return sorted(clicks, key=lambda click: click[2])


class Visit(cw.WindowProcess):
    """One row for each visit: how many clicks, from where to where, for how long, and whether it ended with a payment."""

    schema = "user string, clicks long, entry string, exit string, seconds long, paid boolean"

    def process(self, rows, ctx):
        rows = sorted(rows, key=lambda row: row.at)
        first, last = rows[0], rows[-1]
        seconds = (last.at - first.at) // timedelta(seconds=1)
        yield ctx.key, len(rows), first.page, last.page, seconds, any(row.page == "/paid" for row in rows)


def pipeline(env):
    source = cw.json_files(INPUT, SCHEMA) if INPUT else cw.from_rows(made_up_clicks(), SCHEMA)
    clicks = env.read(source, uid="clicks").with_timestamps("at", out_of_orderness="1 min")
    visits = clicks.key_by("user").window(cw.session("30 min")).process(Visit(), Visit.schema).uid("visits")
    visits.collect("visits")
    visits.side_output("late").collect("late")
