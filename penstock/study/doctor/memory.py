"""How much memory may be used, and whether it is the kind that is fast."""
from penstock.serve.engine import cgroup
from penstock.serve.engine.machine import free_memory
from penstock.study.doctor.check import GIB, Check, Host, Status, gib

HUGE_PAGES = "sys/kernel/mm/transparent_hugepage/enabled"
LITTLE_BYTES = GIB  # enough for the bundled models alone
SWAPPED_BYTES = GIB // 4


def memory(host: Host) -> Check:
    total, limit = meminfo(host).get("MemTotal"), cgroup.memory(host.root)
    free = free_memory(host.root)
    details = {"machine_bytes": total, "cgroup_bytes": None if limit is None else limit.limit_bytes, "free_bytes": free}
    bound = "no cgroup limit" if limit is None else f"{gib(limit.limit_bytes)} allowed by the cgroup"
    said = f"{gib(free)} free of {'unknown' if total is None else gib(total)}, {bound}"
    if free < LITTLE_BYTES:
        hint = f"a model of 0.6 B parameters takes 1.2 GiB in bf16: free {gib(LITTLE_BYTES)} at least"
        return Check("memory", Status.WARN, said, hint, details)
    return Check("memory", Status.PASS, said, details=details)


def swap(host: Host) -> Check:
    info = meminfo(host)
    total, used = info.get("SwapTotal", 0), info.get("SwapTotal", 0) - info.get("SwapFree", 0)
    details = {"total_bytes": total, "used_bytes": used}
    said = f"{gib(used)} of {gib(total)} in use" if total else "none"
    if used > SWAPPED_BYTES:
        hint = "memory is short, and swapped-out weights cost seconds per token: stop other programs"
        return Check("swap", Status.WARN, said, hint, details)
    return Check("swap", Status.PASS, said, details=details)


def huge_pages(host: Host) -> Check:
    """Transparent huge pages: packed weights ask for them, so that fewer address translations are missed."""
    text = host.read(HUGE_PAGES)
    if text is None:
        return Check("huge pages", Status.PASS, "not reported by this system", details={"transparent": None})
    chosen = text[text.find("[") + 1 : text.find("]")] if "[" in text else text
    details = {"transparent": chosen}
    if chosen == "never":
        return Check("huge pages", Status.WARN, "transparent huge pages: never",
                     f"large weights are read faster after: echo madvise | sudo tee /{HUGE_PAGES}", details)
    return Check("huge pages", Status.PASS, f"transparent huge pages: {chosen}", details=details)


def meminfo(host: Host) -> dict[str, int]:
    """/proc/meminfo in bytes; empty where there is none."""
    found = {}
    for line in (host.read("proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found
