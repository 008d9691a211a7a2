"use strict";

for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => {
    const rows = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const order = (a, b) => key(a).localeCompare(key(b), undefined, { numeric: true });
    const numbers = (a, b) => Number(key(a)) - Number(key(b));
    const sorted = [...rows.rows].sort(head.classList.contains("number") ? numbers : order);
    rows.append(...(down ? sorted.reverse() : sorted));
  });
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
});
