// Connects the controls, and draws the page for the first time.
const slider = byId("slider");
const still = matchMedia("(prefers-reduced-motion: reduce)");
let playing = null;

function setTime(time) {
  state.time = time;
  slider.value = String(Math.round(100 * time));
  slider.setAttribute("aria-valuetext", `${slider.value}% of the way from before to after`);
  tip.hidden = true;
  redraw();
}

function stopPlaying() {
  cancelAnimationFrame(playing);
  playing = null;
}

function play() {
  stopPlaying();
  const from = state.time;
  const to = from < 0.5 ? 1 : 0;
  if (still.matches) {
    setTime(to);
    return;
  }
  let start = null;
  const step = (now) => {
    start ??= now;
    const share = Math.min(1, (now - start) / 1500);
    setTime(from + (to - from) * share * share * (3 - 2 * share));
    playing = share < 1 ? requestAnimationFrame(step) : null;
  };
  playing = requestAnimationFrame(step);
}

const pointers = new Map();
let dragged = 0;
function position(event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  if (pointers.size === 0) dragged = 0;
  pointers.set(event.pointerId, position(event));
});
canvas.addEventListener("pointermove", (event) => {
  const now = position(event);
  const before = pointers.get(event.pointerId);
  if (!before) {
    if (event.pointerType === "mouse") showTip(now.x, now.y);
    return;
  }
  const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
  dragged += Math.hypot(now.x - before.x, now.y - before.y);
  if (other) {
    const ratio = Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
    pan((now.x - before.x) / 2, (now.y - before.y) / 2);
    zoomAt(ratio, (now.x + other.x) / 2, (now.y + other.y) / 2);
  } else if (dragged > 4) {
    pan(now.x - before.x, now.y - before.y);
  }
  pointers.set(event.pointerId, now);
});
function release(event) {
  if (!pointers.delete(event.pointerId) || event.type === "pointercancel" || pointers.size || dragged > 4) return;
  const { x, y } = position(event);
  select(pick(x, y, event.pointerType === "mouse" ? 12 : 24));
}
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const { x, y } = position(event);
  zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), x, y);
}, { passive: false });

const KEYS = {
  ArrowLeft: () => pan(40, 0), ArrowRight: () => pan(-40, 0), ArrowUp: () => pan(0, 40), ArrowDown: () => pan(0, -40),
  "+": () => zoomAt(1.3), "=": () => zoomAt(1.3), "-": () => zoomAt(1 / 1.3), 0: resetView,
  Enter: () => select(pick(view.width / 2, view.height / 2, Infinity)), Escape: () => select(null),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});
canvas.addEventListener("focus", redraw);
canvas.addEventListener("blur", redraw);

byId("zoom-in").addEventListener("click", () => zoomAt(1.5));
byId("zoom-out").addEventListener("click", () => zoomAt(1 / 1.5));
byId("zoom-reset").addEventListener("click", resetView);
slider.addEventListener("input", () => { stopPlaying(); setTime(slider.valueAsNumber / 100); });
byId("play").addEventListener("click", play);
byId("search").addEventListener("input", (event) => search(event.target.value));
byId("more").addEventListener("click", () => { shown += PAGE; showList(); });

const options = colorOptions();
const chooser = byId("color");
options.forEach((option, place) => chooser.append(element("option", { value: String(place), textContent: option.name })));
function chooseColor() {
  applyColors(options[Number(chooser.value)]);
  drawLegend(redraw);
  redraw();
}
chooser.addEventListener("change", chooseColor);
dark.addEventListener("change", chooseColor);
const fixed = moves ? 2 : 1;
const wanted = options.findIndex((option, place) => place >= fixed && option.name === data.colorBy);
chooser.value = String(data.colorBy !== null && wanted > 0 ? wanted : 0);

byId("models").textContent = data.models.map((name, side) => (moves ? `${sides[side]}: ${name}` : name)).join(" · ");
byId("notes").textContent = data.notes.join(" ");
canvas.setAttribute("aria-label", `Map of ${count.toLocaleString("en")} texts`);
byId("morph").hidden = !moves;
new ResizeObserver(resize).observe(canvas);
resetView();
chooseColor();
setTime(0);
showList();
resize();
canvas.dataset.ready = "true";
// For tests and the console.
globalThis.explorer = Object.freeze({ screen, select });
