"""Options of other engines: what stands for each of them here, told where one is used."""
from collections.abc import Container, Mapping

NAMES: Mapping[str, str] = {  # of vLLM or llama.cpp -> the option that does it here
    "--ctx-size": "--max-model-len", "-c": "--max-model-len",
    "--parallel": "--max-num-seqs",
    "--n-predict": "--max-tokens", "--predict": "--max-tokens",
    "--file": "--prompt-file",
    "--quantization": "--quant",
    "--kv-cache-dtype": "--kv-dtype", "--cache-type-k": "--kv-dtype", "--cache-type-v": "--kv-dtype",
    "--tool-call-parser": "--tool-parser",
    "--speculative-config": "--propose", "--model-draft": "--propose",
    "--alias": "--served-model-name",
    "--tensor-parallel-size": "--tensor-parallel", "--pipeline-parallel-size": "--pipeline-parallel",  # of plan
}
MODEL = "name the model without an option: penstock {command} MODEL"
SENTENCES: Mapping[str, str] = {  # what has no option here, and why none is needed or possible
    "--model": MODEL, "-m": MODEL, "--hf-repo": MODEL,
    "--gpu-memory-utilization": "--kv-tokens sets the size of the KV cache",
    "--tokenizer": "the model comes with its own",
    "--trust-remote-code": "a checkpoint's code is never run",
    "--enable-prefix-caching": "it is on by default; --no-prefix-cache turns it off",
    "--enable-chunked-prefill": "it is on by default; --max-num-batched-tokens sets the chunk",
    "--enable-auto-tool-choice": "it is on for every chat template that supports tools; --tool-parser sets the format of calls",
    "--enable-lora": "adapters are not supported",
    "--tensor-parallel-size": "splitting a model over devices is not supported",
    "--pipeline-parallel-size": "splitting a model over devices is not supported",
    "--n-gpu-layers": "there is no GPU backend yet", "--gpu-layers": "there is no GPU backend yet",
}


def instead(name: str, command: str, options: Container[str]) -> str | None:
    """What to do instead of giving `name` to a command that has `options`; None where nothing is known."""
    if NAMES.get(name) in options:
        return f"{NAMES[name]} does that here"
    said = SENTENCES.get(name)
    if said is None or any(word.strip(";") not in options for word in said.split() if word.startswith("--")):
        return None
    return said.format(command=command)
