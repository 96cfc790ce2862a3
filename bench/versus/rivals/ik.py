"""ik_llama.cpp: llama.cpp's tools with kernels of its own; weights repacked at load or not."""
from versus.contest import Contestant
from versus.place import Place
from versus.rivals.llamacpp import FORMATS, Build, tools

IK = Build(
    "ik_llama.cpp", "ik",
    {"rtr": ("-fa", "1", "-rtr", "1"), "no-rtr": ("-fa", "1", "-rtr", "0")}, {"rtr": ("-fa", "on", "-rtr"), "no-rtr": ("-fa", "on")},
    depth_by_prompt=True)


def contestants(place: Place, bits: int) -> list[Contestant]:
    return tools(IK, place, bits, FORMATS[bits])
