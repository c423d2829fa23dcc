"use strict";
const table = document.querySelector("table.samples");
const groups = Array.from(table.tBodies);
const said = document.getElementById("shown");
const words = document.getElementById("words");
const status = document.getElementById("status");

function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const group of groups) {
    // What a row shows while it is closed, and what was found: a source would hold any word, and so do the lines that
    // every verdict has.
    const parts = [group.rows[0], group.querySelector("summary"), ...group.querySelectorAll("[data-words]")];
    const text = parts.map((part) => part.textContent).join(" ").toLowerCase();
    const fits = (!status.value || group.dataset.ending === status.value) && wanted.every((word) => text.includes(word));
    group.hidden = !fits;
    shown += fits;
  }
  said.textContent = `${shown} of ${groups.length} samples`;
}

function sort(header) {
  const down = header.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = header.dataset.key;
  const number = header.dataset.kind === "number";
  // From the order that is shown: what is alike keeps that of the click before.
  const ordered = Array.from(table.tBodies).sort((one, other) => {
    const [a, b] = [one.dataset[key], other.dataset[key]];
    if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);
    const order = number ? Number(a) - Number(b) : a.localeCompare(b);
    return down ? -order : order;
  });
  table.append(...ordered);
}

words.addEventListener("input", filter);
status.addEventListener("change", filter);
for (const header of table.tHead.rows[0].cells) {
  if (header.dataset.key) header.querySelector("button").addEventListener("click", () => sort(header));
}
filter();
