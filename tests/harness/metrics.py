"""What `/metrics` and `Server-Timing` say, as numbers."""

import re


def stages(reply):
    """{stage: milliseconds} of a reply, with `total`."""
    parts = (part.split(";dur=") for part in reply.headers["Server-Timing"].split(", "))
    return {name: float(ms) for name, ms in parts}


def total(text, name, **labels):
    """The sum of all samples of a name that have these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    found = re.findall(rf"^{name}(\{{.*\}})? (\S+)", text, re.M)
    return sum(float(value) for shown, value in found if all(want in shown for want in wanted))
