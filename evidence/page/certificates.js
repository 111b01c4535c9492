// As much of X.509 as the page needs: from a signer's certificate up to a root that the reader gave.
"use strict";
const Certificates = (() => {
  const ALGORITHMS = { "06082a811ccf55018375": "sm2-sm3", "06082a8648ce3d040303": "ecdsa-p384-sha384" };
  const CONSTRAINTS = "0603551d13";

  // One DER element at `at`: tag, content and the whole; definite minimal lengths only.
  function element(data, at) {
    let size = data[at + 1], start = at + 2;
    if (size >= 0x80) {
      const count = size & 0x7F;
      if (count < 1 || count > 3) throw new Error("length");
      for (size = 0; start < at + 2 + count; start++) size = size * 256 + data[start];
      if (size < 0x80 || (count > 1 && size < 256 ** (count - 1))) throw new Error("length");
    }
    if (start + size > data.length) throw new Error("truncated");
    return { tag: data[at], body: data.slice(start, start + size), whole: data.slice(at, start + size), end: start + size };
  }
  function children(body) {
    const found = [];
    for (let at = 0; at < body.length;) { const one = element(body, at); found.push(one); at = one.end; }
    return found;
  }
  function moment(time) {
    const text = new TextDecoder().decode(time.body), year = time.tag === 0x17
      ? (Number(text.slice(0, 2)) < 50 ? "20" : "19") + text.slice(0, 2) : text.slice(0, 4);
    const rest = text.slice(time.tag === 0x17 ? 2 : 4);
    return `${year}-${rest.slice(0, 2)}-${rest.slice(2, 4)}T${rest.slice(4, 6)}:${rest.slice(6, 8)}:${rest.slice(8, 10)}Z`;
  }
  function isAuthority(extensions) {
    for (const extension of extensions ? children(element(extensions.body, 0).body) : []) {
      const parts = children(extension.body);
      if (Hashes.hex(parts[0].whole) !== CONSTRAINTS) continue;
      const fields = children(element(parts[parts.length - 1].body, 0).body);
      return fields.length > 0 && fields[0].tag === 1 && fields[0].body[0] === 0xFF;
    }
    return false;
  }
  function parse(der) {
    const outer = element(der, 0);
    if (outer.end !== der.length) throw new Error("trailing bytes");
    const [tbs, algorithm, signature] = children(outer.body);
    const fields = children(tbs.body);
    if (fields[0].tag === 0xA0) fields.shift();
    const [, , issuer, validity, subject, spki] = fields, [from, to] = children(validity.body);
    return {
      tbs: tbs.whole, algorithm: ALGORITHMS[Hashes.hex(children(algorithm.body)[0].whole)] || "", der,
      signature: signature.body.slice(1), issuer: Hashes.hex(issuer.whole), subject: Hashes.hex(subject.whole),
      spki: spki.whole, from: moment(from), to: moment(to), authority: isAuthority(fields.find((f) => f.tag === 0xA3)),
    };
  }

  // True when `leaf` leads to one of `roots` through `others`, every certificate valid at `at`.
  async function leads(leaf, others, roots, at) {
    let current = leaf;
    for (let depth = 0; depth < 5; depth++) {
      if (at < current.from || at > current.to || (depth && !current.authority)) return false;
      if (roots.some((r) => Hashes.hex(r.der) === Hashes.hex(current.der))) return depth > 0;
      const issuer = [...others, ...roots].find((c) => c.subject === current.issuer && c.authority && c !== current);
      if (!issuer || !await Signatures.verify(current.algorithm, issuer.spki, current.tbs, current.signature)) return false;
      current = issuer;
    }
    return false;
  }
  return { parse, leads };
})();
