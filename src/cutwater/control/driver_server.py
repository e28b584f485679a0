"""The driver's end of the control channel: one server per attempt, one conversation per subtask.

The server's own thread moves packets; the coordinator's thread polls ``receive``. Only holders of the attempt's worker
key get in. Messages to a subtask that has not connected yet, or not again yet, wait for it.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

from cutwater.control.conversations import Conversations, Route
from cutwater.control.keys import AttemptKeys
from cutwater.control.messages import AbortAttempt, Goodbye, Message, ToSubtask
from cutwater.control.packet import from_frame, to_frame
from cutwater.control.presence import Presence
from cutwater.control.session import BACKLOG, BACKLOG_BYTES, Body
from cutwater.control.sockets import ZAP_DOMAIN, AllowedKeys, bracketed, configure_router
from cutwater.control.wakeup import Wakeup
from cutwater.control.wire import decode, encode
from cutwater.errors import ConfigError, ControlError
from cutwater.flow.ids import Attempt, SubtaskId

_PACKETS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A subtask's connection ended and did not come back in time, or it said what nobody may say."""

    subtask: SubtaskId
    reason: str = "its control connection ended"


Report = tuple[SubtaskId, Message] | PeerLost

OnMessage = Callable[[SubtaskId, Message], bool]
"""Sees every message first, on the server's thread, and returns at once. True: it dealt with it, ``receive`` does not."""


@dataclass(frozen=True, slots=True)
class _Received:
    route: Route
    descriptor: int
    frame: bytes


