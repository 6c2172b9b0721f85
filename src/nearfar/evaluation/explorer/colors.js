// Colours of the points: one colour, change of neighbourhood, categories, or a scale of numbers.
const HUES = ["#3b82d6", "#e1812c", "#2e9c53", "#d6404a", "#9467d1", "#a0705f", "#d862b0", "#7f8790", "#a5a526", "#1ea7ba"];
const SCALE = { light: ["#440154", "#414487", "#2a788e", "#22a884", "#8cc23a"], dark: ["#5a62b5", "#3e8ec4", "#2fb8a0", "#8bd646", "#fde725"] };
const STEPS = 32;
const dark = matchMedia("(prefers-color-scheme: dark)");
const colors = { palette: [], of: new Uint8Array(count), drawn: new Uint16Array(count), legend: null };

function mix(first, second, share) {
  const channel = (color, at) => parseInt(color.slice(1 + 2 * at, 3 + 2 * at), 16);
  const mixed = [0, 1, 2].map((at) => Math.round(channel(first, at) * (1 - share) + channel(second, at) * share));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

// Thirty colours: ten hues, then lighter and darker ones.
function categoryColor(number) {
  const tones = [HUES[number % 10], mix(HUES[number % 10], "#ffffff", 0.45), mix(HUES[number % 10], "#000000", 0.4)];
  return tones[Math.floor(number / 10) % 3];
}

function scaleColor(share) {
  const stops = SCALE[dark.matches ? "dark" : "light"];
  const place = Math.min(share, 0.9999) * (stops.length - 1);
  return mix(stops[Math.floor(place)], stops[Math.floor(place) + 1], place % 1);
}

function colorOptions() {
  const options = [{ name: "One colour", kind: "one" }];
  if (moves) options.push({ name: "Change of neighbourhood", kind: "numbers", numbers: change, low: 0, high: 1, show: percent });
  for (const column of data.columns) {
    if (column.kind === "categories") options.push({ ...column, codes: decode(column.codes, Uint8Array) });
    if (column.kind === "numbers") options.push(numberOption(column));
  }
  return options;
}

function numberOption(column) {
  const numbers = Float64Array.from(column.values, (value) => (value === "" ? NaN : Number(value)));
  let low = Infinity;
  let high = -Infinity;
  for (const number of numbers) {
    if (number < low) low = number;
    if (number > high) high = number;
  }
  return { name: column.name, kind: "numbers", numbers, low, high, show: (value) => String(Number(value.toPrecision(6))) };
}

function applyColors(option) {
  const grey = dark.matches ? "#59626d" : "#b3bac2";
  state.category = null;
  colors.legend = option;
  if (option.kind === "categories") {
    colors.palette = [...option.categories.map((_, number) => categoryColor(number)), grey];
    for (let i = 0; i < count; i++) colors.of[i] = Math.min(option.codes[i], option.categories.length);
  } else if (option.kind === "numbers") {
    colors.palette = [...Array.from({ length: STEPS }, (_, step) => scaleColor(step / (STEPS - 1))), grey];
    const range = option.high - option.low || 1;
    for (let i = 0; i < count; i++) {
      const share = (option.numbers[i] - option.low) / range;
      colors.of[i] = Number.isNaN(share) ? STEPS : Math.min(STEPS - 1, Math.floor(share * STEPS));
    }
  } else {
    colors.palette = [cssColor("--accent")];
    colors.of.fill(0);
  }
  // Points of one colour are drawn together. Categories are mixed, so that none covers the others.
  const step = option.kind === "categories" && count > 1 ? coprimeStep(count) : 1;
  for (let i = 0; i < count; i++) colors.drawn[i] = (i * step) % count;
  if (option.kind !== "categories") colors.drawn.sort((a, b) => colors.of[a] - colors.of[b]);
}

function coprimeStep(size) {
  const divisor = (a, b) => (b ? divisor(b, a % b) : a);
  let step = Math.max(1, Math.floor(size * 0.618));
  while (divisor(step, size) !== 1) step++;
  return step;
}

function drawLegend(onChange) {
  const legend = byId("legend");
  const option = colors.legend;
  legend.replaceChildren();
  if (option.kind === "categories") {
    option.categories.forEach((name, number) => {
      const swatch = element("span", { className: "swatch" });
      swatch.style.background = colors.palette[number];
      const button = element("button", { type: "button" }, swatch, name);
      button.setAttribute("aria-pressed", String(state.category === number));
      button.addEventListener("click", () => {
        state.category = state.category === number ? null : number;
        [...legend.children].forEach((one, place) => one.setAttribute("aria-pressed", String(state.category === place)));
        onChange();
      });
      legend.append(button);
    });
  } else if (option.kind === "numbers") {
    const scale = element("span", { className: "scale" });
    scale.style.background = `linear-gradient(to right, ${colors.palette.slice(0, STEPS).join(", ")})`;
    legend.append(option.show(option.low), scale, option.show(option.high));
  }
}
