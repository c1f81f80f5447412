"""Stands in for kubeai.elastic of Alibaba Cloud's KubeAI SDK: put the folder that holds this package first in PYTHONPATH,
and a script written for that one runs unchanged.

    elastic.init()
    for ...:
        if not elastic.check_alive():
            save(...)
            sys.exit(-1)

Like the SDK's, check_alive() turns False on GET :9009/stop, which Elastic-Job-Supervisor sends. It also does on SIGTERM, and
on rank 0 when a reclaim asks for a checkpoint. What such a script saves is safe when it exits, so that is when the word is
given; the process then stays for HOLD seconds, so that the job is suspended before a rank is missed and a retry spent.

Only rank 0 is told of the request, as it is the one that saves: were the others told too, one of them might leave it alone in
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
HOLD = 30.0  # seconds between the word and the end of the process

log = logging.getLogger("kubeai.elastic")

_stopped = threading.Event()
_asked = False


def init():
    """Begins to listen. Call it once, from the main thread if SIGTERM is to be heard too."""
    threading.Thread(target=_listen, name="kubeai", daemon=True).start()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: _stopped.set())
    atexit.register(_answer)


def check_alive():
    """Whether training is to go on. Once False, it stays so."""
    global _asked
    if not _asked and _rank() == 0 and gpu_spot.should_checkpoint():
        log.warning("a reclaim asks for a checkpoint")
        _asked = True
    return not (_asked or _stopped.is_set())


def _answer():
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
