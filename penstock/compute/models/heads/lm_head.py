"""The language-model head: the rows that need it -> logits [L, vocab]."""
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import fill
from penstock.compute.program import WeightSpec


def append(draft: Draft, hidden: str, at: str = "") -> str:
    """`at`: what the names of its buffers begin with, where a program has several."""
    spec, names = draft.spec, draft.names
    table = "embed"
    if not spec.tied_embeddings:
        shape, tensors = (spec.vocab_size, spec.hidden_size), fill(names.lm_head)
        table = draft.declare(WeightSpec("lm_head", shape, tensors, matrix=True, fallback=fill(names.embed)))
    rows = draft.op("gather", (hidden,), at + "wanted")
    logits = draft.op("linear", (rows,), at + "logits", (table,))
    if spec.logit_softcap is not None:
        logits = draft.op("softcap", (logits,), at + "capped_logits", cap=spec.logit_softcap)
    return logits
