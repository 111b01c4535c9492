// The checks of this page: signatures, every file's digests, the chain of the build. Revocation, timestamps and roles
// of persons are for `cuvil verify`; the page says so.
"use strict";
const Verify = (() => {
  const TYPE = "application/vnd.in-toto+json", STATEMENT = "https://in-toto.io/Statement/v1";
  const RELEASE = "https://cuvil.dev/release/v1", BUILD = "https://cuvil.dev/compile-evidence/v1";
  const text = (data) => new TextDecoder("utf-8", { fatal: true }).decode(data);
  const encode = (value) => new TextEncoder().encode(value);

  // RFC 8785 for what evidence holds: no floats. JSON.stringify writes strings as the RFC wants them.
  function canonical(value) {
    if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
    if (value && typeof value === "object") {
      return `{${Object.keys(value).sort().map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`).join(",")}}`;
    }
    return JSON.stringify(value);
  }
  function base64(value) {
    const raw = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
    let back = "";
    raw.forEach((b) => { back += String.fromCharCode(b); });
    if (btoa(back) !== value) throw new Error("base64");
    return raw;
  }
  // The file must be exactly what its content writes: two-space indent, ASCII, one newline at the end.
  function envelope(data) {
    const item = JSON.parse(text(data));
    const keys = Object.keys(item).filter((k) => k !== "verificationMaterial").sort().join();
    if (keys !== "payload,payloadType,signatures" || JSON.stringify(item, null, 2) + "\n" !== text(data)) {
      throw new Error("form");
    }
    const payload = base64(item.payload), statement = JSON.parse(text(payload));
    const kind = encode(item.payloadType);
    const pae = Signatures.join(encode(`DSSEv1 ${kind.length} `), kind, encode(` ${payload.length} `), payload);
    return { type: item.payloadType, payload, statement, pae, material: item.verificationMaterial || {},
      signatures: item.signatures.map((s) => ({ keyid: s.keyid, value: base64(s.sig) })) };
  }
  function pem(value) {
    return base64(value.split("\n").filter((line) => line && !line.startsWith("-----")).join(""));
  }
  async function trustRoot(data) {
    const root = JSON.parse(text(data)), keys = new Map();
    if (!/^cuvil-trust-root\/[12]$/.test(root.format)) throw new Error("format");
    for (const key of root.keys || []) {
      const spki = pem(key.public_key), id = Hashes.hex(await Hashes.sha256(spki));
      if (id !== key.key_id) throw new Error("key_id");
      keys.set(id, { algorithm: key.algorithm, spki });
    }
    const roots = (root.roots || []).map((r) => Certificates.parse(pem(r.certificate)));
    return { grade: root.grade, keys, roots };
  }

  async function signers(found, root, at) {
    const certificates = (found.material.certificates || []).map((c) => Certificates.parse(base64(c)));
    const holding = {};
    for (const signature of found.signatures) {
      let key = root.keys.get(signature.keyid);
      if (!key) {
        for (const leaf of certificates) {
          if (Hashes.hex(await Hashes.sha256(leaf.spki)) === signature.keyid &&
              await Certificates.leads(leaf, certificates, root.roots, at)) {
            const sm2 = Hashes.hex(leaf.spki).startsWith("3059301306072a8648ce3d020106082a811ccf5501822d");
            key = { algorithm: sm2 ? "sm2-sm3" : "ecdsa-p384-sha384", spki: leaf.spki };
          }
        }
      }
      if (key) holding[key.algorithm] = await Signatures.verify(key.algorithm, key.spki, found.pae, signature.value);
    }
    return holding;
  }

  function chain(predicate) {
    let last = new Uint8Array(64);
    for (const { hash, record } of predicate.chain) {
      last = Hashes.sha3_512(Signatures.join(encode("cuvil-stage-v1\u0000"), last, encode(canonical(record))));
      if (Hashes.hex(last) !== hash) return false;
    }
    return Hashes.hex(last) === predicate.head;
  }

  // files: Map of relative path -> Uint8Array. report(name, ok, detail) for every check; resolves to {ok, checks, ...}.
  async function folder(files, rootData, progress) {
    const checks = [];
    const note = (name, ok, detail = "") => { checks.push({ name, ok, detail }); return ok; };
    const done = (extra) => ({ ok: checks.length > 0 && checks.every((c) => c.ok), checks, ...extra });
    const names = [...files.keys()];
    const main = names.find((n) => n.endsWith(".release.json")) || names.find((n) => n.endsWith(".proof.json"));
    if (!note("files", Boolean(main), main || "")) return done({});
    let root, found;
    try { root = await trustRoot(rootData); note("trust-root", root.keys.size + root.roots.length > 0, root.grade); } catch (e) {
      note("trust-root", false);
      return done({});
    }
    try { found = envelope(files.get(main)); note("envelope", found.type === TYPE, main); } catch (e) {
      note("envelope", false, main);
      return done({});
    }
    const { statement } = found, release = statement.predicateType === RELEASE;
    const at = statement.predicate && statement.predicate.created || "";
    const holding = await signers(found, root, at);
    const signed = ["sm2-sm3", "ecdsa-p384-sha384"].map((a) => note(`signature-${a}`, holding[a] === true)).every(Boolean);
    if (!signed) return done({ main });
    note("statement", statement._type === STATEMENT && (release || statement.predicateType === BUILD) &&
      canonical(statement) === text(found.payload));
    const listed = new Map(statement.subject.map((s) => [s.name, s.digest]));
    for (const [name, digest] of listed) {
      const data = files.get(name);
      progress(name);
      note("file", Boolean(data) && Hashes.hex(await Hashes.sha256(data)) === digest.sha256 &&
        Hashes.hex(Hashes.sm3(data)) === digest.sm3 && Hashes.hex(Hashes.sha3_512(data)) === digest.sha3_512, name);
    }
    if (release) {
      for (const name of names) if (name !== main && !listed.has(name)) note("extra-file", false, name);
    }
    const proofName = names.find((n) => n.endsWith(".proof.json"));
    let proof = found;
    if (release && note("build-proof", Boolean(proofName), proofName || "")) {
      proof = envelope(files.get(proofName));
      const both = await signers(proof, root, at);
      note("build-proof-signatures", both["sm2-sm3"] === true && both["ecdsa-p384-sha384"] === true, proofName);
    }
    note("chain", chain(proof.statement.predicate), `${proof.statement.predicate.chain.length}`);
    return done({ main, release, statement, proof: proof.statement, grade: root.grade });
  }
  return { folder, envelope, canonical };
})();
