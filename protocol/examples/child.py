#!/usr/bin/env python3
"""A supervised TCP echo server, to show that any language can speak the child protocol (docs/protocol.md).

    moq-supervise --exec protocol/examples/child.py -- '[::]:7000'

Needs Python 3.9 and Linux, and nothing beyond the standard library.
"""

import json
import os
import selectors
import socket
import sys
import time

MAX_MESSAGE = 65_536
MAX_FDS = 253
STATS_EVERY = 1.0


class Channel:
    """The SOCK_SEQPACKET socket to the supervisor: one JSON object in each record, descriptors beside it."""

    def __init__(self):
        number = os.environ.pop("MOQ_SUPERVISE_FD", None)
        if number is None:
            sys.exit("MOQ_SUPERVISE_FD is not set: start this program by moq-supervise --exec")
        self.socket = socket.socket(fileno=int(number))
        self.socket.set_inheritable(False)
        self.socket.setblocking(True)

    def send(self, kind, *fds, flags=0, **fields):
        record = json.dumps({"type": kind, **fields}).encode()
        try:
            socket.send_fds(self.socket, [record], fds, flags)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The next receive() reports it.

    def receive(self):
        """The next message and its descriptors; None once the supervisor is gone."""
        while True:
            try:
                record, fds, flags, _ = socket.recv_fds(self.socket, MAX_MESSAGE, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
            except ConnectionResetError:
                continue  # It left messages of ours unread; its own last ones may still be queued.
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                sys.exit("a message of the supervisor does not fit (raise the limit of open files?)")
            return (json.loads(record), fds) if record else None


class Server:
    def __init__(self, channel, address):
        self.channel = channel
        self.selector = selectors.DefaultSelector()
        self.buffers = {}  # By connection: what is still to be sent back.
        self.deadline = None  # Draining until then.
        self.handshakes = self.forced = 0
        self.adopt(address)

    def adopt(self, address):
        """Says hello and takes over the sockets and what an earlier generation had kept."""
        wanted = {"name": "echo", "kind": "tcp", "address": address, "members": 1}
        self.channel.send("hello", protocol={"min": 1, "max": 1}, program="child.py", version="1", pid=os.getpid(),
                          listeners=[wanted])
        sockets, first = [], None
        while first is None or message.get("more"):
            received = self.channel.receive()
            if received is None:
                sys.exit("the supervisor is gone")
            message, fds = received
            if message["type"] == "refused":
                sys.exit(f"the supervisor refuses: {message['error']}")
            if message["type"] != "adopt":
                self.channel.send("unsupported", message=message["type"])
                continue
            if first is None:
                first = message
                os.close(fds.pop(0))  # The keys are for QUIC.
                kept = {name: read(fds.pop(0)) for name in message.get("kept", [])}
            sockets += fds
        [self.listener] = (socket.socket(fileno=fd) for fd in sockets)
        self.listener.setblocking(False)
        self.drain_timeout = first["drain"]["timeout_ms"] / 1000
        self.identity = kept.get("identity")
        if self.identity is None:
            self.identity = os.urandom(8)
            memfd = os.memfd_create("identity")
            os.write(memfd, self.identity)
            self.channel.send("keep", memfd, name="identity")
            os.close(memfd)

    def run(self):
        self.selector.register(self.channel.socket, selectors.EVENT_READ, self.obey)
        self.channel.send("ready")
        report = time.monotonic()
        while self.deadline is None or (self.buffers and time.monotonic() < self.deadline):
            wake = min(report, self.deadline or report)
            for key, events in self.selector.select(max(0, wake - time.monotonic())):
                key.data(key.fileobj, events)
            if time.monotonic() >= report:
                self.report()
                report = time.monotonic() + STATS_EVERY
        self.forced = len(self.buffers)
        for connection in list(self.buffers):
            self.close(connection)
        self.report()

    def obey(self, _socket, _events):
        received = self.channel.receive()
        if received is None:
            self.selector.unregister(self.channel.socket)
            self.drain(self.drain_timeout)
            return
        message, fds = received
        for fd in fds:
            os.close(fd)
        kind = message["type"]
        if kind in ("activate", "canary", "undrain"):
            self.deadline = None
            self.accepting(True)
        elif kind == "standby":
            self.accepting(False)
        elif kind == "drain":
            self.drain(message["timeout_ms"] / 1000)
        elif kind not in ("alone", "reload", "gro", "link", "counters", "unsupported"):
            self.channel.send("unsupported", message=kind)
        if "seq" in message:
            self.channel.send("ack", seq=message["seq"])

    def drain(self, timeout):
        """Another drain may come with less time, never with more."""
        deadline = time.monotonic() + timeout
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)
        self.accepting(False)

    def accepting(self, yes):
        registered = self.listener in self.selector.get_map()
        if yes and not registered:
            self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        elif registered and not yes:
            self.selector.unregister(self.listener)

    def accept(self, listener, _events):
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # Another generation was faster, or the client is gone already.
        connection.setblocking(False)
        self.buffers[connection] = b""
        self.handshakes += 1
        self.selector.register(connection, selectors.EVENT_READ, self.echo)

    def echo(self, connection, events):
        try:
            if events & selectors.EVENT_READ:
                self.buffers[connection] = connection.recv(MAX_MESSAGE)
                if not self.buffers[connection]:
                    return self.close(connection)
            sent = connection.send(self.buffers[connection])
            self.buffers[connection] = self.buffers[connection][sent:]
        except BlockingIOError:
            pass
        except OSError:
            return self.close(connection)
        # No more is read than the client takes back.
        wait = selectors.EVENT_WRITE if self.buffers[connection] else selectors.EVENT_READ
        self.selector.modify(connection, wait, self.echo)

    def close(self, connection):
        self.selector.unregister(connection)
        connection.close()
        del self.buffers[connection]

    def report(self):
        try:
            self.channel.send("stats", flags=socket.MSG_DONTWAIT, sessions=len(self.buffers),
                              handshakes=self.handshakes, forced=self.forced,
                              traffic={"identity": self.identity.hex()})
        except BlockingIOError:
            pass  # A supervisor that does not read now must not stop us; the next counters are as good.


def read(memfd):
    try:
        return os.pread(memfd, os.fstat(memfd).st_size, 0)
    finally:
        os.close(memfd)


if __name__ == "__main__":
    Server(Channel(), sys.argv[1] if len(sys.argv) > 1 else "[::]:0").run()
