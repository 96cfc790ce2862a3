"""A model's shape as facts, and the arithmetic that follows from them: parameters, KV bytes and operations per token."""
import math
from dataclasses import dataclass

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding. `scaling` is one of none, linear, dynamic, yarn, llama3, longrope."""

    theta: float = 10000.0
    dim: int = 0  # rotated leading dimensions of a head
    scaling: str = "none"
    factor: float = 1.0
    original_max_position: int = 0  # tokens the unscaled model was trained on
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float | None = None  # yarn, longrope: multiplies cos and sin; None: from the factor
    mscale: float | None = None  # yarn, DeepSeek's form
    mscale_all_dim: float | None = None
    truncate: bool = True  # yarn: whole correction indices
    short_factors: tuple[float, ...] = ()  # longrope, one per frequency
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ClampedSpec:
    """A gate of its own: (up + 1) * gate * sigmoid(alpha * gate), the gate at most `limit` and up between -limit and limit
    (gpt-oss: arXiv:2508.10925)."""

    alpha: float
    limit: float


Activation = str | ClampedSpec  # silu, gelu or gelu_tanh of the gate, times up; or a gate of its own


@dataclass(frozen=True, slots=True)
class GatingSpec:
    """How experts are chosen where it is not by the largest of a softmax alone: first the best groups, then the best of these."""

    scoring: str = "softmax"  # or sigmoid
    bias: bool = False  # added to the scores for the choice, not to the weights
    num_groups: int = 1  # of experts, all of one size
    num_active_groups: int = 1
    scale: float = 1.0  # of the chosen experts' weights


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    num_experts: int
    num_active: int  # experts a token is sent to
    intermediate_size: int
    renormalize: bool  # the chosen experts' weights sum to one
    shared_size: int = 0  # intermediate size of what every token is sent to beside them; 0: there is none
    shared_gate: bool = False  # what it makes is multiplied by the sigmoid of a number for each token
    gating: GatingSpec = GatingSpec()
    projection_bias: bool = False  # of each expert
    router_bias: bool = False  # part of the scores, for the choice and the weights


@dataclass(frozen=True, slots=True)
class LatentSpec:
    """Keys and values of all heads are made of one short vector a token, which alone is kept, with one rotated key that all heads share
    (multi-head latent attention: DeepSeek-V2, arXiv:2405.04434). `ModelSpec.head_dim` is a query's, its rotated part included."""

    kv_rank: int  # values of that vector
    q_rank: int | None  # of the one that queries are made of; None: they are made of the hidden state
    rope_dim: int  # rotated trailing dimensions of a head's query, and the shared key's
    value_dim: int  # of a head's values


@dataclass(frozen=True, slots=True)
class LayerSpec:
    window: int | None = None  # a token sees itself and window - 1 tokens before it; None: all
    rope: RopeSpec | None = RopeSpec()  # None: no position embedding
    kv_source: int | None = None  # reads the keys and values of this earlier layer and has none of its own
    experts: ExpertsSpec | None = None  # None: a dense feed-forward block


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder. Nothing in it names a family. With `latent`, one head of keys is kept, and it is the latent."""

    vocab_size: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    layers: tuple[LayerSpec, ...]
    max_position: int  # tokens
    norm_eps: float = 1e-6
    norm_offset: float = 0.0  # added to every norm weight
    activation: Activation = "silu"
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # RMS norm over each head's queries and keys
    qk_norm_last: bool = False  # behind the rotation, not before it
    whole_qk_norm: bool = False  # RMS norm over the queries of all heads at once, and over the keys
    pre_norms: bool = True  # norms before attention and feed-forward
    post_norms: bool = False  # norms after attention and feed-forward, before the residual addition
    tied_embeddings: bool = False
    embedding_scale: float = 1.0
    attention_scale: float | None = None  # None: 1 / sqrt(head_dim)
    attention_softcap: float | None = None
    sinks: bool = False  # a logit for each query head, which adds to what its attention is divided by and has no value
    logit_scale: float = 1.0  # of what the last norm makes, and so of logits
    logit_softcap: float | None = None
    dtype: str = "float32"  # of the checkpoint
    latent: LatentSpec | None = None

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def kv_values(self) -> int:
        """Values that a layer keeps of a token."""
        return 2 * self.kv_size if self.latent is None else self.latent.kv_rank + self.latent.rope_dim

    @property
    def softmax_scale(self) -> float:
        return self.attention_scale if self.attention_scale is not None else 1.0 / math.sqrt(self.head_dim)

    @property
    def num_kv_layers(self) -> int:
        """Layers that keep keys and values of their own."""
        return sum(layer.kv_source is None for layer in self.layers)

    def kv_bytes_per_token(self, bytes_per_value: float = 2) -> int:
        """Bytes that one token's keys and values, or what they are made of, take over all layers."""
        return round(self.num_kv_layers * self.kv_values * bytes_per_value)

    def num_parameters(self) -> int:
        """Weights and biases, embeddings counted once when tied."""
        return self._embedding_parameters() + sum(self._layer_parameters(layer) for layer in self.layers)

    def num_active_parameters(self) -> int:
        """Parameters that one token is multiplied with (a mixture sends it to few experts); an embedding row is a look-up."""
        head = self.vocab_size * self.hidden_size
        return head + self.hidden_size + sum(self._layer_parameters(layer, active=True) for layer in self.layers)

    def _embedding_parameters(self) -> int:
        tables = 1 if self.tied_embeddings else 2
        return tables * self.vocab_size * self.hidden_size + self.hidden_size

    def _layer_parameters(self, layer: LayerSpec, active: bool = False) -> int:
        hidden = self.hidden_size
        total = hidden * 2 * (self.pre_norms + self.post_norms)
        total += self._attention_parameters(layer) if self.latent is None else self._latent_parameters(self.latent)
        if layer.experts is None:
            return total + 3 * hidden * self.intermediate_size + (2 * self.intermediate_size + hidden) * self.mlp_bias
        experts = layer.experts
        count = experts.num_active if active else experts.num_experts
        total += experts.num_experts * (hidden + experts.gating.bias + experts.router_bias) + hidden * experts.shared_gate
        total += count * (2 * experts.intermediate_size + hidden) * experts.projection_bias
        return total + 3 * hidden * (count * experts.intermediate_size + experts.shared_size)

    def _attention_parameters(self, layer: LayerSpec) -> int:
        hidden, own_kv = self.hidden_size, layer.kv_source is None
        qkv_rows = self.q_size + (2 * self.kv_size if own_kv else 0)
        total = hidden * (qkv_rows + self.q_size) + qkv_rows * self.qkv_bias + hidden * self.output_bias + self.num_heads * self.sinks
        total += (self.q_size + self.kv_size * own_kv) * self.whole_qk_norm
        return total + (2 if own_kv else 1) * self.head_dim * self.qk_norm

    def _latent_parameters(self, latent: LatentSpec) -> int:
        """Down to the latents, their norms, and up to what heads have."""
        hidden, q_rank, kv_rank = self.hidden_size, latent.q_rank, latent.kv_rank
        queries = hidden * self.q_size if q_rank is None else q_rank * (hidden + 1 + self.q_size)
        keys = self.head_dim - latent.rope_dim
        stored = hidden * (kv_rank + latent.rope_dim) + kv_rank
        return queries + stored + self.num_heads * (kv_rank * (keys + latent.value_dim) + latent.value_dim * hidden)
