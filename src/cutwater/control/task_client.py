"""A subtask's end of the control channel, on a thread of its own.

Nothing of ZeroMQ exists before a client is constructed: this module is imported in a daemon that forks workers.
"""

import math
import os
import threading
import time
from collections.abc import Callable

import zmq

from cutwater.control.keys import KeyPair, WorkerKeys
from cutwater.control.lease import Lease
from cutwater.control.messages import AbortAttempt, Decline, Message, RequestPause, RequestResume, ToDriver
from cutwater.control.packet import Conversation, LeaseAsked, LeaseGranted, Packet, Refusal, from_frame, to_frame
from cutwater.control.session import BACKLOG, BACKLOG_BYTES, Session
from cutwater.control.sockets import configure_dealer
from cutwater.control.wakeup import Wakeup
from cutwater.control.wire import decode, encode
from cutwater.duration import Duration, parse_duration
from cutwater.errors import ControlError
from cutwater.flow.ids import Attempt, SubtaskId
from cutwater.state.local_folder import remove_behind_this_process

LOST_EXIT_CODE = 3

_PACKETS_AT_ONCE = 256
_SENDERS_WAIT_AT = BACKLOG // 10
_SENDERS_WAIT_AT_BYTES = BACKLOG_BYTES // 4
_NEVER_WAITS = (RequestPause, RequestResume, Decline)
"""Small, few, and sent with the subtask's lock held, which the control thread needs to take the acknowledgements in."""


def exit_process(_reason: str) -> None:
    """End at once: no finalizers, no flushing, no words. Whatever this process still does may harm its successor."""
    try:
        remove_behind_this_process()
    finally:
        os._exit(LOST_EXIT_CODE)


