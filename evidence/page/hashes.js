// SHA3-512 (FIPS 202) and SM3 (GB/T 32905) over Uint8Array, in plain script; SHA-2 comes from WebCrypto.
"use strict";
const Hashes = (() => {
  const RC = [1n, 0x8082n, 0x800000000000808An, 0x8000000080008000n, 0x808Bn, 0x80000001n, 0x8000000080008081n,
    0x8000000000008009n, 0x8An, 0x88n, 0x80008009n, 0x8000000An, 0x8000808Bn, 0x800000000000008Bn, 0x8000000000008089n,
    0x8000000000008003n, 0x8000000000008002n, 0x8000000000000080n, 0x800An, 0x800000008000000An, 0x8000000080008081n,
    0x8000000000008080n, 0x80000001n, 0x8000000080008008n];
  const RHO = [0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14];
  // Lanes as pairs of 32-bit words: BigInt would take seconds for an engine of some megabytes.
  const RC_LOW = RC.map((v) => Number(v & 0xFFFFFFFFn) | 0), RC_HIGH = RC.map((v) => Number(v >> 32n) | 0);

  const TO = [], SHIFT = [], SWAP = [], NEXT = [], AFTER = [];
  for (let from = 0; from < 25; from++) {
    const x = from % 5, y = (from - x) / 5;
    TO[from] = y + 5 * ((2 * x + 3 * y) % 5);
    SHIFT[from] = RHO[from] & 31;
    SWAP[from] = RHO[from] >= 32;
    NEXT[from] = (x + 1) % 5 + 5 * y;
    AFTER[from] = (x + 2) % 5 + 5 * y;
  }
  const cl = new Int32Array(5), ch = new Int32Array(5), bl = new Int32Array(25), bh = new Int32Array(25);

  function permute(lo, hi) {
    for (let round = 0; round < 24; round++) {
      for (let x = 0; x < 5; x++) {
        cl[x] = lo[x] ^ lo[x + 5] ^ lo[x + 10] ^ lo[x + 15] ^ lo[x + 20];
        ch[x] = hi[x] ^ hi[x + 5] ^ hi[x + 10] ^ hi[x + 15] ^ hi[x + 20];
      }
      for (let x = 0; x < 5; x++) {
        const a = x ? x - 1 : 4, b = x < 4 ? x + 1 : 0;
        const dl = cl[a] ^ (cl[b] << 1 | ch[b] >>> 31), dh = ch[a] ^ (ch[b] << 1 | cl[b] >>> 31);
        for (let i = x; i < 25; i += 5) { lo[i] ^= dl; hi[i] ^= dh; }
      }
      for (let i = 0; i < 25; i++) {
        const a = SWAP[i] ? hi[i] : lo[i], b = SWAP[i] ? lo[i] : hi[i], s = SHIFT[i], to = TO[i];
        bl[to] = s ? a << s | b >>> (32 - s) : a;
        bh[to] = s ? b << s | a >>> (32 - s) : b;
      }
      for (let i = 0; i < 25; i++) {
        lo[i] = bl[i] ^ (~bl[NEXT[i]] & bl[AFTER[i]]);
        hi[i] = bh[i] ^ (~bh[NEXT[i]] & bh[AFTER[i]]);
      }
      lo[0] ^= RC_LOW[round]; hi[0] ^= RC_HIGH[round];
    }
  }

  function sha3_512(data) {
    const rate = 72, lo = new Int32Array(25), hi = new Int32Array(25);
    const padded = new Uint8Array((Math.floor(data.length / rate) + 1) * rate);
    padded.set(data);
    padded[data.length] ^= 0x06;
    padded[padded.length - 1] ^= 0x80;
    const words = new DataView(padded.buffer);
    for (let block = 0; block < padded.length; block += rate) {
      for (let lane = 0; lane < rate / 8; lane++) {
        lo[lane] ^= words.getInt32(block + 8 * lane, true);
        hi[lane] ^= words.getInt32(block + 8 * lane + 4, true);
      }
      permute(lo, hi);
    }
    const out = new Uint8Array(64), view = new DataView(out.buffer);
    for (let lane = 0; lane < 8; lane++) {
      view.setInt32(8 * lane, lo[lane], true);
      view.setInt32(8 * lane + 4, hi[lane], true);
    }
    return out;
  }

  const rotate = (v, n) => v << (n & 31) | v >>> (32 - (n & 31));
  const spread = (v) => v ^ rotate(v, 9) ^ rotate(v, 17);

  function sm3(data) {
    const state = Int32Array.from([0x7380166F, 0x4914B2B9, 0x172442D7, 0xDA8A0600, 0xA96F30BC, 0x163138AA, 0xE38DEE4D,
      0xB0FB0E4E]);
    const padded = new Uint8Array((Math.floor((data.length + 8) / 64) + 1) * 64);
    padded.set(data);
    padded[data.length] = 0x80;
    const words = new DataView(padded.buffer), w = new Int32Array(68);
    words.setUint32(padded.length - 8, Math.floor(data.length / 0x20000000));
    words.setUint32(padded.length - 4, data.length * 8 >>> 0);
    for (let block = 0; block < padded.length; block += 64) {
      for (let i = 0; i < 16; i++) w[i] = words.getInt32(block + 4 * i);
      for (let i = 16; i < 68; i++) {
        const t = w[i - 16] ^ w[i - 9] ^ rotate(w[i - 3], 15);
        w[i] = t ^ rotate(t, 15) ^ rotate(t, 23) ^ rotate(w[i - 13], 7) ^ w[i - 6];
      }
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i++) {
        const constant = rotate(i < 16 ? 0x79CC4519 : 0x7A879D8A, i);
        const turned = rotate(a, 12), one = rotate(turned + e + constant | 0, 7), two = one ^ turned;
        const ff = i < 16 ? a ^ b ^ c : a & b | a & c | b & c, gg = i < 16 ? e ^ f ^ g : e & f | ~e & g;
        const t1 = ff + d + two + (w[i] ^ w[i + 4]) | 0, t2 = gg + h + one + w[i] | 0;
        d = c; c = rotate(b, 9); b = a; a = t1;
        h = g; g = rotate(f, 19); f = e; e = spread(t2);
      }
      [a, b, c, d, e, f, g, h].forEach((v, i) => { state[i] ^= v; });
    }
    const out = new Uint8Array(32);
    state.forEach((v, i) => new DataView(out.buffer).setInt32(4 * i, v));
    return out;
  }

  const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  const sha256 = async (data) => new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return { sha3_512, sm3, sha256, hex };
})();
