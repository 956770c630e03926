// Episodes as pictures: a strip of all of them, or one after another.

const films = (() => {
  const FRAMES_PER_SECOND = 8;
  const addresses = new Map();

  // The pictures as an object URL, made once.
  function address(film) {
    if (!addresses.has(film)) {
      const [head, body] = film.image.split(",");
      const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
      addresses.set(film, URL.createObjectURL(new Blob([bytes], { type: head.slice(5, head.indexOf(";")) })));
    }
    return addresses.get(film);
  }

  const element = (name, className, text = "") =>
    Object.assign(document.createElement(name), { className, textContent: text });

  function show(frame, film, number) {
    const rows = Math.ceil(film.steps.length / film.columns);
    const place = (at, count) => (count > 1 ? (100 * at) / (count - 1) : 0);
    frame.style.aspectRatio = `${film.width} / ${film.height}`;
    frame.style.backgroundImage = `url("${address(film)}")`;
    frame.style.backgroundSize = `${100 * film.columns}% ${100 * rows}%`;
    const x = place(number % film.columns, film.columns);
    const y = place(Math.floor(number / film.columns), rows);
    frame.style.backgroundPosition = `${x}% ${y}%`;
    frame.classList.toggle("paid-frame", film.rewards[number] !== 0);
  }

  const signed = (reward) => `${reward > 0 ? "+" : "−"}${shown(Math.abs(reward))}`;

  function strip(container, film) {
    container.replaceChildren(
      ...film.steps.map((step, i) => {
        const figure = element("figure", "");
        const frame = element("div", "frame pixels");
        const caption = element("figcaption", "", `step ${step}`);
        show(frame, film, i);
        if (film.rewards[i]) caption.append(" ", element("span", "reward", signed(film.rewards[i])));
        figure.append(frame, caption);
        return figure;
      }),
    );
  }

  // A player inside a figure; `load(film, text)` shows another film in it.
  function player(figure, name) {
    const box = element("div", "film");
    const frame = element("div", "frame");
    const controls = element("div", "film-controls");
    const button = element("button", "", "▶ Play");
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: 0, value: 0 });
    const caption = element("figcaption", "");
    let film = null,
      text = "",
      timer = 0;
    frame.setAttribute("role", "img");
    button.type = "button";
    button.setAttribute("aria-label", `Play the ${name} episode`);
    slider.setAttribute("aria-label", `Picture of the ${name} episode`);
    controls.append(button, slider);
    box.append(frame, controls);
    figure.append(box, caption);

    function draw() {
      const i = Number(slider.value);
      const where = `step ${shown(film.steps[i])}, earned so far ${shown(i ? film.returns[i - 1] : 0)}`;
      show(frame, film, i);
      frame.setAttribute("aria-label", `${name} episode at ${where}`);
      slider.setAttribute("aria-valuetext", where);
      caption.textContent = `${text} Shown: ${where}.`;
    }

    function stop() {
      clearInterval(timer);
      timer = 0;
      button.textContent = "▶ Play";
      button.setAttribute("aria-label", `Play the ${name} episode`);
    }

    button.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(slider.value) === Number(slider.max)) slider.value = 0;
      button.textContent = "❚❚ Pause";
      button.setAttribute("aria-label", `Pause the ${name} episode`);
      timer = setInterval(() => {
        slider.stepUp();
        draw();
        if (Number(slider.value) === Number(slider.max)) stop();
      }, 1000 / FRAMES_PER_SECOND);
    });
    slider.addEventListener("input", draw);

    return function load(newFilm, newText) {
      if (newFilm === film) return;
      stop();
      film = newFilm;
      frame.style.maxWidth = `${1.75 * film.width}px`;
      text = newText;
      slider.max = film.steps.length - 1;
      slider.value = film.steps.length - 1;
      draw();
    };
  }

  return { strip, player };
})();
