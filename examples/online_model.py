"""A model that learns while it is used, and whose weights outlive whatever dies.

    cutwater run examples/online_model.py --set interval=1s      # kill -9 a worker, or the driver: run it again

One subtask learns: for each sample it moves the weights a little against the error (stochastic gradient descent), and every
hundred samples it tells them. Many subtasks use them: what is told reaches all of them. Neither has keys, so the weights are
operator state: a list of the subtask that learns, and a dict that is the same in all those that use it. Both stand in every
checkpoint. After a failure the learner goes on with the weights that belong to the samples behind it: no sample is forgotten,
none is learned twice, and the weights come out the same to the last digit.
"""

import os

import cutwater as cw

SAMPLES = int(os.environ.get("SAMPLES", "20000"))
RATE = float(os.environ.get("RATE", "2000"))
RATE_OF_LEARNING = 0.05
TOLD_EVERY = 100
HIDDEN = (1.0, 3.0, -2.0)
"""What is to be found out: y = 1 + 3 a - 2 b."""


def sample(number):
    """Two features between -1 and 1, and what was measured: the hidden rule, and a little noise."""
    a, b, noise = ((number * step % 1000) / 500 - 1 for step in (317, 733, 89))
    return number, a, b, HIDDEN[0] + HIDDEN[1] * a + HIDDEN[2] * b + noise / 10


def predict(weights, row):
    return weights[0] + weights[1] * row.a + weights[2] * row.b


def learned(weights, row):
    """The weights after one sample more."""
    step = RATE_OF_LEARNING * (row.y - predict(weights, row))
    return [weights[0] + step, weights[1] + step * row.a, weights[2] + step * row.b]


class Learn(cw.Process):
    """Tells the weights after every hundredth sample. One subtask: there is one model."""

    schema = "samples long, weights array<double>"
    weights = cw.ListOperatorState("double")
    samples = cw.ListOperatorState("long")

    def open(self, ctx):
        """What a checkpoint held is there already; without one the model knows nothing."""
        if not len(self.weights):
            self.weights.extend([0.0, 0.0, 0.0])
            self.samples.append(0)

    def process(self, row, ctx):
        weights, samples = learned(self.weights, row), self.samples[0] + 1
        self.weights.clear()
        self.weights.extend(weights)
        self.samples.clear()
        self.samples.append(samples)
        if samples % TOLD_EVERY == 0:
            yield samples, weights


class Score(cw.BroadcastProcess):
    """Each sample with what the latest model says of it; nothing, before there is one."""

    schema = "id long, y double, predicted double, learned_from long"
    model = cw.BroadcastState("string", "struct<samples:long,weights:array<double>>")

    def process(self, row, ctx):
        model = self.model.get("latest")
        if model is None:
            yield row.id, row.y, None, 0
        else:
            yield row.id, row.y, predict(model.weights, row), model.samples

    def process_broadcast(self, row, ctx):
        self.model["latest"] = row


def pipeline(env):
    numbers = env.read(cw.sequence(SAMPLES, rate=RATE), uid="numbers", parallelism=1)
    samples = numbers.map(lambda row: sample(row.value), "id long, a double, b double, y double").with_parallelism(1)
    models = samples.process(Learn(), Learn.schema).uid("learn").with_parallelism(1)
    scores = samples.rebalance().connect(models.broadcast()).process(Score(), Score.schema).uid("score")
    models.collect("models")
    scores.write(cw.parquet_sink("output/scores_online"), uid="scores")
