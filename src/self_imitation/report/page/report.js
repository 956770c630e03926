"use strict";
// Figures of the report, and downloads. `page.data` has the experiments, the other figures and the tables' files.

(() => {
  const charts = [];
  const LEGEND = { orientation: "h", yref: "container", y: 1, yanchor: "top", x: 0 };

  // Plotly reads a few HTML tags in labels; names must stay text.
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  const format = (value, digits) =>
    value.toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");

  // Mean over the neighbours on both sides; gaps stay gaps.
  function smooth(values, neighbours) {
    if (!neighbours) return values;
    return values.map((value, at) => {
      if (value === null) return null;
      const near = values.slice(Math.max(0, at - neighbours), at + neighbours + 1).filter((other) => other !== null);
      return near.reduce((sum, other) => sum + other, 0) / near.length;
    });
  }

  // Wall time in the unit that suits the longest run.
  function timeUnit(curves) {
    const longest = Math.max(0, ...curves.flatMap((curve) => curve.seconds || []));
    if (longest > 2 * 3600) return ["hours", 3600];
    return longest > 120 ? ["minutes", 60] : ["seconds", 1];
  }

  function hoverText(curve, name, at, digits) {
    const interval =
      curve.low[at] === null ? "" : ` (${format(curve.low[at], digits)} to ${format(curve.high[at], digits)})`;
    const mean = curve.mean[at] === null ? "–" : format(curve.mean[at], digits);
    return `${plain(name)}: ${mean}${interval}, n = ${curve.n[at]}`;
  }

  function band(x, low, high, colour) {
    const known = x.map((_, at) => at).filter((at) => low[at] !== null);
    return {
      x: [...known.map((at) => x[at]), ...known.map((at) => x[at]).reverse()],
      y: [...known.map((at) => high[at]), ...known.map((at) => low[at]).reverse()],
      fill: "toself",
      fillcolor: page.translucent(colour, 0.16),
      line: { width: 0 },
      hoverinfo: "skip",
      mode: "lines",
    };
  }

  function curveTraces(panel, agents, options) {
    const [, unit] = timeUnit(panel.curves);
    return panel.curves
      .filter((curve) => options.agents.has(curve.agent) && (!curve.best || options.best))
      .filter((curve) => options.x === "steps" || curve.seconds)
      .flatMap((curve) => {
        const { name, colour, dashed } = agents[curve.agent];
        const x = options.x === "steps" ? curve.steps : curve.seconds.map((seconds) => seconds / unit);
        const line = { color: page.colour(colour), width: 2.2, dash: curve.best ? "dot" : dashed ? "dash" : "solid" };
        const seeds = curve.seeds.map((seed) => ({
          x,
          y: smooth(seed, options.smoothing),
          mode: "lines",
          line: { ...line, width: 0.8 },
          opacity: 0.55,
          hoverinfo: "skip",
        }));
        const label = curve.best ? `${name}, best episode` : name;
        const mean = {
          x,
          y: smooth(curve.mean, options.smoothing),
          mode: x.length > 1 ? "lines" : "markers",
          name: plain(label),
          line,
          text: x.map((_, at) => hoverText(curve, label, at, panel.digits)),
          hovertemplate: "%{text}<extra></extra>",
        };
        const low = smooth(curve.low, options.smoothing);
        const high = smooth(curve.high, options.smoothing);
        const between = options.interval && !curve.best ? [band(x, low, high, colour)] : [];
        return [...between, ...(options.seeds ? seeds : []), mean];
      });
  }

  function curvesChart(panel, experiment, readOptions) {
    return () => {
      const options = readOptions();
      const x = options.x === "steps" ? "environment steps per seed" : `wall time in ${timeUnit(panel.curves)[0]}`;
      const layout = page.layout(x, experiment.measure);
      layout.hoverlabel.namelength = -1;
      if (options.x === "steps") layout.xaxis.hoverformat = ",.0f";
      return [curveTraces(panel, experiment.agents, options), layout];
    };
  }

  function setUpExperiment(experiment) {
    const form = document.getElementById(`${experiment.id}-controls`);
    const fields = form.elements;
    const readOptions = () => ({
      agents: new Set([...form.querySelectorAll("[name=agent]:checked")].map((box) => Number(box.value))),
      x: fields.x.value,
      interval: fields.interval.checked,
      seeds: fields.seeds.checked,
      best: Boolean(fields.best && fields.best.checked),
      smoothing: Number(fields.smoothing.value),
    });
    const own = experiment.panels.map((panel) => addChart(panel.id, curvesChart(panel, experiment, readOptions)));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      const neighbours = Number(fields.smoothing.value);
      fields.window.value = neighbours ? `over ${2 * neighbours + 1} points` : "off";
      own.forEach((chart) => chart.redraw());
    });
  }

  // Bars by name, for one or more series.
  function barsChart(figure) {
    return () => {
      const layout = page.layout(figure.x, "");
      const names = figure.names.map(plain);
      const traces = figure.series.map((series) => ({
        type: "bar",
        orientation: "h",
        name: plain(series.name),
        x: series.values,
        y: names,
        marker: { color: page.colour(series.colour) },
        error_x: series.low.some((low) => low !== null) && {
          type: "data",
          symmetric: false,
          array: series.values.map((value, at) => (series.high[at] === null ? 0 : series.high[at] - value)),
          arrayminus: series.values.map((value, at) => (series.low[at] === null ? 0 : value - series.low[at])),
          color: page.colour("var(--muted)"),
          thickness: 1.2,
          width: 3,
        },
        text: series.text.map(plain),
        textposition: "none",
        hovertemplate: `%{y}<br>${plain(series.name)}: %{text}<extra></extra>`,
      }));
      Object.assign(layout, {
        hovermode: "closest",
        bargap: 0.3,
        showlegend: figure.series.length > 1,
        legend: LEGEND,
      });
      layout.height = 110 + names.length * (10 + 14 * figure.series.length);
      layout.margin.t = layout.showlegend ? 40 : 12;
      Object.assign(layout.yaxis, { autorange: "reversed", gridcolor: "rgba(0,0,0,0)", type: "category", dtick: 1 });
      layout.xaxis.range = figure.range;
      const line = { color: page.colour("var(--muted)"), width: 1, dash: "dot" };
      layout.shapes = [{ type: "line", x0: figure.reference, x1: figure.reference, yref: "paper", y0: 0, y1: 1, line }];
      return [traces, layout];
    };
  }

  // The share of runs above each score, by agent.
  function profileChart(figure) {
    return () => {
      const layout = page.layout(figure.x, figure.y);
      const traces = figure.series.flatMap((series) => [
        band(figure.at, series.low, series.high, series.colour),
        {
          x: figure.at,
          y: series.values,
          mode: "lines",
          name: plain(series.name),
          line: { color: page.colour(series.colour), width: 2.2, dash: series.dashed ? "dash" : "solid" },
          text: figure.at.map((_, at) => hoverText({ mean: series.values, ...series }, series.name, at, 2)),
          hovertemplate: "%{text}<extra></extra>",
        },
      ]);
      traces.filter((trace) => trace.fill).forEach((trace) => (trace.showlegend = false));
      Object.assign(layout, { showlegend: true, legend: LEGEND });
      return [traces, layout];
    };
  }

  const KINDS = { bars: barsChart, profile: profileChart };

  // A figure that is drawn when it first comes near the window.
  function addChart(id, describe) {
    const element = document.getElementById(id);
    const chart = { element, drawn: false };
    chart.draw = () => {
      chart.drawn = true;
      const [traces, layout] = describe();
      Plotly.react(element, traces, layout, page.config);
    };
    chart.redraw = () => chart.drawn && chart.draw();
    charts.push(chart);
    near.observe(element);
    return chart;
  }

  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((entry) => entry.isIntersecting)) {
        near.unobserve(entry.target);
        charts.find((chart) => chart.element === entry.target).draw();
      }
    },
    { rootMargin: "400px" },
  );

  function download(name, content, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { table, figure, format: kind } = button.dataset;
    if (table) download(`${table}.${kind}`, page.data.tables[table][kind], kind === "csv" ? "text/csv" : "text/x-tex");
    if (figure) {
      const { element, draw, drawn } = charts.find((chart) => chart.element.id === figure);
      if (!drawn) draw();
      Plotly.downloadImage(element, { format: kind, filename: element.dataset.file, scale: kind === "png" ? 2 : 1 });
    }
  });

  page.data.experiments.forEach(setUpExperiment);
  page.data.figures.forEach((figure) => addChart(figure.id, KINDS[figure.kind](figure)));
  page.draw(() => charts.forEach((chart) => chart.redraw()));
  addEventListener("beforeprint", () => charts.filter((chart) => !chart.drawn).forEach((chart) => chart.draw()));
})();
