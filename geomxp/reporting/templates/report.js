"use strict";
// All maps have one frame and one view: a point p of the picture is shown at k p + (x, y).
(() => {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const [left, right, bottom, top] = numbers.frame.box, [width, height] = numbers.frame.size;
  const FARTHEST = 60, REACH = 16, STEP = 900, LETTER = numbers.frame.letter, SVG = "http://www.w3.org/2000/svg";
  const view = { k: 1, x: 0, y: 0 };
  const maps = [...document.querySelectorAll("svg.map")].map(setUp);
  const times = numbers.times ?? [];
  let now = 0;
  const places = numbers.places, px = places.x.map(across), py = places.y.map(down);

  function across(x) { return (x - left) / (right - left) * width; }
  function down(y) { return (top - y) / (top - bottom) * height; }
  function place(p) {
    const x = (p[0] - view.x) / view.k, y = (p[1] - view.y) / view.k;
    return [left + x / width * (right - left), top - y / height * (top - bottom)];
  }

  function make(name, attributes, parent) {
    const made = ["button", "div", "span", "b", "input", "output"].includes(name)
      ? document.createElement(name) : document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  function setUp(svg) {
    const screen = svg.parentElement, plot = svg.querySelector(".plot");
    const map = { svg, screen, plot, scene: svg.querySelector(".scene"), fingers: new Map() };
    map.still = svg.querySelector("use.still");
    svg.classList.add("live");
    svg.setAttribute("tabindex", "0");
    const marks = make("g", {}, plot);
    map.marks = ["mark under", "mark"].map((kind) => make("path", { class: kind, d: "" }, marks));
    const zoom = make("div", { class: "zoom" }, screen.parentElement.querySelector(".head"));
    map.buttons = [["+", "Zoom in", 1.6], ["−", "Zoom out", 1 / 1.6], ["⤢", "Show all", 0]].map(
      ([sign, words, factor]) => {
        const button = make("button", { type: "button", "aria-label": words, title: words }, zoom);
        button.textContent = sign;
        button.addEventListener("click", () => scale(factor, [width / 2, height / 2]));
        return button;
      });
    map.tip = make("div", { class: "tip", role: "status", hidden: "" }, screen);
    listen(map);
    return map;
  }

  // maps of several times all show the same one
  function turn(k) {
    now = k;
    for (const map of maps.filter((map) => map.still)) {
      const figure = map.screen.parentElement, small = figure.querySelectorAll(".small")[k];
      map.still.setAttribute("href", `${map.still.getAttribute("href").replace(/\d+$/, "")}${k}`);
      map.svg.setAttribute("aria-label", small.getAttribute("aria-label"));
      figure.querySelector(".when").textContent = times[k];
    }
    mark(null);
  }

  // a button that plays all times, and a slider
  function player(bar) {
    const button = make("button", { type: "button" }, bar);
    const about = { type: "range", min: 0, max: times.length - 1, step: 1, value: 0 };
    const slider = make("input", { ...about, "aria-label": "Time" }, bar);
    const said = make("output", { "aria-live": "off" }, bar);
    let playing = 0;
    function show(k) {
      turn(k);
      slider.value = k;
      slider.setAttribute("aria-valuetext", times[k]);
      said.textContent = times[k];
    }
    function play(on) {
      clearInterval(playing);
      playing = on ? setInterval(() => show((now + 1) % times.length), STEP) : 0;
      button.textContent = on ? "❚❚ Pause" : "▶\uFE0E Play";
    }
    button.addEventListener("click", () => play(!playing));
    slider.addEventListener("input", () => { play(false); show(Number(slider.value)); });
    addEventListener("beforeprint", () => play(false));
    play(false);
    show(0);
  }

  document.documentElement.classList.add("scripted");
  document.querySelectorAll(".player").forEach(player);

  // on paper all is shown, and opened
  addEventListener("beforeprint", () => {
    scale(0, [0, 0]);
    for (const details of document.querySelectorAll("details")) details.open = true;
  });

  // where an event is, in units of the picture
  function at(map, event) {
    const matrix = map.plot.getScreenCTM().inverse();
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    return [p.x, p.y];
  }

  function scale(factor, [x, y]) {
    const k = factor ? Math.min(Math.max(view.k * factor, 1), FARTHEST) : 1;
    view.x = x - (x - view.x) * k / view.k;
    view.y = y - (y - view.y) * k / view.k;
    view.k = k;
    show();
  }

  function show() {
    view.x = Math.min(0, Math.max(view.x, width * (1 - view.k)));
    view.y = Math.min(0, Math.max(view.y, height * (1 - view.k)));
    for (const map of maps) {
      map.scene.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
      map.svg.classList.toggle("near", view.k > 1);
      map.buttons[0].disabled = view.k >= FARTHEST;
      map.buttons[1].disabled = map.buttons[2].disabled = view.k <= 1;
      const [west, north] = place([0, 0]), [east, south] = place([width, height]);
      draw(map.svg.querySelector(".along"), apart(west, east), (v, label) => {
        const x = across(v) * view.k + view.x;
        return [`M${x} 0v4`, { x, y: 15 }, label];
      });
      draw(map.svg.querySelector(".down"), ticks(south, north, 5), (v, label) => {
        const y = down(v) * view.k + view.y;
        return [`M0 ${y}h-4`, { x: -6, y: y + 4 }, label];
      });
    }
    mark(null);
  }

  function draw(group, [values, digits], lay) {
    group.replaceChildren();
    for (const v of values) {
      const [d, where, label] = lay(v, v.toFixed(digits));
      make("path", { d }, group);
      make("text", where, group).textContent = label.replace("-", "−");
    }
  }

  // so few that their texts stand apart; this and the next as geomxp/reporting/maps.py has them
  function apart(low, high) {
    let found;
    for (const count of [5, 4, 3, 2]) {
      found = ticks(low, high, count);
      const letters = found[0].map((v) => v.toFixed(found[1]).length + 1);
      if (letters.reduce((a, b) => a + b, 0) * LETTER <= width) break;
    }
    return found;
  }

  function ticks(low, high, count) {
    const room = (high - low) / count, power = 10 ** Math.floor(Math.log10(room));
    const share = [1, 2, 2.5, 5].find((k) => k * power >= 0.999 * room) ?? 10;
    const step = share * power, found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    return [found, Math.max(0, (share === 2.5) - Math.floor(Math.log10(step) + 1e-9))];
  }

  // numbers under a point: of the nearest place within reach, or of a cell
  function ask(map, p) {
    const reach = REACH / pixels(map), [x, y] = place(p);
    if (map.svg.dataset.shows === "cells") {
      const { box, shape, columns } = numbers.cells;
      const column = Math.floor((x - box[0]) / (box[1] - box[0]) * shape[1]);
      const row = Math.floor((y - box[2]) / (box[3] - box[2]) * shape[0]);
      if (column < 0 || row < 0 || column >= shape[1] || row >= shape[0]) return null;
      const cell = (now * shape[0] + row) * shape[1] + column;
      const rows = columns.map(([name, cells]) => [name, cells[cell]]);
      return { p, ring: false, title: null, rows: [...about(x, y), ...rows] };
    }
    let best = -1, least = reach * reach;
    for (let i = 0; i < px.length; i++) {
      if (map.still && places.stills[i] !== now) continue;
      const a = px[i] * view.k + view.x - p[0], b = py[i] * view.k + view.y - p[1];
      if (a * a + b * b < least) { least = a * a + b * b; best = i; }
    }
    if (best < 0) return null;
    const q = [px[best] * view.k + view.x, py[best] * view.k + view.y];
    const rows = places.columns.map(([name, values]) => [name, values[best]]);
    return { p: q, ring: true, title: `${numbers.noun ?? "observation"} ${places.rows[best]}${times.length ? `, ${places.times[best]}` : ""}`,
      rows: [[numbers.axes[0], places.x[best]], [numbers.axes[1], places.y[best]], ...rows] };
  }

  // coordinates as exact as the screen is
  function about(x, y) {
    const digits = Math.min(Math.max(0, 3 - Math.floor(Math.log10((right - left) / view.k))), 12);
    return [[numbers.axes[0], x.toFixed(digits)], [numbers.axes[1], y.toFixed(digits)]];
  }

  // pixels of the screen in a unit of the picture
  function pixels(map) { return map.plot.getScreenCTM().a || 1; }

  function mark(found) {
    for (const map of maps) {
      const r = 7 / pixels(map), [x, y] = found ? found.p : [0, 0];
      const ring = `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
      const cross = `M${x - r} ${y}h${2 * r}M${x} ${y - r}v${2 * r}`;
      for (const path of map.marks) path.setAttribute("d", found ? (found.ring ? ring : cross) : "");
      map.tip.hidden = true;
    }
  }

  function tell(map, p) {
    const found = ask(map, p);
    mark(found);
    if (!found) return;
    map.tip.replaceChildren();
    if (found.title) make("b", {}, map.tip).textContent = found.title;
    for (const [name, value] of found.rows) {
      const row = make("div", {}, map.tip);
      make("span", {}, row).textContent = name;
      make("b", {}, row).textContent = value === null ? "none" : String(value).replace("-", "−");
    }
    map.tip.hidden = false;
    const outer = map.screen.getBoundingClientRect(), matrix = map.plot.getScreenCTM();
    const q = new DOMPoint(...found.p).matrixTransform(matrix), box = map.tip.getBoundingClientRect();
    const x = Math.min(Math.max(q.x - outer.left + 14, 0), outer.width - box.width);
    const above = q.y - outer.top - box.height - 14;
    map.tip.style.left = `${x}px`;
    map.tip.style.top = `${above < 0 ? q.y - outer.top + 18 : above}px`;
  }

  function listen(map) {
    const { svg, fingers } = map;
    let pinch = 0;
    svg.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, at(map, event));
      if (event.pointerType === "touch") tell(map, at(map, event));
      if (view.k > 1 || fingers.size > 1) svg.setPointerCapture(event.pointerId);
      pinch = spread(fingers);
    });
    svg.addEventListener("pointermove", (event) => {
      const p = at(map, event), before = fingers.get(event.pointerId);
      if (!before) { if (event.pointerType !== "touch") tell(map, p); return; }
      fingers.set(event.pointerId, p);
      if (fingers.size === 2) {
        const now = spread(fingers), [a, b] = [...fingers.values()];
        if (pinch > 0) scale(now / pinch, [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]);
        pinch = now;
      } else if (view.k > 1) {
        view.x += p[0] - before[0];
        view.y += p[1] - before[1];
        show();
      }
    });
    for (const name of ["pointerup", "pointercancel"]) {
      svg.addEventListener(name, (event) => fingers.delete(event.pointerId));
    }
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") mark(null); });
    svg.addEventListener("dblclick", (event) => scale(2, at(map, event)));
    svg.addEventListener("wheel", (event) => {
      // a bare wheel scrolls the page
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      scale(Math.exp(-event.deltaY / 300), at(map, event));
    }, { passive: false });
    let cursor = [width / 2, height / 2];
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const factor = { "+": 1.6, "=": 1.6, "-": 1 / 1.6, "0": 0 }[event.key];
      if (event.ctrlKey || event.metaKey || (!step && factor === undefined)) return;
      event.preventDefault();
      if (factor !== undefined) { scale(factor, cursor); } else { walk(step); }
      tell(map, cursor);
    });
    svg.addEventListener("blur", () => mark(null));

    // moves the cursor, and the view where the cursor would leave it
    function walk([a, b]) {
      const next = [cursor[0] + a * width / 40, cursor[1] + b * height / 40];
      view.x -= Math.max(0, next[0] - width) + Math.min(0, next[0]);
      view.y -= Math.max(0, next[1] - height) + Math.min(0, next[1]);
      cursor = [Math.min(Math.max(next[0], 0), width), Math.min(Math.max(next[1], 0), height)];
      show();
    }
  }

  function spread(fingers) {
    if (fingers.size !== 2) return 0;
    const [a, b] = [...fingers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  }
})();
