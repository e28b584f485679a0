"""A process at one end of the control channel, for tests: ``python peer_process.py client|forked-client|driver``.

A client reads its settings as one line of JSON from stdin, says Hello, hands numbers back (ReservationStored comes back
as ReservePositions), hands attachments back, and says Goodbye on Finish. A driver prints where it listens.
"""

import json
import os
import socket
import sys
import threading
import time

from cutwater.control.driver_server import ControlServer
from cutwater.control.keys import AttemptKeys, KeyPair
from cutwater.control.messages import (
    CollectedRows,
    Deploy,
    Finish,
    Goodbye,
    Hello,
    Message,
    ReservationStored,
    ReservePositions,
)
from cutwater.control.task_client import ControlClient
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId


def run_client(settings: dict[str, str]) -> None:
    finished = threading.Event()

    def answer(message: Message) -> None:
        match message:
            case ReservationStored(number):
                client.send(ReservePositions(number, None))
            case Deploy(attachments=attachments):
                client.send(CollectedRows("echo", CheckpointId(1), 0, attachments))
            case Finish():
                finished.set()

    client = ControlClient(
        settings["address"],
        settings["server_public"].encode(),
        KeyPair(settings["public"].encode(), settings["secret"].encode()),
        SubtaskId(settings["vertex"], 0),
        Attempt(int(settings["attempt"])),
        answer,
        lease=settings["lease"],
    )
    client.send(Hello(socket.gethostname(), os.getpid(), time.time()))
    finished.wait()
    client.send(Goodbye())
    flushed = client.flush(10)
    client.close()
    os._exit(0 if flushed else 1)


def run_driver() -> None:
    keys = AttemptKeys.generate()
    server = ControlServer(Attempt(1), keys)
    worker = keys.for_workers()
    where = {
        "address": server.address,
        "server_public": worker.server_public.decode(),
        "public": worker.client.public.decode(),
        "secret": worker.client.secret.decode(),
    }
    print(json.dumps(where), flush=True)
    while True:
        for _ in server.receive(60):
            print("heard", flush=True)


if __name__ == "__main__":
    match sys.argv[1]:
        case "driver":
            run_driver()
        case "client":
            run_client(json.loads(sys.stdin.readline()))
        case "forked-client":
            wanted = json.loads(sys.stdin.readline())
            child = os.fork()
            if child == 0:
                run_client(wanted)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
