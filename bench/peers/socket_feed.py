"""A paced TCP line generator: 'key,micros-since-epoch\\n' at a fixed rate, for the latency runs.

Used in-process by the peers' w6 commands: Feed(...).start() forks a child process that
serves every client that connects (each gets the full rate), then closes.
"""

import multiprocessing as mp
import socket
import threading
import time


def _serve(conn, srv, rate, seconds, keys):
    x = 88172645463325252
    t0 = time.time()
    sent = 0
    try:
        while True:
            now = time.time()
            if now - t0 >= seconds:
                break
            due = int((now - t0) * rate) - sent
            if due > 0:
                us = int(now * 1e6)
                rows = []
                for _ in range(due):
                    x ^= (x << 13) & 0xFFFFFFFFFFFFFFFF
                    x ^= x >> 7
                    x ^= (x << 17) & 0xFFFFFFFFFFFFFFFF
                    rows.append(f"{x % keys},{us}")
                conn.sendall(("\n".join(rows) + "\n").encode())
                sent += due
            time.sleep(0.001)
    except OSError:
        pass
    finally:
        conn.close()


def _main(srv, rate, seconds, keys):
    srv.settimeout(120)
    try:
        while True:
            c, _ = srv.accept()
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_serve, args=(c, srv, rate, seconds, keys)).start()
    except OSError:
        pass


class Feed:
    def __init__(self, rate, seconds, keys):
        self.srv = socket.socket()
        self.srv.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.srv.bind(("127.0.0.1", 0))
        self.srv.listen(8)
        self.port = self.srv.getsockname()[1]
        self.args = (self.srv, rate, seconds, keys)

    def start(self):
        self.p = mp.get_context("fork").Process(target=_main, args=self.args, daemon=True)
        self.p.start()
        self.srv.close()
        return self

    def stop(self):
        self.p.terminate()
        self.p.join(5)
