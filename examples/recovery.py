"""Account balances, and a failure that nobody sees afterwards.

    cutwater run examples/recovery.py --set interval=1s      # kill -9 a worker, or the driver: run it again

Recovery goes in three steps: start the whole pipeline anew, give every operator the state of the latest checkpoint, and read
the input from the positions of that same checkpoint on. Bookings behind the checkpoint are processed again, by state that
has not seen them: the balances come out as if nothing had happened.
"""

import cutwater as cw


class Balance(cw.KeyedProcess):
    """One row for each booking: the account, how many bookings it had, and what is on it."""

    bookings = cw.ValueState("long")
    balance = cw.ValueState("long")

    def process(self, row, ctx):
        self.bookings.value = (self.bookings.value or 0) + 1
        self.balance.value = (self.balance.value or 0) + row.amount
        yield (row.account, self.bookings.value, self.balance.value)


def pipeline(env):
    numbers = env.read(cw.sequence(20_000, rate=2_000), uid="numbers")
    bookings = numbers.map(lambda r: (f"account-{r.value % 10}", r.value % 7 - 3), "account string, amount long")
    balances = bookings.key_by("account").process(Balance(), "account string, bookings long, balance long")
    balances.uid("balances").write(cw.parquet_sink("output/balances"), uid="out")
