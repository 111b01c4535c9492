// What the reader sees: the chain as a drawing, the artefacts as a table, the verdict of a dropped folder.
"use strict";
const View = (() => {
  const WORDS = JSON.parse(document.getElementById("words").textContent);
  const BUILD = JSON.parse(document.getElementById("build").textContent);
  let language = (navigator.language || "en").startsWith("zh") ? "zh" : "en", result = null, rootData = null, files = null;
  const word = (key) => WORDS[language][key] || WORDS.en[key] || key;
  const make = (tag, attributes = {}, ...inside) => {
    const node = document.createElement(tag);
    Object.entries(attributes).forEach(([k, v]) => node.setAttribute(k, v));
    node.append(...inside);
    return node;
  };
  const shape = (tag, attributes, content = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([k, v]) => node.setAttribute(k, v));
    node.textContent = content;
    return node;
  };

  function drawChain(statement) {
    const records = statement.predicate.chain, columns = 4, width = 250, height = 92, gap = 34;
    const rows = Math.ceil(records.length / columns);
    const picture = shape("svg", { viewBox: `0 0 ${columns * (width + gap)} ${rows * (height + gap)}`, role: "img" });
    const place = (i) => {
      const row = Math.floor(i / columns), back = row % 2, column = back ? columns - 1 - i % columns : i % columns;
      return [column * (width + gap) + 8, row * (height + gap) + 8, row];
    };
    records.forEach(({ hash, record }, i) => {
      const [x, y, row] = place(i);
      if (i) {
        const [px, py, prow] = place(i - 1), same = prow === row, right = px < x;
        const from = same ? [right ? px + width : px, py + height / 2] : [px + width / 2, py + height];
        const to = same ? [right ? x : x + width, y + height / 2] : [x + width / 2, y];
        picture.append(shape("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: "link" }));
      }
      picture.append(shape("rect", { x, y, width, height, rx: 10, class: `box ${state("chain")}` }));
      picture.append(shape("text", { x: x + 14, y: y + 26, class: "stage" }, `${i + 1}. ${word(`stage.${record.stage}`)}`));
      const first = record.artifacts[0], more = record.artifacts.length - 1;
      picture.append(shape("text", { x: x + 14, y: y + 48, class: "small" }, first.name + (more ? ` + ${more}` : "")));
      picture.append(shape("text", { x: x + 14, y: y + 66, class: "digest" }, `SHA3 ${first.sha3_512.slice(0, 20)}…`));
      picture.append(shape("text", { x: x + 14, y: y + 82, class: "digest" }, `h${i + 1} ${hash.slice(0, 20)}…`));
    });
    return picture;
  }
  const state = (name) => {
    const found = result ? result.checks.filter((c) => c.name === name) : [];
    return found.length ? (found.every((c) => c.ok) ? "good" : "bad") : "unknown";
  };

  function artefacts(statement) {
    const body = make("tbody");
    for (const { record } of statement.predicate.chain) {
      for (const item of record.artifacts) {
        body.append(make("tr", {}, make("td", {}, word(`stage.${record.stage}`)), make("td", {}, item.name),
          make("td", { class: "number" }, item.size.toLocaleString(language)), make("td", { class: "digest" }, item.sha256)));
      }
    }
    const head = make("tr", {}, ...["stage", "file", "size", "sha256"].map((k) => make("th", {}, word(k))));
    return make("table", {}, make("thead", {}, head), body);
  }

  function facts(statement) {
    const p = statement.predicate, list = make("dl");
    const rows = [["model_version", p.triple.model_version], ["target", p.target], ["arithmetic", p.arithmetic],
      ["equivalence", `${word(`verdict.${p.equivalence.verdict}`)} (${p.equivalence.grade})`], ["created", p.created],
      ["head", p.head]];
    rows.forEach(([k, v]) => list.append(make("dt", {}, word(k)), make("dd", {}, v)));
    return list;
  }

  function verdict() {
    const box = document.getElementById("verdict");
    box.className = result ? (result.ok ? "good" : "bad") : "unknown";
    box.replaceChildren(make("strong", {}, word(result ? (result.ok ? "holds" : "broken") : "waiting")));
    if (!result) return;
    const failed = result.checks.filter((c) => !c.ok);
    box.append(make("p", {}, failed.length ? word("failed-intro") : `${word("holds-intro")} ${result.grade}.`));
    const list = make("ul");
    const shown = failed.length ? failed : result.checks.filter((c) => c.name !== "file");
    shown.forEach((c) => list.append(make("li", { class: c.ok ? "good" : "bad" },
      `${word(`check.${c.name}`)}${c.detail ? ": " + c.detail : ""}`)));
    const count = result.checks.filter((c) => c.name === "file" && c.ok).length;
    if (!failed.length) list.append(make("li", { class: "good" }, `${word("check.file")}: ${count}`));
    box.append(list, make("p", { class: "small" }, word("not-checked")));
  }

  function render() {
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
    document.querySelectorAll("[data-word]").forEach((node) => { node.textContent = word(node.dataset.word); });
    const statement = result && result.proof || BUILD;
    document.getElementById("facts").replaceChildren(facts(statement));
    document.getElementById("chain").replaceChildren(drawChain(statement));
    document.getElementById("artefacts").replaceChildren(artefacts(statement));
    verdict();
  }

  async function run() {
    if (!rootData || !files) return;
    const progress = document.getElementById("progress");
    try {
      result = await Verify.folder(files, rootData, (name) => { progress.textContent = name; });
    } catch (error) {
      result = { ok: false, checks: [{ name: "unreadable", ok: false, detail: String(error.message || error) }] };
    }
    progress.textContent = "";
    document.body.dataset.verdict = result.ok ? "good" : "bad";
    document.body.dataset.failed = result.checks.filter((c) => !c.ok).map((c) => `${c.name}:${c.detail}`).join("|");
    render();
  }
  const bytes = async (file) => new Uint8Array(await file.arrayBuffer());

  async function take(list) {
    files = new Map();
    for (const [path, file] of list) files.set(path, await bytes(file));
    delete document.body.dataset.verdict;
    await run();
  }
  function walk(entry, prefix) {
    return new Promise((resolve) => {
      if (entry.isFile) entry.file((file) => resolve([[prefix + file.name, file]]));
      else {
        const reader = entry.createReader(), found = [];
        const more = () => reader.readEntries(async (entries) => {
          if (!entries.length) resolve(found);
          else {
            for (const inner of entries) found.push(...await walk(inner, `${prefix}${entry.name}/`));
            more();
          }
        });
        more();
      }
    });
  }

  document.getElementById("root").addEventListener("change", async (event) => {
    rootData = await bytes(event.target.files[0]);
    await run();
  });
  document.getElementById("folder").addEventListener("change", (event) => take(
    [...event.target.files].map((f) => [f.webkitRelativePath.split("/").slice(1).join("/"), f])));
  const zone = document.getElementById("drop");
  zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    const entries = [...event.dataTransfer.items].map((i) => i.webkitGetAsEntry()).filter(Boolean), found = [];
    for (const entry of entries) found.push(...await walk(entry, ""));
    const single = entries.length === 1 && entries[0].isDirectory;
    await take(found.map(([path, file]) => [single ? path.split("/").slice(1).join("/") : path, file]));
  });
  document.getElementById("language").addEventListener("click", () => {
    language = language === "zh" ? "en" : "zh";
    render();
  });
  render();
})();
