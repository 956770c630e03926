"""A server of `sil watch` in a thread, and requests to it."""

import http.client
import threading
from contextlib import contextmanager

from self_imitation.watch import server


@contextmanager
def served(site):
    with server.create(site, 0) as pages:
        thread = threading.Thread(target=lambda: pages.serve_forever(poll_interval=0.01))
        thread.start()
        try:
            yield pages
        finally:
            pages.shutdown()
            thread.join()


def ask(pages, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": f"127.0.0.1:{pages.port}", **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body
