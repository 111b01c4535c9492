"""Elementary functions as Triton functions, operation by operation those of runtime/ca1_math.h.

Coefficients are the same binary32 numbers, in hexadecimal there and in decimal here; tests/triton compares them.
"""

from __future__ import annotations

import re
from typing import Final

_TEXT: Final = """
@triton.jit
def ca1_relu(x):
    return tl.where(x <= 0.0, 0.0, x)


@triton.jit
def ca1_maxn(a, b):
    return tl.where(b > a, b, a)


@triton.jit
def ca1_minn(a, b):
    return tl.where(b < a, b, a)


@triton.jit
def ca1_max(a, b):
    return tl.where(b != b, b, ca1_maxn(a, b))


@triton.jit
def ca1_min(a, b):
    return tl.where(b != b, b, ca1_minn(a, b))


@triton.jit
def ca1_bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def ca1_float(i):
    return i.to(tl.float32, bitcast=True)


@triton.jit
def ca1_with_sign(a, b):
    return ca1_float((ca1_bits(a) & 0x7FFFFFFF) | (ca1_bits(b) & -0x80000000))


@triton.jit
def ca1_exp_turns(x):
    return tl.math.fma(x, {0x1.715476p+0}, {0x1.8p+23})


@triton.jit
def ca1_exp_reduced(x, t):
    n = t - {0x1.8p+23}
    r = tl.math.fma(n, {-0x1.62e4p-1}, x)
    r = tl.math.fma(n, {-0x1.7f7d1cp-20}, r)
    p = tl.math.fma(r, {0x1.6ac518p-10}, {0x1.123dccp-7})
    p = tl.math.fma(p, r, {0x1.555858p-5})
    p = tl.math.fma(p, r, {0x1.55548cp-3})
    p = tl.math.fma(p, r, {0x1.fffffcp-2})
    p = tl.math.fma(p, r, 1.0)
    return tl.math.fma(p, r, 1.0)


@triton.jit
def ca1_exp_core(x):
    t = ca1_exp_turns(x)
    return ca1_exp_reduced(x, t) * ca1_float((ca1_bits(t) << 23) + 0x3F800000)


@triton.jit
def ca1_exp_nonpositive(x):
    low = tl.where(x < -104.0, -104.0, x)
    t = ca1_exp_turns(low)
    return (ca1_exp_reduced(low, t) * ca1_float((ca1_bits(t) << 23) + 0x4B800000)) * {0x1p-24}


@triton.jit
def ca1_exp(x):
    low = tl.where(x < -104.0, -104.0, x)
    y = tl.where(low > 89.0, 89.0, low)
    t = ca1_exp_turns(y)
    c = tl.where(x > 0.0, {0x1p+24}, {0x1p-24})
    s = (ca1_bits(t) << 23) + (0x7F000000 - ca1_bits(c))
    return (ca1_exp_reduced(y, t) * ca1_float(s)) * c


@triton.jit
def ca1_log(x):
    small = x < {0x1p-126}
    a = tl.where(small, x * {0x1p+23}, x)
    bias = tl.where(small, {0x1.80002ep+23}, {0x1.8p+23})
    k = (ca1_bits(a) - 0x3F2AAAAB) >> 23
    f = ca1_float(ca1_bits(a) - (k << 23)) - 1.0
    e = ca1_float(k + 0x4B400000) - bias
    s = f * f
    r = tl.math.fma(f, {-0x1.ffbdfp-4}, {0x1.1fefcp-3})
    r = tl.math.fma(r, f, {-0x1.f6b1fep-4})
    r = tl.math.fma(r, f, {0x1.1e82ep-3})
    r = tl.math.fma(r, f, {-0x1.557e34p-3})
    r = tl.math.fma(r, f, {0x1.99d588p-3})
    r = tl.math.fma(r, f, {-0x1.ffff94p-3})
    r = tl.math.fma(r, f, {0x1.5554fap-2})
    r = tl.math.fma(r, f, -0.5)
    r = tl.math.fma(r, s, f)
    r = tl.math.fma(e, {0x1.62e43p-1}, r)
    r = tl.where(x < float("inf"), r, x)
    z = tl.where(x < 0.0, float("nan"), x - float("inf"))
    return tl.where(x > 0.0, r, z)


@triton.jit
def ca1_erf(x):
    t = tl.abs(x)
    s = t * t
    q = tl.math.fma(s, {-0x1.5340cep-11}, {0x1.4cb072p-8})
    q = tl.math.fma(q, s, {-0x1.b75edep-6})
    q = tl.math.fma(q, s, {0x1.ce277ap-4})
    q = tl.math.fma(q, s, {-0x1.81272ep-2})
    q = tl.math.fma(q, s, {0x1.06eba8p-3})
    small = tl.math.fma(q, t, t)
    u = tl.where(t > 4.0, 4.0, t)
    g = tl.math.fma(u, {0x1.c37d6p-18}, {-0x1.24661ep-12})
    g = tl.math.fma(g, u, {0x1.c6a0d6p-9})
    g = tl.math.fma(g, u, {-0x1.7f769p-6})
    g = tl.math.fma(g, u, {0x1.b17faap-4})
    g = tl.math.fma(g, u, {0x1.455168p-1})
    g = tl.math.fma(g, u, {0x1.075b8p-3})
    g = tl.math.fma(g, u, u)
    large = 1.0 - ca1_exp_core(g * -1.0)
    return ca1_with_sign(tl.where(t > {0x1.a4p-1}, large, small), x)


@triton.jit
def ca1_tanh(x):
    t = tl.abs(x)
    s = t * t
    q = tl.math.fma(s, {-0x1.7c96f6p-8}, {0x1.53d7dp-6})
    q = tl.math.fma(q, s, {-0x1.b88944p-5})
    q = tl.math.fma(q, s, {0x1.1109fp-3})
    q = tl.math.fma(q, s, {-0x1.555544p-2})
    small = tl.math.fma(q * s, t, t)
    u = tl.where(t > 9.125, 9.125, t)
    e = ca1_exp_core(u + u)
    large = tl.math.fma(tl.math.div_rn(1.0, e + 1.0), -2.0, 1.0)
    return ca1_with_sign(tl.where(t > 0.625, large, small), x)


@triton.jit
def ca1_sigmoid(x):
    e = ca1_exp_nonpositive(tl.abs(x) * -1.0)
    return tl.math.div_rn(tl.where(x < 0.0, e, 1.0), e + 1.0)


@triton.jit
def ca1_softplus(x):
    t = ca1_exp_nonpositive(tl.abs(x) * -1.0)
    u = t + 1.0
    d = u - 1.0
    tail = tl.where(d > 0.0, ca1_log(u) * tl.math.div_rn(t, d), t)
    return ca1_max(x, 0.0) + tail


@triton.jit
def ca1_elu(x, alpha):
    return tl.where(x < 0.0, (ca1_exp(x) - 1.0) * alpha, x)


@triton.jit
def ca1_leaky_relu(x, alpha):
    return tl.where(x < 0.0, x * alpha, x)


@triton.jit
def ca1_hard_sigmoid(x, alpha, beta):
    return ca1_maxn(ca1_minn(x * alpha + beta, 1.0), 0.0)


@triton.jit
def ca1_hard_swish(x):
    return x * ca1_hard_sigmoid(x, {0x1.555556p-3}, 0.5)


@triton.jit
def ca1_gelu(x):
    phi = ca1_erf(tl.math.div_rn(x, {0x1.6a09e6p+0})) + 1.0
    return (x * 0.5) * phi


@triton.jit
def ca1_gelu_tanh(x):
    cube = (x * x) * x
    inner = (x + cube * {0x1.6e4e26p-5}) * {0x1.988452p-1}
    return (x * 0.5) * (ca1_tanh(inner) + 1.0)
"""

_FUNCTIONS: Final = {
    found[1]: part.strip()
    for part in re.sub(r"\{(-?0x[^}]*)\}", lambda m: repr(float.fromhex(m[1])), _TEXT).split("\n\n\n")
    if (found := re.search(r"^def (\w+)\(", part, re.MULTILINE))
}


def library_text(used: str) -> str:
    """The functions that ``used`` calls, and those that they call, in the order of this module."""
    wanted: set[str] = set()
    waiting = [used]
    while waiting:
        text = waiting.pop()
        for name in _FUNCTIONS:
            if name not in wanted and re.search(rf"\b{name}\(", text):
                wanted.add(name)
                waiting.append(_FUNCTIONS[name])
    return "".join(f"{_FUNCTIONS[name]}\n\n\n" for name in _FUNCTIONS if name in wanted)
