// The charts. Each has a caption that says the same in words.

const charts = (() => {
  const config = { ...page.config, displayModeBar: false }; // it would cover the legends

  function draw(id, traces, layout) {
    Plotly.react(byId(id), traces, { ...layout, uirevision: "kept" }, config); // keeps what the reader zoomed to
  }

  const sil = () => page.colour("var(--sil)");
  const now = () => page.colour("var(--now)");
  const muted = (opacity) => page.translucent("var(--muted)", opacity);
  const last = (numbers) => numbers.findLast((number) => number !== null);

  // A line where the slider stands.
  function moment(step) {
    if (step === null) return [];
    const line = { color: muted(0.6), width: 1, dash: "dot" };
    return [{ type: "line", x0: step, x1: step, yref: "paper", y0: 0, y1: 1, line }];
  }

  function overTraining(y, step) {
    const layout = page.layout("steps", y);
    layout.shapes = moment(step);
    layout.xaxis.rangemode = "tozero";
    layout.legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };
    layout.margin.t = 28;
    return layout;
  }

  const line = (curve, column, name, colour, width = 2.4, dash = "solid") => ({
    x: curve.step,
    y: curve[column],
    name,
    mode: "lines",
    line: { color: colour, width, dash },
    connectgaps: true,
  });

  function returns(curves, seed, step) {
    const others = curves.filter((curve) => curve.seed !== seed);
    const own = curves.find((curve) => curve.seed === seed);
    const traces = others.map((curve) => ({
      ...line(curve, "return_mean", `seed ${curve.seed}`, muted(0.45), 1.2),
      showlegend: false,
    }));
    if (own) {
      traces.push(line(own, "return_best", "best episode", sil(), 1.6, "dot"));
      traces.push(line(own, "return_mean", `mean, seed ${seed}`, now()));
    }
    const layout = overTraining("return", step);
    layout.showlegend = Boolean(own);
    draw("returns-chart", traces, layout);
    const ended = own && last(own.return_mean);
    setText(
      "returns-text",
      ended === undefined || ended === null
        ? "No episode has ended yet."
        : `Seed ${seed}: mean return ${shown(ended)} at step ${shown(own.step.at(-1))}; ` +
            `its best episode so far earned ${shown(Math.max(...own.return_best.filter((value) => value !== null)))}.`,
    );
  }

  function memory(found) {
    const { points, histogram } = found;
    const largest = Math.max(...points.share, 1e-9);
    const layout = page.layout("steps stored after it", "return of the episode");
    layout.hovermode = "closest";
    layout.xaxis.range = [found.capacity * 1.02, -found.capacity * 0.02];
    layout.xaxis.autorange = false;
    draw(
      "memory-chart",
      [
        {
          x: points.age,
          y: points.return,
          mode: "markers",
          type: "scatter",
          marker: {
            size: points.share.map((share) => 5 + 17 * Math.sqrt(share / largest)),
            color: points.share.map((share) => Math.sqrt(share / largest)),
            cmin: 0,
            cmax: 1,
            colorscale: [
              [0, muted(0.55)],
              [1, sil()],
            ],
            opacity: 0.8,
            line: { width: 0.5, color: page.colour("var(--surface)") },
          },
          text: points.share.map(
            (share, i) =>
              `return ${shown(points.return[i])}, ${points.length[i]} steps<br>${percent(share)} of the sampling`,
          ),
          hovertemplate: "%{text}<extra></extra>",
        },
      ],
      layout,
    );
    const drawn = points.age.length < found.episodes ? `; ${points.age.length} of them are drawn` : "";
    setText(
      "memory-text",
      found.episodes
        ? `${shown(found.episodes)} episodes with ${shown(found.steps)} of at most ${shown(found.capacity)} steps` +
            `${drawn}. The best return is ${shown(found.best)}.`
        : "The replay buffer is still empty.",
    );
    const bars = page.layout("return of the episode", "share");
    bars.barmode = "group";
    bars.bargap = 0.15;
    bars.showlegend = true;
    bars.legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };
    bars.margin.t = 28;
    bars.yaxis.tickformat = ".0%";
    bars.yaxis.rangemode = "tozero";
    draw(
      "histogram-chart",
      [
        {
          type: "bar",
          x: histogram.return,
          y: histogram.episodes,
          name: "of the episodes",
          marker: { color: muted(0.65) },
        },
        { type: "bar", x: histogram.return, y: histogram.sampling, name: "of the sampling", marker: { color: sil() } },
      ],
      bars,
    );
    setText("histogram-text", preferred(histogram));
  }

  // The bar that is sampled most beyond its share.
  function preferred({ return: returns, episodes, sampling }) {
    if (!returns.length) return "";
    const gain = sampling.map((share, i) => share - episodes[i]);
    const i = gain.indexOf(Math.max(...gain));
    if (gain[i] < 0.01) return "Every return is sampled about as often as it is stored.";
    return (
      `Episodes with a return of about ${shown(returns[i])} are ${percent(episodes[i])} of the buffer ` +
      `and get ${percent(sampling[i])} of the sampling.`
    );
  }

  function steps(found) {
    const better = found.return.map((value, i) => value > found.value[i]);
    const both = [...found.return, ...found.value];
    const low = Math.min(0, ...both),
      high = Math.max(...both, low + 1e-6);
    const room = 0.04 * (high - low);
    const points = (keep, name, colour, size) => ({
      x: found.value.filter((_, i) => better[i] === keep),
      y: found.return.filter((_, i) => better[i] === keep),
      name,
      mode: "markers",
      type: "scatter",
      marker: { color: colour, size, opacity: 0.75 },
      hovertemplate: "V = %{x:.3g}, R = %{y:.3g}<extra></extra>",
    });
    const layout = page.layout("value that R is compared with, now", "return R, then");
    layout.hovermode = "closest";
    layout.showlegend = true;
    layout.legend = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };
    layout.margin.t = 28;
    layout.shapes = [
      { type: "line", x0: low, y0: low, x1: high, y1: high, line: { color: muted(0.7), width: 1, dash: "dash" } },
    ];
    layout.xaxis.range = layout.yaxis.range = [low - room, high + room];
    draw(
      "steps-chart",
      [points(false, "R ≤ V: left alone", muted(0.6), 5), points(true, "R > V: imitated", sil(), 6)],
      layout,
    );
    setText(
      "steps-text",
      found.steps
        ? `R > V holds for ${percent(found.of_memory)} of the stored steps; ` +
            `they get ${percent(found.of_sampling)} of the sampling.`
        : "There are no stored steps yet.",
    );
  }

  function share(curve, step) {
    const layout = overTraining("share with R > V", step);
    layout.yaxis.tickformat = ".0%";
    layout.yaxis.range = [0, 1];
    draw(
      "share-chart",
      curve
        ? [
            {
              ...line(curve, "sil_imitated", "of the sampled steps", sil()),
              fill: "tozeroy",
              fillcolor: page.translucent("var(--sil)", 0.15),
            },
          ]
        : [],
      layout,
    );
    setText(
      "share-text",
      curve
        ? `Share of the sampled steps that were imitated, over training. Latest: ${percent(last(curve.sil_imitated))}.`
        : "",
    );
  }

  function influence(curve, step) {
    if (!curve) return;
    const learner = page.data.learner.toUpperCase();
    const positive = (column) => ({ ...curve, [column]: curve[column].map((value) => (value > 0 ? value : null)) });
    const layout = overTraining("KL divergence per iteration", step);
    layout.yaxis.type = "log";
    layout.yaxis.exponentformat = "power";
    layout.showlegend = true;
    draw(
      "kl-chart",
      [
        line(positive("policy_kl"), "policy_kl", learner, now()),
        line(positive("sil_kl"), "sil_kl", "self-imitation", sil()),
      ],
      layout,
    );
    setText(
      "kl-text",
      `Latest: ${learner} ${shown(last(curve.policy_kl))}, self-imitation ${shown(last(curve.sil_kl))}.`,
    );
    const shares = overTraining("share of the distance", step);
    shares.yaxis.tickformat = ".0%";
    shares.yaxis.range = [0, 1];
    draw(
      "step-share-chart",
      [
        {
          ...line(curve, "sil_step_share", "self-imitation", sil()),
          fill: "tozeroy",
          fillcolor: page.translucent("var(--sil)", 0.15),
        },
      ],
      shares,
    );
    setText(
      "step-share-text",
      "Share of self-imitation in the distance that the parameters move. " +
        `Latest: ${percent(last(curve.sil_step_share))}.`,
    );
  }

  return { returns, memory, steps, share, influence };
})();
