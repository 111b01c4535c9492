"""Sends notifications from the queue: each subscription in order, at least once, again and later when it fails."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from fhir_registry.json_text import write_json
from fhir_registry.server.http import FHIR_JSON
from fhir_registry.store.base import StoreUnavailableError
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.subscriptions.admission import Admission
from fhir_registry.subscriptions.endpoint import EndpointError, Endpoints
from fhir_registry.subscriptions.notification import notification
from fhir_registry.subscriptions.queue import Queue, State, Subscribed
from fhir_registry.validation.moments import interval

LOG: Final = logging.getLogger("cuvil.registry")
LONGEST_WAIT: Final = 300.0
MARGIN: Final = 5.0


@dataclass(frozen=True)
class Pace:
    """Seconds between looks at the queue; before the first retry, which doubles each time; and how often in a row a
    subscriber may fail before its subscription is an error. ``at_once``: requests under way."""

    look: float = 0.5
    retry: float = 1.0
    failures: int = 10
    at_once: int = 8
    events: int = 20


class Notifier:
    """A thread that looks and some that send. ``base``: the address of ``/fhir`` in what is sent."""

    def __init__(
        self,
        store: SqlStore,
        endpoints: Endpoints,
        base: str,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.queue, self.endpoints, self.base = Queue(store), endpoints, base
        self.admission = Admission(store, endpoints)
        self.pace, self.clock = pace or Pace(), clock
        self._busy: set[str] = set()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(self.pace.at_once, "registry-notify")
        self._thread = threading.Thread(target=self._run, name="registry-notifier", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Requests under way are finished; what is left stays in the queue."""
        self._stop.set()
        self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def _run(self) -> None:
        while not self._stop.wait(self.pace.look):
            try:
                self._look()
            except StoreUnavailableError as error:
                LOG.warning("notifications wait: %s", error)
            except Exception:
                LOG.exception("notifications wait")

    def _look(self) -> None:
        newest = self.queue.newest()
        for item in self.queue.subscriptions():
            state = self.queue.collect(item, newest)
            ends = interval(str(item.resource["end"])) if "end" in item.resource else None
            if item.resource["status"] != "off" and ends is not None and ends[0].timestamp() <= self.clock():
                self.queue.set_status(item, "off")
                continue
            kind = self._wanted(item.resource, state)
            with self._guard:
                if not kind or item.id in self._busy:
                    continue
                self._busy.add(item.id)
            self._pool.submit(self._serve, item, kind)

    def _wanted(self, resource: dict[str, Any], state: State) -> str:
        """What is to be sent now; empty: nothing."""
        now = self.clock()
        if resource["status"] not in ("requested", "active") or max(state.due, state.claimed) > now:
            return ""
        if resource["status"] == "requested":
            return "handshake"
        if state.events > state.delivered:
            return "event-notification"
        period = resource.get("heartbeatPeriod", 0)
        return "heartbeat" if period and now - state.sent >= period else ""

    def _serve(self, item: Subscribed, kind: str) -> None:
        try:
            self._send(item, kind)
        except StoreUnavailableError as error:
            LOG.warning("notifications wait: %s", error)
        except Exception:
            LOG.exception("a notification for Subscription/%s", item.id)
        finally:
            with self._guard:
                self._busy.discard(item.id)

    def _send(self, item: Subscribed, kind: str) -> None:
        seconds = float(item.resource.get("timeout", 10))
        now = self.clock()
        # A process that is killed meanwhile leaves it claimed until then.
        state = self.queue.claim(item.id, now, now + seconds + MARGIN)
        if state is None:
            return
        if self._wanted(item.resource, state) != kind:  # another process did it meanwhile
            self.queue.release(item.id)
            return
        listed = []
        if kind == "event-notification":
            most = item.resource.get("maxCount", self.pace.events)
            listed = self.queue.events(item.id, state.delivered + 1, state.events, min(most, self.pace.events))
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        body = write_json(notification(item.resource, kind, state.events, self.base, stamp, listed))
        headers = {**self.admission.headers(item.resource), "Content-Type": f"{FHIR_JSON}; charset=utf-8"}
        try:
            self.endpoints.post(str(item.resource.get("endpoint", "")), body, headers, seconds)
        except EndpointError as error:
            self._failed(item, state, str(error))
            return
        if kind == "handshake":
            self.queue.set_status(item, "active")
        self.queue.served(item.id, listed[-1].number if listed else state.delivered, self.clock())

    def _failed(self, item: Subscribed, state: State, error: str) -> None:
        failures = state.failures + 1
        if failures >= self.pace.failures:
            LOG.warning("Subscription/%s failed %d times and is given up: %s", item.id, failures, error)
            self.queue.set_status(item, "error")
            self.queue.failed(item.id, 0, 0.0, error)
            return
        wait = min(self.pace.retry * 2 ** (failures - 1), LONGEST_WAIT)
        self.queue.failed(item.id, failures, self.clock() + wait, error)
