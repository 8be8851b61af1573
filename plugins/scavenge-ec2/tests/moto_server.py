"""A program: moto's EC2 on a free loopback port, which it prints; it ends when its standard input does."""

from __future__ import annotations

import os
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    """Logs no requests."""

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Log nothing."""


def end_with_input() -> None:
    """End this process when whoever started it is gone."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=end_with_input, daemon=True).start()
    print(server.port, flush=True)
    server.serve_forever()
