"""Replaces kubeai.elastic of Alibaba Cloud's KubeAI SDK: put the directory of this package first in PYTHONPATH, and a script that
was written for the SDK runs unchanged.

    elastic.init()
    for ...:
        if not elastic.check_alive():
            save(...)
            sys.exit(-1)

Like that of the SDK, check_alive() becomes False on GET :9009/stop, which Elastic-Job-Supervisor sends. It also does on SIGTERM,
and on rank 0 when a checkpoint is requested because of a reclaim. Such a script has saved its checkpoint when it exits, so the
acknowledgement is sent at the exit. The process then stays for HOLD seconds, so that the job is suspended before its system notices
a missing rank and counts a retry.

Only rank 0 learns of the request, because it is the rank that saves. If the others learned of it, too, one of them might exit in
the middle of a step.
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
_asked = False


def init():
    """Starts to listen. Call it once, and from the main thread if SIGTERM is to be handled, too."""
    threading.Thread(target=_listen, name="kubeai", daemon=True).start()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: _stopped.set())
    atexit.register(_acknowledge)


def check_alive():
    """Whether training is to continue. Once it is False, it stays False."""
    global _asked
    if not _asked and _rank() == 0 and gpu_spot.should_checkpoint():
        log.warning("a checkpoint is requested because of a reclaim")
        _asked = True
    return not (_asked or _stopped.is_set())


def _acknowledge():
    if _asked:
        gpu_spot.acknowledge()
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
