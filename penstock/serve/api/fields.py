"""The one table of request fields: what OpenAI's clients and vLLM's users may send, and what becomes of it here.

Every field is obeyed, harmless (accepted because leaving it out would change no answer), or refused. A refused field is
accepted with the values that ask for nothing beyond what is done anyway, such as OpenAI's default. Anything else is
refused by name, so that no input is ever dropped in silence. docs/api.md is generated from this table.
"""
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import RequestError
from penstock.serve.api.values import show

OBEYED, HARMLESS, REFUSED = "obeyed", "harmless", "refused"
CHAT, RESPONSES, COMPLETIONS, EMBEDDINGS = "chat", "responses", "completions", "embeddings"
TOKENIZE, DETOKENIZE, STREAM = "tokenize", "detokenize", "stream_options"
BOTH = (CHAT, COMPLETIONS)
TALKING = (CHAT, RESPONSES)
ANSWERING = (*BOTH, RESPONSES)
ALL = (*ANSWERING, EMBEDDINGS)


@dataclass(frozen=True, slots=True)
class Field:
    """`note` says what the field does, why it is harmless, or why it is refused. `accepted`: values that pass beside null."""

    name: str
    endpoints: tuple[str, ...]
    fate: str
    note: str
    accepted: tuple[Any, ...] = ()
    kind: type | None = None  # the JSON type that a harmless field must have


def _obeyed(endpoints: tuple[str, ...], **notes: str) -> tuple[Field, ...]:
    return tuple(Field(name, endpoints, OBEYED, note) for name, note in notes.items())


def _harmless(endpoints: tuple[str, ...], name: str, kind: type, note: str) -> Field:
    return Field(name, endpoints, HARMLESS, note, kind=kind)


def _refused(endpoints: tuple[str, ...], name: str, note: str, *accepted: Any) -> Field:
    return Field(name, endpoints, REFUSED, note, accepted)


TEXT_ONLY = "the model reads and writes text only"

