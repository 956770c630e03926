// The page of a run: what the reader chose, and what follows from it and from the run's new data.

(() => {
  const about = page.data;
  const recorded = about.record;
  const view = { seed: null, following: true, snapshot: null, playing: 0 };
  const players = {};

  setText("title", `${about.agent} on ${about.env}`);
  setText("run-name", about.name);
  byId("idea").hidden = !about.self_imitation;
  byId("no-record").hidden = recorded;
  byId("moments").hidden = !recorded;
  byId("maze").hidden = !(recorded && about.maze);
  byId("episodes").hidden = !recorded || Boolean(about.maze);
  byId("memory").hidden = !(recorded && about.self_imitation);
  byId("imitated").hidden = byId("influence").hidden = !about.self_imitation;
  byId("steps-figure").hidden = !recorded;
  byId("discounts").hidden = !(about.self_imitation && about.gamma > about.learner_gamma);
  setText(
    "discounts",
    `Here R is discounted by ${about.gamma} per step and V by ${about.learner_gamma}, ` +
      "so R can stay above V even when the agent has nothing more to learn.",
  );

  const curve = () => run.state.curves.find((own) => own.seed === view.seed);
  const seedData = () => view.snapshot?.seeds.find((own) => own.seed === view.seed) ?? null;

  function drawCurves() {
    if (!run.state) return;
    const step = view.snapshot && !view.following ? view.snapshot.step : null;
    charts.returns(run.state.curves, view.seed, step);
    if (about.self_imitation) {
      charts.share(curve(), step);
      charts.influence(curve(), step);
    }
  }

  function drawSnapshot() {
    const found = seedData();
    if (!found) return;
    if (found.memory) charts.memory(found.memory);
    if (found.imitated) charts.steps(found.imitated);
    if (about.maze) maze.draw(found);
    else drawStrip(found);
  }

  function drawStrip(found) {
    const film = found.best?.film;
    byId("strip-block").hidden = !about.atari || !about.self_imitation;
    if (!film) return setText("strip-text", "No episode is stored yet.");
    films.strip(byId("strip"), film);
    const unit = about.rewards === "sign" ? " (each reward counts as +1 or −1)" : "";
    setText(
      "strip-text",
      `Seed ${found.seed}: return ${shown(found.best.return)}${unit} in ${shown(found.best.length)} steps, ` +
        `stored ${shown(found.best.age)} steps ago.`,
    );
  }

  // The newest and the best episode that were played until the moment on the slider.
  async function drawFilms() {
    if (about.maze || !recorded || !run.state) return;
    const until = view.following ? Infinity : view.snapshot.step;
    const steps = run.state.played.filter((step) => step <= until);
    const note = view.snapshot?.note ?? "";
    byId("episodes-note").hidden = !note;
    setText("episodes-note", note ? `No ${steps.length ? "more " : ""}episodes are played: ${note}` : "");
    byId("films").hidden = steps.length === 0;
    setText(
      "episodes-text",
      steps.length || note
        ? "Now and then the policy of the seed with the highest return plays an episode in a rendered copy of the " +
            "environment."
        : "No episode has been played yet. The first one follows as soon as it takes no more than its share of the " +
            "time.",
    );
    const played = (await Promise.all(steps.map((step) => run.recorded("played", step)))).filter(Boolean);
    if (!played.length) return;
    const best = played.reduce((a, b) => (b.return >= a.return ? b : a)),
      newest = played.at(-1);
    byId("best-film").hidden = best === newest;
    setText("newest-film-heading", best === newest ? "Newest episode, also the best" : "Newest episode");
    for (const [name, episode] of [
      ["newest", newest],
      ["best", best],
    ]) {
      players[name] ??= films.player(byId(`${name}-film`), name);
      const end = episode.ended ? "" : " (cut)";
      players[name](
        episode.film,
        `Seed ${episode.seed} at step ${shown(episode.step)}: return ${shown(episode.return)} in ` +
          `${shown(episode.length)} steps${end}.`,
      );
    }
  }

  function drawAll() {
    drawCurves();
    drawSnapshot();
    drawFilms();
  }

  async function goTo(index) {
    const steps = run.state.snapshots;
    if (!steps.length) return;
    const slider = byId("slider"),
      step = steps[index];
    slider.value = index;
    slider.setAttribute("aria-valuetext", `step ${step}`);
    setText("moment", `step ${shown(step)}`);
    byId("newest").setAttribute("aria-pressed", String(view.following));
    const found = await run.recorded("snapshots", step);
    if (found && Number(slider.value) === index) {
      view.snapshot = found;
      drawAll();
    }
  }

  function pause() {
    clearInterval(view.playing);
    view.playing = 0;
    byId("play").setAttribute("aria-pressed", "false");
  }

  function play() {
    const slider = byId("slider"),
      last = () => run.state.snapshots.length - 1;
    view.following = false;
    if (Number(slider.value) >= last()) goTo(0);
    byId("play").setAttribute("aria-pressed", "true");
    view.playing = setInterval(() => {
      const next = Number(slider.value) + 1;
      if (next > last()) return pause();
      goTo(next);
    }, 350);
  }

  byId("slider").addEventListener("input", (event) => {
    pause();
    const index = Number(event.target.value);
    view.following = index === run.state.snapshots.length - 1;
    goTo(index);
  });
  byId("play").addEventListener("click", () => (view.playing ? pause() : play()));
  byId("newest").addEventListener("click", () => {
    pause();
    view.following = true;
    goTo(run.state.snapshots.length - 1);
  });
  byId("seed").addEventListener("change", (event) => {
    view.seed = Number(event.target.value);
    drawAll();
  });
  if (about.maze && recorded) maze.prepare(drawSnapshot);

  function offerSeeds(seeds) {
    const select = byId("seed");
    if (select.options.length >= seeds.length) return;
    seeds.slice(select.options.length).forEach((seed) => select.add(new Option(String(seed), seed)));
    view.seed ??= seeds[0];
  }

  async function changed(state) {
    const at = view.snapshot?.step;
    byId("progress").value = state.step / state.total_steps;
    byId("slider").max = Math.max(0, state.snapshots.length - 1);
    const rate = state.curves[0]?.steps_per_second?.at(-1);
    setText(
      "status",
      `${shown(state.step)} of ${shown(state.total_steps)} steps${rate ? `, ${shown(rate)} steps/s` : ""}`,
    );
    if (!recorded) offerSeeds(state.curves.map((own) => own.seed));
    else if (state.snapshots.length) {
      const first = await run.recorded("snapshots", state.snapshots[0]);
      if (first) offerSeeds(first.seeds.map((own) => own.seed));
    }
    if (view.following && state.snapshots.length) return goTo(state.snapshots.length - 1);
    if (at !== undefined)
      byId("slider").value = Math.max(
        0,
        state.snapshots.findLastIndex((step) => step <= at),
      );
    drawCurves();
    drawFilms();
  }

  // Without rows for two minutes, or for four times as long as usual, the run is taken to have stopped.
  const patience = () => Math.max(120, 4 * (run.state?.row_seconds ?? 0));

  function asked(idle) {
    const chip = byId("state");
    const state =
      idle === null ? "lost" : run.state?.finished ? "finished" : idle < patience() ? "training" : "stopped";
    const words = { lost: "connection lost", finished: "finished", training: "training", stopped: "no new data" };
    if (chip.dataset.state !== state) {
      chip.dataset.state = state;
      setText("state", words[state]);
      setText("live", `The run: ${words[state]}`);
    }
  }

  page.draw(drawAll);
  run.follow(changed, asked);
})();
