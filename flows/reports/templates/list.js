// Sorts the list of runs by the column whose title is clicked; once more, the other way round.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const title = button.parentElement, table = button.closest("table");
    const up = title.getAttribute("aria-sort") !== "ascending";
    for (const each of table.querySelectorAll("[aria-sort]")) each.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.cells[title.cellIndex].dataset.order;
    const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
    const rows = [...table.tBodies[0].rows];
    // Runs without a value stay last.
    rows.sort((a, b) => !value(a) - !value(b) || (up ? 1 : -1) * compare(value(a), value(b)));
    table.tBodies[0].append(...rows);
  });
}
// Shows the runs that have all words of the filter.
document.querySelector("input").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(" ");
  for (const row of document.querySelectorAll("tbody tr"))
    row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
});
