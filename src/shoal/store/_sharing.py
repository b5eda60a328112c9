"""Blobs that lie in the store already: an object that is put with them links to their files instead of copying."""

from __future__ import annotations

import os
from contextlib import suppress

from shoal.store._folder import Folder
from shoal.store._ids import ObjectID
from shoal.store._lease import lease_of
from shoal.store._mapping import SMALL, Place, Region, address, region_at
from shoal.store._meta import Blob

__all__ = ["Sharing"]


class Sharing:
    """Finds what an object that is being put has in common with others."""

    def __init__(self, folder: Folder, object_id: ObjectID) -> None:
        self._folder, self._id = folder, object_id
        self._linked: dict[ObjectID, bool] = {}

    def new_id(self) -> ObjectID:
        """Name a blob."""
        return lease_of(self._folder).new_id(blob=True)

    def place(self, blob: Blob) -> Place | None:
        """Find where a blob lies, and see to it that it stays; None for one that is to be copied."""
        if blob.nbytes <= SMALL:
            return None
        begin = address(blob.view)
        region = region_at(begin, begin + blob.nbytes)
        if region is None or region.folder != self._folder.path or not self._link(region):
            return None
        known = region.blob_at(begin, blob.nbytes)
        return Place(region.owner, known or self.new_id(), begin - region.begin, blob.nbytes)

    def _link(self, region: Region) -> bool:
        """Link to the file of another object, unless it is on a disk, or gone."""
        if region.owner not in self._linked:
            self._linked[region.owner] = self._try(region)
        return self._linked[region.owner]

    def _try(self, region: Region) -> bool:
        home = self._folder.shares(self._id)
        os.makedirs(home, mode=0o700, exist_ok=True)
        for path in (region.path, *self._folder.places(region.owner)):
            with suppress(OSError):
                if os.stat(path).st_ino == region.inode:
                    link = f"{home}/{region.owner.digits}"
                    os.link(path, link)
                    if os.stat(link).st_ino == region.inode:
                        return True
                    os.unlink(link)
        with suppress(OSError):
            os.rmdir(home)
        return False
