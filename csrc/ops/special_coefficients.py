"""Writes special_coefficients.h: Chebyshev series of special functions, computed with mpmath (40 digits).

Run it from this folder after a change: `python special_coefficients.py > special_coefficients.h`. Each series is a list
of c[0..n] with f(t) = sum c[k] T_k(t), t in [-1, 1]; the map from the argument to t is in the comment above the list and
in special.cc.
"""

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 40
PI = mp.pi


def series(f: Callable, low: float, high: float, tolerance: float = 1e-17, samples: int = 96) -> list:
    """Chebyshev coefficients of f over [low, high], cut where they fall below `tolerance` of the largest."""
    low, high = mp.mpf(low), mp.mpf(high)
    nodes = [mp.cos(PI * (k + mp.mpf(1) / 2) / samples) for k in range(samples)]
    values = [f((high - low) / 2 * t + (high + low) / 2) for t in nodes]
    coefficients = []
    for j in range(samples):
        total = sum(v * mp.cos(PI * j * (k + mp.mpf(1) / 2) / samples) for k, v in enumerate(values))
        coefficients.append(total * 2 / samples)
    coefficients[0] /= 2
    largest = max(abs(c) for c in coefficients)
    while len(coefficients) > 1 and abs(coefficients[-1]) < tolerance * largest:
        coefficients.pop()
    return coefficients


def amplitude_phase(j: Callable, y: Callable, shift) -> tuple[Callable, Callable]:
    """P and Q of J = sqrt(2 / (pi x)) (P cos(x - shift) - Q sin(x - shift)), Y likewise, as functions of (8 / x)^2."""

    def rotate(s, which: int):
        x = 8 / mp.sqrt(s) if s > mp.mpf("1e-30") else mp.mpf(10) ** 15
        scale, angle = mp.sqrt(PI * x / 2), x - shift
        if which == 0:
            return scale * (j(x) * mp.cos(angle) + y(x) * mp.sin(angle))
        return scale * (y(x) * mp.cos(angle) - j(x) * mp.sin(angle)) * x / 8

    return lambda s: rotate(s, 0), lambda s: rotate(s, 1)


def airy_tail(t):
    """2 sqrt(pi) x^(1/4) exp(zeta) Ai(x) as a function of t = 1 / zeta, zeta = 2/3 x^(3/2)."""
    if t < mp.mpf("1e-12"):
        return mp.mpf(1)
    zeta = 1 / t
    x = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(PI) * x ** mp.mpf("0.25") * mp.exp(zeta) * mp.airyai(x)


def airy_rotate(s, which: int):
    """P and Q of Ai(-x) = (P cos(zeta - pi/4) + Q sin(zeta - pi/4)) / (sqrt(pi) x^(1/4)), as functions of s = 1 / zeta^2."""
    zeta = 1 / mp.sqrt(s) if s > mp.mpf("1e-16") else mp.mpf(10) ** 8
    x = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
    scale, angle = mp.sqrt(PI) * x ** mp.mpf("0.25"), zeta - PI / 4
    a, b = mp.airyai(-x), mp.airybi(-x)
    # Bi(-x) = (-P sin + Q cos) / (...)
    if which == 0:
        return scale * (a * mp.cos(angle) - b * mp.sin(angle))
    return scale * (a * mp.sin(angle) + b * mp.cos(angle)) * zeta


def erfcx(x):
    if x > 1000:
        return 1 / (x * mp.sqrt(PI)) * (1 - 1 / (2 * x * x) + 3 / (4 * x**4))
    return mp.exp(x * x) * mp.erfc(x)


def normal_quantile_tail(z):
    """h(z) of the lower-tail quantile -(w - log(w) / w - z h), z = 1 / w, w = sqrt(-2 log p)."""
    w = 1 / z
    log_p = -w * w / 2
    # Solve log Phi(-q) = log p.
    q = w - mp.log(w) / w
    for _ in range(60):
        log_phi = mp.log(erfcx(q / mp.sqrt(2)) / 2) - q * q / 2
        slope = -mp.sqrt(2 / PI) / erfcx(q / mp.sqrt(2))
        step = (log_phi - log_p) / slope
        q -= step
        if abs(step) < mp.mpf("1e-35"):
            break
    return (w - mp.log(w) / w - q) / z


TABLES: list[tuple[str, str, Callable[[], list]]] = []


def table(name: str, comment: str, build: Callable[[], list]) -> None:
    TABLES.append((name, comment, build))


table(
    "kI0Small",
    "exp(-x) I0(x), 0 <= x <= 8, t = x / 4 - 1",
    lambda: series(lambda x: mp.exp(-x) * mp.besseli(0, x), 0, 8),
)
table(
    "kI1Small",
    "exp(-x) I1(x) / x, 0 <= x <= 8, t = x / 4 - 1",
    lambda: series(lambda x: mp.exp(-x) * (mp.besseli(1, x) / x if x else mp.mpf("0.5")), 0, 8),
)
for order in (0, 1):

    def large_i(s, order=order):
        x = 8 / s if s > mp.mpf("1e-12") else mp.mpf(10) ** 13
        return mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)

    table(f"kI{order}Large", f"sqrt(x) exp(-x) I{order}(x), x >= 8, t = 16 / x - 1", lambda f=large_i: series(f, 0, 1))
