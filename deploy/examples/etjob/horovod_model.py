"""A small network under Horovod Elastic: what train.py trains where horovod.torch is installed."""

import os

import horovod.torch as hvd
import torch
from torch import nn

BATCH = 256


class Model(hvd.elastic.TorchState):
    """Its state is the step, the network and the optimizer."""

    def __init__(self):
        hvd.init()
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
        if torch.cuda.is_available():
            torch.cuda.set_device(hvd.local_rank())
            network.cuda()
        optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(network.parameters(), lr=1e-3), network.named_parameters())
        super().__init__(model=network, optimizer=optimizer, step=0)

    def train(self):
        """Takes one step and returns the loss before it."""
        generator = torch.Generator().manual_seed(self.step * hvd.size() + hvd.rank())
        x = torch.randn(BATCH, 64, generator=generator).to(next(self.model.parameters()).device)
        loss = nn.functional.mse_loss(self.model(x), x.sum(dim=1, keepdim=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def any_rank(self, flag):
        """Whether the flag is set on any rank; the same answer on all of them."""
        return bool(hvd.allreduce(torch.tensor(float(flag)), op=hvd.Sum, name="any_rank").item())

    def checkpoint(self, path):
        """Returns, on every rank, when the checkpoint is safe: whole, or not there."""
        if hvd.rank() == 0:
            state = {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            with open(path + ".tmp", "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".tmp", path)
        self.any_rank(False)  # a barrier

    def resume(self, path):
        """Takes up the checkpoint, if there is one."""
        if not os.path.exists(path):
            return
        state = torch.load(path, map_location="cpu")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]


elastic = hvd.elastic.run
