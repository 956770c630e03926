// The table of an experiment's runs, asked for every two seconds.
"use strict";

(() => {
  const PAUSE = 2000;
  const STATES = ["waiting", "running", "done", "failed", "stopped"];
  const byId = (id) => document.getElementById(id);
  const whole = (number) => Math.round(number).toLocaleString("en");
  let tag = "";

  // Seconds as a reader wants them.
  function duration(seconds) {
    if (seconds === null || !Number.isFinite(seconds)) return "";
    const units = [["days", 86400], ["h", 3600], ["min", 60]];
    const found = units.find(([, length]) => seconds >= 2 * length);
    return found ? `${(seconds / found[1]).toFixed(1)} ${found[0]}` : `${Math.round(seconds)} s`;
  }

  function cell(text, kind) {
    const made = document.createElement("td");
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function row(run, number) {
    const made = document.createElement("tr");
    const name = cell("");
    if (run.has_page) {
      const link = name.appendChild(document.createElement("a"));
      link.href = `runs/${number}/`;
      link.textContent = run.name;
    } else {
      name.textContent = run.name;
    }
    const again = run.attempts > 1 && run.state === "running" ? ` (start ${run.attempts})` : "";
    const state = cell(run.state + again + (run.error ? `: ${run.error}` : ""));
    state.dataset.state = run.state;
    const rate = run.state === "running" ? run.rate : null;
    const left = rate ? ((run.steps - run.made) * run.seeds) / rate : null;
    made.append(
      name,
      state,
      cell(`${whole(run.made)} of ${whole(run.steps)}`, "number"),
      cell(rate ? whole(rate) : "", "number"),
      cell(duration(left), "number"),
    );
    return made;
  }

  function show(found) {
    const counts = STATES.map((state) => [state, found.runs.filter((run) => run.state === state).length]);
    const total = found.runs.reduce((sum, run) => sum + run.steps * run.seeds, 0);
    const made = found.runs.reduce((sum, run) => sum + run.made * run.seeds, 0);
    const finished = found.runs.every((run) => run.state === "done" || run.state === "stopped");
    byId("progress").value = total ? made / total : 0;
    byId("state").textContent = finished ? "finished" : found.current ? "training" : "stopped";
    byId("state").dataset.state = finished ? "finished" : found.current ? "training" : "lost";
    const left = found.seconds_left ? `; about ${duration(found.seconds_left)} left` : "";
    const shown = counts.filter(([state, count]) => count || state !== "stopped"); // only searches stop runs
    const words = shown.map(([state, count]) => `${count} ${state}`).join(", ");
    byId("summary").textContent = `${words}; ${whole(found.rate)} steps/s together${left}`;
    byId("continue").hidden = finished || found.current;
    byId("command").textContent = found.command;
    byId("runs").replaceChildren(...found.runs.map(row));
  }

  async function follow() {
    try {
      const answer = await fetch("status.json", { headers: tag ? { "If-None-Match": tag } : {} });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        show(await answer.json());
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // fetch failed: the server has stopped
      byId("state").textContent = "the server has stopped";
      byId("state").dataset.state = "lost";
    }
    setTimeout(follow, PAUSE);
  }

  byId("title").textContent = page.data.title;
  follow();
})();
