"""Dask collections in the store: workers put and read partitions, and the client sees nothing but names."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client, default_client, get_worker, wait

import shoal
from shoal.errors import PlanError, StoreError, StoreFullError, TrustError
from shoal.store import (
    Store,
    StoreServer,
    builder_context,
    connect,
    make_global_dataframe,
    make_global_tensor,
    resolver_context,
)
from shoal.store.dask import dask_context, register_dask_builder, register_dask_types
from support.dask_hosts import DaskHosts, dask_hosts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shoal-test-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def hosts(shared: Path) -> Iterator[DaskHosts]:
    with dask_hosts(shared, [f"{shared}/a", f"{shared}/b"]) as found:
        yield found


@pytest.fixture(scope="module")
def connection(hosts: DaskHosts) -> Iterator[Client]:
    with Client(hosts.address, set_as_default=False) as made:
        made.wait_for_workers(2, timeout=60)
        yield made


@pytest.fixture
def client(connection: Client) -> Iterator[Client]:
    """Tests that ask for it have a current client."""
    with connection.as_current():
        yield connection


@pytest.fixture
def stores(hosts: DaskHosts) -> list[Store]:
    """What the two hosts have; the client is on the first."""
    return [connect(path, memory="1GB") for path in hosts.stores]


def put(stores: list[Store], collection: Any, **options: Any) -> Any:
    with builder_context() as builders:
        register_dask_types(builders, None)
        return stores[0].put(collection, **options)


def got(stores: list[Store], object_id: Any, **options: Any) -> Any:
    with resolver_context() as resolvers:
        register_dask_types(None, resolvers)
        return stores[0].get(object_id, **options)


def owners(stores: list[Store], object_id: Any) -> list[int]:
    numbers = [store.instance_id for store in stores]
    return [numbers.index(owner) for owner in stores[0].get_meta(object_id)["owners_"]]


def test_a_grid_of_blocks_becomes_sixteen_partitions_and_comes_back(client: Client, stores: list[Store]) -> None:
    number = put(stores, da.ones((1024, 1024), chunks=256))
    meta = stores[0].get_meta(number)
    assert meta.typename == "vineyard::GlobalTensor"
    assert meta["partitions_-size"] == 16
    assert meta["shape_"] == [1024, 1024]
    assert set(owners(stores, number)) == {0, 1}
    back = got(stores, number)
    assert isinstance(back, da.Array)
    assert back.chunks == ((256,) * 4, (256,) * 4)
    assert (back.compute() == 1).all()


@pytest.mark.parametrize("shape", [(11,), (6, 7), (4, 5, 6), (3, 4, 2, 5)])
def test_arrays_of_any_dimensions_come_back_block_by_block(
    client: Client, stores: list[Store], shape: tuple[int, ...]
) -> None:
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    back = got(stores, put(stores, da.from_array(whole, chunks=3)))
    assert back.dtype == np.int32
    np.testing.assert_array_equal(back.compute(), whole)


def test_blocks_of_unknown_size_and_empty_ones_keep_their_places(client: Client, stores: list[Store]) -> None:
    numbers = da.arange(40, chunks=10)
    chosen = numbers[(numbers >= 10) & (numbers % 3 == 0)]  # nothing of the first block
    assert np.isnan(chosen.shape[0])
    back = got(stores, put(stores, chosen))
    assert back.chunks == ((0, 3, 3, 4),)
    assert back.compute().tolist() == list(range(12, 40, 3))


def frames(parts: int = 4, rows: int = 5) -> pd.DataFrame:
    count = parts * rows
    return pd.DataFrame(
        {
            "number": np.arange(count),
            "word": [f"word {at}" for at in range(count)],
            "kind": pd.Categorical([("a", "b", "c")[at % 3] for at in range(count)]),
        },
        index=pd.date_range("2026-01-01", periods=count, name="day"),
    )


def test_a_frame_keeps_texts_categories_index_and_divisions(client: Client, stores: list[Store]) -> None:
    whole = frames()
    collection = dd.from_pandas(whole, npartitions=4)
    number = put(stores, collection)
    meta = stores[0].get_meta(number)
    assert (meta.typename, meta["partitions_-size"]) == ("vineyard::GlobalDataFrame", 4)
    back = got(stores, number)
    assert back.divisions == collection.divisions
    assert back.npartitions == 4
    assert list(back.dtypes) == list(collection.dtypes)
    pd.testing.assert_frame_equal(back.compute(), collection.compute(), check_freq=False)
    later = back.loc["2026-01-07":"2026-01-12"].compute()
    assert later["number"].tolist() == [6, 7, 8, 9, 10, 11]


def test_a_frame_of_an_array_has_the_index_that_dask_gave_it(client: Client, stores: list[Store]) -> None:
    collection = dd.from_dask_array(da.ones((1024, 2), chunks=(256, 2)), columns=["a", "b"])
    number = put(stores, collection)
    assert stores[0].get_meta(number)["partitions_-size"] == 4
    assert got(stores, number).compute().index.tolist() == list(range(1024))


def test_empty_partitions_stay_partitions(client: Client, stores: list[Store]) -> None:
    collection = dd.from_pandas(pd.DataFrame({"x": range(12), "y": list("abcdefghijkl")}), npartitions=4)
    some = collection[collection["x"] >= 9]
    number = put(stores, some)
    assert stores[0].get_meta(number)["partitions_-size"] == 4
    back = got(stores, number)
    assert back.compute()["y"].tolist() == ["j", "k", "l"]
    assert back.map_partitions(len).compute().tolist() == [0, 0, 0, 3]


def test_a_series_and_a_bag_come_back(client: Client, stores: list[Store]) -> None:
    series = dd.from_pandas(pd.Series(range(9), name="n"), npartitions=3)
    pd.testing.assert_series_equal(got(stores, put(stores, series)).compute(), series.compute())
    bag = db.from_sequence([{"n": at, "word": f"w{at}"} for at in range(7)], npartitions=3)
    number = put(stores, bag)
    assert stores[0].get_meta(number).typename == "vineyard::GlobalShards"
    assert got(stores, number).compute() == bag.compute()


def test_each_partition_is_put_by_the_worker_that_made_it_and_read_there(client: Client, stores: list[Store]) -> None:
    def made_at(number: int) -> pd.DataFrame:
        return pd.DataFrame({"number": [number], "worker": [str(get_worker().name)]})

    meta = pd.DataFrame({"number": pd.Series(dtype=int), "worker": pd.Series(dtype=str)})
    number = put(stores, dd.from_map(made_at, range(20), meta=meta))
    back = got(stores, number)

    def where(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(reader=str(get_worker().name))

    meta = back._meta.assign(reader="")
    read = back.map_partitions(where, meta=meta).compute()
    assert read["number"].tolist() == list(range(20))
    at = [f"host{owner}" for owner in owners(stores, number)]
    assert read["worker"].tolist() == at
    assert set(at) == {"host0", "host1"}
    assert read["reader"].tolist() == at


def test_no_partition_goes_through_the_client(client: Client, stores: list[Store]) -> None:
    """The client's process writes nothing but the description: its lease has put one object."""
    before = {store.instance_id: set(store.ids()) for store in stores}
    number = put(stores, da.zeros((400, 1000), chunks=(100, 1000)))
    for store, share in zip(stores, (owners(stores, number).count(0), owners(stores, number).count(1)), strict=True):
        new = set(store.ids()) - before[store.instance_id]
        assert len(new) == share + 1
        assert sum(made.lease == number.lease for made in new) == 1


