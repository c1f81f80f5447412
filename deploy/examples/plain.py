"""A model for machines without torch: y = w·x + b, learnt by gradient descent from noisy samples. The same step gives the
same loss wherever it is computed, so that a run that was interrupted can be told from one that went wrong."""

import json
import os
import random

BATCH = 32
RATE = 0.05
TRUTH = [2.0, -3.0, 0.5, 1.0]


class Model:
    """Its state is the step and the weights."""

    def __init__(self):
        self.step = 0
        self.weights = [0.0] * (len(TRUTH) + 1)

    def train(self):
        """Takes one step and returns the loss before it."""
        samples = random.Random(self.step)
        gradient = [0.0] * len(self.weights)
        loss = 0.0
        for _ in range(BATCH):
            x = [samples.gauss(0, 1) for _ in TRUTH] + [1.0]
            y = sum(w * v for w, v in zip(TRUTH, x)) + samples.gauss(0, 0.1)
            error = sum(w * v for w, v in zip(self.weights, x)) - y
            loss += error * error / BATCH
            gradient = [g + 2 * error * v / BATCH for g, v in zip(gradient, x)]
        self.weights = [w - RATE * g for w, g in zip(self.weights, gradient)]
        self.step += 1
        return loss

    def checkpoint(self, path):
        """Returns when the checkpoint is safe: whole, or not there."""
        with open(path + ".tmp", "w") as file:
            json.dump({"step": self.step, "weights": self.weights}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)

    def resume(self, path):
        """Takes up the checkpoint, if there is one."""
        try:
            with open(path) as file:
                state = json.load(file)
        except FileNotFoundError:
            return
        self.step, self.weights = state["step"], state["weights"]

    def any_rank(self, flag):
        """There is one rank."""
        return flag

    def commit(self):
        """There is no other rank to pass the state to."""
