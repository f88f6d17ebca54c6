// Draws the figures when they come near: data are shared, panels go into as many columns as fit,
// colours follow the mode. Long tables get a box that filters them.
(function () {
  "use strict";
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("figure-data"), specs = read("figure-specs"), themes = read("figure-themes");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const LABELS = 118; // px that the axis labels at the left take, until they were seen
  const GAP = 26, NARROWEST = 190, WIDEST = 360, WIDEST_ALONE = 520;

  function fit(spec, width, labels) {
    const inner = spec.spec;
    if (spec.facet && inner) {
      const room = width - labels;
      const most = spec.columns || 1;
      const columns = Math.max(1, Math.min(most, Math.floor((room + GAP) / (NARROWEST + GAP))));
      spec.columns = columns;
      inner.width = Math.max(140, Math.min(columns === 1 ? WIDEST_ALONE : WIDEST, Math.floor(room / columns) - GAP));
      if (spec.facet.header) spec.facet.header.labelLimit = columns === 1 ? width - 60 : inner.width + GAP;
    } else {
      spec.width = Math.max(160, Math.min(760, width - labels - 70));
    }
    // A narrow page has the labels of the title on a line of their own.
    if (width < 480) spec.title.text = spec.title.text.flatMap((t) => t.split(/ (?=\()/));
    return spec;
  }

  async function embed(figure, target, labels) {
    const spec = JSON.parse(JSON.stringify(specs[figure.dataset.figure]));
    const wanted = (spec.data || {}).name;
    if (wanted) spec.datasets = { [wanted]: data[wanted] };
    spec.config = JSON.parse(JSON.stringify(themes[dark.matches ? "dark" : "light"]));
    if (figure.clientWidth < 480) spec.config.axis.labelLimit = 120;
    if (figure.view) figure.view.finalize();
    // The library makes its own element as wide as the drawing; the one around it scrolls.
    const inner = document.createElement("div");
    target.replaceChildren(inner);
    figure.view = await window.vegaEmbed(inner, fit(spec, figure.clientWidth, labels), {
      mode: "vega-lite",
      renderer: ((spec.usermeta || {}).embedOptions || {}).renderer || "svg",
      tooltip: { theme: "custom" },
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: figure.dataset.figure,
    });
    // The label of the group around it says what the drawing shows, in one sentence.
    for (const drawing of inner.querySelectorAll("svg.marks, canvas")) drawing.setAttribute("aria-hidden", "true");
    const menu = inner.querySelector("summary");
    if (menu) menu.setAttribute("aria-label", "Save this figure as a picture");
  }

  async function draw(figure) {
    const target = figure.querySelector(".chart");
    try {
      await embed(figure, target, LABELS);
      figure.classList.add("drawn");
      const over = target.scrollWidth - target.clientWidth;
      if (over > 0) await embed(figure, target, LABELS + over + 8);
    } catch (fault) {
      // The static picture stays.
      target.replaceChildren();
      figure.classList.remove("drawn");
      console.error(figure.dataset.figure, fault);
    }
  }

  const figures = Array.from(document.querySelectorAll("figure[data-figure]"));
  const waiting = new Set(figures);
  let turn = Promise.resolve(), queued = 0;
  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 30));

  // One figure at a time, so that the page answers in between.
  function queue(figure) {
    if (!waiting.delete(figure)) return;
    near.unobserve(figure);
    queued += 1;
    turn = turn.then(() => new Promise((done) => idle(done))).then(() => draw(figure)).then(() => {
      queued -= 1;
      if (queued) return;
      // Nothing near is left: draw what is further off.
      const next = figures.find((one) => waiting.has(one));
      if (next) queue(next); else document.documentElement.dataset.drawn = "yes";
    });
  }

  const near = new IntersectionObserver((seen) => {
    for (const entry of seen) if (entry.isIntersecting) queue(entry.target);
  }, { rootMargin: "800px 0px" });

  function drawAll() {
    for (const figure of figures) { waiting.add(figure); near.unobserve(figure); near.observe(figure); }
  }

  function filterTables() {
    for (const region of document.querySelectorAll(".scroll:not(.claims)")) {
      const rows = Array.from(region.querySelectorAll("tbody tr"));
      if (rows.length < 15) continue;
      const box = document.createElement("p"), label = document.createElement("label"), input = document.createElement("input");
      const left = document.createElement("span");
      box.className = "find screen";
      input.type = "search";
      left.setAttribute("role", "status");
      label.append("Filter these " + rows.length + " rows", input);
      box.append(label, " ", left);
      region.before(box);
      input.addEventListener("input", () => {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        let shown = 0;
        for (const row of rows) {
          const text = row.textContent.toLowerCase();
          row.hidden = !words.every((word) => text.includes(word));
          if (!row.hidden) shown += 1;
        }
        left.textContent = words.length ? shown + " shown" : "";
      });
    }
  }

  let width = window.innerWidth, timer = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(timer);
    timer = setTimeout(drawAll, 200);
  });
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details.printed")) part.open = true;
  });
  filterTables();
  drawAll();
})();