def test_every_host_knows_the_whole_and_gets_its_own_part(client: Client, stores: list[Store]) -> None:
    """A default get on one of two hosts returns only its frames."""
    number = put(stores, dd.from_pandas(pd.DataFrame({"x": range(40)}), npartitions=8))
    at = owners(stores, number)
    for place, store in enumerate(stores):
        parts = store.get(number, partitions="local")
        expected = [list(range(5 * part, 5 * part + 5)) for part, owner in enumerate(at) if owner == place]
        assert [part["x"].tolist() for part in parts] == expected
        assert store.get_meta(number)["owners_"] == stores[0].get_meta(number)["owners_"]


def test_what_came_from_the_store_is_linked_when_it_is_put_again(client: Client, stores: list[Store]) -> None:
    number = put(stores, da.random.random((8, 100_000), chunks=(1, 100_000)))
    before = sum(store.status().memory_usage for store in stores)
    again = put(stores, got(stores, number))
    assert sum(store.status().memory_usage for store in stores) - before < 400_000
    assert owners(stores, again) == owners(stores, number)
    assert float((got(stores, again) - got(stores, number)).sum().compute()) == 0


def test_joined_stores_are_one_for_who_reads_and_for_who_deletes(client: Client, hosts: DaskHosts) -> None:
    with closing(StoreServer(hosts.stores[0])) as first, closing(StoreServer(hosts.stores[1])) as second:
        second.join(first.url, token=first.token)
        stores = [connect(path) for path in hosts.stores]
        before = [set(store.ids()) for store in stores]
        number = put(stores, da.arange(24, chunks=2))
        assert set(owners(stores, number)) == {0, 1}
        for store in (*stores, connect(second.url, token=second.token)):
            assert store.get(number, partitions="all", to="numpy").tolist() == list(range(24))
            assert [sample["x"] for sample in shoal.from_store(number, store)] == list(range(24))
        stores[0].delete(number)
        assert [set(store.ids()) for store in stores] == before