class ControlClient:
    """Speaks for one subtask from construction until ``close``. ``send`` may be called from any thread.

    ``on_message`` runs on the control thread and must return soon: the lease is kept by the same thread. ``on_lost``
    is called there once, when the driver aborts the attempt, refuses this client, or is silent for a whole lease.
    """

    def __init__(
        self,
        address: str,
        server_public_key: bytes,
        client_keys: KeyPair,
        subtask: SubtaskId,
        attempt: Attempt,
        on_message: Callable[[Message], object],
        lease: Duration = "10s",
        *,
        on_lost: Callable[[str], object] = exit_process,
    ) -> None:
        self._address = address
        self._on_message = on_message
        self._on_lost = on_lost
        incarnation = os.urandom(8)
        self._conversation = Conversation(attempt, subtask, int.from_bytes(incarnation))
        self._session = Session(self._conversation)
        self._lease = Lease(parse_duration("lease", lease).total_seconds(), time.monotonic())
        self._changed = threading.Condition()
        self._ended: str | None = None
        self._closing = False
        self._is_writable = False
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        try:
            # Its first byte must not be zero: such routing ids are ZeroMQ's own.
            configure_dealer(
                self._dealer, WorkerKeys(server_public_key, client_keys), route=b"c" + incarnation, ipv6="[" in address
            )
            self._dealer.connect(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ControlError(f"{subtask} cannot reach the driver at address={address!r}: {error}") from error
        self._wakeup = Wakeup()
        self._poller = zmq.Poller()
        self._poller.register(self._wakeup, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name=f"cutwater-control-{subtask}", daemon=True)
        self._thread.start()

    def send(self, message: ToDriver) -> None:
        """Queue a message; the control thread sends it at once. Most wait while the driver is far behind."""
        body = encode(message)
        with self._changed:
            if threading.current_thread() is not self._thread and not isinstance(message, _NEVER_WAITS):
                self._changed.wait_for(lambda: self._ended is not None or not self._is_far_behind())
            if self._ended is not None:
                raise ControlError(f"{self._conversation.subtask} has no control channel any more: {self._ended}")
            self._session.offer(body)
        self._wakeup.wake()

    def flush(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until the driver has acknowledged everything sent before."""
        if threading.current_thread() is self._thread:
            raise ControlError("flush on the control thread would wait for itself")
        with self._changed:
            self._changed.wait_for(lambda: self._session.backlog == 0 or self._ended is not None, timeout)
            return self._session.backlog == 0

    def holds_lease(self) -> bool:
        """Whether this process may still touch the outside world: ask before what cannot be taken back."""
        with self._changed:
            return self._lease.holds(time.monotonic())

    @property
    def lease_deadline(self) -> float:
        """By ``time.monotonic``."""
        with self._changed:
            return self._lease.deadline

    def close(self) -> None:
        """Stop at once; whoever wants the last messages delivered calls ``flush`` before. May be called again."""
        with self._changed:
            self._closing = True
        self._wakeup.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _is_far_behind(self) -> bool:
        return self._session.backlog >= _SENDERS_WAIT_AT or self._session.backlog_bytes >= _SENDERS_WAIT_AT_BYTES

    # --- the control thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                reason = self._converse()
            except Exception as error:
                reason = f"the control thread failed: {type(error).__name__}: {error}"
            with self._changed:
                self._ended = reason or "it was closed"
                self._changed.notify_all()
            if reason is not None:
                self._on_lost(reason)
        finally:
            self._context.destroy(linger=0)
            self._wakeup.close()

    def _converse(self) -> str | None:
        """Until ``close``, or until the attempt is lost: the reason."""
        while not self._closing:
            # A connection that is down never takes packets; one that is up almost always does. So waiting for it to
            # take some is waiting for it to come up.
            self._poller.register(self._dealer, zmq.POLLIN if self._is_writable else zmq.POLLIN | zmq.POLLOUT)
            ready = dict(self._poller.poll(self._pause_ms()))
            self._wakeup.clear()
            messages: list[Message] = []
            for packet in self._take_packets():
                match packet:
                    case Refusal(reason):
                        return f"the driver refused it: {reason}"
                    case LeaseGranted(asked_at):
                        with self._changed:
                            self._lease.granted(asked_at / 1e9)
                    case _:
                        with self._changed:
                            bodies = self._session.arrived(self._conversation, packet, time.monotonic())
                            self._changed.notify_all()
                        messages += map(decode, bodies)
            # An abort overtakes what stands before it: nothing of that matters any more.
            for message in messages:
                if isinstance(message, AbortAttempt):
                    return message.reason
            for message in messages:
                self._on_message(message)
            if ready.get(self._dealer, 0) & zmq.POLLOUT:
                self._came_up()
            self._send_what_is_due()
            # Judged after the socket was read: word that came in time counts, however late this thread looks.
            if self._lease.is_lost(time.monotonic()):
                return self._silence()
        return None

    def _pause_ms(self) -> int | None:
        with self._changed:
            dues = [self._lease.ask_due(), self._lease.lost_at()]
            if self._is_writable:
                dues.append(self._session.next_due())
        first = min((due for due in dues if due is not None), default=None)
        return None if first is None else math.ceil(max(0.0, first - time.monotonic()) * 1000)

    def _take_packets(self) -> list[Packet]:
        packets: list[Packet] = []
        try:
            for _ in range(_PACKETS_AT_ONCE):
                conversation, packet = from_frame(self._dealer.recv(zmq.NOBLOCK))
                if conversation == self._conversation:
                    packets.append(packet)
        except zmq.Again:
            pass
        return packets

    def _came_up(self) -> None:
        self._is_writable = True
        with self._changed:
            self._session.reconnected()
        # The driver learns of this client by its first packet, so that comes at once.
        self._ask_for_lease(time.monotonic())

    def _send_what_is_due(self) -> None:
        now = time.monotonic()
        ask_due = self._lease.ask_due()
        if ask_due is not None and ask_due <= now:
            self._ask_for_lease(now)
        if not self._is_writable:
            return
        with self._changed:
            packets = self._session.outgoing(now)
        for packet in packets:
            if not self._put_out(packet):
                with self._changed:
                    self._session.reconnected()
                return

    def _ask_for_lease(self, now: float) -> None:
        with self._changed:
            self._lease.asked(now)
            length = self._lease.length
        self._put_out(LeaseAsked(int(now * 1e9), int(length * 1e9)))

    def _put_out(self, packet: Packet) -> bool:
        if self._is_writable:
            try:
                self._dealer.send(to_frame(self._conversation, packet), zmq.NOBLOCK)
            except zmq.Again:
                self._is_writable = False
        return self._is_writable

    def _silence(self) -> str:
        if self._lease.ever_granted:
            return f"no word from the driver at {self._address} for {self._lease.length:g} s, which is the lease"
        return (
            f"no word from the driver at {self._address} within {self._lease.length:g} s: "
            f"it cannot be reached, or does not know this client's key"
        )
