"""The same run as a Job of Kubernetes: an index for each shard, and the cluster is the queue."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal.cli._jobs._job import Job
from shoal.errors import PlanError

__all__ = ["Pod", "manifest"]

#: Indexes that a Job with a limit for each of them may have.
_MOST = 100_000
#: A manifest is one request to the cluster, whose store takes no more than 1.5 MiB.
_MOST_BYTES = 2**20
_LONGEST = 63
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")

#: What a pod runs: the shards are its arguments, and it takes the one of its index.
_SCRIPT = 'shift "$JOB_COMPLETION_INDEX"\nshard=$1\nexec {command}'


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod is made of, and what it is called."""

    image: str
    name: str
    namespace: str | None = None
    cpu: str | None = None
    memory: str | None = None

    def __post_init__(self) -> None:
        for what, label in (("name", self.name), ("namespace", self.namespace)):
            if label is not None and (len(label) > _LONGEST or not _LABEL.fullmatch(label)):
                text = f"the {what} {label!r} is none for Kubernetes"
                raise PlanError(f"{text}: small letters, digits and - inside, at most {_LONGEST} of them")
        for what, quantity in (("--cpu", self.cpu), ("--memory", self.memory)):
            if quantity is not None and not _QUANTITY.fullmatch(quantity):
                raise PlanError(f"{what} {quantity!r} is no quantity of Kubernetes; write it like 2, 500m, 4Gi or 500M")
        if not self.image.strip():
            raise PlanError("a pod needs an image that has the command in it; name it with --image")

    @property
    def resources(self) -> dict[str, Any]:
        """What is reserved for it; memory beyond that is not given."""
        asked = {name: value for name, value in (("cpu", self.cpu), ("memory", self.memory)) if value is not None}
        limits = {} if self.memory is None else {"limits": {"memory": self.memory}}
        return {"requests": asked, **limits} if asked else {}


def manifest(job: Job, shards: Sequence[str], pod: Pod, *, workers: int, retries: int) -> dict[str, Any]:
    """Describe an indexed Job that runs the command once for each shard, so many at a time."""
    _check(shards, pod)
    command = " ".join(_quoted(word, job.mark) for word in job.words)
    words = ["sh", "-c", _SCRIPT.format(command=command), "sh"]
    container = {
        "name": "shard",
        "image": pod.image,
        "command": [_unexpanded(word) for word in words],
        "args": [_unexpanded(shard) for shard in shards],
        **({"resources": pod.resources} if pod.resources else {}),
    }
    labels = {"app.kubernetes.io/name": pod.name, "app.kubernetes.io/managed-by": "shoal"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": pod.name,
            **({} if pod.namespace is None else {"namespace": pod.namespace}),
            "labels": labels,
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": len(shards),
            "parallelism": min(workers, len(shards)),
            "backoffLimitPerIndex": retries,
            "maxFailedIndexes": len(shards),
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {"labels": labels},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def _check(shards: Sequence[str], pod: Pod) -> None:
    size = sum(len(shard.encode("utf-8", "replace")) + 16 for shard in shards)
    if len(shards) > _MOST or size > _MOST_BYTES:
        text = f"{len(shards)} shards are more than one Job takes ({_MOST} of them, or {_MOST_BYTES} bytes of names)"
        raise PlanError(f"{text}; make several Jobs, each with a part of --shards")
    longest = f"{pod.name}-{len(shards) - 1}"
    if len(longest) > _LONGEST:
        raise PlanError(f"the last pod would be called {longest}, and {_LONGEST} letters are allowed; shorten --name")


def _quoted(word: str, mark: str) -> str:
    """Write a word for sh, with the shard where the mark is.

    >>> _quoted("in-{}.tar", "{}"), _quoted("it's", "{}")
    ('in-"$shard".tar', '\\'it\\'"\\'"\\'s\\'')
    """
    parts = [shlex.quote(part) if part else "" for part in word.split(mark)]
    return '"$shard"'.join(parts) or "''"


def _unexpanded(text: str) -> str:
    """Keep Kubernetes from putting variables of its own into ``$(...)``, or one dollar for two."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PlanError(f"{text!r} is not UTF-8, which a manifest is written in") from None
    return re.sub(r"\$(?=[$(])", "$$", text)
