"""A small network under DistributedDataParallel: what train.py trains where torch is installed."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 256


class Model:
    """Its state is the step, the network and the optimizer."""

    def __init__(self):
        cuda = torch.cuda.is_available()
        dist.init_process_group("nccl" if cuda else "gloo")
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(self.device)
        self.network = DistributedDataParallel(network, device_ids=[self.device.index] if cuda else None)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-3)
        self.step = 0

    def train(self):
        """Takes one step and returns the loss before it."""
        generator = torch.Generator().manual_seed(self.step * dist.get_world_size() + dist.get_rank())
        x = torch.randn(BATCH, 64, generator=generator).to(self.device)
        loss = nn.functional.mse_loss(self.network(x), x.sum(dim=1, keepdim=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def any_rank(self, flag):
        """Whether the flag is set on any rank; the same answer on all of them."""
        votes = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def checkpoint(self, path):
        """Returns, on every rank, when the checkpoint is safe: whole, or not there."""
        if dist.get_rank() == 0:
            state = {"step": self.step, "network": self.network.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            with open(path + ".tmp", "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(path + ".tmp", path)
        dist.barrier()

    def resume(self, path):
        """Takes up the checkpoint, if there is one."""
        if not os.path.exists(path):
            return
        state = torch.load(path, map_location=self.device)
        self.step = state["step"]
        self.network.module.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
