"""Proposers draft the next tokens of a sequence, so that one step of the target model can verify several of them. See contract.py."""
from penstock.core.registry import Table

TABLE = Table("proposer", {
    "draft_model": "penstock.compute.decoding.propose.draft_model:DraftModel",
    "eagle": "penstock.compute.decoding.propose.eagle:Eagle",
    "lookahead": "penstock.compute.decoding.propose.lookahead:Lookahead",
    "medusa": "penstock.compute.decoding.propose.medusa:Medusa",
    "ngram": "penstock.compute.decoding.propose.ngram:Ngram",
    "suffix": "penstock.compute.decoding.propose.suffix:Suffix",
}, also={"auto": "ngram:n=8"})  # needs neither a second model nor trained heads, and takes less time than any other