def test_blocks_that_were_put_by_hand_make_an_array(client: Client, stores: list[Store]) -> None:
    """Blocks i - j of a grid, in two stores: their sum is 0."""
    blocks, at = [], []
    for i in range(8):
        for j in range(8):
            store = stores[(i + j) % 2]
            blocks.append(store.put(np.ones((2, 3)) * (i - j), persist=True, partition_index=(i, j)))
            at.append(store.instance_id)
    number = make_global_tensor(stores[0], blocks, owners=at).id
    back = got(stores, number)
    assert back.shape == (16, 24)
    assert back.sum().compute() == 0
    assert back[15, 0].compute() == 7


def test_frames_that_were_put_by_hand_make_a_frame(client: Client, stores: list[Store], hosts: DaskHosts) -> None:
    """Told who has which store, nobody is asked."""
    frames = [pd.DataFrame({"x": [i, 2 * i], "y": [3 * i, 4 * i]}) for i in range(4)]
    at = [stores[i % 2] for i in range(4)]
    ids = [
        store.put(frame, persist=True, partition_index=(i, 0))
        for i, (store, frame) in enumerate(zip(at, frames, strict=True))
    ]
    number = make_global_dataframe(stores[0], ids, owners=[store.instance_id for store in at]).id
    names = {stores[0].instance_id: "host0", stores[1].instance_id: "host1"}
    with dask_context():
        back = stores[0].get(number, dask_scheduler=hosts.address, dask_workers=names)
    assert int(back.sum().sum().compute()) == 60
    assert back.compute()["x"].tolist() == [0, 0, 1, 2, 2, 4, 3, 6]


def test_the_seeds_name_for_registering_works_and_is_forgotten_with_its_context(
    client: Client, stores: list[Store]
) -> None:
    number = put(stores, da.arange(6, chunks=3))
    with resolver_context() as resolvers:
        register_dask_builder(None, resolvers)
        assert isinstance(stores[0].get(number), da.Array)
    assert isinstance(stores[0].get(number), list)


