"""The command ``shoal store serve``."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from shoal.cli._tool import say, tool
from shoal.errors import PlanError
from shoal.store import Store, StoreServer, Tls, connect

__all__ = ["serve"]

#: Others find a store there unless they are told another port.
PORT = 8816
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@tool("serve", example="shoal store serve --host 10.0.0.2 --join grpc://10.0.0.1:8816 --join-token-file token")
@click.option("--store", "path", metavar="FOLDER", help="The store to serve; without, the one of this user.")
@click.option("--memory", metavar="SIZE", help="How much shared memory it may use, such as 20GB.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=PORT, show_default=True, help="The port to listen on; 0 for any that is free.")
@click.option("--advertise", metavar="HOST", help="The address by which others reach this host, if it is another.")
@click.option("--token-file", type=_FILE, help="The token that others must know; without, one is made and kept.")
@click.option("--tls-cert", type=_FILE, help="The certificate of this host, in PEM.")
@click.option("--tls-key", type=_FILE, help="Its key.")
@click.option("--tls-root", type=_FILE, help="The certificate that others check it by, if it is not its own.")
@click.option("--join", "urls", multiple=True, metavar="URL", help="A store to join, with all that it has joined.")
@click.option("--join-token-file", type=_FILE, help="The token of that store, if it is not the same.")
@click.option("--join-tls-root", type=_FILE, help="The certificate to check that store by, if it is not the same.")
def serve(
    path: str | None,
    memory: str | None,
    host: str,
    port: int,
    advertise: str | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_root: Path | None,
    urls: tuple[str, ...],
    join_token_file: Path | None,
    join_tls_root: Path | None,
) -> None:
    """Serve the store of this host to others, until it is interrupted.

    Its URL is written to standard output. Whoever knows the token can read and delete all that is persisted. Stores
    that are joined are one namespace: what one of them persists is seen by all.
    """
    store = connect(path, memory=memory)
    if not isinstance(store, Store):
        raise PlanError(f"{store!r} is of another host; --store names a folder of this one")
    token, tls = _text(token_file), _tls(tls_cert, tls_key, tls_root)
    server = StoreServer(store.folder.path, host=host, port=port, token=token, tls=tls, advertise=advertise)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        _greet(server, token_file)
        for url in urls:
            server.join(url, token=_text(join_token_file), tls_root=_text(join_tls_root))
        for url, why in server.announce().items():
            say(f"# joined before, and not to be reached now: {url} ({why.partition(';')[0]})")
        click.echo(server.url)
        say(f"# joined: {', '.join(peer.url for peer in server.peers) or 'none'}")
        ended.wait()
    finally:
        server.close()


def _greet(server: StoreServer, token_file: Path | None) -> None:
    where = token_file or Path(server.path, "token")
    say(f"# serving the store at {server.path}; the token is in {where}")
    if server.is_exposed:
        say("warning: without TLS, who can listen in on the network reads the token and all objects; see --tls-cert")


def _tls(certificate: Path | None, key: Path | None, root: Path | None) -> Tls | None:
    if (certificate is None) != (key is None) or (root is not None and certificate is None):
        raise PlanError("--tls-cert and --tls-key come together, and --tls-root with them")
    if certificate is None or key is None:
        return None
    return Tls(certificate.read_text(), key.read_text(), _text(root))


def _text(file: Path | None) -> str | None:
    return None if file is None else file.read_text().strip()
