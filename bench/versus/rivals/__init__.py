"""The engines that a user could pick instead: name -> the contestants that it has in a place, at a number of bits."""
from versus.rivals import ik, llamacpp, openvino, transformers, vllm

ROSTER = {
    "llamacpp": llamacpp.contestants,
    "ik": ik.contestants,
    "openvino": openvino.contestants,
    "vllm": vllm.contestants,
    "transformers": transformers.contestants,
}