def test_an_address_is_enough_and_the_client_made_for_it_is_closed(
    connection: Client, stores: list[Store], hosts: DaskHosts
) -> None:
    def clients(dask_scheduler: Any) -> int:
        return len(dask_scheduler.clients)

    before = connection.run_on_scheduler(clients)
    number = put(stores, da.arange(6, chunks=3), dask_scheduler=hosts.address)
    assert connection.run_on_scheduler(clients) == before
    back = got(stores, number, dask_scheduler=hosts.address)
    with default_client():  # it stays, because the array needs it
        assert back.compute().tolist() == list(range(6))


def test_a_failure_says_its_reason_and_leaves_nothing(client: Client, stores: list[Store]) -> None:
    def broken(number: int) -> pd.DataFrame:
        if number == 5:
            raise ArithmeticError("the sixth is not to be had")
        return pd.DataFrame({"x": np.arange(1000) + number})

    before = [set(store.ids()) for store in stores]
    meta = pd.DataFrame({"x": pd.Series(dtype=int)})
    with pytest.raises(ArithmeticError, match="the sixth is not to be had"):
        put(stores, dd.from_map(broken, range(8), meta=meta))
    assert [set(store.ids()) for store in stores] == before


def test_a_full_store_is_said_and_what_was_put_is_removed(client: Client, stores: list[Store]) -> None:
    before = [set(store.ids()) for store in stores]
    for store in stores:
        connect(store.folder.path, memory=6_000_000, spill=False)
    try:
        with pytest.raises(StoreFullError):
            put(stores, da.random.random((12, 500_000), chunks=(1, 500_000)))
    finally:
        for store in stores:
            connect(store.folder.path, memory="1GB")
    assert [set(store.ids()) for store in stores] == before


def test_pickles_need_trust_on_the_workers_too(client: Client, stores: list[Store]) -> None:
    class Odd:
        pass

    bag = db.from_sequence([Odd(), Odd()], npartitions=2)
    with pytest.raises(StoreError, match="trust=True"):
        put(stores, bag)
    number = put(stores, bag, trust=True)
    with pytest.raises(TrustError):
        got(stores, number).compute()
    assert [type(each).__name__ for each in got(stores, number, trust=True).compute()] == ["Odd", "Odd"]


def test_wrong_options_and_missing_workers_are_named(client: Client, stores: list[Store]) -> None:
    with pytest.raises(PlanError, match="no option 'scheduler'"):
        put(stores, da.ones(3), scheduler="tcp://nowhere")
    number = put(stores, da.ones(4, chunks=2))
    with pytest.raises(StoreError, match="no Dask worker has the store"):
        got(stores, number, dask_workers={1: "host0"})


def test_without_a_client_the_way_to_one_is_told(stores: list[Store]) -> None:
    with pytest.raises(PlanError, match="dask_scheduler="):
        put(stores, da.ones(3))


def test_partitions_of_a_worker_that_dies_are_made_and_put_by_others(shared: Path, tmp_path: Path) -> None:
    def slow(block: Any) -> Any:
        time.sleep(0.2)
        return block

    paths = [f"{shared}/c", f"{shared}/d"]
    ours = [connect(path, memory="100MB") for path in paths]
    with dask_hosts(tmp_path, paths) as hosts, Client(hosts.address) as client:
        client.wait_for_workers(2, timeout=60)
        kept = client.persist(da.arange(24, chunks=1).map_blocks(slow, dtype=int))
        wait(kept)
        os.kill(hosts.workers[1], signal.SIGKILL)
        number = ours[0].put(kept)
    assert ours[0].get_meta(number)["partitions_-size"] == 24
    assert sorted(
        int(part[0]) for store in ours if store.exists(number) for part in store.get(number, partitions="local")
    ) == list(range(24))


def test_tables_of_arrow_are_frames_in_dask(client: Client, stores: list[Store]) -> None:
    tables = [pa.table({"n": [at, at + 1], "word": [f"w{at}", None]}) for at in range(3)]
    number = make_global_dataframe(stores[0], [stores[0].put(table, persist=True) for table in tables]).id
    back = got(stores, number)
    assert back.compute()["n"].tolist() == [0, 1, 1, 2, 2, 3]
    assert back["word"].count().compute() == 3
