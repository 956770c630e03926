"use strict";
// What all pages share: their data, the theme, and how plotly's figures look in it.

const page = (() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const redraws = [];
  const probe = document.body.appendChild(document.createElement("span"));
  probe.hidden = true;

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

  // The present value of a CSS colour such as "var(--ink)" or "light-dark(#000, #fff)", which plotly can't read.
  function colour(css) {
    probe.style.color = css;
    return getComputedStyle(probe).color;
  }

  // The same colour, this opaque (0 to 1).
  function translucent(css, opacity) {
    return colour(css).replace(/^rgb\((.*)\)$/, `rgba($1, ${opacity})`);
  }

  // Draws now, and again whenever the theme changes.
  function draw(redraw) {
    redraws.push(redraw);
    redraw();
  }

  function themeChanged() {
    button.setAttribute("aria-pressed", String(isDark()));
    redraws.forEach((redraw) => redraw());
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    themeChanged();
  }

  button.addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  systemDark.addEventListener("change", themeChanged);

  let beforePrint = "";
  addEventListener("beforeprint", () => {
    beforePrint = isDark() ? "dark" : "light";
    setTheme("light");
  });
  addEventListener("afterprint", () => setTheme(beforePrint));
  button.setAttribute("aria-pressed", String(isDark()));

  function axis(title) {
    return {
      title: { text: title, standoff: 8 },
      automargin: true,
      gridcolor: colour("var(--grid)"),
      linecolor: colour("var(--line)"),
      zerolinecolor: colour("var(--line)"),
      ticks: "outside",
      ticklen: 4,
      tickcolor: colour("var(--line)"),
    };
  }

  // A plotly layout in the present theme, with these titles of the axes.
  function layout(x, y) {
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("var(--muted)") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 48, r: 12, t: 12, b: 44 },
      hovermode: "x unified",
      hoverlabel: {
        bgcolor: colour("var(--surface)"),
        bordercolor: colour("var(--line)"),
        font: { color: colour("var(--ink)") },
      },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
      showlegend: false,
      // Where one points: a line one pixel wide, without an outline.
      xaxis: {
        ...axis(x),
        showspikes: true,
        spikemode: "across",
        spikethickness: -1,
        spikecolor: colour("var(--muted)"),
      },
      yaxis: axis(y),
    };
  }

  // The table of contents marks the section that is read.
  const links = [...document.querySelectorAll(".contents a")];
  const sections = links.map((link) => document.getElementById(link.hash.slice(1)));
  function markSection() {
    const read = sections.findLastIndex((section) => section.getBoundingClientRect().top < innerHeight / 3);
    links.forEach((link, at) => link.setAttribute("aria-current", String(at === Math.max(0, read))));
  }
  addEventListener("scroll", markSection, { passive: true });
  markSection();

  // Without plotly's buttons: pages have their own for downloads, and one of plotly's uploads the figure to a server.
  const config = { responsive: true, displayModeBar: false };

  const data = JSON.parse(document.getElementById("data").textContent);
  return { data, colour, translucent, draw, layout, config };
})();
