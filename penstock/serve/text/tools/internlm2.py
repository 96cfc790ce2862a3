"""InternLM 2 and Intern-S1: `<|action_start|><|plugin|>{"name": ..., "parameters": {...}}<|action_end|>`."""
from typing import ClassVar

from penstock.serve.text.markup import Openings
from penstock.serve.text.tools.hermes import HermesParser

START, PLUGIN, END = "<|action_start|>", "<|plugin|>", "<|action_end|>"


class InternLM2Parser(HermesParser):
    markup: ClassVar[tuple[str, ...]] = (START, PLUGIN, END)
    openings: ClassVar[Openings] = ((START + PLUGIN, "{"),)
    arguments: ClassVar[str] = "parameters"

    @classmethod
    def suits(cls, template: str) -> bool:
        return START in template and PLUGIN in template
