// Fills the figures and follows the choices. Everything shown comes from the two JSON elements;
// text is set as text, so that no name can become markup.
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const packed = read("page-data");
  const specs = read("page-specs");
  const SIDES = ["baseline", "candidate"];
  const STATUSES = ["ok", "aborted", "error", "censored", "unsent", "rejected"];
  const GROUPS = ["never preempted", "preempted once", "preempted twice or more"];
  const DASH = "\u2013";
  const rowsOf = (columns) => {
    const names = Array.isArray(columns) ? [] : Object.keys(columns);
    return names.length === 0 ? [] : columns[names[0]].map((_, k) =>
      Object.fromEntries(names.map((name) => [name, columns[name][k]])));
  };
  const data = {};
  for (const name of ["numbers", "curves", "requests", "pressure", "modelled_pressure",
    "measured_preemptions", "modelled_preemptions", "runs"]) data[name] = rowsOf(packed[name]);

  const element = (id) => document.getElementById(id);
  const chosen = (name) => element(`choose-${name}`)?.value;
  const format = (value, digits = 3) => value === null || value === undefined ? DASH
    : value.toLocaleString("en-US", { maximumFractionDigits: digits });
  const fixed = (value, digits) => value.toLocaleString("en-US",
    { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const quantity = (name, value) => value === null || value === undefined ? DASH
    : typeof value === "string" ? value
    : name.endsWith("_us") ? fixed(value / 1000, 1) : format(value);
  const most = (rows, name) => rows.reduce((top, row) => Math.max(top, row[name] ?? 0), 0);
  const add = (parent, tag, text, set = {}) => {
    const child = document.createElement(tag);
    if (text !== undefined) child.textContent = text;
    for (const [name, value] of Object.entries(set)) child.setAttribute(name, value);
    parent.append(child);
    return child;
  };

  // One chart: made once, then given rows. Drawings wait for each other, chart by chart.
  const views = new Map();
  const draw = (name, rows, summary, scales = {}) => {
    const place = element(`chart-${name}`);
    if (!place) return;
    element(`summary-${name}`).textContent = summary;
    place.parentElement.hidden = rows.length === 0;
    const before = views.get(name) ?? Promise.resolve(null);
    views.set(name, before.then(async (view) => {
      if (rows.length === 0) return view;
      if (view === null) {
        const params = (specs[name].params ?? []).map((p) =>
          ({ ...p, value: scales[p.name] || 1 }));
        const spec = { ...specs[name], params, data: { name: "rows", values: rows } };
        const made = await window.vegaEmbed(place, spec, {
          actions: false, ast: true, defaultStyle: false, renderer: "svg",
          tooltip: { theme: "custom", disableDefaultStyle: true, formatTooltip },
        });
        view = made.view;
        if (name.startsWith("fairness-")) view.addEventListener("click", pickMark);
        return view;
      }
      for (const [scale, top] of Object.entries(scales)) view.signal(scale, top || 1);
      view.data("rows", rows);
      view.resize();
      await view.runAsync();
      return view;
    }).catch((problem) => { console.error(name, problem); return null; }));
  };
  const formatTooltip = (value, sanitize) => {
    if (value === null || typeof value !== "object") return sanitize(value);
    const cell = (v) => sanitize(typeof v === "number" ? format(v) : v);
    return `<table><tbody>${Object.entries(value).map(([k, v]) =>
      `<tr><td class="key">${sanitize(k)}</td><td>${cell(v)}</td></tr>`).join("")}</tbody></table>`;
  };

  // What the filter leaves: the scopes to show, as [side, scope].
  const scopes = () => {
    const scope = chosen("scope") ?? "both";
    if (scope === "both") return SIDES.map((side) => [side, side]);
    return [[SIDES.includes(scope) ? scope : data.runs[Number(scope)].side, scope]];
  };
  const scopeWords = ([side, scope]) =>
    side === scope ? side : `${data.runs[Number(scope)].name} (${side})`;
  const numbersOf = (scope) =>
    data.numbers.find((r) => r.slice === Number(chosen("slice")) && r.scope === scope);

  const showNumbers = () => {
    const table = element("numbers");
    if (!table) return;
    const shown = scopes();
    const head = table.tHead.rows[0];
    head.replaceChildren();
    add(head, "th", "measured", { scope: "col" });
    for (const scope of shown) add(head, "th", scopeWords(scope), { scope: "col" });
    const body = table.tBodies[0];
    body.replaceChildren();
    for (const [name, words] of packed.rows_of_numbers) {
      const line = add(body, "tr", undefined, { "data-number": name });
      add(line, "th", words, { scope: "row" });
      for (const [, scope] of shown) {
        const found = numbersOf(scope);
        const value = found === undefined ? (name.endsWith("_us") ? null : 0) : found[name];
        add(line, "td", quantity(name, value), { class: "number" });
      }
    }
  };

  const showStatuses = () => {
    const rows = [];
    const told = [];
    for (const pair of scopes()) {
      const found = numbersOf(pair[1]) ?? {};
      for (const status of STATUSES) {
        const requests = found[status] ?? 0;
        rows.push({ status, side: pair[0], requests, label: format(requests) });
      }
      told.push(`${scopeWords(pair)}: ${STATUSES.filter((s) => found[s] > 0)
        .map((s) => `${format(found[s])} ${s}`).join(", ") || "no requests"}`);
    }
    draw("statuses", rows, `${told.join("; ")}.`);
  };

  const showCurves = () => {
    const metric = chosen("metric");
    const shown = new Map(scopes());
    const rowsFor = (side) => data.curves
      .filter((r) => r.slice === Number(chosen("slice")) && r.metric === metric
        && r.scope === shown.get(side))
      .map((r) => ({ seconds: r.value_us / 1e6, share: r.share, requests: r.requests,
        group: GROUPS[r.preemptions] }));
    const top = Math.max(...SIDES.map((side) => most(rowsFor(side), "seconds")));
    for (const side of SIDES) {
      const panel = element(`panel-curves-${side}`);
      if (!panel) return;
      panel.hidden = !shown.has(side);
      const rows = rowsFor(side);
      const told = GROUPS.flatMap((group) => {
        const own = rows.filter((r) => r.group === group);
        if (own.length === 0) return [];
        const half = own.find((r) => r.share >= 0.5);
        return [`${group}: ${format(own[0].requests)} requests, half within ${
          half === undefined ? "no known time" : `${format(1000 * half.seconds, 1)} ms`}`];
      });
      draw(`curves-${side}`, rows, told.length ? `${told.join("; ")}.`
        : "No eligible request in this choice.", { xmax: top });
    }
  };

  const timeline = (name, found, unit, tops) => {
    const rows = found.map((r) => ({ ...r, time: r.time }));
    const filled = rows.filter((r) => r.kv_cache_usage_frac !== null);
    draw(`occupancy-${name}`, filled, filled.length
      ? `KV cache at most ${format(100 * most(filled, "kv_cache_usage_frac"), 1)} % full; full or`
        + ` nearly (95 %) at ${format(filled.filter((r) => r.kv_cache_usage_frac >= 0.95).length)}`
        + ` of ${format(filled.length)} points.`
      : "Occupancy is not known.", { xmax: tops.time });
    const queue = rows.flatMap((r) => ["running", "waiting"].filter((what) => r[what] !== null)
      .map((what) => ({ time: r.time, what, requests: r[what] })));
    draw(`queue-${name}`, queue, queue.length
      ? `At most ${format(most(rows, "running"))} running and ${format(most(rows, "waiting"))} waiting.`
      : "Running and waiting are not known.", { xmax: tops.time, ymax: tops.queue });
    const counted = rows.filter((r) => r.preemptions !== null);
    const sum = counted.reduce((n, r) => n + r.preemptions, 0);
    draw(`preemptions-${name}`, counted.filter((r) => r.preemptions > 0), counted.length
      ? `${format(sum)} preemptions, at most ${format(most(counted, "preemptions"))} in any ${unit}.`
      : "Nobody recorded preemptions.", { xmax: tops.time, ymax: tops.preemptions });
  };
  const topsOf = (rows) => ({ time: most(rows, "time"),
    queue: Math.max(most(rows, "running"), most(rows, "waiting")),
    preemptions: most(rows, "preemptions") });

  const showPressure = () => {
    const pair = Number(chosen("pair"));
    const places = SIDES.map((side) =>
      data.runs.findIndex((r) => r.pair === pair && r.side === side));
    const found = places.map((place) => data.pressure.filter((r) => r.place === place)
      .map((r) => ({ ...r, time: r.second })));
    const tops = topsOf(found.flat());
    SIDES.forEach((side, k) => timeline(side, found[k],
      found[k][0]?.width > 1 ? `${found[k][0].width} s` : "second", tops));
  };
  const showModelled = () => {
    const found = data.modelled_pressure.filter((r) => r.ledger_id === chosen("ledger"))
      .map((r) => ({ ...r, time: r.tick }));
    if (found.length === 0) return;
    timeline("modelled", found, found[0].width > 1 ? `${found[0].width} ticks` : "tick",
      topsOf(found));
  };

  const MARKS = ["within both limits", "\u25b2 waited too long", "\u2715 preempted too often",
    "\u25b2\u2715 both"];
  const markOf = (r) => MARKS[(r.waited ? 1 : 0) + (r.repeated ? 2 : 0)];
  const inChoice = () => {
    const shown = new Map(scopes().map(([side, scope]) => [scope, side]));
    return data.requests.map((r, index) => ({ ...r, index, run: data.runs[r.place]?.name ?? "",
      side: packed.sides[r.place] }))
      .filter((r) => r.slices.includes(Number(chosen("slice")))
        && (shown.has(r.side) || shown.has(String(r.place))));
  };
  const showFairness = () => {
    if (!element("choose-request")) return;
    const found = inChoice();
    const rows = found.filter((r) => r.wait_us !== null).map((r) => ({ index: r.index,
      request: r.request_id, run: r.run, side: r.side, status: r.status, mark: markOf(r),
      area: r.waited || r.repeated ? 70 : 14,
      preemptions: r.num_preemptions ?? DASH, arrival_s: r.arrival_us / 1e6,
      wait_s: r.wait_us / 1e6 }))
      // Marked ones last, so that they are drawn above the others.
      .sort((a, b) => MARKS.indexOf(a.mark) - MARKS.indexOf(b.mark) || a.index - b.index);
    const tops = { xmax: most(rows, "arrival_s"), ymax: most(rows, "wait_s") };
    const shown = new Map(scopes());
    for (const side of SIDES) {
      element(`panel-fairness-${side}`).hidden = !shown.has(side);
      const counted = numbersOf(shown.get(side)) ?? {};
      const own = rows.filter((r) => r.side === side);
      draw(`fairness-${side}`, own, own.length
        ? `\u25b2 ${format(counted.waited_too_long)} waited too long, \u2715 ${
          format(counted.preempted_too_often)} preempted too often, of ${
          format(counted.requests)} requests; longest wait ${format(most(own, "wait_s"), 2)} s.`
        : "No request in this choice.", tops);
    }
    const select = element("choose-request");
    const before = select.value;
    select.replaceChildren();
    found.sort((a, b) => (b.wait_us ?? -1) - (a.wait_us ?? -1) || a.index - b.index);
    for (const r of found) {
      const signs = (r.waited ? "\u25b2" : "") + (r.repeated ? "\u2715" : "");
      add(select, "option", `${signs}${signs && " "}${r.request_id}, ${r.run} (${r.side})`,
        { value: r.index });
    }
    if (found.some((r) => String(r.index) === before)) select.value = before;
    showRequest();
  };
  const pickMark = (_event, item) => {
    const index = item?.datum?.index;
    if (index === undefined) return;
    element("choose-request").value = String(index);
    showRequest();
  };
  const showRequest = () => {
    const place = element("request-detail");
    if (!place) return;
    place.replaceChildren();
    const r = data.requests[Number(chosen("request"))];
    if (chosen("request") === "" || r === undefined) {
      add(place, "p", "No request in this choice.", { class: "absent" });
      return;
    }
    const table = add(place, "table");
    const run = data.runs[r.place]?.name ?? `run ${r.place + 1}`;
    add(table, "caption", `Request ${r.request_id} in ${run}, ${packed.sides[r.place]}, measured`);
    const body = add(table, "tbody");
    for (const [words, value] of [
      ["status", r.status], ["mark", markOf(r)], ["arrival, s", format(r.arrival_us / 1e6)],
      ["waited, ms", quantity("_us", r.wait_us)], ["preemptions", format(r.num_preemptions)],
      ["prompt tokens", format(r.prompt_tokens)], ["generated tokens", format(r.generated_tokens)],
      ["TTFT, ms", quantity("_us", r.ttft_us)], ["end to end, ms", quantity("_us", r.e2e_us)],
    ]) {
      const line = add(body, "tr");
      add(line, "th", words, { scope: "row" });
      add(line, "td", value);
    }
    const same = data.measured_preemptions.findIndex((e) =>
      e.place === r.place && e.request_id === r.request_id);
    if (same >= 0 && element("choose-event").value !== `m${same}`) {
      const button = add(place, "button", "Show its costliest preemption below", { type: "button" });
      button.addEventListener("click", () => {
        element("choose-event").value = `m${same}`;
        showEvent();
        element("choose-event").focus();
      });
    }
  };

  const fillEvents = () => {
    const select = element("choose-event");
    if (!select) return;
    const group = (words, rows, letter, label) => {
      if (rows.length === 0) return;
      const list = add(select, "optgroup", undefined, { label: words });
      rows.forEach((e, k) => add(list, "option", label(e), { value: `${letter}${k}` }));
    };
    group("measured", data.measured_preemptions, "m", (e) =>
      `${e.request_id} at ${format(e.time_us / 1e6, 1)} s, ${data.runs[e.place].name} (measured)`);
    group("modelled", data.modelled_preemptions, "e", (e) =>
      `${e.request_id} at tick ${format(e.tick)}, ledger ${e.ledger_id.slice(0, 12)} (modelled)`);
  };
  const showEvent = () => {
    const value = chosen("event");
    if (!value) return;
    const measured = value[0] === "m";
    const e = (measured ? data.measured_preemptions : data.modelled_preemptions)[
      Number(value.slice(1))];
    const again = measured ? e.computed_tokens : e.recompute_tokens;
    const evidence = measured ? "measured" : "modelled";
    const bars = (rows) => rows.filter((r) => r.amount !== null)
      .map((r) => ({ ...r, label: format(r.amount) }));
    const swapped = e.swap_in_bytes > 0 ? ` ${format(e.swap_in_bytes)} bytes are copied back.` : "";
    draw("conservation-tokens", bars([
      { what: "prompt: survives", fate: "survives", amount: e.prompt_tokens },
      { what: "generated: survives", fate: "survives", amount: e.generated_tokens },
      { what: "work: comes back", fate: "comes back", amount: again },
    ]), `${evidence}: ${format(e.prompt_tokens)} prompt and ${format(e.generated_tokens)} generated`
      + ` tokens survive; ${format(again)} tokens are computed again.${swapped}`
      + (e.wait_us === undefined ? "" : e.wait_us === null ? " It was never seen resumed."
        : ` It waited ${quantity("_us", e.wait_us)} ms to be resumed.`));
    draw("conservation-blocks", bars([
      { what: "free before", fate: "survives", amount: e.free_blocks_before },
      { what: "freed: leave", fate: "leaves", amount: e.freed_blocks },
    ]), `${evidence}: ${format(e.freed_blocks)} blocks leave the request; ${
      format(e.free_blocks_before)} were free before.`);
  };

  const showEffects = () => packed.effects.forEach(({ percent, rows }, k) => {
    const shown = (value) => percent ? `${format(100 * value, 3)} %` : format(value, 4);
    const own = rows.filter((r) => r.side !== "baseline" && r.low === undefined);
    const over = own.filter((r) => r.value > r.limit).length;
    const mean = rows.find((r) => r.low !== undefined);
    const words = own[0].side.replace("effect of a ", "effects of each ");
    draw(`effects-${k}`, rows, `Limit ${shown(rows[0].limit)}; ${words} ${
      own.slice(0, 24).map((r) => shown(r.value)).join(", ")}; ${over} of ${own.length} above it.${
      mean ? ` Mean ${shown(mean.value)}, interval ${shown(mean.low)} to ${shown(mean.high)}.` : ""}`);
  });

  const showBoundary = () => packed.boundary.forEach((rows, k) => {
    const own = rows.filter((r) => r.multiplier !== undefined);
    const across = rows.filter((r) => r.low !== undefined).map((r) => r.crosses);
    const sides = new Set(own.map((r) => r.side).filter((side) => !side.startsWith("?")));
    draw(`boundary-${k}`, rows, `${own.slice(0, 24).map((r) =>
      `times ${format(r.multiplier)}: ${r.shown}, ${r.side}`).join("; ")}. ${
      across.length ? `Crosses the limit ${across.join(" and ")}.`
        : sides.size > 1 ? "Lies on both sides of the limit." : "No crossing in these steps."}`);
  });

  const showChoice = () => { showNumbers(); showStatuses(); showCurves(); showFairness(); };
  const follow = (names, show) => names.forEach((name) =>
    element(`choose-${name}`)?.addEventListener("change", show));
  follow(["slice", "scope"], showChoice);
  follow(["metric"], showCurves);
  follow(["pair"], showPressure);
  follow(["ledger"], showModelled);
  follow(["request"], showRequest);
  follow(["event"], showEvent);
  for (const form of document.forms) form.addEventListener("submit", (e) => e.preventDefault());
  fillEvents();
  showEffects();
  showBoundary();
  if (element("choose-slice")) showChoice();
  if (element("choose-pair")) showPressure();
  showModelled();
  showEvent();
  // For whoever waits for the figures, a test for one.
  window.figuresDrawn = () => Promise.all([...views.values()]).then(() => views.size);
})();
