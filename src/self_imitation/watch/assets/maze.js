// The grid world, drawn as SVG: a remembered path, and the policy in every cell.

const maze = (() => {
  const plan = page.data.maze;
  const SIZE = 24;
  const MOVES = [
    [-1, 0],
    [0, 1],
    [1, 0],
    [0, -1],
  ]; // up, right, down, left, as (row, column)
  const NAMES = ["up", "right", "down", "left"];
  const TASKS = ["fetch the key", "open the door", "reach the treasure"];
  const WITH_APPLES = ["both there", "upper one eaten", "lower one eaten", "both eaten"];

  function add(parent, name, attributes, text) {
    const element = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", name));
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const centre = ([row, column]) => [(column + 0.5) * SIZE, (row + 0.5) * SIZE];

  // An empty maze: walls, floor and things; those that are gone at this stage are faint.
  function empty(svg, there) {
    const columns = plan.rows[0].length;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${columns * SIZE} ${plan.rows.length * SIZE}`);
    add(svg, "rect", { class: "wall", width: columns * SIZE, height: plan.rows.length * SIZE });
    const cells = plan.cells.map(([row, column]) =>
      add(svg, "rect", {
        class: "cell",
        x: column * SIZE,
        y: row * SIZE,
        width: SIZE,
        height: SIZE,
        style: "fill: var(--floor)",
      }),
    );
    const things = add(svg, "g", {});
    const start = plan.rows.flatMap((text, row) => (text.includes("S") ? [[row, text.indexOf("S")]] : []))[0];
    const state = (flag) => (there[flag] ? "" : " taken");
    let [x, y] = centre(start);
    add(things, "circle", { class: "start", cx: x, cy: y, r: 9 });
    [x, y] = centre(plan.key);
    add(things, "path", {
      class: `key${state(0)}`,
      d: `M${x - 6} ${y}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0M${x} ${y}h7m-2 0v3.4`,
    });
    [x, y] = centre(plan.door);
    add(things, "rect", { class: `door${state(1)}`, x: x - SIZE / 2, y: y - 4, width: SIZE, height: 8, rx: 1.5 });
    [x, y] = centre(plan.treasure);
    add(things, "path", { class: `treasure${state(2)}`, d: `M${x} ${y - 8}l7 8l-7 8l-7 -8z` });
    plan.apples.forEach((place, i) => {
      [x, y] = centre(place);
      add(things, "circle", { class: `apple${state(3 + i)}`, cx: x, cy: y, r: 5 });
    });
    return cells;
  }

  // One piece of the way for each move, from the middle of the one before. Moves lie a little to the right of their
  // line, so that there and back are side by side.
  function pieces(cells, actions) {
    const aside = (i) => {
      const [dy, dx] = MOVES[actions[i]];
      return String(cells[i]) === String(cells[i + 1]) ? [0, 0] : [-3 * dy, 3 * dx]; // [0, 0]: it ran against a wall
    };
    const between = ([a, b], [c, d]) => [(a + c) / 2, (b + d) / 2];
    const sum = ([a, b], [c, d]) => [a + c, b + d];
    const middle = (i) => sum(between(centre(cells[i]), centre(cells[i + 1])), aside(i));
    return actions.map((_, i) => {
      const from = i ? middle(i - 1) : centre(cells[0]);
      const turn = sum(centre(cells[i]), i ? between(aside(i - 1), aside(i)) : aside(0));
      const end = i === actions.length - 1 ? `L${centre(cells[i + 1])}` : "";
      return `M${from}Q${turn} ${middle(i)}${end}`;
    });
  }

  function drawPath(best, task, step) {
    const svg = byId("remembered-maze");
    const perTask = plan.stages.length / TASKS.length;
    empty(svg, plan.stages[task * perTask]);
    if (!best || !best.cells) {
      setText("remembered-text", "No episode is stored yet.");
      return;
    }
    const at = (i) => plan.cells[best.cells[i]];
    const others = add(svg, "g", { class: "others" }),
      strong = add(svg, "g", {});
    pieces(
      best.cells.map((cell) => plan.cells[cell]),
      best.actions,
    ).forEach((d, i) => {
      add(Math.floor(best.stages[i] / perTask) === task ? strong : others, "path", { class: "path", d });
    });
    best.rewards.forEach((reward, i) => {
      if (!reward) return;
      const [x, y] = centre(at(i + 1));
      const below = at(i + 1)[0] < 2; // no room above
      const text = `${reward > 0 ? "+" : "−"}${Math.abs(reward)}`;
      add(svg, "text", { class: "paid", x, y: below ? y + 17 : y - 9 }, text);
    });
    const [x, y] = centre(at(step));
    add(svg, "circle", { class: "walker", cx: x, cy: y, r: 6 });
    const earned = best.rewards.slice(0, step).reduce((sum, reward) => sum + reward, 0);
    const where = step ? ` After step ${step} it has earned ${shown(earned)}.` : "";
    byId("walk").setAttribute("aria-valuetext", `step ${step} of ${best.actions.length}`);
    setText(
      "remembered-text",
      `Return ${shown(best.return)} in ${best.actions.length} steps, stored ${shown(best.age)} steps ago. ` +
        `Strong: what it did to ${TASKS[task]}.${where}`,
    );
  }

  const HEAT = {
    values: "value: discounted return that the agent expects",
    visits: "expected visits per episode of the present policy, computed exactly",
    remembered: "steps in the replay buffer",
  };

  // The policy at one stage: a wedge for each action, as long as it is likely.
  function drawPolicy(found, stage, heat) {
    const svg = byId("policy-maze");
    const cells = empty(svg, plan.stages[stage]);
    const table = (heat === "remembered" ? found.remembered : found.policy[heat])[stage];
    const low = heat === "values" ? Math.min(...table) : 0;
    const high = Math.max(low + 1e-6, ...table);
    const scaled = (value) => (value - low) / (high - low);
    const strength = heat === "values" ? scaled : (value) => Math.sqrt(scaled(value));
    const colour = heat === "remembered" ? "var(--sil)" : "var(--now)";
    plan.cells.forEach((place, i) => {
      cells[i].style.fill = `color-mix(in oklab, ${colour} ${Math.round(70 * strength(table[i]))}%, var(--floor))`;
      const chances = found.policy.percent[stage][i];
      add(
        cells[i],
        "title",
        {},
        `${heat === "values" ? "value" : "visits"} ${shown(table[i])}; ` +
          chances.map((p, a) => `${NAMES[a]} ${p} %`).join(", "),
      );
      const [x, y] = centre(place);
      MOVES.forEach(([dy, dx], action) => {
        const p = chances[action] / 100;
        if (p < 0.08) return;
        const length = 2 + 12 * p,
          half = 1 + 2.4 * p;
        const [x0, y0] = [x - 0.45 * p * length * dx, y - 0.45 * p * length * dy]; // a sure action lies in the middle
        add(svg, "path", {
          class: "wedge",
          d:
            `M${x0 - half * dy} ${y0 + half * dx}L${x0 + length * dx} ${y0 + length * dy}` +
            `L${x0 + half * dy} ${y0 - half * dx}Z`,
        });
      });
    });
    const [from, bar, to] = byId("heat-legend").children;
    from.textContent = shown(low);
    to.textContent = shown(high);
    bar.style.background = `linear-gradient(to right, var(--floor), color-mix(in oklab, ${colour} 70%, var(--floor)))`;
    setText(
      "policy-text",
      `Wedges: the longer, the more likely the action. Colour: ${HEAT[heat]}. ` +
        `An episode of this policy earns ${shown(found.policy.expected_return)} on average.`,
    );
  }

  // Radio buttons for the stages; `changed` is called after a choice.
  function prepare(changed) {
    const radios = (id, name, labels) =>
      labels.forEach((text, i) => {
        const label = document.createElement("label");
        const input = document.createElement("input");
        Object.assign(input, { type: "radio", name, value: i, checked: i === 0 });
        label.append(input, ` ${text}`);
        byId(id).append(label);
      });
    radios("tasks", "task", TASKS);
    if (plan.apples.length) {
      radios("apples", "apples", WITH_APPLES);
      byId("apples").hidden = false;
    }
    byId("maze").addEventListener("change", changed);
    byId("walk").addEventListener("input", changed);
  }

  const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;

  function draw(found) {
    const task = Number(chosen("task")),
      perTask = plan.stages.length / TASKS.length;
    const stage = task * perTask + Number(chosen("apples") ?? 0);
    const best = found.best,
      walked = byId("walk");
    const length = best?.actions?.length ?? 0;
    walked.max = length;
    drawPath(best, task, Math.min(Number(walked.value), length));
    const heat = chosen("heat");
    drawPolicy(found, stage, heat === "remembered" && !found.remembered ? "values" : heat);
  }

  return { plan, prepare, draw };
})();
