"use strict";
// What the pages can do without this file: everything but copying by one press and computing digests of local files.
(() => {
  const main = document.getElementById("content");

  for (const part of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) break; // absent where the page is not served securely
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = main.dataset.copyWord;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(part.dataset.whole || part.textContent.trim());
      button.textContent = main.dataset.copiedWord;
      setTimeout(() => { button.textContent = main.dataset.copyWord; }, 2000);
    });
    part.after(button);
  }

  const file = document.getElementById("file");
  if (!file) return;
  document.getElementById("by-file").hidden = false;
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    const progress = document.getElementById("progress");
    progress.textContent = progress.dataset.working;
    await new Promise((done) => setTimeout(done, 20)); // let the browser show it
    const data = await file.files[0].arrayBuffer();
    const hex = (bytes) => Array.from(new Uint8Array(bytes), (b) => b.toString(16).padStart(2, "0")).join("");
    // The browser's own SHA-256 exists on secure pages only; SHA3-512 comes with proof.html.
    const digest = globalThis.crypto && crypto.subtle
      ? hex(await crypto.subtle.digest("SHA-256", data))
      : Hashes.hex(Hashes.sha3_512(new Uint8Array(data)));
    document.getElementById("digest").value = digest;
    progress.textContent = "";
    file.form.requestSubmit();
  });
})();
