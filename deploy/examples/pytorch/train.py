"""An elastic training loop for torchrun that loses no more than seconds to a reclaim. The lines for that are marked with «spot».

    torchrun train.py --checkpoint /checkpoints/model.pt      # as job.yaml does
    python3 train.py --checkpoint model.json                  # without torch, with a model in plain Python
"""

import argparse
import time

import gpu_spot  # «spot»

try:
    from torch_model import Model
except ImportError:
    from plain import Model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True, help="file on storage that all nodes share")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--save-every", type=int, default=500, help="steps between checkpoints that were not requested")
    parser.add_argument("--step-time", type=float, default=0, help="seconds that a step takes longer than it has to")
    args = parser.parse_args()

    model = Model()
    model.resume(args.checkpoint)
    while model.step < args.steps:
        loss = model.train()
        time.sleep(args.step_time)
        print("step %d loss %.17g" % (model.step, loss), flush=True)

        asked = model.any_rank(gpu_spot.should_checkpoint())  # «spot» all ranks at the same step
        if asked or model.step % args.save_every == 0 or model.step == args.steps:
            began = time.monotonic()
            model.checkpoint(args.checkpoint)  # rank 0 writes, the others wait for it
            print("saved step %d in %.3f s" % (model.step, time.monotonic() - began), flush=True)
        if asked:
            gpu_spot.acknowledge()  # «spot» training continues until the pod is terminated


if __name__ == "__main__":
    main()
