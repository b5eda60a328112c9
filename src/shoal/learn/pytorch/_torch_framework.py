"""PyTorch: a module, trained by several workers with DistributedDataParallel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from shoal.abc import Framework, Member
from shoal.errors import PlanError
from shoal.learn.pytorch import _torch_files
from shoal.learn.pytorch._torch_files import loaded, saved
from shoal.learn.pytorch._torch_main import MainCallback, Runner
from shoal.learn.pytorch._torch_norm import Gloo, Norms

__all__ = ["TorchFramework", "TorchOptions"]

_PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """How a model is trained."""

    clip_norm: float | None = None
    clip_value: float | None = None
    amp: bool = False
    """Whether the forward pass is in bfloat16, where that is safe."""
    compile: bool = False
    sync_batch_norm: bool = False
    schedule: str = "batch"
    """Whether the scheduler takes a step after each ``batch``, or each ``epoch``."""
    seed: int = 0


class TorchFramework(Framework):
    """A model, its optimizer, loss and scheduler; each an instance, or a function that makes it."""

    format: ClassVar[str] = "torch"
    modules: ClassVar[tuple[str, ...]] = (
        __name__,
        "shoal.pipeline.groups._torch",
        "torch._dynamo",  # every optimizer wants it
    )
    model: Any
    """The module, once it is built."""

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        loss: Any = None,
        scheduler: Callable[..., Any] | None = None,
        config: Mapping[str, Any] | None = None,
        options: TorchOptions | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        self._given = model, optimizer, loss, scheduler
        self.config = dict(config or {})
        self._options = options or TorchOptions()
        self.files = dict(files or {})
        """What was learnt before."""
        self.main = MainCallback()
        """Who does what is done with a batch."""
        self._size, self._has_trained = 1, False
        self._norms: Norms | None = None

    def join(self, member: Member) -> None:
        """Meet the others, build everything, and begin with the same weights."""
        self._size = member.size
        if member.size > 1:
            _meet(member)
        torch.manual_seed(self._options.seed)
        self.build()
        torch.manual_seed(self._options.seed + member.rank)  # each drops out other numbers
        if member.size > 1:
            self._norms = Norms(self.model, Gloo(), always=self._options.sync_batch_norm)
            self.model = self._norms.model
        self._module: Any = torch.compile(self.model) if self._options.compile else self.model
        if member.size > 1 and any(each.requires_grad for each in self.model.parameters()):
            self._module = torch.nn.parallel.DistributedDataParallel(self._module)

    def build(self) -> None:
        """Make model, loss, optimizer and scheduler, and take what was learnt before."""
        model, optimizer, loss, scheduler = self._given
        self.model = model if isinstance(model, torch.nn.Module) else model(self.config)
        if not isinstance(self.model, torch.nn.Module):
            raise PlanError(f"the model is {self.model!r}, and no torch.nn.Module")
        self.loss = loss if loss is None or isinstance(loss, torch.nn.Module) else _built(loss, self.config)
        self.optimizer = self._optimizer(optimizer)
        self.scheduler = None
        if scheduler is not None and self.optimizer is not None:
            self.scheduler = scheduler(self.optimizer, self.config)
        if self.files:
            self.load(self.files)

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Learn from some rows."""
        if self.optimizer is None or (self.loss is None and type(self.main) is MainCallback):
            raise PlanError("training needs an optimizer and a loss")
        self._module.train()
        self._has_trained = True
        if self._norms is not None:
            self._norms.before_step(features, weight > 0)
        waits = not last and hasattr(self._module, "no_sync")
        with self._module.no_sync() if waits else nullcontext():
            factor = self._size if getattr(self.loss, "reduction", "mean") == "sum" and weight else weight
            runner = self._runner(self._module, features, labels)
            runner.weight, runner.last, runner.step = factor, last, self._step
            with torch.autocast("cpu", torch.bfloat16, enabled=self._options.amp):
                self.main.on_train_forward(runner)
            if runner.loss is None:
                raise PlanError(f"{type(self.main).__name__} has set no loss; on_iter_forward has to set runner.loss")
            self.main.on_iter_backward(runner)
        if last and self._options.schedule == "batch":
            self.main.on_lr_adjust(runner)
        return float(runner.loss.detach())

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions, and their loss."""
        self.model.eval()
        with torch.no_grad():
            runner = self._runner(self.model, features, labels)
            runner.criterion = self.loss if labels else None
            self.main.on_val_forward(runner)
        return runner.output, None if runner.loss is None else float(runner.loss)

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions as arrays."""
        self.model.eval()
        with torch.no_grad():
            runner = self._runner(self.model, features, ())
            self.main.on_pred_forward(runner)
            return _arrays(runner.output)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers; who has trained agrees with the others, too, on what he may evaluate."""
        found = torch.tensor(list(numbers), dtype=torch.float64)
        self._settle()
        if self._size > 1:
            dist.all_reduce(found)
        return [float(each) for each in found]

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Let the scheduler take a step, if it does so once an epoch."""
        if self._options.schedule == "epoch":
            runner = self._runner(self._module, (), ())
            runner.stats = stats
            self.main.on_lr_adjust(runner)
        return {}

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give the state of everything."""
        if parts == "own":
            return {"random.pt": saved(torch.get_rng_state())}
        found: dict[str, Any] = {"model.pt": self.model.state_dict()}
        if parts == "all":
            found |= {"optimizer.pt": self.optimizer.state_dict()} if self.optimizer is not None else {}
            found |= {"scheduler.pt": self.scheduler.state_dict()} if self.scheduler is not None else {}
        return {name: saved(state) for name, state in found.items()}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take the state of everything that there is."""
        if "model.pt" in files:
            self.model.load_state_dict(loaded(files["model.pt"]))
        if "optimizer.pt" in files and self.optimizer is not None:
            self.optimizer.load_state_dict(loaded(files["optimizer.pt"]))
        if "scheduler.pt" in files and self.scheduler is not None:
            self.scheduler.load_state_dict(loaded(files["scheduler.pt"]))
        if "random.pt" in files:
            torch.set_rng_state(loaded(files["random.pt"]))

    @property
    def measures(self) -> bool:
        """Whether an evaluation tells a loss."""
        return self._given[2] is not None or type(self.main) is not MainCallback

    @property
    def learning_rate(self) -> float | None:
        """How fast it learns now."""
        return None if self.optimizer is None else float(self.optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        """Let all parameters learn as fast."""
        for group in () if self.optimizer is None else self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def packed(self, files: Mapping[str, bytes], info: Mapping[str, Any] | None, name: str) -> bytes:
        """Make a file that torch loads without running code."""
        return _torch_files.packed(files, info, name)

    def unpacked(self, data: bytes, name: str) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Read such a file."""
        return _torch_files.unpacked(data, name)

    def leave(self, done: bool) -> None:
        """Part from the others: all at once, and before anything that belongs to the group is thrown away."""
        if self._size > 1 and dist.is_initialized():
            self._module = self.model
            if done:
                dist.barrier()  # a group of which somebody is gone may wait for him for ever
            dist.destroy_process_group()

    def _settle(self) -> None:
        """Let all have what the first one remembers of the rows, after steps and before an evaluation."""
        has_trained, self._has_trained = self._has_trained, False  # on all workers, also those with nothing to evaluate
        if self._norms is not None and has_trained:
            self._norms.settle()

    def _optimizer(self, given: Any) -> torch.optim.Optimizer | None:
        if given is None or isinstance(given, torch.optim.Optimizer):
            return given
        made = given(self.model, self.config)
        if not isinstance(made, torch.optim.Optimizer):
            raise PlanError(f"the optimizer is {made!r}, and no torch.optim.Optimizer")
        return made

    def _runner(self, model: Any, features: Sequence[Any], labels: Sequence[Any]) -> Runner:
        return Runner(model, self.loss, self.optimizer, self.scheduler, features, labels)

    def _step(self) -> None:
        assert self.optimizer is not None
        options = self._options
        if options.clip_value is not None:
            torch.nn.utils.clip_grad_value_(self.model.parameters(), options.clip_value)
        if options.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), options.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def _meet(member: Member) -> None:
    """Begin a process group, at an address that the first worker offers."""
    make: Any = dist.TCPStore  # type: ignore[attr-defined]
    store = None
    if member.rank == 0:
        store = make(member.host, 0, member.size, is_master=True, wait_for_workers=False, timeout=_PATIENCE)
    address = member.all_gather(None if store is None else (member.host, store.port))[0]
    if store is None:
        store = make(*address, member.size, is_master=False, timeout=_PATIENCE)
    dist.init_process_group("gloo", store=store, rank=member.rank, world_size=member.size, timeout=_PATIENCE)


def _built(given: Any, config: Mapping[str, Any]) -> Any:
    """Make a loss of a function of the config; a plain function of predictions and targets is one already."""
    if isinstance(given, type):
        return given()
    return given(config) if _takes_config(given) else given


def _takes_config(function: Any) -> bool:
    try:
        names = [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    except (TypeError, ValueError):
        return False
    return len(names) == 1


def _arrays(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.detach().float().numpy() if found.dtype is torch.bfloat16 else found.detach().numpy()
    if isinstance(found, Mapping):
        return {name: _arrays(each) for name, each in found.items()}
    return [_arrays(each) for each in found]
