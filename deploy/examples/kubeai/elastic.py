"""Replaces kubeai.elastic of Alibaba Cloud's KubeAI SDK: put the directory of this package first in PYTHONPATH, and a script that
was written for the SDK runs unchanged.

    elastic.init()
    for ...:
        if not elastic.check_alive():
            save(...)
            sys.exit(-1)

Like that of the SDK, check_alive() becomes False on GET :9009/stop, which Elastic-Job-Supervisor sends, and the autoscaler before it
suspends a job that was submitted with --spot-instance. It also does on SIGTERM, and on rank 0 when its own node is reclaimed. Such
a script has saved its checkpoint when it exits, so the acknowledgement is sent at the exit. If its own node is the reason, the
process then stays for HOLD seconds, so that the job is suspended, if it has to be, before its system notices a missing rank and
counts a retry.

When only other nodes of the job are reclaimed, rank 0 stays: if it left, Horovod Elastic would blacklist its host, which is sound. A
script that is to save its work then, too, says how:

    elastic.on_request(save)

save() is called by check_alive() on rank 0, and the checkpoint is acknowledged when it returns. Without that line such a
request is not acknowledged, because nothing was saved.

Only rank 0 learns of requests, because it is the rank that saves. If the others learned of them, too, one of them might exit in
the middle of a step. For the same reason save() must not wait for other ranks.
"""

import atexit
import logging
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import gpu_spot

PORT = 9009
HOLD = 30.0  # seconds between the acknowledgement and the end of the process

log = logging.getLogger("kubeai.elastic")

_stopped = threading.Event()
_save = None  # what on_request() was called with
_leaving = False  # rank 0 was told to end because its node is reclaimed
_told = False  # rank 0 was told to end, for whatever reason


def init():
    """Starts to listen. Call it once, and from the main thread if SIGTERM is to be handled, too."""
    threading.Thread(target=_listen, name="kubeai", daemon=True).start()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: _stopped.set())
    atexit.register(_acknowledge)


def on_request(save):
    """Has check_alive() call save() on rank 0 when a checkpoint is requested and rank 0 is to train on. The SDK has no such function."""
    global _save
    _save = save


def check_alive():
    """Whether training is to continue. Once it is False, it stays False."""
    global _leaving, _told
    if _rank() != 0:
        return not _stopped.is_set()
    if not _leaving and not _stopped.is_set() and gpu_spot.should_checkpoint():
        if gpu_spot.leaving():
            log.warning("the node is reclaimed")
            _leaving = True
        elif _save is not None:
            log.warning("a checkpoint is requested because another node of the job is reclaimed")
            _save()
            gpu_spot.acknowledge()
    _told = _told or _leaving or _stopped.is_set()
    return not _told


def _acknowledge():
    if hasattr(sys, "last_value"):
        return  # the script ends by an exception, and has perhaps not saved
    if _told and gpu_spot.should_checkpoint():
        gpu_spot.acknowledge()
    if _leaving:
        _stopped.wait(HOLD)


def _rank():
    for name in ("horovod.torch", "horovod.tensorflow", "torch.distributed"):
        module = sys.modules.get(name)
        try:
            return module.get_rank() if name == "torch.distributed" else module.rank()
        except (AttributeError, ImportError, RuntimeError, ValueError):
            continue  # not loaded, or not initialized
    for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "RANK"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/stop":
            _stopped.set()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args):
        pass


def _listen():
    try:
        HTTPServer(("", PORT), _Handler).serve_forever()
    except OSError as error:  # another rank of this pod listens
        log.info("port %d: %s", PORT, error)