TABLE: tuple[Field, ...] = (
    *_obeyed((*ALL, TOKENIZE, DETOKENIZE), model="the model's name; may be left out, because one model is served"),
    *_obeyed(
        ANSWERING,
        temperature="0 is greedy; with beam search, 0 or 1",
        top_p="nucleus sampling; above 0, at most 1",
        top_k="only the k likeliest tokens; 0 or -1 is off",
        min_p="tokens at least this fraction, from 0 to 1, as likely as the likeliest one",
        typical_p="locally typical sampling; above 0, at most 1",
        presence_penalty="from -2 to 2",
        frequency_penalty="from -2 to 2",
        repetition_penalty="multiplies or divides the logits of tokens already seen, prompt included",
        logit_bias="token ids to numbers from -100 to 100 added to their logits; 100 makes a token the first choice, -100 the last, "
                   "which still comes if no other token is allowed",
        seed="the same seed gives the same tokens, whatever else is in the batch",
        best_of="answers to generate, at most 128; the n best are returned: the likeliest, unless a scorer decides",
        scorer='an object with a type (logprob, url or votes) and its options: how the best answers are chosen; see search.md',
        self_consistency="an object with n, from 2 to 128, and extract, a regular expression: the most common of n answers; see search.md",
        use_beam_search="beam search over beam_width beams (else best_of, else n)",
        beam_width="number of beams, at most 128; switches beam search on",
        length_penalty="beam search: score / length ** length_penalty; from -10 to 10",
        early_stopping="beam search: stop when beam_width beams have ended",
        min_tokens="the answer does not end or stop before this many tokens",
        stop="a string or a list of at most 64 strings that end the answer",
        stop_token_ids="at most 1024 token ids that end the answer",
        include_stop_str_in_output="keep the stop string in the text",
        ignore_eos="continue past the end-of-text token",
        skip_special_tokens="leave special tokens out of the text",
        add_special_tokens="let the tokenizer add its special tokens (completions: true; else false: the template writes them)",
        stream="answer as server-sent events",
        cache_salt="prefixes are shared only between requests with the same salt",
        structured_outputs="an object with one of json, json_object, regex, choice, grammar (Lark or EBNF), and whitespace_pattern, "
                           "disable_any_whitespace, disable_additional_properties (disable_fallback is harmless: there is none)",
        guided_json="an older name of structured_outputs.json", guided_json_object="an older name of structured_outputs.json_object",
        guided_regex="an older name of structured_outputs.regex", guided_choice="an older name of structured_outputs.choice",
        guided_grammar="an older name of structured_outputs.grammar",
        guided_whitespace_pattern="an older name of structured_outputs.whitespace_pattern",
    ),
    *_obeyed(
        BOTH,
        n="choices per prompt, at most 128; in completions, prompts times n (or best_of, or beam_width) are at most 16 times --max-queue",
        max_tokens="most output tokens; if left out, 16 in completions; null, or left out in chat: as many as fit",
        logprobs="chat: true or false; completions: how many of the likeliest tokens, at most 20, to report with the chosen one",
        prompt_logprobs="log-probabilities of the prompt's tokens, with this many of the likeliest ones, at most 20",
        stream_options="include_usage, continuous_usage_stats",
        response_format="text, json_object, or json_schema: the answer conforms to the schema (strict or not)",
    ),
    *_obeyed(ALL, slo='objectives, for --order deadline: "ttft=200ms,tpot=50ms,e2e=5s", or an object with ttft_ms, tpot_ms, e2e_ms; '
                      'or the header x-slo; see deadlines.md',
             priority="the smaller goes first, on a server with --order priority"),
    *_obeyed(
        TALKING,
        tools="functions, rendered by the chat template; needs a tool parser and a template that supports tools; with strict, and where "
              "tool_choice demands a call, the arguments conform to the function's parameters",
        tool_choice='"auto", "none" (which leaves the tools out of the prompt), "required", a named function, or allowed_tools',
        parallel_tool_calls="false: at most one call",
        documents="passed to the chat template, which must use them",
        chat_template_kwargs="variables for the chat template, which must use each of them",
    ),
    *_obeyed(
        (RESPONSES,),
        input="a string, or a list of items: messages, function_call, function_call_output and reasoning; text content",
        instructions="a system message before all others; those of previous_response_id are not carried over",
        max_output_tokens="most output tokens; if left out: as many as fit",
        previous_response_id="a stored response, whose input and output come before this input",
        store="false: the response is not stored (default: true)",
        metadata="at most 16 strings, which the response has too",
        include="message.output_text.logprobs: the text's log-probabilities; reasoning.encrypted_content is harmless, because reasoning "
                "comes in plain text, and so are names of what built-in tools would add",
        top_logprobs="how many of the likeliest tokens, at most 20, to report at each position; needs include",
        text="format: text, json_object, or json_schema: the answer conforms to the schema (strict or not)",
        reasoning="effort: passed to the chat template as reasoning_effort, which it must use",
    ),
    *_obeyed(
        (CHAT,),
        messages="roles system, developer (rendered as system), user, assistant and tool; text content",
        max_completion_tokens="the same as max_tokens; giving both with different values is an error",
        top_logprobs="how many of the likeliest tokens, at most 20, to report at each position; needs logprobs true",
        reasoning_effort="passed to the chat template, which must use it",
    ),
    *_obeyed((*TALKING, TOKENIZE), add_generation_prompt="end the prompt with the start of an answer (default: true)",
             continue_final_message="leave the last message open, so that the answer continues it"),
    *_obeyed((COMPLETIONS,), prompt="a string, token ids, or a list of either with at most as many entries as --max-queue",
             echo="return the prompt before the answer"),
    *_obeyed((EMBEDDINGS,), input="a string, token ids, or a list of either with at most 2048 entries",
             encoding_format="float or base64 (little-endian 32-bit floats)",
             add_special_tokens="let the tokenizer add its own special tokens",
             cache_salt="prefixes are shared only between requests with the same salt"),
    *_obeyed((TOKENIZE,), prompt="the text", messages="a chat, rendered by the chat template", tools="as in a chat request",
             chat_template_kwargs="as in a chat request", return_token_strs="add token_strs, each token's text",
             add_special_tokens="let the tokenizer add its own special tokens (prompt: true, messages: false)"),
    *_obeyed((DETOKENIZE,), tokens="token ids"),
    *_obeyed((STREAM,), include_usage="send a last chunk with the usage and no choices",
             continuous_usage_stats="report the usage so far in every chunk"),
    _refused((STREAM,), "include_obfuscation", "events are not padded", False),
    # harmless
    _harmless((*BOTH, EMBEDDINGS), "user", str, "a label for your own records; it is not stored"),
    _harmless((RESPONSES,), "user", str, "a label for your own records, which the response has too"),
    _harmless(TALKING, "safety_identifier", str, "a label for abuse monitoring, which is not done here"),
    _harmless((CHAT,), "metadata", dict, "labels for stored completions; none are stored"),
    _harmless(TALKING, "prompt_cache_key", str, "chooses a machine's cache; there is one here, and it finds shared prefixes anyway"),
    _harmless((CHAT,), "prediction", dict, "a hint for speed that never changes the answer"),
    # refused: OpenAI
    _refused((CHAT,), "store", "completions are not stored", False),
    _refused(TALKING, "service_tier", "there are no tiers; use priority", "auto", "default"),
    _refused((CHAT,), "verbosity", "the model has no such setting", "medium"),
    _refused((CHAT,), "modalities", TEXT_ONLY, ["text"]),
    _refused((CHAT,), "audio", TEXT_ONLY),
    _refused(TALKING, "moderation", "there is no moderation model here"),
    _refused((CHAT,), "web_search_options", "the server does not search the web"),
    _refused((CHAT,), "functions", "deprecated; use tools", []),
    _refused((CHAT,), "function_call", "deprecated; use tool_choice", "none"),
    _refused(TALKING, "prompt_cache_options", "mark message parts with cache_control instead", {"mode": "implicit"}),
    _refused(TALKING, "prompt_cache_retention", "mark message parts with cache_control and a ttl instead", "in_memory"),
    _refused((RESPONSES,), "background", "a response is made while its client waits; use stream", False),
    _refused((RESPONSES,), "background_options", "responses are not made in the background"),
    _refused((RESPONSES,), "conversation", "conversations are not stored; use previous_response_id"),
    _refused((RESPONSES,), "prompt", "prompts are not stored; use instructions and input"),
    _refused((RESPONSES,), "truncation", "prompts are never cut", "disabled"),
    _refused((RESPONSES,), "context_management", "prompts are never cut", []),
    _refused((RESPONSES,), "max_tool_calls", "there are no built-in tools; parallel_tool_calls limits calls of functions"),
    _refused((RESPONSES,), "stream_options", "events are not padded, and the last one always has the usage",
             {}, {"include_obfuscation": False}, {"include_usage": True}),
    _refused((RESPONSES,), "access_programs", "there are no such programs"),
    _refused((RESPONSES,), "image", TEXT_ONLY),
    _refused((RESPONSES,), "n", "a response is one answer", 1),
    _refused((RESPONSES,), "messages", "use input"),
    _refused((RESPONSES,), "max_tokens", "use max_output_tokens"),
    _refused((RESPONSES,), "max_completion_tokens", "use max_output_tokens"),
    _refused((RESPONSES,), "response_format", "use text.format"),
    _refused((RESPONSES,), "reasoning_effort", "use reasoning.effort"),
    _refused((RESPONSES,), "verbosity", "the model has no such setting", "medium"),
    _refused((RESPONSES,), "logprobs", "use top_logprobs and include", False),
    _refused((RESPONSES,), "prompt_logprobs", "use /v1/chat/completions or /v1/completions"),
    _refused((COMPLETIONS,), "suffix", "the model was not trained to fill in the middle", ""),
    _refused((EMBEDDINGS,), "dimensions", "the model was not trained for shortened embeddings; their own width is accepted"),
    # refused: vLLM
    _refused(ALL, "truncate_prompt_tokens", "prompts are never truncated"),
    _refused(ALL, "request_id", "the server assigns the ids"),
    _refused((*ANSWERING, TOKENIZE), "mm_processor_kwargs", TEXT_ONLY),
    _refused((*TALKING, TOKENIZE), "chat_template", "the template is chosen when the server starts, with --chat-template"),
    _refused((CHAT,), "echo", "use continue_final_message", False),
    _refused((CHAT,), "include_reasoning", "reasoning is always returned in reasoning_content", True),
    _refused((RESPONSES,), "include_reasoning", "reasoning is always returned", True),
    _refused((RESPONSES,), "previous_response", "use previous_response_id, or send its items again"),
    _refused((RESPONSES,), "previous_input_messages", "use previous_response_id, or send its items again"),
    _refused((RESPONSES,), "enable_response_messages", "use input_items to see what a response was given", False),
    _refused(TALKING, "thinking_token_budget", "the length of reasoning cannot be limited"),
    _refused((COMPLETIONS,), "prompt_embeds", "prompts must be text or token ids"),
    _refused(ANSWERING, "guided_decoding_backend", "there is only one", "auto", "guidance"),
    _refused(ANSWERING, "structural_tag", "use tools with strict, or structured_outputs.grammar"),
    _refused(ANSWERING, "allowed_token_ids", "use logit_bias", []),
    _refused(ANSWERING, "bad_words", "use logit_bias", []),
    _refused(ANSWERING, "logits_processors", "code from requests is not run", []),
    _refused(ANSWERING, "spaces_between_special_tokens", "text is decoded as the tokenizer defines it", True),
    _refused(ANSWERING, "return_tokens_as_token_ids", "logprobs always name tokens by their text", False),
    _refused(ANSWERING, "return_token_ids", "use /tokenize", False),
    _refused(ANSWERING, "kv_transfer_params", "keys and values are not moved between servers"),
    _refused(ANSWERING, "vllm_xargs", "there are no extra arguments"),
)


