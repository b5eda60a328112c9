"""scipy's sparse matrices and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.errors import StoreError
from shoal.store._contexts import BuilderContext, ResolverContext
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "dia": ("data", "offsets"),
    "coo": ("data", "coords"),
}


def build_sparse(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe a matrix by its arrays; formats without any are described by their coordinates."""
    form = value.format
    found = value if form in _PARTS else value.tocoo()
    meta = ObjectMeta(f"vineyard::SparseMatrix<{form}>", {"format_": form})
    meta["shape_"] = [int(size) for size in value.shape]
    meta["array_"] = type(value).__name__.endswith("_array")
    for name in _PARTS.get(form, _PARTS["coo"]):
        meta.add_member(f"{name}_", builder(store, getattr(found, name)))
    return meta


def resolve_sparse(obj: Object, resolver: ResolverContext) -> Any:
    """Give a matrix of the same format whose arrays lie where they were put."""
    from scipy import sparse

    form, shape = obj.meta["format_"], tuple(obj.meta["shape_"])
    kind = "array" if obj.meta["array_"] else "matrix"
    parts = [resolver(obj.member(f"{name}_")) for name in _PARTS.get(form, _PARTS["coo"])]
    stored = form if form in _PARTS else "coo"
    make = getattr(sparse, f"{stored}_{kind}", None)
    if make is None:
        raise StoreError(f"this scipy has no {stored}_{kind}, which object {obj.id} is")
    found = make(tuple(parts), shape=shape, copy=False)
    return found if form in _PARTS else found.asformat(form)