table(
    "kK0Small",
    "K0(x) + log(x / 2) I0(x), 0 < x <= 2, t = x^2 / 2 - 1",
    lambda: series(
        lambda s: mp.besselk(0, mp.sqrt(s)) + mp.log(mp.sqrt(s) / 2) * mp.besseli(0, mp.sqrt(s)),
        mp.mpf("1e-30"),
        4,
        samples=48,
    ),
)
table(
    "kK1Small",
    "x (K1(x) - log(x / 2) I1(x)), 0 < x <= 2, t = x^2 / 2 - 1",
    lambda: series(
        lambda s: mp.sqrt(s) * (mp.besselk(1, mp.sqrt(s)) - mp.log(mp.sqrt(s) / 2) * mp.besseli(1, mp.sqrt(s))),
        mp.mpf("1e-30"),
        4,
        samples=48,
    ),
)
for order in (0, 1):

    def large_k(s, order=order):
        x = 2 / s if s > mp.mpf("1e-12") else mp.mpf(10) ** 13
        return mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)

    table(f"kK{order}Large", f"sqrt(x) exp(x) K{order}(x), x >= 2, t = 4 / x - 1", lambda f=large_k: series(f, 0, 1))
table("kJ0Small", "J0(x), 0 <= x <= 8, t = x^2 / 32 - 1", lambda: series(lambda s: mp.besselj(0, mp.sqrt(s)), 0, 64))
table(
    "kJ1Small",
    "J1(x) / x, 0 <= x <= 8, t = x^2 / 32 - 1",
    lambda: series(lambda s: mp.besselj(1, mp.sqrt(s)) / mp.sqrt(s) if s else mp.mpf("0.5"), 0, 64),
)
table(
    "kY0Small",
    "Y0(x) - 2/pi log(x) J0(x), 0 < x <= 8, t = x^2 / 32 - 1",
    lambda: series(
        lambda s: mp.bessely(0, mp.sqrt(s)) - 2 / PI * mp.log(mp.sqrt(s)) * mp.besselj(0, mp.sqrt(s)),
        mp.mpf("1e-30"),
        64,
    ),
)
table(
    "kY1Small",
    "(Y1(x) - 2/pi (log(x) J1(x) - 1 / x)) / x, 0 < x <= 8, t = x^2 / 32 - 1",
    lambda: series(
        lambda s: (
            (mp.bessely(1, mp.sqrt(s)) - 2 / PI * (mp.log(mp.sqrt(s)) * mp.besselj(1, mp.sqrt(s)) - 1 / mp.sqrt(s)))
            / mp.sqrt(s)
        ),
        mp.mpf("1e-20"),
        64,
    ),
)
for order in (0, 1):
    P, Q = amplitude_phase(
        lambda x, n=order: mp.besselj(n, x), lambda x, n=order: mp.bessely(n, x), PI / 4 + order * PI / 2
    )
    note = f"of the phase form of J{order} and Y{order}, x >= 8, t = 2 (8 / x)^2 - 1"
    table(f"kBesselP{order}", f"P {note}", lambda f=P: series(f, 0, 1, samples=48))
    table(f"kBesselQ{order}", f"Q x / 8 {note}", lambda f=Q: series(f, 0, 1, samples=48))
table("kAirySmall", "Ai(x), -8 <= x <= 2, t = (x + 3) / 5", lambda: series(mp.airyai, -8, 2))
table(
    "kAiryTail",
    "2 sqrt(pi) x^(1/4) exp(zeta) Ai(x), x >= 2, zeta = 2/3 x^(3/2), t = 2 zeta(2) / zeta - 1",
    lambda: series(airy_tail, 0, 1 / (mp.mpf(2) / 3 * mp.mpf(2) ** mp.mpf("1.5"))),
)
S8 = 1 / (mp.mpf(2) / 3 * mp.mpf(8) ** mp.mpf("1.5")) ** 2
table(
    "kAiryP",
    "P of the phase form of Ai(-x), x >= 8, t = 2 (zeta(8) / zeta)^2 - 1",
    lambda: series(lambda s: airy_rotate(s, 0), 0, S8, samples=32),
)
table(
    "kAiryQ",
    "Q zeta of the phase form of Ai(-x), x >= 8, t = 2 (zeta(8) / zeta)^2 - 1",
    lambda: series(lambda s: airy_rotate(s, 1), 0, S8, samples=32),
)
table(
    "kErfcx",
    "(1 + 2 x) erfcx(x), x >= 0, t = 8 / (4 + x) - 1",
    lambda: series(
        lambda u: (1 + 2 * (4 / u - 4)) * erfcx(4 / u - 4) if u > mp.mpf("1e-15") else 2 / mp.sqrt(PI), 0, 1
    ),
)
table(
    "kNormalTail", "h(z), 0.02 <= z <= 0.5, t = (z - 0.26) / 0.24", lambda: series(normal_quantile_tail, "0.02", "0.5")
)


def main() -> None:
    print("// Written by special_coefficients.py; do not edit.")
    print("// clang-format off")
    print("#pragma once\n\n#include <vector>\n\nnamespace torch_tpu::ops::chebyshev {\n")
    for name, comment, build in TABLES:
        print(f"// {comment}")
        print(f"inline const std::vector<double> {name} = {{")
        line = "   "
        for c in build():
            number = " " + mp.nstr(c, 18, strip_zeros=False) + ","
            if len(line) + len(number) > 116:
                print(line)
                line = "   "
            line += number
        print(line.rstrip(",") + "};\n")
    print("}  // namespace torch_tpu::ops::chebyshev")


if __name__ == "__main__":
    main()
