// The page of results: figures, tables, the state of the page in its address. What is drawn is in the element #data.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
};
const button = (text, label, action) => element("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
const short = (value) => (Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(+value.toPrecision(5)));
const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- The state: what differs from how the page opens, by key, in the address.
const state = new Map();
function readState() {
  state.clear();
  const text = location.hash.slice(1);
  if (text.includes("=")) new URLSearchParams(text).forEach((value, key) => state.set(key, value));
}
let ownHash = null;
function setState(key, value) {
  if (value === null || value === undefined || value === "") state.delete(key);
  else state.set(key, String(value));
  const text = new URLSearchParams([...state.entries()].sort()).toString();
  ownHash = text ? "#" + text : "";
  history.replaceState(null, "", ownHash || location.pathname + location.search);
}
const restorers = [];
function restoreAll() {
  readState();
  restorers.forEach((restore) => restore());
}

// ---- Light and dark.
const themed = [];
const systemDark = matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  const chosen = state.get("theme") || "auto";
  const dark = chosen === "dark" || (chosen === "auto" && systemDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").value = chosen;
  themed.forEach((redraw) => redraw());
}
const isDark = () => document.documentElement.dataset.theme === "dark";
// Okabe and Ito's colours; black and grey are lighter on a dark page.
const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#787878", "#000000"];
const DARK = { 0: "#3d9bdc", 6: "#a8a8a8", 7: "#f2f2f2" };
const DASHES = [[], [7, 4], [2, 3], [12, 3]];
const colorOf = (look) => (isDark() && DARK[look.color % 8]) || COLORS[look.color % 8];

// ---- Files.
function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
const quoted = (value) => (/[",\n]/.test(value) ? '"' + String(value).replaceAll('"', '""') + '"' : String(value));
const csv = (rows) => rows.map((row) => row.map((value) => quoted(value ?? "")).join(",")).join("\n") + "\n";
function rowsOf(figure) {
  const x = figure.x || "x", y = figure.y || "y";
  if (figure.kind === "blocks") {
    return [["row", "what", "begin", "end"], ...figure.data.map((b) => [figure.names[Math.floor(b[2])], figure.groups[b[4]].label, b[0], b[1]])];
  }
  const rows = [figure.kind === "corners" ? ["series", x, y] : ["series", x, y, "lowest", "highest"]];
  figure.groups.forEach((group, g) => {
    if (figure.kind === "corners") {
      figure.data[g][0].forEach((at, i) => rows.push([group.label, at, figure.data[g][1][i]]));
    } else {
      figure.data[g].forEach((s, i) => rows.push([group.label, figure.ticks.labels[i], ...(s ? [s[1], s[0], s[2]] : ["", "", ""])]));
    }
  });
  return rows;
}
const csvOf = (figure) => csv(rowsOf(figure));

// ---- Figures.
function hidden(key) {
  return new Set((state.get(key) || "").split(".").filter(Boolean).map(Number));
}
function fullRange(figure, off) {
  if (figure.log || !off.size) return figure.yr;
  let high = 0;
  figure.groups.forEach((_, g) => {
    if (off.has(g)) return;
    const values = figure.kind === "corners" ? figure.data[g][1] : figure.data[g].map((s) => s && s[2]);
    for (const value of values) if (value > high) high = value;
  });
  return [0, high > 0 ? high * 1.12 : 1];
}
function drawMarks(plot, figure, off) {
  const ctx = plot.ctx, ratio = devicePixelRatio;
  const X = (value) => plot.valToPos(value, "x", true), Y = (value) => plot.valToPos(value, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  ctx.clip();
  const shown = figure.groups.map((_, g) => g).filter((g) => !off.has(g));
  const whisker = (x, s, color) => {
    if (!(s[2] > s[0])) return;
    ctx.strokeStyle = color;
    ctx.lineWidth = 1.2 * ratio;
    ctx.setLineDash([]);
    const cap = 4 * ratio, [top, bottom] = [Y(s[2]), Y(s[0])];
    ctx.beginPath();
    ctx.moveTo(x, top); ctx.lineTo(x, bottom);
    ctx.moveTo(x - cap, top); ctx.lineTo(x + cap, top);
    ctx.moveTo(x - cap, bottom); ctx.lineTo(x + cap, bottom);
    ctx.stroke();
  };
  shown.forEach((g, place) => {
    const look = figure.groups[g], color = colorOf(look);
    ctx.fillStyle = ctx.strokeStyle = color;
    ctx.lineWidth = 2 * ratio;
    ctx.setLineDash(DASHES[look.dash % 4].map((length) => length * ratio));
    if (figure.kind === "bars") {
      const width = 0.8 / shown.length;
      figure.data[g].forEach((s, i) => {
        const left = i + 0.1 + place * width, middle = X(left + width / 2);
        ctx.font = `${12 * ratio}px system-ui, sans-serif`;
        ctx.textAlign = "center";
        if (s) {
          ctx.fillStyle = color;
          const top = Y(s[1]);
          ctx.fillRect(X(left + width * 0.04), top, X(left + width * 0.96) - X(left + width * 0.04), Y(0) - top);
          whisker(middle, s, cssColor("--ink"));
          ctx.fillStyle = cssColor("--ink");
          if (X(left + width) - X(left) > 26 * ratio) ctx.fillText(short(+s[1].toPrecision(3)), middle, Y(s[2]) - 5 * ratio);
        } else {
          ctx.fillStyle = cssColor("--muted");
          ctx.fillText("failed", middle, Y(0) - 5 * ratio);
        }
      });
      return;
    }
    const [xs, ys] = figure.kind === "corners" ? figure.data[g] : [figure.ticks.places, figure.data[g].map((s) => s && s[1])];
    ctx.beginPath();
    let open = false;
    xs.forEach((x, i) => {
      if (ys[i] === null) { open = open && figure.kind !== "corners"; return; }
      if (open) ctx.lineTo(X(x), Y(ys[i])); else ctx.moveTo(X(x), Y(ys[i]));
      open = true;
    });
    ctx.stroke();
    if (figure.kind === "points" || figure.dots) {
      xs.forEach((x, i) => {
        if (ys[i] === null) return;
        if (figure.kind === "points") whisker(X(x), figure.data[g][i], color);
        ctx.beginPath();
        ctx.arc(X(x), Y(ys[i]), 4 * ratio, 0, 2 * Math.PI);
        ctx.fill();
      });
    }
  });
  ctx.restore();
}
function nearest(plot, figure, off, left, top) {
  let best = null, least = 60 * 60;
  const look = (g, x, y, text) => {
    const dx = plot.valToPos(x, "x") - left, dy = plot.valToPos(y, "y") - top, far = dx * dx + dy * dy;
    if (far < least) { least = far; best = `${figure.groups[g].label ? figure.groups[g].label + ": " : ""}${text}`; }
  };
  const shown = figure.groups.map((_, g) => g).filter((g) => !off.has(g));
  shown.forEach((g, place) => {
    if (figure.kind === "corners") {
      figure.data[g][0].forEach((x, i) => {
        const y = figure.data[g][1][i];
        if (y !== null) look(g, x, y, `${short(x)}, ${short(y)}`);
      });
      return;
    }
    figure.data[g].forEach((s, i) => {
      if (!s) return;
      const x = figure.kind === "bars" ? i + 0.1 + (place + 0.5) * (0.8 / shown.length) : figure.ticks.places[i];
      look(g, x, s[1], `${figure.ticks.labels[i]}, ${short(s[1])}` + (s[2] > s[0] ? ` (${short(s[0])} to ${short(s[2])})` : ""));
    });
  });
  return best;
}
function axisOptions(figure) {
  const ink = () => cssColor("--ink"), grid = () => cssColor("--line");
  const common = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
  const x = { ...common, label: figure.x || null, labelFont: "13px system-ui, sans-serif", labelSize: figure.x ? 24 : 0, size: 34 };
  if (figure.kind !== "corners") {
    // Labels that would touch are left out.
    x.splits = () => figure.ticks.places;
    x.values = (plot, places) => {
      let end = -Infinity;
      return places.map((place, i) => {
        const label = figure.ticks.labels[i], half = label.length * 3.6, at = plot.valToPos(place, "x");
        if (at - half < end + 4) return "";
        end = at + half;
        return label;
      });
    };
    x.grid = { show: false };
  }
  const y = { ...common, label: figure.y || null, labelFont: "13px system-ui, sans-serif", labelSize: 22, size: 58, values: (_, values) => values.map((value) => (value === null ? "" : short(value))) };
  return [x, y];
}
function makePlot(figure, box, out, getOff, onZoom) {
  const width = () => Math.max(240, box.clientWidth);
  const options = {
    width: width(), height: 330, legend: { show: false }, padding: [12, 12, 0, 0],
    cursor: { drag: { x: true, y: true, uni: 24, setScale: false }, points: { show: false }, bind: { dblclick: () => null } },
    scales: { x: { time: false, auto: false, range: (_, low, high) => [low, high] }, y: { auto: false, distr: figure.log ? 3 : 1, range: (_, low, high) => [low, high] } },
    axes: axisOptions(figure),
    series: [{}, { show: true, paths: () => null, points: { show: false } }],
    hooks: {
      draw: [(plot) => drawMarks(plot, figure, getOff())],
      setSelect: [(plot) => {
        const { left, top, width: wide, height: high } = plot.select;
        if (wide < 6 && high < 6) return;
        const x = wide < 6 ? [plot.scales.x.min, plot.scales.x.max] : [plot.posToVal(left, "x"), plot.posToVal(left + wide, "x")];
        const y = high < 6 ? [plot.scales.y.min, plot.scales.y.max] : [plot.posToVal(top + high, "y"), plot.posToVal(top, "y")];
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        onZoom([...x, ...y]);
      }],
      setCursor: [(plot) => { out.textContent = plot.cursor.left < 0 ? "" : nearest(plot, figure, getOff(), plot.cursor.left, plot.cursor.top) || ""; }],
    },
  };
  const plot = new uPlot(options, [figure.xr, [null, null]], box);
  new ResizeObserver(() => { if (plot.width !== width()) plot.setSize({ width: width(), height: 330 }); }).observe(box);
  return plot;
}
function figureControls(figure, key, box, svg, zoom) {
  const bar = element("div", { class: "controls needs-js" });
  if (figure.kind !== "blocks") {
    bar.append(button("+", "Zoom in", () => zoom.by(0.5, 0)), button("\u2212", "Zoom out", () => zoom.by(2, 0)), button("\u25c0", "Move left", () => zoom.by(1, -0.25)), button("\u25b6", "Move right", () => zoom.by(1, 0.25)), button("Reset", "Reset the zoom", () => zoom.to(null)));
  }
  const name = figure.name.replaceAll(/[^\w-]+/g, "_");
  bar.append(button("CSV", `Data of ${figure.title} as CSV`, () => save(name + ".csv", "text/csv", csvOf(figure))));
  if (svg) bar.append(button("SVG", `Picture of ${figure.title} as SVG`, () => save(name + ".svg", "image/svg+xml", svg.outerHTML)));
  return bar;
}
function legendOf(figure, toggle) {
  const box = element("div", { class: "controls legend needs-js", role: "group", "aria-label": `Series of ${figure.title}` });
  const entries = figure.groups.map((group, g) => {
    const entry = button("", group.label, () => toggle(g));
    box.append(entry);
    return entry;
  });
  const paint = (off) => entries.forEach((entry, g) => {
    const group = figure.groups[g], dash = DASHES[group.dash % 4].join(" ");
    entry.innerHTML = `<svg aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" stroke="${colorOf(group)}" stroke-width="${figure.kind === "bars" ? 8 : 3}" stroke-dasharray="${dash}"/></svg>`;
    entry.append(group.label);
    entry.setAttribute("aria-pressed", String(!off.has(g)));
  });
  box.hidden = figure.groups.length < 2;
  if (box.hidden) box.classList.remove("needs-js");
  return [box, paint];
}
function makeFigure(place, figure, section) {
  const key = `${section}.${figure.name}`, svg = place.querySelector(".svg svg");
  const [offKey, zoomKey] = [key + ".off", key + ".zoom"];
  place.setAttribute("aria-label", figure.title);
  const caption = element("figcaption", {}, element("strong", {}, figure.title), element("span", { class: "muted" }, figure.note + (figure.left_out ? `${figure.note ? "; " : ""}${figure.left_out} of ${figure.corners} corners left out` : "")));
  if (figure.kind === "blocks") {
    place.append(figureControls(figure, key, null, svg, null));
    return;
  }
  const box = element("div", { class: "plot", role: "img", "aria-label": `${figure.title}: ${figure.y} over ${figure.x || "series"}; the numbers are below, as a table` });
  const out = element("output", { class: "readout" });
  place.classList.add("live");
  let plot = null;
  const off = () => hidden(offKey);
  const view = () => (state.get(zoomKey) || "").split(",").map(Number);
  const refresh = () => {
    const [x0, x1, y0, y1] = state.has(zoomKey) && view().every(Number.isFinite) ? view() : [...figure.xr, ...fullRange(figure, off())];
    plot.batch(() => { plot.setScale("x", { min: x0, max: x1 }); plot.setScale("y", { min: y0, max: y1 }); });
    plot.redraw(false, true);
    paint(off());
  };
  const zoom = {
    to: (range) => { setState(zoomKey, range && range.map((value) => +value.toPrecision(6)).join(",")); refresh(); },
    by: (factor, move) => {
      const { min, max } = plot.scales.x, middle = (min + max) / 2 + move * (max - min), half = ((max - min) / 2) * factor;
      zoom.to([middle - half, middle + half, plot.scales.y.min, plot.scales.y.max]);
    },
  };
  const [legend, paint] = legendOf(figure, (g) => {
    const now = off();
    if (now.has(g)) now.delete(g); else now.add(g);
    setState(offKey, [...now].sort((a, b) => a - b).join("."));
    refresh();
  });
  place.prepend(caption, legend, box, out);
  place.append(figureControls(figure, key, box, svg, zoom));
  plot = makePlot(figure, box, out, off, zoom.to);
  plot.over.addEventListener("dblclick", () => zoom.to(null));
  box.after(out);
  restorers.push(refresh);
  themed.push(() => plot && (plot.redraw(true, true), paint(off())));
  place.append(numbersOf(figure));
}
function numbersOf(figure) {
  const details = element("details", { class: "needs-js" }, element("summary", {}, "Numbers"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const [head, ...rows] = rowsOf(figure);
    const cut = rows.slice(0, 500);
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...head.map((cell) => element("th", {}, cell)))), element("tbody", {}, ...cut.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell ?? "")))))));
    details.append(element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Numbers of ${figure.title}` }, table));
    if (rows.length > cut.length) details.append(element("p", { class: "muted" }, `The first ${cut.length} of ${rows.length} rows; the CSV has all.`));
  });
  return details;
}

// ---- Tables.
function makeTable(table) {
  const key = table.dataset.table, body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const labels = heads.map((head) => head.textContent.trim());
  const numberIn = (text) => { const found = text.match(/-?[\d.]+(e[+-]?\d+)?/i); const unit = /\b([KMGT])i?B\b/.exec(text); return found ? +found[0] * (unit ? 1024 ** " KMGT".indexOf(unit[1]) : 1) : null; };
  const names = +table.dataset.labels || 0;
  const bar = element("div", { class: "controls needs-js", role: "search" });
  const search = element("input", { type: "search", placeholder: "filter rows", "aria-label": "Filter rows by text", oninput: () => { setState(key + ".q", search.value); refresh(); } });
  const selects = heads.slice(0, names).map((_, column) => {
    const values = [...new Set(rows.map((row) => row.cells[column].textContent.trim()))];
    const select = element("select", { "aria-label": `Only rows of ${labels[column]}`, onchange: () => { setState(`${key}.only${column}`, select.value); refresh(); } }, element("option", { value: "" }, `all of ${labels[column]}`), ...values.map((value) => element("option", { value }, value)));
    select.hidden = values.length < 2;
    return select;
  });
  const count = element("output", { class: "muted" });
  bar.append(search, ...selects, button("CSV", "Table as CSV", () => save(key + ".csv", "text/csv", csv([labels, ...[...body.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map((cell) => cell.textContent.trim()))]))), count);
  table.parentElement.before(bar);
  heads.forEach((head, column) => {
    const sort = element("button", { type: "button", onclick: () => {
      const now = state.get(key + ".sort");
      setState(key + ".sort", now === `${column}u` ? `${column}d` : now === `${column}d` ? null : `${column}u`);
      refresh();
    } }, labels[column]);
    head.replaceChildren(sort);
  });
  const refresh = () => {
    search.value = state.get(key + ".q") || "";
    selects.forEach((select, column) => { select.value = state.get(`${key}.only${column}`) || ""; });
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = (row) => words.every((word) => row.textContent.toLowerCase().includes(word)) && selects.every((select, column) => !select.value || row.cells[column].textContent.trim() === select.value);
    const [, at, way] = /^(\d+)([ud])$/.exec(state.get(key + ".sort") || "") || [];
    heads.forEach((head, column) => head.setAttribute("aria-sort", column === +at && way ? (way === "u" ? "ascending" : "descending") : "none"));
    let order = rows;
    if (way && +at < heads.length) {
      const value = (row) => row.cells[at].textContent.trim();
      const compare = (a, b) => {
        const [x, y] = [numberIn(a), numberIn(b)];
        if (x !== null && y !== null) return x - y || a.localeCompare(b, "en");
        // What is no number comes after those that are.
        return x === y ? a.localeCompare(b, "en") : x === null ? 1 : -1;
      };
      order = [...rows].sort((a, b) => compare(value(a), value(b)) * (way === "u" ? 1 : -1));
    }
    body.replaceChildren(...order);
    let visible = 0;
    rows.forEach((row) => { row.hidden = !shown(row); visible += !row.hidden; });
    count.textContent = visible === rows.length ? `${rows.length} rows` : `${visible} of ${rows.length} rows`;
  };
  restorers.push(refresh);
}
