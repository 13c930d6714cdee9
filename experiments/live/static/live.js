// SPDX-License-Identifier: Apache-2.0
// Shows what the server streams. Texts of the lab are set as text, never as HTML.
"use strict";

const SHOWN_S = 60, LEAST_S = 15, DASHES = ["", "10 5", "3 4", "14 4 3 4"];
const SIGNS = { fault: "✕", loss: "✕", repair: "✓", return: "✓" };
const STATES = { // of a rail, as the ranks report it
  up: ["● up", "good"], recovering: ["◐ on trial", "bad"], down: ["✕ down", "bad"], "": ["waiting for ranks", ""],
};
const byId = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=token]").content;
const mega = (bps) => (bps / 1e6).toFixed(bps < 9.95e6 ? 1 : 0);
let lab, parts, samples, events;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.replaceChildren(...children);
  return element;
}
const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const SVG = "http://www.w3.org/2000/svg";
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const words = (x, y, anchor, name, text = "") => svg("text", { x, y, "text-anchor": anchor, class: name }, text);
const line = (a, b, name) => svg("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: name });

async function toggle(number) {
  const order = parts.links[number].cut ? "mend" : "cut";
  try {
    const answer = await fetch(`/links/${number}/${order}`, { method: "POST", headers: { "X-Token": token } });
    if (!answer.ok) byId("status").textContent = await answer.text();
  } catch { byId("status").textContent = "no connection"; }
}

function begin(hello) {
  lab = hello;
  lab.planes.forEach((plane, i) => { plane.dash = DASHES[i % DASHES.length]; });
  lab.plane = Object.fromEntries(lab.planes.map((plane) => [plane.name, plane]));
  parts = { links: lab.links.map(() => ({})), nodes: {}, rails: {} };
  samples = [];
  events = [];
  byId("title").textContent = lab.title;
  byId("events").replaceChildren();
  byId("rails").replaceChildren(...lab.planes.map((plane) => {
    const part = { state: html("span"), rate: html("b"), share: html("span"), why: html("p", { class: "why" }) };
    parts.rails[plane.name] = part;
    const key = svg("svg", { viewBox: "0 0 60 8", width: 60, height: 8 },
      svg("line", { x1: 0, y1: 4, x2: 60, y2: 4, class: "series", "stroke-dasharray": plane.dash }));
    key.style.width = "60px";
    key.style.display = "inline-block";
    return html("div", { class: `rail ${plane.kind}` }, html("p", {}, html("b", {}, plane.name), " ", key, " ", part.state),
      html("p", {}, part.rate, " Mbit/s ", part.share), part.why);
  }));
  drawNetwork();
  listLinks();
  hello.events.forEach(happened);
}

function drawNetwork() {
  const depth = Math.max(...lab.planes.map((plane) => plane.levels.length)), first = depth > 1 ? 200 : 255;
  const height = 90 + first + 140 * (depth - 1), place = {}, width = 800 / lab.planes.length, bottom = height - 35;
  lab.hosts.forEach((host, i) => { place[host] = [(800 * (i + 0.5)) / lab.hosts.length, bottom]; });
  lab.planes.forEach((plane, p) => plane.levels.forEach((level, l) => level.forEach((name, i) => {
    place[name] = [width * p + (width * (i + 0.5)) / level.length, bottom - first - 140 * l];
  })));
  const halos = [], lines = [], hits = [], nodes = [];
  lab.links.forEach((link, number) => {
    const part = parts.links[number], plane = lab.plane[link.plane], a = place[link.lower], b = place[link.upper];
    part.halo = line(a, b, `halo ${plane.kind}`);
    part.line = line(a, b, `link ${plane.kind}`);
    part.cross = words((a[0] + b[0]) / 2, (a[1] + b[1]) / 2 + 10, "middle", "cross", "✕");
    part.hit = line(a, b, "hit");
    part.hit.append(part.hint = svg("title"));
    part.hit.addEventListener("click", () => toggle(number));
    halos.push(part.halo);
    lines.push(part.line, part.cross);
    hits.push(part.hit);
  });
  const kindOf = Object.fromEntries(lab.planes.flatMap((plane) => plane.levels.flat().map((name) => [name, plane.kind])));
  for (const [name, [x, y]] of Object.entries(place)) {
    const half = 14 + name.length * 6, kind = kindOf[name] || "";
    const shape = { x: x - half, y: y - 19, width: 2 * half, height: 38, rx: kind ? 4 : 19 };
    const part = parts.nodes[name] = { box: svg("rect", { ...shape, class: `node ${kind}` }), note: words(x, y - 28, "middle", "dim") };
    nodes.push(part.box, part.note, words(x, y + 6, "middle", "", name));
  }
  fill(byId("network"), { viewBox: `0 0 800 ${height}` }, [...halos, ...lines, ...hits, ...nodes]);
}

function listLinks() {
  const rows = new Map();
  lab.links.forEach((link, number) => {
    const part = parts.links[number];
    part.button = html("button", { "data-link": number });
    part.button.addEventListener("click", () => toggle(number));
    part.load = html("span");
    if (!rows.has(link.lower)) rows.set(link.lower, {});
    (rows.get(link.lower)[link.plane] ??= []).push(html("div", {}, part.button, " ", part.load));
  });
  const head = html("tr", {}, html("th"), ...lab.planes.map((plane) => html("th", {}, plane.name)));
  byId("links").replaceChildren(head, ...[...rows].map(([name, cells]) =>
    html("tr", {}, html("th", {}, name), ...lab.planes.map((plane) => html("td", {}, ...(cells[plane.name] || []))))));
}

function update(state) {
  samples.push(state);
  while (samples[0].t < state.t - SHOWN_S) samples.shift();
  state.events.forEach(happened);
  byId("status").textContent = `live · ${state.ranks} of ${lab.hosts.length} ranks report · ${state.t.toFixed(0)} s`;
  showRails(state);
  showLinks(state);
  showSlots(state);
  drawChart(state.t);
}

function showRails(state) {
  const bar = [];
  for (const [name, rail] of Object.entries(state.rails)) {
    const part = parts.rails[name], [text, look] = STATES[rail.state];
    fill(part.state, { class: look }, [text]);
    part.rate.textContent = mega(rail.bps);
    part.share.textContent = rail.share === null ? "" : `· ${Math.round(100 * rail.share)} %`;
    part.why.textContent = rail.reason || (rail.failures ? `excluded so far: ${rail.failures}` : "");
    if (rail.share) {
      bar.push(html("div", { class: lab.plane[name].kind }, `${name} ${Math.round(100 * rail.share)} %`));
      bar.at(-1).style.width = `${100 * rail.share}%`;
    }
  }
  if (bar.length) byId("split").replaceChildren(...bar);
}

function showLinks(state) {
  const cut = new Set(state.cut);
  lab.links.forEach((link, number) => {
    const part = parts.links[number], [up, down] = state.links[number], most = link.rate_bps || Math.max(1e8, up, down);
    part.cut = cut.has(number);
    part.line.style.strokeWidth = part.cut ? 2 : 1.5 + (10 * Math.min(Math.max(up, down), most)) / most;
    part.line.classList.toggle("cut", part.cut);
    part.cross.style.display = part.cut ? "" : "none";
    const inTree = state.trees.some((tree) => tree.plane === link.plane && tree.switches.includes(link.upper) &&
      (lab.hosts.includes(link.lower) || tree.switches.includes(link.lower)));
    part.halo.style.display = inTree ? "" : "none";
    const label = part.cut ? "Mend" : "Cut", text = `↑${mega(up)} ↓${mega(down)}`;
    if (part.button.textContent !== label) {
      fill(part.button, { class: part.cut ? "cut" : "", "aria-label": `${label} ${link.lower} ${link.upper}` }, [label]);
    }
    part.load.textContent = text;
    part.hint.textContent = `${label} ${link.lower} – ${link.upper} (Mbit/s ${text})`;
  });
  for (const [name, node] of Object.entries(parts.nodes)) {
    const root = state.trees.some((tree) => tree.root === name);
    node.box.classList.toggle("root", root);
    node.note.textContent = root ? "root of tree" : "";
  }
}

function showSlots(state) {
  const rows = Object.entries(state.switches).flatMap(([name, { slots, used, problem }]) => {
    const trees = state.trees.filter((tree) => tree.switches.includes(name));
    const flying = trees.reduce((sum, tree) => sum + tree.in_flight, 0);
    const bar = html("div", { class: "bar ina" }, html("div"), html("div", { class: "allocated" }));
    bar.children[0].style.width = `${(100 * flying) / (slots || 1)}%`;
    bar.children[1].style.width = `${(100 * Math.max(used - flying, 0)) / (slots || 1)}%`;
    const moves = trees.reduce((sum, tree) => sum + tree.moves, 0);
    const counts = `${flying} in flight, ${used} of ${slots} allocated` + (moves ? `, moves of trees: ${moves}` : "");
    return [html("p", {}, `${name}: ${problem ? "does not answer" : counts}`), bar];
  });
  byId("slots").replaceChildren(...rows);
}

function happened(event) {
  if (events.length && event.n <= events.at(-1).n) return;
  events.push(event);
  const look = event.kind === "fault" || event.kind === "loss" ? "bad" : "good";
  const sign = html("span", { class: look }, `${SIGNS[event.kind]} `);
  byId("events").prepend(html("li", {}, html("time", {}, `${event.t.toFixed(1)} s `), sign, event.text));
}

function drawChart(now) {
  const left = 50, right = 735, top = 34, bottom = 310, span = Math.min(SHOWN_S, Math.max(LEAST_S, now));
  const rates = [...new Set(lab.planes.map((plane) => plane.rate_bps).filter(Boolean))];
  const seen = samples.flatMap((state) => Object.values(state.rails).map((rail) => rail.bps));
  const most = Math.max(1e6, ...rates, ...seen) * 1.05;
  const x = (t) => right - ((now - t) * (right - left)) / span, y = (bps) => bottom - (bps * (bottom - top)) / most;
  const drawn = [line([left, bottom], [right, bottom], "axis"), words(left - 6, bottom + 5, "end", "dim", "0"),
    words(left, bottom + 24, "start", "dim", `${span.toFixed(0)} s ago`), words(right, bottom + 24, "end", "dim", "now")];
  for (const rate of rates) {
    drawn.push(line([left, y(rate)], [right, y(rate)], "limit"), words(left - 6, y(rate) + 5, "end", "dim", mega(rate)));
  }
  if (rates.length) drawn.push(words(left + 6, y(Math.max(...rates)) - 4, "start", "dim", "rate of the links"));
  for (const event of events.filter((each) => each.t > now - span)) {
    const done = event.kind === "fault" || event.kind === "repair"; // below; above is what the job makes of it
    drawn.push(line([x(event.t), top], [x(event.t), bottom], done ? "mark" : "mark seen"),
      words(x(event.t), done ? bottom + 22 : top - 8, "middle", "", SIGNS[event.kind]));
  }
  const labels = [];
  for (const plane of lab.planes) {
    const points = samples.map((state) => `${x(state.t).toFixed(1)},${y(state.rails[plane.name].bps).toFixed(1)}`).join(" ");
    drawn.push(svg("polyline", { points, class: `series ${plane.kind}`, "stroke-dasharray": plane.dash }));
    labels.push([y(samples.at(-1).rails[plane.name].bps), plane.name]);
  }
  let last = -Infinity;
  for (const [at, name] of labels.sort((a, b) => a[0] - b[0])) {
    last = Math.max(at, last + 21);
    drawn.push(words(right + 8, last + 6, "start", "", name));
  }
  fill(byId("chart"), { viewBox: "0 0 800 345" }, drawn);
}

const stream = new EventSource("/events");
stream.addEventListener("hello", (message) => begin(JSON.parse(message.data)));
stream.addEventListener("state", (message) => update(JSON.parse(message.data)));
stream.addEventListener("end", () => { stream.close(); byId("status").textContent = "the run has ended"; });
stream.addEventListener("error", () => { byId("status").textContent = "no connection"; });