class ControlServer:
    """Listens from construction until ``close``. All methods may be called from any thread."""

    def __init__(
        self,
        attempt: Attempt,
        keys: AttemptKeys,
        bind_host: str = "127.0.0.1",
        *,
        port: int | None = None,
        advertised_host: str | None = None,
        on_message: OnMessage | None = None,
        reconnect_grace: float = 0.5,
    ) -> None:
        """Without ``port``, a free one is taken. ``advertised_host`` is what workers connect to, when that differs from
        what is bound. A connection that is back within ``reconnect_grace`` seconds was not lost.
        """
        if advertised_host is None and bind_host in ("0.0.0.0", "::", "*"):
            raise ConfigError(f"bind_host={bind_host!r} is no address to connect to: give advertised_host as well")
        self._attempt = attempt
        self._on_message = on_message
        self._changed = threading.Condition()
        self._presence = Presence(reconnect_grace)
        self._conversations = Conversations(attempt, self._presence)
        self._inbound: deque[Report] = deque()
        self._inbound_bytes = 0
        self._interrupted = False
        self._closing = False
        self._failure: Exception | None = None
        self._context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(ZAP_DOMAIN, AllowedKeys(keys.workers.public))
        self._router = self._context.socket(zmq.ROUTER)
        try:
            configure_router(self._router, keys.driver, ipv6=":" in bind_host)
            self._router.bind(f"tcp://{bracketed(bind_host)}:{'*' if port is None else port}")
        except zmq.ZMQError as error:
            self._release()
            raise ControlError(f"the control channel cannot listen on {bind_host=}, {port=}: {error}") from error
        bound_port = self._router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._wakeup = Wakeup()
        self.address = f"tcp://{bracketed(advertised_host or bind_host)}:{bound_port}"
        self._thread = threading.Thread(target=self._run, name=f"cutwater-control-{attempt}", daemon=True)
        self._thread.start()

    def send(self, subtask: SubtaskId, message: ToSubtask) -> None:
        """Queue a message; it is delivered once, in order, as soon as the subtask is there. Never blocks.

        After AbortAttempt the subtask's lease is not renewed any more.
        """
        body = encode(message)
        with self._changed:
            self._require_running()
            if isinstance(message, AbortAttempt):
                self._conversations.abort(subtask, body)
            else:
                self._conversations.send(subtask, body)
        self._wakeup.wake()

    def broadcast(self, message: ToSubtask) -> None:
        """Send to every subtask that has connected or been sent to. AbortAttempt also meets those that come later."""
        body = encode(message)
        with self._changed:
            self._require_running()
            if isinstance(message, AbortAttempt):
                self._conversations.abort_all(body)
            else:
                self._conversations.send_to_all(body)
        self._wakeup.wake()

    def receive(self, timeout: float) -> list[Report]:
        """Everything that came in, in order per subtask; waits up to ``timeout`` seconds for the first. Empty once closed,
        and after ``interrupt``."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._inbound or self._interrupted or self._closing or self._failure, timeout
            )
            self._interrupted = False
            if not self._inbound and not self._closing:
                self._require_running()
            reports = list(self._inbound)
            self._inbound.clear()
            self._inbound_bytes = 0
        return reports

    def interrupt(self) -> None:
        """``receive`` returns at once, now or the next time: whoever calls it has something else to look at as well."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def connected(self) -> set[SubtaskId]:
        with self._changed:
            return self._presence.connected()

    def lease_deadline(self, subtask: SubtaskId) -> float | None:
        """Until when, by ``time.monotonic``, this subtask may at most believe in its lease; None if it never asked."""
        with self._changed:
            return self._conversations.lease_deadline(subtask)

    def flush(self, timeout: float) -> bool:
        """Wait until every connected subtask has acknowledged everything sent to it."""
        with self._changed:
            return self._changed.wait_for(self._conversations.all_acknowledged, timeout)

    def close(self) -> None:
        """Stop at once; whoever wants the last messages delivered calls ``flush`` before. May be called again."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._wakeup.wake()
        self._thread.join()
        self._wakeup.close()

    def _require_running(self) -> None:
        if self._failure is not None:
            raise ControlError(
                f"the control server of attempt {self._attempt} failed: {self._failure}"
            ) from self._failure
        if self._closing:
            raise ControlError(f"the control server of attempt {self._attempt} is closed")

    # --- the server's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        finally:
            self._router.disable_monitor()
            self._monitor.close(linger=0)
            self._release()

    def _release(self) -> None:
        # In this order: the socket must never listen without its authenticator.
        self._router.close(linger=0)
        self._authenticator.stop()
        self._context.term()

    def _serve(self) -> None:
        poller = zmq.Poller()
        for waker in (self._router, self._monitor, self._wakeup):
            poller.register(waker, zmq.POLLIN)
        while not self._closing:
            poller.poll(self._pause_ms())
            self._wakeup.clear()
            received = self._take_packets()
            arrived = self._answer(received)
            for subtask, body in arrived:
                self._deliver(subtask, body)
            self._report_the_lost()
            self._send_what_is_due()

    def _pause_ms(self) -> int | None:
        with self._changed:
            dues = (self._conversations.next_due(), self._presence.due())
        first = min((due for due in dues if due is not None), default=None)
        return None if first is None else math.ceil(max(0.0, first - time.monotonic()) * 1000)

    def _take_packets(self) -> list[_Received]:
        received: list[_Received] = []
        try:
            for _ in range(_PACKETS_AT_ONCE):
                route, *frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
                frame = frames[0].bytes if len(frames) == 1 else b""  # nothing of ours: it is told apart below
                received.append(_Received(route.bytes, int(route.get(zmq.SRCFD)), frame))
        except zmq.Again:
            pass
        return received

    def _answer(self, received: list[_Received]) -> list[tuple[SubtaskId, Body]]:
        """Lead every conversation on; the bodies to deliver."""
        arrived: list[tuple[SubtaskId, Body]] = []
        now = time.monotonic()
        with self._changed:
            self._take_connections(now)
            accept_messages = len(self._inbound) < BACKLOG and self._inbound_bytes < BACKLOG_BYTES
            for packet in received:
                try:
                    conversation, content = from_frame(packet.frame)
                except ControlError:
                    continue  # not of our making: without a conversation there is nobody to answer
                outcome = self._conversations.arrived(
                    conversation,
                    content,
                    route=packet.route,
                    descriptor=packet.descriptor,
                    now=now,
                    accept_messages=accept_messages,
                )
                arrived += [(conversation.subtask, body) for body in outcome.bodies]
                if outcome.answer is not None:
                    self._put_out(packet.route, to_frame(conversation, outcome.answer))
                if outcome.broke is not None:
                    self._report(PeerLost(conversation.subtask, outcome.broke))
            self._changed.notify_all()
        return arrived

    def _take_connections(self, now: float) -> None:
        try:
            while True:
                event = recv_monitor_message(self._monitor, zmq.NOBLOCK)
                if event["event"] == zmq.EVENT_ACCEPTED:
                    self._presence.accepted(event["value"])
                elif event["event"] == zmq.EVENT_DISCONNECTED:
                    self._presence.disconnected(event["value"], now)
        except zmq.Again:
            return

    def _deliver(self, subtask: SubtaskId, body: Body) -> None:
        try:
            message = decode(body)
        except ControlError as error:
            with self._changed:
                self._conversations.broke(subtask, str(error))
                self._report(PeerLost(subtask, str(error)))
            return
        if isinstance(message, Goodbye):
            with self._changed:
                self._presence.departed(subtask)
        if self._on_message is not None and self._on_message(subtask, message):
            return
        with self._changed:
            self._inbound_bytes += sum(map(len, body))
            self._report((subtask, message))

    def _report_the_lost(self) -> None:
        with self._changed:
            for subtask in self._presence.lost(time.monotonic()):
                self._report(PeerLost(subtask))

    def _report(self, report: Report) -> None:
        self._inbound.append(report)
        self._changed.notify_all()

    def _send_what_is_due(self) -> None:
        with self._changed:
            due = self._conversations.outgoing(time.monotonic())
        for route, conversation, packet in due:
            self._put_out(route, to_frame(conversation, packet))

    def _put_out(self, route: Route, frame: bytes) -> None:
        # To a peer that is gone or does not read, a ROUTER drops; the session sends again.
        self._router.send_multipart([route, frame], zmq.NOBLOCK)
