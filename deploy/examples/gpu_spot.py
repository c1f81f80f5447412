"""Lets a training loop lose no work to the reclaim of a spot node: about five minutes before the node is released, the loop
is asked for a checkpoint, and acknowledges it when it is saved.

    if gpu_spot.should_checkpoint():   # on any rank: agree on it, so that all ranks do it at the same step
        save(...)                      # returns when the checkpoint is safe, on every rank
        gpu_spot.acknowledge()         # on every rank, whether its node is reclaimed or not

A thread in the background reads these, so that the loop never waits:

* the downward-API files in /etc/podinfo (or $GPU_SPOT_DIR): reclaim-deadline, checkpoint-request and, for leaving(),
  reclaim-instance, the annotations of the pod by these names;
* the node-agent at http://$NODE_IP:8790 (or $GPU_SPOT_AGENT), if the pod has no such files, or they stay empty.

The acknowledgement goes to the node-agent. This needs Python 3.7 or later, and nothing but its standard library. Every function
may be called from any thread.
"""

import datetime
import http.client
import json
import logging
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request

log = logging.getLogger("gpu_spot")

POLL = 0.5  # seconds between reads of the files, and between attempts to repeat an acknowledgement
ASK = 2.0  # seconds between requests to the node-agent
TIMEOUT = 3.0  # seconds for one of these requests
# If the pod has the files, a notice of the node-agent counts as a request only after so many seconds, because the request should
# appear in the files. There it has an id, so one checkpoint is enough.
PATIENCE = 10.0
# An acknowledgement without an id counts only if it is later than the request, whose time is not known then. So the checkpoint is
# repeated after so many seconds, as long as the node exists.
REPEAT = 30.0

_FAILURES = (OSError, ValueError, http.client.HTTPException)
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # the node-agent is on the pod's own node


