// The run: what the server knows of it, asked every two seconds.

const run = (() => {
  const PAUSE = 2000;
  const files = new Map();
  let state = null;
  let tag = "";

  // Calls `changed(state)` when there is something new, and `asked(idleSeconds)` after every answer; null: no answer.
  async function follow(changed, asked) {
    let idle = null;
    try {
      const answer = await fetch("run.json", { headers: tag ? { "If-None-Match": tag } : {} });
      idle = Number(answer.headers.get("X-Idle-Seconds"));
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        state = await answer.json();
        await changed(state);
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // fetch failed: the server has stopped
      idle = null;
    }
    asked(idle);
    setTimeout(() => follow(changed, asked), PAUSE);
  }

  // A recorded file; null if it has been deleted since.
  async function recorded(series, step) {
    const name = `${series}/${step}.json`;
    if (!files.has(name)) {
      const answer = await fetch(name);
      if (answer.status !== 200) return null;
      files.set(name, await answer.json());
    }
    return files.get(name);
  }

  return {
    follow,
    recorded,
    get state() {
      return state;
    },
  };
})();

// A number as a reader wants it: 1,234 or 0.0123.
function shown(number) {
  if (number === null || number === undefined) return "–";
  if (Math.abs(number) >= 1000) return Math.round(number).toLocaleString("en");
  return String(Number(number.toPrecision(3)));
}

const percent = (share) => (share === null || share === undefined ? "–" : `${shown(100 * share)} %`);
const byId = (id) => document.getElementById(id);

function setText(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}
