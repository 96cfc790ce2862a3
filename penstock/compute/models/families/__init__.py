"""Architectures by the name in config.json: each is a file of facts, how its config reads and what its tensors are called."""
from penstock.core.registry import Table

TABLE = Table("architecture", {
    "LlamaForCausalLM": "penstock.compute.models.families.llama:FAMILY",
    "MistralForCausalLM": "penstock.compute.models.families.mistral:FAMILY",
    "Mistral3ForConditionalGeneration": "penstock.compute.models.families.mistral:IMAGE_TEXT",
    "Qwen2ForCausalLM": "penstock.compute.models.families.qwen2:FAMILY",
    "Qwen2VLForConditionalGeneration": "penstock.compute.models.families.qwen2:IMAGE_TEXT",
    "Qwen2_5_VLForConditionalGeneration": "penstock.compute.models.families.qwen2:IMAGE_TEXT",
    "Qwen3ForCausalLM": "penstock.compute.models.families.qwen3:FAMILY",
    "Qwen3VLForConditionalGeneration": "penstock.compute.models.families.qwen3:IMAGE_TEXT",
    "GemmaForCausalLM": "penstock.compute.models.families.gemma:FAMILY",
    "Gemma2ForCausalLM": "penstock.compute.models.families.gemma2:FAMILY",
    "Gemma3ForCausalLM": "penstock.compute.models.families.gemma3:TEXT",
    "Gemma3ForConditionalGeneration": "penstock.compute.models.families.gemma3:IMAGE_TEXT",
    "Phi3ForCausalLM": "penstock.compute.models.families.phi3:FAMILY",
    "SmolLM3ForCausalLM": "penstock.compute.models.families.smollm3:FAMILY",
    "SeedOssForCausalLM": "penstock.compute.models.families.seed_oss:FAMILY",
    "MixtralForCausalLM": "penstock.compute.models.families.mixtral:FAMILY",
    "Qwen3MoeForCausalLM": "penstock.compute.models.families.qwen3_moe:FAMILY",
    "GptOssForCausalLM": "penstock.compute.models.families.gpt_oss:FAMILY",
    "DeepseekV2ForCausalLM": "penstock.compute.models.families.deepseek:V2",
    "DeepseekV3ForCausalLM": "penstock.compute.models.families.deepseek:V3",
})
