// Verification of SM2-with-SM3 (GB/T 32918.2, curve of GB/T 32918.5) in script, and of ECDSA P-384 by WebCrypto.
"use strict";
const Signatures = (() => {
  const P = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFFn;
  const A = P - 3n, B = 0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93n;
  const N = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123n;
  const G = [0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7n,
    0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0n];
  const N384 = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973n;
  const ID = new TextEncoder().encode("1234567812345678");
  const PREFIX = { "sm2-sm3": "3059301306072a8648ce3d020106082a811ccf5501822d03420004",
    "ecdsa-p384-sha384": "3076301006072a8648ce3d020106052b8104002203620004" };
  const mod = (a, m) => ((a % m) + m) % m;

  function inverse(a, m) {
    let [r, s, x, y] = [mod(a, m), m, 1n, 0n];
    while (r) { const q = s / r; [s, r] = [r, s - q * r]; [y, x] = [x, y - q * x]; }
    return mod(y, m);
  }
  // Jacobian coordinates; null is the point at infinity.
  function twice(p) {
    if (!p || !p[1]) return null;
    const [x, y, z] = p, yy = mod(y * y, P), s = mod(4n * x * yy, P), zz = mod(z * z, P);
    const m = mod(3n * x * x + A * zz * zz, P), u = mod(m * m - 2n * s, P);
    return [u, mod(m * (s - u) - 8n * yy * yy, P), mod(2n * y * z, P)];
  }
  function plus(p, q) {
    if (!p) return q;
    if (!q) return p;
    const pz = mod(p[2] * p[2], P), qz = mod(q[2] * q[2], P);
    const u1 = mod(p[0] * qz, P), u2 = mod(q[0] * pz, P);
    const s1 = mod(p[1] * qz * q[2], P), s2 = mod(q[1] * pz * p[2], P);
    if (u1 === u2) return s1 === s2 ? twice(p) : null;
    const h = mod(u2 - u1, P), r = mod(s2 - s1, P), hh = mod(h * h, P), v = mod(u1 * hh, P);
    const x = mod(r * r - hh * h - 2n * v, P);
    return [x, mod(r * (v - x) - s1 * hh * h, P), mod(p[2] * q[2] * h, P)];
  }
  function times(k, point) {
    let sum = null, step = [point[0], point[1], 1n];
    for (; k; k >>= 1n) { if (k & 1n) sum = plus(sum, step); step = twice(step); }
    return sum;
  }
  const number = (bytes) => bytes.length ? BigInt("0x" + Hashes.hex(bytes)) : 0n;
  const bytes = (text) => Uint8Array.from(text.match(/../g) || [], (pair) => parseInt(pair, 16));
  const join = (...parts) => {
    const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
    parts.reduce((at, p) => { out.set(p, at); return at + p.length; }, 0);
    return out;
  };

  // Strict DER of SEQUENCE { r, s } with 1 <= r, s < order; null otherwise.
  function decode(der, order) {
    if (der.length < 8 || der[0] !== 0x30 || der[1] >= 0x80 || der.length !== 2 + der[1]) return null;
    let at = 2;
    const take = () => {
      const size = der[at + 1], body = der.slice(at + 2, at + 2 + size);
      if (der[at] !== 2 || !size || size >= 0x80 || body.length !== size || body[0] & 0x80 ||
          (size > 1 && !body[0] && !(body[1] & 0x80))) return null;
      at += 2 + size;
      return number(body);
    };
    const r = take(), s = r === null ? null : take();
    return s === null || at !== der.length || r < 1n || s < 1n || r >= order || s >= order ? null : [r, s];
  }

  function publicPoint(algorithm, spki) {
    const prefix = bytes(PREFIX[algorithm]), size = algorithm === "sm2-sm3" ? 32 : 48;
    if (spki.length !== prefix.length + 2 * size || prefix.some((b, i) => b !== spki[i])) return null;
    return [spki.slice(prefix.length, prefix.length + size), spki.slice(prefix.length + size)];
  }

  function verifySm2(spki, message, der) {
    const halves = publicPoint("sm2-sm3", spki), pair = decode(der, N);
    if (!halves || !pair) return false;
    const [r, s] = pair, [x, y] = halves.map(number);
    if (x >= P || y >= P || mod(y * y - x * x * x - A * x - B, P)) return false;
    const fixed = (v) => bytes(v.toString(16).padStart(64, "0"));
    const za = Hashes.sm3(join(Uint8Array.of(0, ID.length * 8), ID, fixed(A), fixed(B), fixed(G[0]), fixed(G[1]), ...halves));
    const e = number(Hashes.sm3(join(za, message))), t = mod(r + s, N);
    if (!t) return false;
    const sum = plus(times(s, G), times(t, [x, y]));
    if (!sum) return false;
    const back = inverse(sum[2], P);
    return mod(e + mod(sum[0] * back * back, P), N) === r;
  }

  async function verifyP384(spki, message, der) {
    const pair = decode(der, N384);
    if (!publicPoint("ecdsa-p384-sha384", spki) || !pair) return false;
    const raw = bytes(pair.map((v) => v.toString(16).padStart(96, "0")).join(""));
    const curve = { name: "ECDSA", namedCurve: "P-384" };
    const key = await crypto.subtle.importKey("spki", spki, curve, false, ["verify"]);
    return crypto.subtle.verify({ name: "ECDSA", hash: "SHA-384" }, key, raw, message);
  }

  const verify = async (algorithm, spki, message, der) => {
    try {
      return algorithm === "sm2-sm3" ? verifySm2(spki, message, der)
        : algorithm === "ecdsa-p384-sha384" ? await verifyP384(spki, message, der) : false;
    } catch (error) { return false; }
  };
  return { verify, join, bytes };
})();
