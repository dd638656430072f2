"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const inUnits = data.time_unit === "unit";

// ---- Text.

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
function bytes(n) {
  if (n < 0) return `−${bytes(-n)}`;
  if (n < 1024) return `${n} B`;
  const names = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 1024, name = 0;
  while (name + 1 < names.length && n >= unit * 1024 - unit / 200) { unit *= 1024; name++; }
  return `${(n / unit).toFixed(2)} ${names[name]}`;
}
function time(n) {
  if (inUnits) return String(n);
  if (n < 1000) return `${n} ns`;
  const names = ["µs", "ms", "s"];
  let value = n / 1000, name = 0;
  while (value >= 1000 && name + 1 < names.length) { value /= 1000; name++; }
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${names[name]}`;
}
function percent(part, whole) {
  const share = whole > 0 ? 100 * part / whole : 0;
  return `${share > 0 && share < 0.95 ? share.toFixed(2) : share.toFixed(1)}\u00a0%`;
}
const unbroken = (text) => text.replaceAll(" ", "\u00a0");
const counted = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
const moduleName = (name) => name === "" ? "(the model itself)" : name;
// A number of the data, shown; `data-value` is the number itself.
const value = (key, n, text) => `<span data-key="${key}" data-value="${n}">${text}</span>`;

const ops = data.ops;
const opModule = (op) => data.modules[ops.module[op]];
const opKind = (op) => data.kinds[ops.kind[op]];
function opText(op) {
  const kind = opKind(op), module = opModule(op);
  if (module === kind || ops.phase[op] === 1) return `<span class="name">${escaped(kind)}</span>`;
  return `<span class="name">${escaped(moduleName(module))}</span> <span class="kind">${escaped(kind)}</span>`;
}

// ---- Search: one text for the whole page.

let wanted = "";
const matches = (text) => text.toLowerCase().includes(wanted);
const opMatches = (op) => matches(`${opModule(op)} ${opKind(op)}`);
const onSearch = [];

// ---- The lead.

const plain = data.plain, planned = data.planned;
const waits = () => (planned.host_peak_bytes > 0 ? `, and ${time(planned.wait_ns)} of waiting for copies` : "") +
  (planned.exposed_ns > 0 ? `, and ${time(planned.exposed_ns)} of waiting for communicators` : "");
function lead() {
  const budget = data.budget_bytes;
  at("title").textContent = budget === null ? `${data.name || "A training step"}, planned`
    : `${data.name || "A training step"} inside ${bytes(budget)}`;
  document.title = `${at("title").textContent} · Reprise`;
  const less = plain.peak_bytes - planned.peak_bytes;
  at("summary").innerHTML = less > 0
    ? `The peak falls from ${unbroken(bytes(plain.peak_bytes))} to <b>${unbroken(bytes(planned.peak_bytes))}</b>, ${percent(less, plain.peak_bytes)}
       less, for <b>${percent(planned.time_ns - plain.time_ns, plain.time_ns)}</b> more time: ${counted(
         data.recomputed.runs.reduce((a, b) => a + b, 0), "run", "runs")} of operators more than before${waits()}.`
    : "The step fits as it is: nothing is computed again.";
  const tiles = [];
  const tile = (name, big, note) => tiles.push(`<div><dt>${name}</dt><dd class="big">${big}</dd><dd class="note">${note}</dd></div>`);
  tile("Peak, planned", value("planned.peak_bytes", planned.peak_bytes, bytes(planned.peak_bytes)),
    `plain ${value("plain.peak_bytes", plain.peak_bytes, bytes(plain.peak_bytes))}`);
  if (budget !== null) {
    const room = budget - planned.peak_bytes;
    tile("Budget", value("budget_bytes", budget, bytes(budget)),
      room >= 0 ? `${bytes(room)} left` : `<span class="over">exceeded by ${bytes(-room)}</span>`);
  }
  if (data.measured_peak_bytes !== null) {
    const apart = data.measured_peak_bytes - planned.peak_bytes;
    tile("Peak, measured", value("measured_peak_bytes", data.measured_peak_bytes, bytes(data.measured_peak_bytes)),
      apart === 0 ? "as predicted, to the byte" : `${bytes(Math.abs(apart))} ${apart < 0 ? "below" : "above"} the prediction`);
  }
  tile("Time of a step", value("planned.time_ns", planned.time_ns, time(planned.time_ns)),
    `plain ${value("plain.time_ns", plain.time_ns, time(plain.time_ns))}, +${percent(planned.time_ns - plain.time_ns, plain.time_ns)}`);
  if (planned.host_peak_bytes > 0) {
    tile("In the host's memory", value("planned.host_peak_bytes", planned.host_peak_bytes, bytes(planned.host_peak_bytes)),
      `the device waits ${value("planned.wait_ns", planned.wait_ns, time(planned.wait_ns))} for copies`);
  }
  if (planned.exposed_ns !== undefined) {
    tile("Communication exposed", value("planned.exposed_ns", planned.exposed_ns, time(planned.exposed_ns)),
      `plain ${value("plain.exposed_ns", plain.exposed_ns, time(plain.exposed_ns))}`);
  }
  tile("Kept for backward", value("planned.kept_bytes", planned.kept_bytes, bytes(planned.kept_bytes)),
    `plain ${value("plain.kept_bytes", plain.kept_bytes, bytes(plain.kept_bytes))}`);
  if (data.lower_bound_ns !== null) {
    const gap = Math.max(0, planned.time_ns - data.lower_bound_ns);
    tile("From the proven bound", percent(gap, plain.time_ns),
      `no plan below ${value("lower_bound_ns", data.lower_bound_ns, time(data.lower_bound_ns))} at this peak, in this order of backward`);
  }
  at("tiles").innerHTML = tiles.join("");
  const facts = Object.entries(data.facts).map(([name, text]) => `${name}: ${text}`);
  facts.unshift(counted(ops.time_ns.length, "operator", "operators"), `planner ${data.planner || "unknown"}`);
  if (data.outside_bytes > 0) facts.push(`${bytes(data.outside_bytes)} beside the step`);
  at("facts").textContent = facts.join(" · ");
}

// ---- Scales.

// Round in one unit, with their texts.
function byteTicks(low, high, count) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 1, name = 0;
  while (name + 1 < names.length && high >= unit * 1024) { unit *= 1024; name++; }
  return plainTicks(low / unit, high / unit, count).map((n) => ({ bytes: n * unit, text: `${Number(n.toFixed(3))} ${names[name]}` }));
}
function plainTicks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) || power;
  const ticks = [];
  for (let x = Math.ceil(low / step) * step; x <= high; x += step) ticks.push(x);
  return ticks;
}

// A tick of a horizontal axis. Its text keeps inside the picture, which ends at `end`.
function tickBelow(x, y, down, end, text) {
  return `<path d="M${x} ${y}v4" stroke="var(--muted)"/>
    <text x="${Math.min(x, end - 2 - 3.6 * text.length)}" y="${y + down}" text-anchor="middle">${text}</text>`;
}

// ---- Memory over the step.

// A start takes no time of the device; its communicator works beside it.
const onCommunicator = (op) => ops.stream !== undefined && ops.stream[op] > 0;
const deviceTime = (op) => onCommunicator(op) ? 0 : ops.time_ns[op];

// Begin and end of every run. Runs of no time (effects) have both at one place.
function clocked(runs) {
  const begin = new Float64Array(runs.op.length), end = new Float64Array(runs.op.length);
  let now = 0;
  runs.op.forEach((op, i) => {  // the device may wait before a run
    begin[i] = runs.begin_ns === undefined ? now : runs.begin_ns[i];
    end[i] = now = begin[i] + deviceTime(op);
  });
  return { ...runs, begin, end, total: now };
}
const steps = { plain: clocked(data.plain_runs), planned: clocked(data.planned_runs) };
const hasMeasured = data.planned_runs.measured_during_bytes !== undefined;
const turn = (runs) => {  // where the caller has the program
  const i = runs.op.findIndex((op) => ops.phase[op] === 1);
  return i < 0 ? null : runs.begin[i];
};

function firstAfter(ends, x) {  // the first run that ends at x or later
  let low = 0, high = ends.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] < x) low = middle + 1; else high = middle;
  }
  return low;
}

// A line through all runs in sight; of those that share a pixel, the highest and the lowest.
function linePath(runs, during, after, x, y, from, to) {
  const parts = [];
  let column = null;
  const flush = () => {
    if (column === null) return;
    const { px, first, high, low, last } = column;
    parts.push(`${px} ${first}`);
    if (high < first) parts.push(`${px} ${high}`);
    if (low > high && low > last) parts.push(`${px} ${low}`);
    parts.push(`${px} ${last}`);
  };
  const add = (px, py) => {
    px = Math.round(px * 2) / 2; py = Math.round(py * 10) / 10;
    if (column !== null && column.px === px) {
      column.high = Math.min(column.high, py); column.low = Math.max(column.low, py); column.last = py;
      return;
    }
    flush();
    column = { px, first: py, high: py, low: py, last: py };
  };
  const start = Math.max(0, firstAfter(runs.end, from) - 1);
  for (let i = start; i < runs.op.length && runs.begin[i] <= to; i++) {
    add(x(runs.begin[i]), y(during[i]));
    add(x(runs.end[i]), y(during[i]));
    add(x(runs.end[i]), y(after[i]));
  }
  flush();
  return parts.length ? `M${parts.join("L")}` : "";
}

const curves = [
  { key: "plain", name: "plain", on: true, color: "var(--plain)", fill: "var(--plain-fill)" },
  { key: "planned", name: hasMeasured ? "planned, predicted" : "planned", on: true, color: "var(--planned)", fill: "var(--planned-fill)" },
  ...(hasMeasured ? [{ key: "measured", name: "planned, measured", on: true, color: "var(--measured)", dash: "0 5" }] : []),
];

const memory = (() => {
  const host = at("chart");
  const whole = Math.max(steps.plain.total, steps.planned.total) || 1;
  let from = 0, to = whole, cursor = data.at_peak.run ?? 0, geometry = null, drag = null;
  const runs = steps.planned;

  const top = () => Math.max(plain.peak_bytes, planned.peak_bytes, data.budget_bytes ?? 0, data.measured_peak_bytes ?? 0) * 1.06;

  function strip(x, width, y0) {  // what runs when, and what was found by the search
    const kinds = [["forward", "var(--forward)"], ["backward", "var(--backward)"], ["again", "var(--again)"], ["hit", "var(--hit)"]];
    const lanes = { forward: [], backward: [], again: [], hit: [] };
    const put = (lane, a, b) => {
      const last = lane[lane.length - 1];
      if (last && a <= last[1] + 0.4) last[1] = Math.max(last[1], b); else lane.push([a, b]);
    };
    for (let i = Math.max(0, firstAfter(runs.end, from) - 1); i < runs.op.length && runs.begin[i] <= to; i++) {
      const op = runs.op[i], a = x(runs.begin[i]), b = Math.max(x(runs.end[i]), a + 0.5);
      const lane = runs.again[i] ? "again" : ops.phase[op] === 2 ? "backward" : "forward";
      if (deviceTime(op) > 0) put(lanes[lane], a, b);
      if (wanted && opMatches(op)) put(lanes.hit, a, Math.max(b, a + 1.5));
    }
    return kinds.map(([lane, color], row) => {
      const y = lane === "hit" ? y0 - 4 : lane === "again" ? y0 + 9 : y0, height = lane === "hit" ? 3 : 7;
      const d = lanes[lane].map(([a, b]) => `M${Math.max(a, 0).toFixed(1)} ${y}H${Math.min(b, width).toFixed(1)}v${height}H${Math.max(a, 0).toFixed(1)}z`).join("");
      return d ? `<path d="${d}" fill="${color}" data-lane="${lane}" data-row="${row}"/>` : "";
    }).join("");
  }

  function draw() {
    const full = host.clientWidth || 800, height = full < 520 ? 320 : 400;
    const left = full < 520 ? 58 : 74, right = 14, above = 18, below = 62;
    const width = full - left - right, high = height - above - below, most = top();
    const x = (t) => (t - from) / (to - from) * width, y = (b) => high - b / most * high;
    geometry = { left, width, x, y, above, high, invert: (px) => from + (px - left) / width * (to - from) };
    const grid = byteTicks(0, most, 6).map((tick) => `<path d="M0 ${y(tick.bytes)}H${width}" stroke="var(--grid)"/>
      <text x="-8" y="${y(tick.bytes) + 4}" text-anchor="end">${tick.text}</text>`).join("");
    const dates = plainTicks(from, to, full < 520 ? 3 : 7).map((t) => tickBelow(x(t), high, 52, width + right, inUnits ? String(t) : time(Math.round(t)))).join("");
    const lines = curves.filter((curve) => curve.on).map((curve) => {
      const step = curve.key === "plain" ? steps.plain : steps.planned, measured = curve.key === "measured";
      const d = linePath(step, measured ? step.measured_during_bytes : step.during_bytes,
        measured ? step.measured_after_bytes : step.after_bytes, x, y, from, to);
      if (!d) return "";
      const start = d.slice(1, d.indexOf(" ")), end = d.slice(d.lastIndexOf("L") + 1).split(" ")[0];
      return (curve.fill ? `<path d="${d}L${end} ${high}L${start} ${high}z" fill="${curve.fill}"/>` : "") +
        `<path d="${d}" fill="none" stroke="${curve.color}" stroke-width="${measured ? 2.2 : curve.key === "planned" ? 1.8 : 1.4}" stroke-linejoin="round"
          ${curve.dash ? `stroke-dasharray="${curve.dash}" stroke-linecap="round"` : ""} data-curve="${curve.key}"/>`;
    }).join("");
    const turnAt = turn(runs);
    const parted = turnAt !== null && turnAt > from && turnAt < to
      ? `<path d="M${x(turnAt)} 0V${high + 20}" stroke="var(--muted)" stroke-dasharray="2 4"/>
         <text x="${x(turnAt) - 8}" y="10" text-anchor="end">forward</text><text x="${x(turnAt) + 8}" y="10">backward</text>` : "";
    const budget = data.budget_bytes === null ? "" : `<path d="M0 ${y(data.budget_bytes)}H${width}" stroke="var(--budget)" stroke-width="1.4" stroke-dasharray="7 4" data-budget="${data.budget_bytes}"/>
      <text x="${width - 4}" y="${y(data.budget_bytes) - 5}" text-anchor="end" class="halo" style="fill:var(--budget)">budget ${bytes(data.budget_bytes)}</text>`;
    const resident = `<path d="M0 ${y(data.resident_bytes)}H${width}V${high}H0z" fill="var(--resident)" opacity="0.75" data-resident="${data.resident_bytes}"/>
      ${high - y(data.resident_bytes) > 15 ? `<text x="6" y="${high - 5}" class="strong">resident ${bytes(data.resident_bytes)}</text>` : ""}`;
    host.innerHTML = `<svg height="${height}" viewBox="0 0 ${full} ${height}" aria-hidden="true">
      <defs><clipPath id="clip"><rect width="${width}" height="${high + 40}" y="-14"/></clipPath></defs>
      <g transform="translate(${left} ${above})">${grid}<g clip-path="url(#clip)">${resident}${lines}
      ${strip(x, width, high + 6)}</g>${budget}${parted}<path d="M0 ${high}H${width}" stroke="var(--muted)"/>${dates}
      ${peakMark(x, y)}<g id="cursor"></g></g></svg>`;
    showCursor(false);
  }

  function peakMark(x, y) {
    const i = data.at_peak.run;
    if (i === null || runs.end[i] < from || runs.begin[i] > to) return "";
    const px = x((runs.begin[i] + runs.end[i]) / 2), py = y(planned.peak_bytes);
    return `<circle cx="${px}" cy="${py}" r="4" fill="var(--card)" stroke="var(--planned)" stroke-width="2"/>`;
  }

  function about(i) {
    const op = runs.op[i];
    const what = runs.again[i] ? "computed again" : ["forward", "between forward and backward", "backward"][ops.phase[op]];
    const measured = hasMeasured ? `, measured ${bytes(runs.measured_during_bytes[i])}` : "";
    return `<b>${opText(op)}</b> <span class="muted">${what} · run ${i + 1} of ${runs.op.length}</span><br>
      ${bytes(runs.during_bytes[i])} while it runs${measured}, ${bytes(runs.after_bytes[i])} after · ${time(ops.time_ns[op])}`;
  }

  function showCursor(speak) {
    const { x, y, high } = geometry, t = (runs.begin[cursor] + runs.end[cursor]) / 2;
    const shown = t >= from && t <= to;
    const mark = host.querySelector("#cursor");
    mark.innerHTML = shown ? `<path d="M${x(t)} 0V${high + 20}" stroke="var(--ink)" opacity="0.35"/>
      <circle cx="${x(t)}" cy="${y(runs.during_bytes[cursor])}" r="3.5" fill="var(--planned)"/>` : "";
    if (speak) at("readout").innerHTML = about(cursor);
    at("readout").dataset.run = cursor;
  }

  function zoom(factor, around) {
    const middle = around ?? (from + to) / 2, span = Math.min(whole, Math.max(whole / 5000, (to - from) * factor));
    show(middle - (middle - from) / (to - from) * span, span);
  }
  function show(begin, span) {
    from = Math.max(0, Math.min(begin, whole - span)); to = from + span;
    draw();
  }
  function move(i) {
    cursor = Math.max(0, Math.min(runs.op.length - 1, i));
    const t = (runs.begin[cursor] + runs.end[cursor]) / 2;
    if (t < from || t > to) show(t - (to - from) / 2, to - from);
    showCursor(true);
  }
  let hit = -1;  // the run that the search is at
  onSearch.push(() => { hit = -1; });
  function toHit(forward) {
    const hits = [...runs.op.keys()].filter((i) => opMatches(runs.op[i]));
    if (!wanted || hits.length === 0) return;
    const next = forward ? hits.findIndex((i) => i > hit) : hits.findLastIndex((i) => i < hit);
    const place = next >= 0 ? next : forward ? 0 : hits.length - 1;
    hit = hits[place];
    move(hit);
    at("found").textContent = `${(place + 1).toLocaleString("en")} of ${counted(hits.length, "run", "runs")}`;
    host.scrollIntoView({ block: "nearest" });
  }
  const toPeak = () => { if (data.at_peak.run !== null) move(data.at_peak.run); };
  const nearest = (event) => firstAfter(runs.end, geometry.invert(event.clientX - host.getBoundingClientRect().left));

  host.addEventListener("pointermove", (event) => {
    if (runs.op.length === 0) return;
    if (drag !== null) { drag.to = event.clientX; dragMark(); return; }
    cursor = nearest(event);
    showCursor(true);
    tip(event, about(cursor));
  });
  host.addEventListener("pointerleave", () => tip(null));
  host.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) drag = { from: event.clientX, to: event.clientX };
  });
  window.addEventListener("pointerup", () => {
    if (drag === null) return;
    const box = host.getBoundingClientRect(), [a, b] = [drag.from, drag.to].sort((p, q) => p - q).map((px) => geometry.invert(px - box.left));
    const far = Math.abs(drag.from - drag.to) > 8;
    drag = null;
    if (far) show(Math.max(0, a), Math.max(whole / 5000, Math.min(whole, b) - Math.max(0, a))); else draw();
  });
  function dragMark() {
    const box = host.getBoundingClientRect(), a = Math.min(drag.from, drag.to) - box.left - geometry.left;
    host.querySelector("#cursor").innerHTML = `<rect x="${a}" y="0" width="${Math.abs(drag.to - drag.from)}" height="${geometry.high}" fill="var(--planned)" opacity="0.15"/>`;
  }
  host.addEventListener("dblclick", () => show(0, whole));
  host.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, geometry.invert(event.clientX - host.getBoundingClientRect().left));
  }, { passive: false });
  host.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 20 : 1, here = (runs.begin[cursor] + runs.end[cursor]) / 2;
    const keys = {
      ArrowRight: () => move(cursor + far), ArrowLeft: () => move(cursor - far),
      PageDown: () => move(cursor + 100), PageUp: () => move(cursor - 100),
      Home: () => move(0), End: () => move(runs.op.length - 1), p: toPeak, P: toPeak,
      "+": () => zoom(0.5, here), "=": () => zoom(0.5, here), "-": () => zoom(2, here), 0: () => show(0, whole),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || keys[event.key] === undefined || runs.op.length === 0) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    const kind = button.dataset.zoom;
    if (kind === "in") zoom(0.5); else if (kind === "out") zoom(2); else if (kind === "all") show(0, whole);
    else { const t = (runs.begin[data.at_peak.run] + runs.end[data.at_peak.run]) / 2; show(t - whole / 20, whole / 10); toPeak(); }
  }));
  at("legend").innerHTML = curves.map((curve, i) => `<button type="button" aria-pressed="true" data-curve-button="${i}">
    <svg aria-hidden="true"><path d="M1 5H17" stroke="${curve.color}" stroke-width="2.4" ${curve.dash ? `stroke-dasharray="0 5" stroke-linecap="round"` : ""}/></svg>${curve.name}</button>`).join("") +
    `<span class="muted small" style="align-self:center;margin-left:6px">below the axis: <span style="color:var(--forward)">■</span> forward
    <span style="color:var(--backward)">■</span> backward <span style="color:var(--again)">■</span> computed again ·
    <span style="color:var(--resident)">■</span> resident ${value("resident_bytes", data.resident_bytes, bytes(data.resident_bytes))}</span>`;
  at("legend").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button === null) return;
    const curve = curves[button.dataset.curveButton];
    curve.on = !curve.on;
    button.setAttribute("aria-pressed", curve.on);
    draw();
  });
  onSearch.push(draw);
  return { draw, toPeak, toHit, show: () => ({ from, to, cursor }) };
})();

function tip(event, html) {
  const box = at("tip");
  box.hidden = event === null;
  if (event === null) return;
  box.innerHTML = html;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  box.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
}

// ---- Tables.

const PAGE = 14;
// columns: {name, cell(row) -> html, sort?(row) -> number or text, wide?}
function table(host, columns, getRows, keyOf, empty) {
  let shown = PAGE, by = null, down = true;
  function draw() {
    let rows = getRows();
    if (by !== null) {
      const key = columns[by].sort, sign = down ? -1 : 1;
      rows = [...rows].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * sign);
    }
    if (rows.length === 0) { host.innerHTML = `<p class="none">${wanted ? `Nothing here matches “${escaped(wanted)}”.` : empty}</p>`; return; }
    const head = columns.map((c, i) => `<th${c.wide ? ' class="wide"' : ""}${by === i ? ` aria-sort="${down ? "descending" : "ascending"}"` : ""}>` +
      (c.sort ? `<button type="button" data-sort="${i}">${c.name}</button>` : c.name) + "</th>").join("");
    const body = rows.slice(0, shown).map((row) => `<tr data-row="${escaped(keyOf(row))}">${columns.map((c) =>
      `<td class="${c.wide ? "wide " : ""}${c.kind || ""}">${c.cell(row)}</td>`).join("")}</tr>`).join("");
    const more = rows.length > shown ? `<div class="more"><button type="button" data-more>Show all ${rows.length.toLocaleString("en")}</button></div>` : "";
    host.innerHTML = `<table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>${more}`;
  }
  host.addEventListener("click", (event) => {
    const sort = event.target.closest("[data-sort]");
    if (event.target.closest("[data-more]")) { shown = Infinity; draw(); host.querySelector("th button")?.focus(); }
    if (sort === null) return;
    const column = Number(sort.dataset.sort);
    down = by === column ? !down : true;
    by = column;
    draw();
    host.querySelector(`[data-sort="${column}"]`).focus();
  });
  onSearch.push(draw);
  return draw;
}
const cell = (key, n, text) => `<span data-key="${key}" data-value="${n}">${n === 0 ? "" : text}</span>`;

// @PAGE_arena@
// ---- Live at the peak.

const peakDraw = (() => {
  let whose = "planned";
  const rowsOf = (peak, total) => {
    const byModule = new Map();
    const add = (name, kind, n, start, op) => {
      const key = `${name}\n${kind}`;
      const row = byModule.get(key) || { name, kind, bytes: 0, count: 0, start, op };
      row.bytes += n; row.count += 1;
      byModule.set(key, row);
    };
    peak.bytes.forEach((n, i) => {
      const op = peak.op[i], start = peak.there_at_start[i] === 1;
      add(op < 0 ? "" : opModule(op), start ? "parameters, buffers, inputs" : op < 0 ? "" : opKind(op), n, start, op);
    });
    if (data.outside_bytes > 0) add("beside the step", "", data.outside_bytes, true, -1);
    if (peak.workspace_bytes > 0) add("workspace and copies of the operator running", "", peak.workspace_bytes, false, -1);
    const rows = [...byModule.values()].sort((a, b) => b.bytes - a.bytes);
    rows.forEach((row) => { row.share = row.bytes / total; });
    return rows;
  };
  const both = { planned: rowsOf(data.at_peak, planned.peak_bytes), plain: rowsOf(data.plain_at_peak, plain.peak_bytes) };
  const rows = () => both[whose].filter((row) => matches(`${row.name} ${row.kind}`));
  const draw = table(at("peak-rows"), [
    { name: "what", cell: (r) => `<span class="name">${escaped(moduleName(r.name))}</span> <span class="kind">${r.kind === r.name ? "" : escaped(r.kind)}</span>`, sort: (r) => r.name },
    { name: "", kind: "bars", wide: true, cell: (r) => `<span class="track"><i class="${r.start ? "start" : "is"}" style="width:${(100 * r.bytes / both[whose][0].bytes).toFixed(1)}%"></i></span>` },
    { name: "tensors", cell: (r) => r.count, sort: (r) => r.count, wide: true },
    { name: "bytes", cell: (r) => cell("at_peak.bytes", r.bytes, bytes(r.bytes)), sort: (r) => r.bytes },
    { name: "of the peak", cell: (r) => percent(r.share, 1), sort: (r) => r.bytes },
  ], rows, (r) => `${r.name} ${r.kind}`, "Nothing is live.");
  const text = () => {
    const peak = whose === "planned" ? data.at_peak : data.plain_at_peak, total = data[whose].peak_bytes;
    const run = peak.run === null ? null : steps[whose].op[peak.run];
    at("peak-text").innerHTML = `${value(`${whose}.peak_bytes`, total, bytes(total))} ` +
      (run === null ? "at the start of the step." : `while ${opText(run)} runs in ${["forward", "the caller's hands", "backward"][ops.phase[run]]}.`);
  };
  document.querySelectorAll("[data-peak]").forEach((button) => button.addEventListener("click", () => {
    whose = button.dataset.peak;
    document.querySelectorAll("[data-peak]").forEach((b) => b.setAttribute("aria-pressed", b === button));
    text(); draw();
  }));
  return () => { text(); draw(); };
})();

// ---- Computed again.

const againDraw = (() => {
  const r = data.recomputed;
  const all = r.op.map((op, i) => ({ op, runs: r.runs[i], cost: r.cost_ns[i], saved: r.not_held_bytes[i], peak: r.peak_if_kept_bytes[i] }))
    .sort((a, b) => b.saved - a.saved || b.cost - a.cost);
  const widest = Math.max(1, ...all.map((row) => row.saved));
  at("again-text").textContent = all.length === 0 ? "" :
    `Each row is one choice of the plan: results that plain training would hold from forward to backward, freed and made again. ` +
    `“Peak if kept” is the most the step would need if this choice alone were undone.`;
  return table(at("again-rows"), [
    { name: "operator", cell: (row) => opText(row.op), sort: (row) => opModule(row.op) },
    { name: "", kind: "bars", wide: true, cell: (row) => `<span class="track"><i class="is" style="width:${(100 * row.saved / widest).toFixed(1)}%"></i></span>` },
    { name: "not held", cell: (row) => cell("recomputed.not_held_bytes", row.saved, bytes(row.saved)), sort: (row) => row.saved },
    { name: "peak if kept", cell: (row) => cell("recomputed.peak_if_kept_bytes", row.peak, row.peak > planned.peak_bytes ? `+${bytes(row.peak - planned.peak_bytes)}` : "unchanged"), sort: (row) => row.peak, wide: true },
    { name: "times", cell: (row) => cell("recomputed.runs", row.runs, row.runs), sort: (row) => row.runs },
    { name: "costs", cell: (row) => cell("recomputed.cost_ns", row.cost, time(row.cost)), sort: (row) => row.cost },
  ], () => all.filter((row) => opMatches(row.op)), (row) => row.op, "Nothing is computed again.");
})();

// ---- Time against memory.

const frontDraw = (() => {
  const host = at("front"), curve = data.curve;
  const points = curve.peak_bytes.map((peak, i) => ({ peak, time: curve.time_ns[i], bound: curve.lower_bound_ns[i] }));
  const bounded = points.filter((p) => p.bound !== null);
  // This plan may be better than what the run over all budgets found.
  const own = { peak: planned.peak_bytes, time: planned.time_ns };
  const front = [...points, own].sort((a, b) => a.peak - b.peak || a.time - b.time)
    .filter((p) => p.peak < own.peak || p === own || p.time < own.time);
  let cursor = 0, scale = null;
  if (points.length === 0) { at("curve").hidden = true; return () => {}; }
  cursor = points.reduce((best, p, i) => Math.abs(p.peak - planned.peak_bytes) < Math.abs(points[best].peak - planned.peak_bytes) ? i : best, 0);
  at("curve-text").innerHTML = `The best plans found at all budgets, from one run of the planner. The smallest that works is
    <b>${unbroken(bytes(points[0].peak))}</b>, at ${percent(points[0].time - plain.time_ns, plain.time_ns)} more time.` +
    (bounded.length ? ` In the shaded region below the dotted line no plan can be that runs backward in the order of the one above it: that is proven.` : "");
  function draw() {
    const full = host.clientWidth || 800, height = 320, left = full < 520 ? 60 : 66, right = 18, above = 46, below = 40;
    const width = full - left - right, high = height - above - below;
    const low = (data.floor_bytes ?? points[0].peak) * 0.96, most = Math.max(plain.peak_bytes, planned.peak_bytes, points.at(-1).peak) * 1.03;
    // Plans at the least memory may take many times as long. Where all of them would press this one to the axis, they
    // leave the picture at its top, which says so.
    const quickest = plain.time_ns, longest = Math.max(planned.time_ns, ...points.map((p) => p.time));
    const more = planned.time_ns - quickest, all = quickest + Math.max(quickest * 0.5, 6 * more);
    const slowest = longest <= all ? longest : quickest + Math.max(quickest * 0.5, 2.2 * more);
    const x = (b) => (b - low) / (most - low) * width, y = (t) => high - (t - quickest * 0.985) / ((slowest - quickest) * 1.06 + quickest * 0.02) * high;
    scale = { x, left };
    const staircase = (list, pick) => {
      let d = "";
      list.forEach((p, i) => { const px = x(p.peak).toFixed(1), py = y(pick(p)).toFixed(1); d += i === 0 ? `M${px} ${py}` : `H${px}V${py}`; });
      return d + `H${width}`;
    };
    const percents = plainTicks(0, 100 * (slowest - quickest) / quickest || 1, 5).map((share) => {
      const py = y(quickest * (1 + share / 100));
      return `<path d="M0 ${py}H${width}" stroke="var(--grid)"/><text x="-8" y="${py + 4}" text-anchor="end">+${Number(share.toFixed(2))} %</text>`;
    }).join("");
    const sizes = byteTicks(low, most, full < 520 ? 3 : 7).map((tick) => tickBelow(x(tick.bytes), high, 18, width + right, tick.text)).join("");
    const bound = bounded.length < 2 ? "" : `<path d="${staircase(bounded, (p) => p.bound)}V${high}H${x(bounded[0].peak)}z" fill="var(--bound)" opacity="0.09"/>
      <path d="${staircase(bounded, (p) => p.bound)}" fill="none" stroke="var(--bound)" stroke-width="1.5" stroke-dasharray="2 3" data-bound/>`;
    // Their texts stand above the curves, each on a line of its own.
    const upright = (px, line, color, dashes, text) => `<path d="M${px} ${line}V${high}" stroke="${color}" stroke-dasharray="${dashes}"/>
      <text x="${Math.min(px + 6, width + right - 2 - 7 * text.length)}" y="${line + 8}" style="fill:${color}" data-above>${text}</text>`;
    const floor = data.floor_bytes === null ? "" : upright(x(data.floor_bytes), -38, "var(--bound)", "2 3", `no plan below ${bytes(data.floor_bytes)}`);
    const budget = data.budget_bytes === null || data.budget_bytes > most ? "" : upright(x(data.budget_bytes), -24, "var(--budget)", "7 4", "budget");
    const nearPlain = x(plain.peak_bytes) - x(planned.peak_bytes) < 110;  // both have their text there
    const first = front.findLast((p) => p.time > slowest);
    const beyond = first === undefined ? "" : `<text x="${x(first.peak) + (x(first.peak) > 120 ? 4 : -4)}" y="-4" text-anchor="${x(first.peak) > 120 ? "end" : "start"}" class="halo" data-beyond>↑ up to +${percent(longest - quickest, quickest)}</text>`;
    host.innerHTML = `<svg height="${height}" viewBox="0 0 ${full} ${height}" aria-hidden="true"><g transform="translate(${left} ${above})">
      ${percents}${bound}${floor}${budget}${beyond}<clipPath id="front-clip"><rect width="${width}" height="${high}"/></clipPath>
      <path d="${staircase(front, (p) => p.time)}" fill="none" stroke="var(--planned)" stroke-width="1.8" clip-path="url(#front-clip)" data-front/>
      <circle cx="${x(plain.peak_bytes)}" cy="${y(plain.time_ns)}" r="5" fill="var(--plain)"/>
      <text x="${x(plain.peak_bytes) - 9}" y="${y(plain.time_ns) - 8}" text-anchor="end">plain</text>
      <circle cx="${x(planned.peak_bytes)}" cy="${y(planned.time_ns)}" r="6" fill="var(--planned)" stroke="var(--card)" stroke-width="2" data-chosen/>
      <text x="${Math.min(x(planned.peak_bytes) + 10, width + right - 62)}" y="${y(planned.time_ns) - (nearPlain ? 24 : 9)}" class="strong">this plan</text>
      <path d="M0 ${high}H${width}" stroke="var(--muted)"/>${sizes}<g id="front-cursor"></g></g></svg>`;
    scale.y = y;
    show(false);
  }
  const about = (p) => `${bytes(p.peak)} · ${time(p.time)}, +${percent(p.time - plain.time_ns, plain.time_ns)}` +
    (p.bound === null ? "" : ` · proven at least +${percent(Math.max(0, p.bound - plain.time_ns), plain.time_ns)}`);
  function show(speak) {
    const p = points[cursor];
    host.querySelector("#front-cursor").innerHTML = speak ? `<circle cx="${scale.x(p.peak)}" cy="${Math.max(0, scale.y(p.time))}" r="4" fill="none" stroke="var(--ink)"/>` : "";
    if (speak) at("front-readout").textContent = about(p);
  }
  host.addEventListener("pointermove", (event) => {
    const px = event.clientX - host.getBoundingClientRect().left - scale.left;
    cursor = points.reduce((best, p, i) => Math.abs(scale.x(p.peak) - px) < Math.abs(scale.x(points[best].peak) - px) ? i : best, 0);
    show(true);
    tip(event, about(points[cursor]));
  });
  host.addEventListener("pointerleave", () => tip(null));
  host.addEventListener("keydown", (event) => {
    const to = { ArrowRight: cursor + 1, ArrowLeft: cursor - 1, Home: 0, End: points.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    cursor = Math.max(0, Math.min(points.length - 1, to));
    show(true);
  });
  return draw;
})();

// ---- By module.

const modulesDraw = (() => {
  const columns = ["kept_bytes", "plain_kept_bytes", "at_peak_bytes", "recomputed_runs", "recompute_ns", "time_ns"];
  const scoped = data.modules.some((name) => name.includes("."));
  const nodes = new Map();
  const node = (path) => {
    if (!nodes.has(path)) {
      const cut = scoped ? path.lastIndexOf(".") : -1, parent = path === "" ? null : node(path === "" || cut < 0 ? "" : path.slice(0, cut));
      const made = { path, parent, children: [], depth: parent === null ? 0 : parent.depth + 1, own: false };
      columns.forEach((key) => { made[key] = 0; });
      nodes.set(path, made);
      if (parent !== null) parent.children.push(made);
    }
    return nodes.get(path);
  };
  const root = node("");
  data.modules.forEach((name, i) => {
    for (let n = node(name); n !== null; n = n.parent) columns.forEach((key) => { n[key] += data.by_module[key][i]; });
    node(name).own = true;
  });
  const open = new Set([root]);
  const inOrder = (n, visit) => { visit(n); n.children.forEach((child) => inOrder(child, visit)); };
  (function unfold(level) {  // as deep as fits a screen
    const rows = level.flatMap((n) => n.children);
    if (rows.length === 0 || rows.length > 40) return;
    level.forEach((n) => open.add(n));
    if (rows.length < 12) unfold(rows);
  })([root]);
  const host = at("module-rows");
  let by = null, down = true;
  const heads = [["module", "path"], ["", null, true], ["kept", "kept_bytes"], ["plain keeps", "plain_kept_bytes", true], ["at the peak", "at_peak_bytes", true], ["again", "recomputed_runs"], ["time", "time_ns", true], ["time again", "recompute_ns"]];
  function draw() {
    const hits = new Set();
    if (wanted) nodes.forEach((n) => { if (matches(n.path)) for (let up = n; up !== null; up = up.parent) hits.add(up); });
    const rows = [];
    (function walk(n) {
      if (wanted && !hits.has(n)) return;
      rows.push(n);
      if (!(wanted ? n.children.some((child) => hits.has(child)) : open.has(n))) return;
      const children = by === null ? n.children : [...n.children].sort((a, b) => (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) * (down ? -1 : 1));
      children.forEach(walk);
    })(root);
    const most = Math.max(1, ...root.children.map((n) => n.plain_kept_bytes), ...root.children.map((n) => n.kept_bytes));
    const share = (n) => Math.min(100, 100 * n / most).toFixed(1);
    const row = (n) => {
      const key = n.path === "" ? "total" : n.path, isOpen = open.has(n) || (wanted && n.children.some((c) => hits.has(c)));
      const toggle = n.children.length && n !== root ? `<button type="button" class="fold" aria-expanded="${Boolean(isOpen)}" aria-label="${isOpen ? "Fold" : "Unfold"} ${escaped(key)}" data-fold="${escaped(n.path)}">${isOpen ? "▾" : "▸"}</button>` : n === root ? "" : '<span class="leaf"></span>';
      const name = n === root ? "<b>the whole model</b>" : `<span class="name">${escaped(scoped ? n.path.slice(n.path.lastIndexOf(".") + 1) : moduleName(n.path))}</span>`;
      return `<tr data-row="${escaped(key)}"><td title="${escaped(n.path)}" style="padding-left:${12 + Math.max(0, n.depth - 1) * 18}px">${toggle}${name}</td>
        <td class="bars wide">${n === root ? "" : `<span class="track"><i class="was" style="width:${share(n.plain_kept_bytes)}%"></i><i class="is" style="width:${share(n.kept_bytes)}%"></i></span>`}</td>
        <td>${cell("by_module.kept_bytes", n.kept_bytes, bytes(n.kept_bytes))}</td>
        <td class="wide">${cell("by_module.plain_kept_bytes", n.plain_kept_bytes, bytes(n.plain_kept_bytes))}</td>
        <td class="wide">${cell("by_module.at_peak_bytes", n.at_peak_bytes, bytes(n.at_peak_bytes))}</td>
        <td>${cell("by_module.recomputed_runs", n.recomputed_runs, n.recomputed_runs)}</td>
        <td class="wide">${cell("by_module.time_ns", n.time_ns, time(n.time_ns))}</td>
        <td>${cell("by_module.recompute_ns", n.recompute_ns, time(n.recompute_ns))}</td></tr>`;
    };
    host.innerHTML = `<table><thead><tr>${heads.map(([name, key, wide]) => `<th${wide ? ' class="wide"' : ""}${by !== null && by === key ? ` aria-sort="${down ? "descending" : "ascending"}"` : ""}>` +
      (key ? `<button type="button" data-sort="${key}">${name}</button>` : "") + "</th>").join("")}</tr></thead><tbody>${rows.map(row).join("")}</tbody></table>`;
  }
  host.addEventListener("click", (event) => {
    const fold = event.target.closest("[data-fold]"), sort = event.target.closest("[data-sort]");
    if (fold !== null) {
      const n = nodes.get(fold.dataset.fold);
      if (open.has(n)) open.delete(n); else open.add(n);
      draw();
      host.querySelector(`[data-fold="${CSS.escape(n.path)}"]`).focus();
    } else if (sort !== null) {
      const key = sort.dataset.sort;
      if (by === key && !down) by = null; else { down = by !== key; by = key; }
      draw();
      host.querySelector(`[data-sort="${key}"]`).focus();
    }
  });
  at("unfold").addEventListener("click", () => { nodes.forEach((n) => open.add(n)); draw(); });
  at("fold").addEventListener("click", () => { open.clear(); open.add(root); draw(); });
  onSearch.push(draw);
  return draw;
})();

// ---- The page.

let waiting = 0;
function search() {
  clearTimeout(waiting);
  const text = at("search").value.trim().toLowerCase();
  if (text === wanted) return;
  wanted = text;
  const hits = wanted ? steps.planned.op.reduce((n, op) => n + (opMatches(op) ? 1 : 0), 0) : 0;
  at("found").textContent = wanted ? counted(hits, "run", "runs") : "";
  onSearch.forEach((draw) => draw());
}
at("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 60); });
at("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  search();
  memory.toHit(!event.shiftKey);
});
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !typing) { event.preventDefault(); at("search").focus(); at("search").select(); }
  if (event.key === "Escape" && typing) { at("search").value = ""; at("search").dispatchEvent(new Event("input")); at("search").blur(); }
});
at("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
// A table that is cut off says so by a shadow, and can be scrolled by keyboard.
document.querySelectorAll(".scroll").forEach((box) => {
  const check = () => {
    const cut = box.scrollWidth > box.clientWidth;
    box.toggleAttribute("data-cut", cut);
    if (cut) box.tabIndex = 0; else box.removeAttribute("tabindex");
  };
  new MutationObserver(check).observe(box, { childList: true });
  addEventListener("resize", check);
});
lead();
[memory.draw, arenaDraw, peakDraw, againDraw, frontDraw, modulesDraw].forEach((draw) => draw());
memory.toPeak();
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; memory.draw(); arenaDraw(); frontDraw(); } });
document.documentElement.dataset.ready = "yes";
})();