def fields_of(endpoint: str) -> dict[str, Field]:
    """The fields of one endpoint (or of stream_options), by name."""
    return {field.name: field for field in TABLE if endpoint in field.endpoints}


BY_ENDPOINT: Mapping[str, Mapping[str, Field]] = {
    endpoint: fields_of(endpoint) for endpoint in (*TALKING, COMPLETIONS, EMBEDDINGS, TOKENIZE, DETOKENIZE, STREAM)
}


def check_fields(body: Mapping[str, Any], endpoint: str, where: str = "", usual: Mapping[str, Any] | None = None) -> None:
    """Raises RequestError for the first field that is unknown or refused, or harmless but of the wrong type. `usual`: values of refused
    fields with which they ask for nothing, that depend on the model."""
    fields = BY_ENDPOINT[endpoint]
    for name, value in body.items():
        field = fields.get(name)
        path = where + name[:80]
        if field is None:
            close = difflib.get_close_matches(name[:80], fields, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise RequestError(f"unknown field {path!r}{hint}", param=path, code="unknown_parameter")
        if value is None or field.fate == OBEYED:
            continue
        if field.fate == HARMLESS and field.kind is not None and not isinstance(value, field.kind):
            raise RequestError(f"{path} must be {'an object' if field.kind is dict else 'a string'}, not {show(value)}", param=path)
        accepted = (*field.accepted, usual[name]) if usual is not None and name in usual else field.accepted
        if field.fate == REFUSED and not any(_same(value, each) for each in accepted):
            raise RequestError(f"{path} = {show(value)} is not supported: {field.note}", param=path, code="unsupported_parameter")


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return type(a) is type(b) and bool(a == b)
