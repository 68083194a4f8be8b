"""An address behind which one of several gateways is: connections go to the one that is named last."""

import contextlib
import socket
import threading


class Proxy:
    """`with Proxy("127.0.0.1:PORT") as proxy:`; `target` may change at any time."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                host, port = self.target.rsplit(":", 1)
                try:
                    server = socket.create_connection((host, int(port)))
                except OSError:
                    client.close()
                    continue
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()


def pump(source, target):
    """Until one of the two ends; then both do."""
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