class Spot:
    """What is known about the reclaim of this pod's node, or of another node of its job."""

    def __init__(self, directory=None, agent=None, pod_environment="/proc/1/environ"):
        environment = _environment(pod_environment)
        self.directory = directory or environment.get("GPU_SPOT_DIR", "/etc/podinfo")
        node = environment.get("NODE_IP")
        self.agent = agent or environment.get("GPU_SPOT_AGENT") or ("http://%s:8790" % _host(node) if node else None)
        self.namespace = environment.get("POD_NAMESPACE") or _read("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        self.pod = environment.get("POD_NAME") or environment.get("HOSTNAME") or socket.gethostname()

        self._lock = threading.Lock()
        self._looked = threading.Event()
        self._thread = None
        self._file = (None, None)  # deadline and id from the files
        self._instance = None  # the pod's own instance from the files, if that is reclaimed
        self._notice = (None, None)  # deadline from the node-agent, and when it was first seen
        self._answered = (None, None)  # id of the last request that was acknowledged, and when
        self._unsent = None  # the acknowledgement to be sent again

    def deadline(self):
        """When the first of the job's nodes is released, in Unix seconds; None while none is reclaimed."""
        self._watch()
        with self._lock:
            return self._file[0] or self._notice[0]

    def should_checkpoint(self):
        """Whether a checkpoint is requested that acknowledge() has not acknowledged yet. The call takes microseconds."""
        self._watch()
        with self._lock:
            return self._request(time.time()) is not None

    def leaving(self):
        """Whether the node of this pod is reclaimed. A request for a checkpoint comes also when only other nodes of the job are."""
        self._watch()
        with self._lock:
            return bool(self._instance) or time.time() < (self._notice[0] or 0)

    def acknowledge(self):
        """Acknowledges that a checkpoint is saved. It returns whether the node-agent accepted this. If the node-agent cannot be
        reached, the acknowledgement is repeated in the background until the node is released."""
        self._watch()
        with self._lock:
            identity = self._file[1]
            self._answered = (identity, time.time())
            sent = {"id": identity} if identity else {"namespace": self.namespace, "pod": self.pod}
            if not identity and not self._notice[0]:
                return False  # there is no request
        return self._send(sent)

    def _request(self, now):
        """The id of the request for a checkpoint, True if the request has none, None if there is no request."""
        answered, at = self._answered
        _, identity = self._file
        if identity:
            return identity if identity != answered else None
        deadline, since = self._notice
        if deadline is None or now >= deadline:
            return None
        if os.path.isdir(self.directory) and now - since < PATIENCE:
            return None
        return True if at is None or at < since or now - at >= REPEAT else None

    # Everything below runs in the thread in the background, and _send in acknowledge(), too.

    def _watch(self):
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # it is not after a fork
                self._looked.clear()
                self._thread = threading.Thread(target=self._run, name="gpu-spot", daemon=True)
                self._thread.start()
        self._looked.wait(TIMEOUT)  # only the first call waits, for the first read

    def _run(self):
        asked = 0.0
        while True:
            self._look()
            if self.agent and time.monotonic() - asked >= ASK:
                asked = time.monotonic()
                self._ask()
            self._looked.set()
            with self._lock:
                sent, self._unsent = self._unsent, None
            if sent:
                self._send(sent)
            time.sleep(POLL)

    def _look(self):
        deadline = _unix(_read(os.path.join(self.directory, "reclaim-deadline")))
        identity = _read(os.path.join(self.directory, "checkpoint-request")) or None
        instance = _read(os.path.join(self.directory, "reclaim-instance")) or None  # read last: whoever sees a request sees whom it is about
        with self._lock:
            self._file, self._instance = (deadline, identity), instance

    def _ask(self):
        try:
            with _OPEN(self.agent + "/v1/reclaim", timeout=TIMEOUT) as answer:
                deadline = _unix(json.load(answer).get("deadline"))
        except _FAILURES as error:
            log.debug("the node-agent does not answer: %s", error)
            return  # the notice stays as it is
        with self._lock:
            if deadline != self._notice[0]:
                self._notice = (deadline, self._notice[1] or time.time()) if deadline else (None, None)

    def _send(self, sent):
        if not self.agent:
            log.warning("there is no node-agent to acknowledge to: set NODE_IP")
            return False
        request = urllib.request.Request(
            self.agent + "/v1/checkpoint-acknowledged", json.dumps(sent).encode(), {"Content-Type": "application/json"})
        try:
            with _OPEN(request, timeout=TIMEOUT):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 409 and "id" not in sent:  # the node is not reclaimed, or the acknowledgement is not awaited
                return False
            if error.code < 500 and error.code not in (409, 429):  # 409: the request may not have reached the agent yet
                log.error("the node-agent refuses %s: %s", sent, error)
                return False
            problem = error
        except _FAILURES as error:
            problem = error
        log.log(logging.DEBUG if getattr(problem, "code", 0) == 409 else logging.WARNING,
                "the node-agent did not accept the acknowledgement, trying again: %s", problem)
        with self._lock:
            if time.time() < (self._file[0] or self._notice[0] or 0):
                self._unsent = sent
        return False


def _environment(path):
    """The environment of the pod. A rank that horovodrun or mpirun has started has the environment of the launcher, with the
    address of the launcher's node. The first process of the container has its own."""
    merged = dict(os.environ)
    try:
        with open(path, "rb") as file:
            pairs = (item.split("=", 1) for item in file.read().decode(errors="replace").split("\0") if "=" in item)
            ours = ("NODE_IP", "POD_NAME", "POD_NAMESPACE", "HOSTNAME", "GPU_SPOT_DIR", "GPU_SPOT_AGENT")
            merged.update((key, value) for key, value in pairs if key in ours)
    except OSError:
        pass  # not readable: this is no container, or its first process belongs to another user
    return merged


def _host(address):
    return "[%s]" % address if ":" in address else address


def _read(path):
    """The content of a file; "" if there is no such file."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _unix(text):
    """Unix seconds of a time in RFC 3339; None for anything else."""
    try:
        whole = re.sub(r"\.\d+", "", text.replace("Z", "+00:00"))
        return datetime.datetime.fromisoformat(whole).timestamp()
    except (AttributeError, ValueError):
        return None


_spot = None
_spot_lock = threading.Lock()


def spot():
    """The Spot that the functions of this module use."""
    global _spot
    with _spot_lock:
        if _spot is None:
            _spot = Spot()
        return _spot


def deadline():
    """See Spot.deadline."""
    return spot().deadline()


def should_checkpoint():
    """See Spot.should_checkpoint."""
    return spot().should_checkpoint()


def leaving():
    """See Spot.leaving."""
    return spot().leaving()


def acknowledge():
    """See Spot.acknowledge."""
    return spot().acknowledge()
