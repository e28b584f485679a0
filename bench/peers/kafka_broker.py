"""A single-node Kafka (KRaft) broker as a child process, for the Kafka-fed peer runs.

The jars come from Maven: `python kafka_broker.py fetch DIR` copies them to DIR; name that
directory in $PEERS_KAFKA_LIB. Everything listens on the loopback interface only.
"""

import base64
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

LIB = os.environ.get(
    "PEERS_KAFKA_LIB", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".venvs", "kafka-lib")
)
JVM = ["-Xms512m", "-Xmx1g", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>t</groupId><artifactId>kafka-run</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""
PROPS = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{cport}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{cport}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{cport}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={dir}/data
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def fetch(target):
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "pom.xml").write_text(POM)
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={os.path.abspath(target)}"],
            cwd=d,
            check=True,
        )


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Broker:
    """with Broker() as b: b.addr"""

    def __enter__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="peers-kafka-"))
        self.port, cport = free_port(), free_port()
        self.addr = f"127.0.0.1:{self.port}"
        conf = self.dir / "server.properties"
        conf.write_text(PROPS.format(port=self.port, cport=cport, dir=self.dir))
        cid = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        java = ["java", *JVM, "-cp", os.path.join(LIB, "*")]
        with open(self.dir / "format.log", "w") as fh:
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", cid, "-c", str(conf)],
                check=True,
                stdout=fh,
                stderr=subprocess.STDOUT,
            )
        self.log = open(self.dir / "broker.log", "a")
        self.p = subprocess.Popen(
            [*java, "kafka.Kafka", str(conf)], stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        t0 = time.time()
        while True:
            if self.p.poll() is not None:
                raise RuntimeError((self.dir / "broker.log").read_text()[-2000:])
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return self
            except OSError:
                if time.time() - t0 > 240:
                    self.__exit__()
                    raise TimeoutError("the broker did not start within 240 s") from None
                time.sleep(0.1)

    def __exit__(self, *exc):
        self.p.send_signal(signal.SIGKILL)  # the child started above; its data is scratch
        self.p.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "fetch":
        fetch(sys.argv[2])
    else:
        sys.exit(__doc__)
