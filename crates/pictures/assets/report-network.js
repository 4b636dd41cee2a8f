// ---- The network over time, and how one block was added up.
// Cividis: seen alike by people who do not see all colours; from dark to light where the page is light, and the other way round.
const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 183, 103], [254, 232, 56]];
function heat(share) {
  const at = Math.max(0, Math.min(1, isDark() ? share : 1 - share)) * (CIVIDIS.length - 1), low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return `rgb(${CIVIDIS[low].map((value, i) => Math.round(value + (CIVIDIS[low + 1][i] - value) * (at - low))).join(",")})`;
}
const svgElement = (tag, attributes = {}, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
function layout(levels, width, row, top) {
  const rows = new Map();
  levels.forEach((level, node) => { if (!rows.has(level)) rows.set(level, []); rows.get(level).push(node); });
  const highest = Math.max(...levels);
  const places = [];
  for (const [level, nodes] of rows) nodes.forEach((node, number) => { places[node] = [((number + 0.5) * width) / nodes.length, top + row * (highest - level)]; });
  return [places, top + row * highest + 40, rows];
}
// Wide where the page is narrow: it scrolls by itself.
const framed = (stage) => element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Picture of the network" }, stage);
// A slider with a button that plays; `show` draws a step and gives its words.
function player(key, count, show, what, initial = () => 0) {
  const slider = element("input", { type: "range", min: 0, max: count() - 1, value: 0, "aria-label": what });
  const said = element("output", { class: "muted" });
  let timer = null;
  const go = (to) => {
    slider.max = count() - 1;
    slider.value = Math.max(0, Math.min(count() - 1, to));
    const text = show(+slider.value);
    said.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  const keep = () => setState(key, +slider.value === initial() ? null : +slider.value);
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; keep(); };
  const play = element("button", { type: "button", onclick: () => {
    if (timer) { stop(); return; }
    if (+slider.value >= count() - 1) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => { go(+slider.value + 1); if (+slider.value >= count() - 1) stop(); }, 120);
  } }, "Play");
  slider.addEventListener("input", () => { if (timer) stop(); go(+slider.value); keep(); });
  return { bar: element("div", { class: "controls" }, play, slider, said), go, restore: () => go(state.has(key) ? +state.get(key) : initial()) };
}
function chooser(key, label, names, change) {
  const select = element("select", { "aria-label": label, onchange: () => { setState(key, +select.value || null); change(); } }, ...names.map((name, value) => element("option", { value }, name)));
  select.restore = () => { select.value = Math.min(names.length - 1, +(state.get(key) || 0)); };
  return select;
}
function makeNetwork(section) {
  const place = byId(`${section.id}-network`);
  if (!place) return;
  const key = section.id + ".net", unpacked = new Map();
  const current = () => section.networks[+point.value];
  const series = (net) => {
    if (!unpacked.has(net)) unpacked.set(net, { utilisation: bytesOf(net.utilisation), queue: bytesOf(net.queue), slots: bytesOf(net.slots) });
    return unpacked.get(net);
  };
  const SHOWN = ["link utilisation", "queues before links"];
  const point = chooser(key + ".point", "Which run", section.networks.map((net) => net.label), () => { build(); play.restore(); });
  const shown = chooser(key + ".what", "What colours links", SHOWN, () => play.restore());
  const stage = svgElement("svg", { class: "stage", role: "img" });
  const note = element("p", { class: "muted" });
  const top = element("p", { class: "readout" });
  const scale = element("canvas", { class: "scale", width: 100, height: 1, "aria-hidden": "true" });
  const scaleText = element("span", { class: "muted" });
  let lines = [], circles = [];
  function build() {
    const net = current(), [places, height] = layout(net.levels, 1000, net.levels.length > 80 ? 150 : 120, 30);
    stage.setAttribute("viewBox", `0 0 1000 ${height}`);
    const many = net.links.length > 700;
    lines = net.links.map(([from, to], number) => {
      const [x0, y0] = places[from], [x1, y1] = places[to], length = Math.hypot(x1 - x0, y1 - y0) || 1, off = many ? 0.6 : 1.8;
      const [sx, sy] = [(-(y1 - y0) / length) * off, ((x1 - x0) / length) * off];
      const line = svgElement("line", { x1: (x0 + sx).toFixed(1), y1: (y0 + sy).toFixed(1), x2: (x1 + sx).toFixed(1), y2: (y1 + sy).toFixed(1), "stroke-linecap": "round" });
      if (!many) line.append(svgElement("title", {}, `${net.nodes[from]} to ${net.nodes[to]}`));
      return line;
    });
    circles = net.levels.map((level, node) => svgElement("circle", { cx: places[node][0].toFixed(1), cy: places[node][1].toFixed(1), r: level ? 7 : net.levels.length > 300 ? 1.5 : 4 }, svgElement("title", {}, net.nodes[node])));
    const texts = net.levels.length > 80 ? [] : net.levels.map((level, node) => level || net.levels.length < 40 ? svgElement("text", { x: places[node][0].toFixed(1), y: (places[node][1] + (level ? -12 : 18)).toFixed(1), "text-anchor": "middle" }, net.nodes[node].replace(/^host/, "h")) : null).filter(Boolean);
    stage.replaceChildren(...lines, ...circles, ...texts);
    note.textContent = net.note;
  }
  function show(frame) {
    const net = current(), data = series(net), links = net.links.length, queues = +shown.value === 1;
    const values = queues ? data.queue : data.utilisation, order = [];
    lines.forEach((line, link) => {
      const share = values[frame * links + link] / 255;
      line.setAttribute("stroke", share ? heat(share) : cssColor("--line"));
      line.setAttribute("stroke-width", (net.links.length > 700 ? 0.4 : 1) + share * (net.links.length > 700 ? 1 : 2.6));
      order.push([share, link]);
    });
    let slots = 0;
    circles.forEach((circle, node) => {
      const share = net.levels[node] ? data.slots[frame * net.switches + net.switch_of[node]] / 255 : 0;
      slots += share * net.slots_most;
      circle.setAttribute("fill", net.levels[node] ? (share ? heat(share) : cssColor("--page")) : cssColor("--muted"));
      circle.setAttribute("stroke", cssColor("--ink"));
    });
    order.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const unit = (share) => (queues ? `${short((share * net.queue_most) / 1024)} KiB` : `${Math.round(share * 100)} %`);
    top.textContent = "Most: " + order.slice(0, 3).filter(([share]) => share).map(([share, link]) => `${net.nodes[net.links[link][0]]} to ${net.nodes[net.links[link][1]]} ${unit(share)}`).join("; ") + `. Memory of switches in use: ${short(slots / 1024)} KiB`;
    scaleText.textContent = queues ? `0 to ${short(net.queue_most / 1024)} KiB` : "0 to 100 %";
    const context = scale.getContext("2d");
    for (let x = 0; x < 100; x += 1) { context.fillStyle = heat(x / 99); context.fillRect(x, 0, 1, 1); }
    const text = `${short(frame ? net.times[frame - 1] : 0)} to ${short(net.times[frame])} us`;
    stage.setAttribute("aria-label", `The network from ${text}. ${top.textContent}`);
    return text;
  }
  const play = player(key + ".t", () => current().times.length, show, "Time");
  const table = button("CSV", "Utilisation and queues of all links over time as CSV", () => {
    const net = current(), data = series(net), rows = [["until_us", "from", "to", "utilisation", "queue_bytes"]];
    net.times.forEach((time, frame) => net.links.forEach(([from, to], link) => { const at = frame * net.links.length + link; rows.push([time, net.nodes[from], net.nodes[to], (data.utilisation[at] / 255).toFixed(3), Math.round((data.queue[at] / 255) * net.queue_most)]); }));
    save(`${section.id}-network.csv`, "text/csv", csv(rows));
  });
  place.append(element("div", { class: "controls" }, point, shown, scale, scaleText, table), play.bar, framed(stage), top, note);
  point.hidden = section.networks.length < 2;
  const restore = () => { point.restore(); shown.restore(); build(); play.restore(); };
  restorers.push(restore);
  themed.push(() => stage.childElementCount && play.restore());
}
function makeTree(section) {
  const place = byId(`${section.id}-tree`);
  if (!place) return;
  const key = section.id + ".tree";
  const current = () => section.trees[+point.value];
  const point = chooser(key + ".point", "Which run", section.trees.map((tree) => tree.label), () => { setState(key + ".step", null); build(); play.restore(); });
  const stage = svgElement("svg", { class: "stage", role: "img" });
  const note = element("p", { class: "muted" });
  const list = element("ol", { class: "steps", tabindex: "0", "aria-label": "Packets of the block in the order of their arrival" });
  let arrows = [];
  const WAYS = ["a contribution", "the sum"], COLOR = [0, 5];
  function build() {
    const tree = current(), [places, height] = layout(tree.levels, 1000, 150, 34);
    stage.setAttribute("viewBox", `0 0 1000 ${height}`);
    arrows = tree.events.map(([, from, to, way]) => {
      const [x0, y0] = places[from], [x1, y1] = places[to], length = Math.hypot(x1 - x0, y1 - y0) || 1;
      const [ux, uy] = [(x1 - x0) / length, (y1 - y0) / length], [sx, sy] = [-uy * 4, ux * 4];
      const tip = [x1 - ux * 10 + sx, y1 - uy * 10 + sy], start = [x0 + ux * 9 + sx, y0 + uy * 9 + sy];
      const wing = (side) => `${(tip[0] - ux * 9 + side * uy * 4).toFixed(1)},${(tip[1] - uy * 9 - side * ux * 4).toFixed(1)}`;
      const arrow = svgElement("g", {}, svgElement("line", { x1: start[0].toFixed(1), y1: start[1].toFixed(1), x2: tip[0].toFixed(1), y2: tip[1].toFixed(1), "stroke-width": 2 }), svgElement("polygon", { points: `${tip[0].toFixed(1)},${tip[1].toFixed(1)} ${wing(1)} ${wing(-1)}` }));
      arrow.dataset.way = way;
      return arrow;
    });
    const circles = tree.levels.map((level, node) => svgElement("circle", { cx: places[node][0].toFixed(1), cy: places[node][1].toFixed(1), r: level ? 8 : tree.levels.length > 100 ? 3 : 5 }, svgElement("title", {}, tree.nodes[node])));
    const crowded = tree.levels.filter((level) => level === 0).length > 24;
    const texts = tree.levels.map((level, node) => (level === 0 && crowded ? null : svgElement("text", { x: places[node][0].toFixed(1), y: (places[node][1] + (level ? -14 : 20)).toFixed(1), "text-anchor": "middle" }, tree.nodes[node]))).filter(Boolean);
    circles.forEach((circle) => circle.setAttribute("fill", "currentColor"));
    stage.replaceChildren(...arrows, ...circles, ...texts);
    list.replaceChildren(...tree.events.map(([time, from, to, way]) => element("li", {}, `${short(time)} us: ${WAYS[way]} from ${tree.nodes[from]} to ${tree.nodes[to]}`)));
    note.textContent = tree.note;
  }
  function show(step) {
    const tree = current();
    arrows.forEach((arrow, number) => {
      const color = colorOf({ color: COLOR[arrow.dataset.way] });
      arrow.setAttribute("visibility", number < step ? "visible" : "hidden");
      arrow.setAttribute("stroke", color);
      arrow.setAttribute("fill", color);
      arrow.setAttribute("opacity", number === step - 1 ? 1 : 0.55);
    });
    [...list.children].forEach((item, number) => { if (number === step - 1) { item.setAttribute("aria-current", "step"); list.scrollTop = item.offsetTop - list.offsetTop - 60; } else item.removeAttribute("aria-current"); });
    const text = step ? list.children[step - 1].textContent : "before its first packet";
    stage.setAttribute("aria-label", `Block ${tree.block}: ${text}`);
    return `${step} of ${tree.events.length}: ${text}`;
  }
  const play = player(key + ".step", () => current().events.length + 1, show, "Packet", () => current().events.length);
  const table = button("CSV", "Packets of the block as CSV", () => { const tree = current(); save(`${section.id}-block.csv`, "text/csv", csv([["time_us", "from", "to", "what"], ...tree.events.map(([time, from, to, way]) => [time, tree.nodes[from], tree.nodes[to], way ? "sum" : "contribution"])])); });
  const keys = WAYS.map((way, number) => element("span", { class: "key" }, element("span", { class: `way way${number}`, "aria-hidden": "true" }, "\u27f6"), ` ${way}`));
  place.append(element("div", { class: "controls" }, point, table, ...keys), play.bar, framed(stage), list, note);
  point.hidden = section.trees.length < 2;
  restorers.push(() => { point.restore(); build(); play.restore(); });
  themed.push(() => stage.childElementCount && play.restore());
}
