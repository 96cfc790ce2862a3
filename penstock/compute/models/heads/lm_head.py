"""The language-model head: the rows that need it -> logits [L, vocab]."""
from penstock.compute.models.draft import Draft
from penstock.compute.models.names import fill


def append(draft: Draft, hidden: str) -> str:
    spec, names = draft.spec, draft.names
    table = "embed"
    if not spec.tied_embeddings:
        table = draft.weight("lm_head", (spec.vocab_size, spec.hidden_size), fill(names.lm_head), matrix=True)
    rows = draft.op("gather", (hidden,), "wanted")
    logits = draft.op("linear", (rows,), "logits", (table,))
    if spec.logit_softcap is not None:
        logits = draft.op("softcap", (logits,), "capped_logits", cap=spec.logit_softcap)
    return logits
