"""Decoding by the features of a dataset, as a stage of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.abc import Block, Sample
from shoal.data.huggingface._forms import Form
from shoal.pipeline.stages import BlockStage, Place
from shoal.shards.codecs import DecodeOptions

__all__ = ["DecodeFeatures"]


@dataclass(frozen=True, slots=True)
class DecodeFeatures(BlockStage):
    """Turns stored values into what their features stand for; nulls stay."""

    shows_bytes = False
    forms: Mapping[str, Form]
    options: DecodeOptions = field(default_factory=DecodeOptions)

    def process(self, block: Block) -> Block:
        """Decode the fields of each sample that have a form."""
        return block.with_samples([self._decoded(sample, block) for sample in block.samples])

    def _decoded(self, sample: Sample, block: Block) -> Sample:
        made = dict(sample)
        with Place(self, sample, block):
            for name, form in self.forms.items():
                if made.get(name) is not None:
                    made[name] = form.decoded(made[name], name, self.options)
        return made
