"""Scorers: ways to tell which of several answers to one prompt are the best."""
from penstock.core.registry import Table

TABLE = Table("scorer", {
    "logprob": "penstock.serve.scorers.logprob:LogProb",
    "url": "penstock.serve.scorers.url:Url",
    "votes": "penstock.serve.scorers.votes:Votes",
})
