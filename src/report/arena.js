// ---- Memory by address: a rectangle for each life, from its first run to its end, at its offset.

const arenaDraw = (() => {
  const arena = data.arena, host = at("addresses"), runs = steps.planned;
  if (arena === undefined) return () => {};
  at("arena").hidden = false;
  const colors = ["var(--planned)", "var(--again)", "var(--bound)"];
  const names = ["", "workspace", "stays after the step"];
  const lives = arena.op.map((op, i) => ({
    op, kind: arena.kind[i], again: runs.again[arena.begin[i]] === 1, offset: arena.offset[i], bytes: arena.bytes[i],
    run: arena.begin[i], from: runs.begin[arena.begin[i]], to: arena.end[i] < runs.op.length ? runs.begin[arena.end[i]] : runs.total,
  }));
  const stays = lives.reduce((sum, life) => sum + (life.kind === 2 ? life.bytes : 0), 0);
  at("arena-text").innerHTML = `Everything the plan makes lies in one block of ${value("arena.arena_bytes", arena.arena_bytes, bytes(arena.arena_bytes))}; ` +
    `at most ${value("arena.load_bytes", arena.load_bytes, bytes(arena.load_bytes))} of it are live at once. ` +
    `<span class="legend">` + ["results", "workspaces", `what stays after the step (${bytes(stays)})`].map((text, kind) =>
      `<span><svg width="12" height="10"><rect width="12" height="10" fill="${colors[kind]}" opacity="0.6"/></svg> ${text}</span>`).join("") + "</span>";
  let cursor = -1, geometry = null;

  function draw() {
    const full = host.clientWidth || 800, height = full < 520 ? 320 : 400;
    const left = full < 520 ? 58 : 74, right = 14, above = 12, below = 34;
    const width = full - left - right, high = height - above - below, whole = runs.total || 1;
    const x = (t) => t / whole * width, y = (b) => high - b / (arena.arena_bytes || 1) * high;
    geometry = { left, above, x, y };
    const grid = byteTicks(0, arena.arena_bytes, 6).map((tick) => `<path d="M0 ${y(tick.bytes)}H${width}" stroke="var(--grid)"/>
      <text x="-8" y="${y(tick.bytes) + 4}" text-anchor="end">${tick.text}</text>`).join("");
    const dates = plainTicks(0, whole, full < 520 ? 3 : 7).map((t) => tickBelow(x(t), high, 20, width + right, inUnits ? String(t) : time(Math.round(t)))).join("");
    const boxes = lives.map((life, i) => {
      const found = wanted && opMatches(life.op);
      return `<rect x="${x(life.from).toFixed(1)}" y="${y(life.offset + life.bytes).toFixed(1)}" width="${Math.max(x(life.to) - x(life.from), 0.5).toFixed(1)}"
        height="${Math.max(y(life.offset) - y(life.offset + life.bytes), 0.3).toFixed(1)}" fill="${found ? "var(--hit)" : colors[life.kind]}"
        fill-opacity="${life.again ? 0.75 : 0.45}" stroke="var(--card)" stroke-width="0.4" data-life="${i}"/>`;
    }).join("");
    host.innerHTML = `<svg height="${height}" viewBox="0 0 ${full} ${height}" aria-hidden="true"><g transform="translate(${left} ${above})">
      ${grid}${boxes}<path d="M0 ${high}H${width}" stroke="var(--muted)"/>${dates}<g id="life"></g></g></svg>`;
    mark(false);
  }

  function about(life) {
    const what = [names[life.kind], life.again ? "computed again" : ""].filter(Boolean).join(", ");
    return `<b>${opText(life.op)}</b> <span class="muted">${what}</span><br>${bytes(life.bytes)} at ${bytes(life.offset)}, from run ${life.run + 1}`;
  }
  function mark(speak) {
    const box = host.querySelector("#life"), life = lives[cursor];
    if (life === undefined) { box.innerHTML = ""; return; }
    const { x, y } = geometry;
    box.innerHTML = `<rect x="${x(life.from)}" y="${y(life.offset + life.bytes)}" width="${Math.max(x(life.to) - x(life.from), 1)}"
      height="${y(life.offset) - y(life.offset + life.bytes)}" fill="none" stroke="var(--ink)" stroke-width="1.5"/>`;
    if (speak) { at("arena-readout").innerHTML = about(life); at("arena-readout").dataset.life = cursor; }
  }
  host.addEventListener("pointermove", (event) => {
    const life = event.target.dataset === undefined ? undefined : event.target.dataset.life;
    if (life === undefined) { tip(null); return; }
    cursor = Number(life);
    mark(true);
    tip(event, about(lives[cursor]));
  });
  host.addEventListener("pointerleave", () => tip(null));
  host.addEventListener("keydown", (event) => {
    const far = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20 }[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? lives.length - 1 : far === undefined ? null : cursor + far;
    if (next === null || lives.length === 0) return;
    event.preventDefault();
    cursor = Math.max(0, Math.min(lives.length - 1, next));
    mark(true);
  });
  onSearch.push(draw);
  return draw;
})();

