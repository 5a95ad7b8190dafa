"use strict";
(() => {
  // All figures over the versions have the same groups: what one points at, all show.
  const figures = [...document.querySelectorAll("[data-chart]")].map((figure) => ({
    area: figure.querySelector(".area"),
    cursor: figure.querySelector(".cursor"),
    slider: figure.querySelector("input"),
    output: figure.querySelector("output"),
    heads: [...figure.querySelectorAll("thead th")].map((head) => head.textContent),
    rows: figure.querySelector("tbody").rows,
  }));

  const text = ({ heads, rows }, at) => {
    const [versions, time, ...cells] = [...rows[at].cells].map((cell) => cell.textContent.trim());
    const known = cells.flatMap((cell, i) => (cell === "–" ? [] : [`${heads[i + 2]} ${cell}`.replace("value ", "")]));
    return [`${heads[0]} ${versions}`, time, known.join(", ") || "none"];
  };

  const show = (at) => {
    for (const each of figures) {
      const [versions, time, values] = text(each, at);
      each.slider.value = at;
      each.slider.setAttribute("aria-valuetext", `${versions}: ${values}`);
      each.output.replaceChildren(Object.assign(document.createElement("b"), { textContent: values }), ` ${versions}, ${time}`);
      each.cursor.hidden = false;
      each.cursor.style.left = `${(100 * (at + 0.5)) / each.rows.length}%`;
    }
  };

  for (const each of figures) {
    each.slider.hidden = false;
    each.slider.addEventListener("input", () => show(Number(each.slider.value)));
    each.area.addEventListener("pointermove", (event) => {
      const { left, width } = each.area.getBoundingClientRect();
      const at = Math.floor(((event.clientX - left) / width) * each.rows.length);
      show(Math.max(0, Math.min(at, each.rows.length - 1)));
    });
  }
  for (const each of document.querySelectorAll(".script")) each.hidden = false;
  if (figures.length) show(figures[0].rows.length - 1);
})();
