"""The two ends of the control connection as ZeroMQ sockets: encrypted, with heartbeats, dropping nothing on purpose."""

import zmq

from cutwater.control.keys import KeyPair, WorkerKeys

ZAP_DOMAIN = "cutwater"

_HEARTBEAT_MS = 2_000
_HEARTBEAT_TIMEOUT_MS = 10_000
"""ZeroMQ's own thread serves these: a subtask that holds the GIL for long is still alive (rule 10)."""

_RECONNECT_MS = 100
_RECONNECT_AT_MOST_MS = 1_000


class AllowedKeys:
    """What pyzmq's authenticator asks: may this key come in? Keys come z85-encoded."""

    def __init__(self, *keys: bytes) -> None:
        self._keys = frozenset(keys)

    def callback(self, domain: str, key: bytes) -> bool:
        return domain == ZAP_DOMAIN and key in self._keys


def configure_router(router: "zmq.Socket[bytes]", keys: KeyPair, *, ipv6: bool) -> None:
    """The driver's end. The context's authenticator must be running before it is bound."""
    router.setsockopt(zmq.LINGER, 0)
    router.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN.encode())
    # Without a living authenticator nobody gets in, rather than everybody.
    router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    router.setsockopt(zmq.CURVE_SERVER, 1)
    router.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    router.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    # A client that reconnects keeps its route, even while its old connection is not known to be dead.
    router.setsockopt(zmq.ROUTER_HANDOVER, 1)
    router.setsockopt(zmq.IPV6, int(ipv6))
    _set_heartbeats(router)


def configure_dealer(dealer: "zmq.Socket[bytes]", keys: WorkerKeys, *, route: bytes, ipv6: bool) -> None:
    """A worker's end."""
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public)
    dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys.client.public)
    dealer.setsockopt(zmq.CURVE_SECRETKEY, keys.client.secret)
    dealer.setsockopt(zmq.ROUTING_ID, route)
    # Nothing is queued for a connection that is down: the session keeps it, once, and not each of its resends.
    dealer.setsockopt(zmq.IMMEDIATE, 1)
    dealer.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    dealer.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_AT_MOST_MS)
    dealer.setsockopt(zmq.IPV6, int(ipv6))
    _set_heartbeats(dealer)


def bracketed(host: str) -> str:
    """As it stands in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def _set_heartbeats(socket: "zmq.Socket[bytes]") -> None:
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, _HEARTBEAT_TIMEOUT_MS)
