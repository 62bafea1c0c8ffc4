"use strict";
// Figures and maps stand in #data as JSON; Plotly in #plotly, packed.  Names are set as text, never as HTML.
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const narrow = () => window.innerWidth < 640;
  const buttons = [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]];
  const config = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtons: buttons };

  // Light or dark: the reader's system decides, until the button does.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const schemes = ["auto", "light", "dark"];
  let chosen = "auto";
  const button = document.getElementById("theme");
  function applyScheme() {
    root.dataset.scheme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
    button.textContent = `colours: ${chosen}`;
      }
  applyScheme();

  // "var(--c1)" -> the colour that the style sheet has for it now
  function painted(value, style) {
    if (typeof value === "string") {
      const name = /^var\((--\w+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return typeof value[0] === "number" ? value.slice() : value.map((v) => painted(v, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, painted(v, style)]));
  }

  const drawn = new Set();
  function draw(div) {
    const figure = painted(div.classList.contains("map") ? mapFigure(div) : data.figures[div.dataset.figure], getComputedStyle(root));
    if (narrow()) figure.layout.font.size = 11;
    const done = Plotly.react(div, figure.data, figure.layout, config);
    if (!drawn.has(div)) {
      drawn.add(div);
      if (div.classList.contains("map")) listen(div);
      div.addEventListener("keydown", (event) => (div.classList.contains("map") ? walkMap : walk)(event, div));
    }
    div.dataset.drawn = String(Number(div.dataset.drawn || 0) + 1);
    return done;
  }
  const redraw = () => drawn.forEach(draw);

  // Arrow keys on a chart: left and right along a trace, up and down from trace to trace.
  function walk(event, div) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const traces = div.data.map((t, i) => i).filter((i) => div.data[i].type === "scatter" && div.data[i].visible !== "legendonly");
    if (!step || !traces.length) return;
    event.preventDefault();
    const at = div.at || [0, -1];
    const trace = (at[0] + step[0] + traces.length) % traces.length;
    const count = div.data[traces[trace]].x.length;
    div.at = [trace, Math.max(0, Math.min(count - 1, at[1] + step[1]))];
    Plotly.Fx.hover(div, [{ curveNumber: traces[trace], pointNumber: div.at[1] }]);
  }

  // Maps
  const plane = document.getElementById("plane");
  const group = document.getElementById("group");
  const tip = document.getElementById("tip");
  const picked = new Map(); // sheet -> image

  function variant(map) {
    const keys = Object.keys(map.variants);
    const wanted = `${plane.value}/${group.value}`;
    return map.variants[wanted] || map.variants[keys.find((key) => key.startsWith(`${plane.value}/`)) || keys[0]];
  }

  function places(figure) {
    const found = new Map();
    for (const trace of figure.data) trace.customdata.forEach((index, k) => found.set(index, [trace.x[k], trace.y[k]]));
    return found;
  }

  function mapFigure(div) {
    const map = data.maps[div.dataset.map];
    const figure = variant(map);
    const index = picked.get(map.sheet);
    if (index === undefined) return figure;
    const at = places(figure);
    const ring = (indices, size, width) => ({
      type: figure.data[0].type, mode: "markers", hoverinfo: "skip", showlegend: false,
      x: indices.map((i) => at.get(i)[0]), y: indices.map((i) => at.get(i)[1]),
      marker: { size, symbol: "circle-open", color: "var(--ink)", line: { width, color: "var(--ink)" } },
    });
    return { data: [...figure.data, ring(map.neighbours[index], 13, 1.5), ring([index], 18, 3)], layout: figure.layout };
  }

  function words(sheet, index) {
    const lines = Object.entries(sheet.groups).map(([what, { of, names }]) => `${what} ${names[of[index]]}`);
    if (sheet.files) lines.push(sheet.files[index]);
    return lines.length ? lines : [`image ${index}`];
  }

  function paint(canvas, sheet, index) {
    const { side, columns } = sheet;
    canvas.width = canvas.height = side;
    canvas.getContext("2d").drawImage(
      document.getElementById(sheet.id), (index % columns) * side, Math.floor(index / columns) * side, side, side, 0, 0, side, side);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words(sheet, index).join(", "));
  }

  function listen(div) {
    const sheet = data.sheets[data.maps[div.dataset.map].sheet];
    div.on("plotly_hover", ({ points, event }) => {
      const index = points[0].customdata;
      if (typeof index !== "number" || !event) return;
      paint(tip.querySelector("canvas"), sheet, index);
      tip.querySelector("span").textContent = words(sheet, index).join("\n");
      tip.hidden = false;
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = `${Math.min(event.clientX + 16, window.innerWidth - width - 4)}px`;
      tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, window.innerHeight - height - 4))}px`;
    });
    div.on("plotly_unhover", () => { tip.hidden = true; });
    div.on("plotly_click", ({ points }) => {
      if (typeof points[0].customdata === "number") pick(data.maps[div.dataset.map].sheet, points[0].customdata);
    });
  }

  function walkMap(event, div) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const { sheet, neighbours } = data.maps[div.dataset.map];
    const count = neighbours.length;
    pick(sheet, ((picked.has(sheet) ? picked.get(sheet) + step : 0) + count) % count);
  }

  // An image was chosen: its neighbours in every run that was shown the same images.
  function pick(number, index) {
    picked.set(number, index);
    document.querySelectorAll(".map").forEach((div) => {
      const map = data.maps[div.dataset.map];
      if (map.sheet !== number) return;
      showNeighbours(document.querySelector(`[data-picked="${div.dataset.map}"]`), map, number, index);
      if (drawn.has(div)) draw(div);
    });
  }

  function showNeighbours(box, map, number, index) {
    const sheet = data.sheets[number];
    const title = document.createElement("p");
    const kind = sheet.groups.class;
    const same = kind && map.neighbours[index].filter((i) => kind.of[i] === kind.of[index]).length;
    title.textContent = `Nearest neighbours of ${words(sheet, index).join(", ")}` +
      (kind ? `: ${same} of ${map.neighbours[index].length} of its class` : "");
    const list = document.createElement("ul");
    list.className = "tiles";
    [index, ...map.neighbours[index]].forEach((i, k) => {
      const item = document.createElement("li");
      item.className = k === 0 ? "own" : kind && kind.of[i] !== kind.of[index] ? "other" : "same";
      const tile = document.createElement("button");
      tile.type = "button";
      tile.dataset.index = i;
      tile.setAttribute("aria-label", `Show the neighbours of ${words(sheet, i).join(", ")}`);
      tile.addEventListener("click", () => { pick(number, i); box.querySelector("button").focus(); });
      const canvas = document.createElement("canvas");
      paint(canvas, sheet, i);
      tile.append(canvas);
      const label = document.createElement("span");
      label.textContent = words(sheet, i)[0];
      item.append(tile, label);
      list.append(item);
    });
    box.replaceChildren(title, list);
  }

  async function unpack() {
    const bytes = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    document.getElementById("plotly").remove();
  }

  async function start() {
    await unpack();
    await Promise.all([...document.querySelectorAll("img")].map((img) => img.decode()));
    // A chart is drawn when it comes near the screen: a long page opens at once.
    const watcher = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting && !drawn.has(target)) { draw(target); watcher.unobserve(target); }
      }
    }, { rootMargin: "600px" });
    document.querySelectorAll(".chart").forEach((div) => watcher.observe(div));
    for (const select of [plane, group]) select?.addEventListener("change", () => document.querySelectorAll(".map").forEach((div) => drawn.has(div) && draw(div)));
    button.addEventListener("click", () => { chosen = schemes[(schemes.indexOf(chosen) + 1) % 3]; applyScheme(); redraw(); });
    dark.addEventListener("change", () => { applyScheme(); redraw(); });
    window.addEventListener("beforeprint", () => document.querySelectorAll(".chart").forEach((div) => drawn.has(div) || draw(div)));
    root.dataset.ready = "true";
  }

  start().catch((error) => {
    const place = document.getElementById("failed");
    place.textContent = `The charts could not be drawn: ${error.message}. The tables stand. A browser from 2023 or later is needed.`;
    place.hidden = false;
    root.dataset.ready = "failed";
  });
})();
