"""What config.json says of a mixture of experts."""
from penstock.compute.models.fields import Fields
from penstock.core.modelspec import ExpertsSpec


def experts(fields: Fields, intermediate_size: int, renormalize: bool, least: int = 1) -> ExpertsSpec | None:
    """None where there are no experts. Raises ModelError on fewer than `least`, or fewer than a token is to be sent to."""
    return chosen(fields, fields.whole("num_experts", fields.whole("num_local_experts", 0, least=0), least=least), intermediate_size,
                  renormalize)


def chosen(fields: Fields, count: int, intermediate_size: int, renormalize: bool) -> ExpertsSpec | None:
    """Of so many experts, those that a token is sent to. None and errors as of `experts`."""
    active = fields.whole("num_experts_per_tok")
    if not count:
        return None
    if active > count:
        raise fields.wrong("num_experts_per_tok", f"at most the number of experts, {count}")
    return ExpertsSpec(num_experts=count, num_active=active, intermediate_size=intermediate_size, renormalize=renormalize)
