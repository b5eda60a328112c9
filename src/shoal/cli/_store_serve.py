"""The command ``shoal store serve``."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._serving import FILE, text_of, tls_of, tls_options, until_interrupted, warn_if_exposed
from shoal.cli._tool import say, tool
from shoal.errors import PlanError
from shoal.store import Store, StoreServer, connect

__all__ = ["serve"]

#: Others find a store there unless they are told another port.
PORT = 8816


@tool("serve", example="shoal store serve --host 10.0.0.2 --join grpc://10.0.0.1:8816 --join-token-file token")
@click.option("--store", "path", metavar="FOLDER", help="The store to serve; without, the one of this user.")
@click.option("--memory", metavar="SIZE", help="How much shared memory it may use, such as 20GB.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=PORT, show_default=True, help="The port to listen on; 0 for any that is free.")
@click.option("--advertise", metavar="HOST", help="The address by which others reach this host, if it is another.")
@click.option("--token-file", type=FILE, help="The token that others must know; without, one is made and kept.")
@tls_options
@click.option("--join", "urls", multiple=True, metavar="URL", help="A store to join, with all that it has joined.")
@click.option("--join-token-file", type=FILE, help="The token of that store, if it is not the same.")
@click.option("--join-tls-root", type=FILE, help="The certificate to check that store by, if it is not the same.")
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
    token, tls = text_of(token_file), tls_of(tls_cert, tls_key, tls_root)
    server = StoreServer(store.folder.path, host=host, port=port, token=token, tls=tls, advertise=advertise)
    ended = until_interrupted()
    try:
        _greet(server, token_file)
        for url in urls:
            server.join(url, token=text_of(join_token_file), tls_root=text_of(join_tls_root))
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
    warn_if_exposed(server.is_exposed, "all objects")
