// The map: points on a canvas between two layouts; pan, zoom, hover and selection.
const canvas = byId("canvas");
const context = canvas.getContext("2d");
const tip = byId("tip");
const view = { zoom: 1, x: 0, y: 0, width: 0, height: 0 }; // x, y: the centre of the map, in units of the layout
const [firstLayout, secondLayout] = [layouts[0], layouts[layouts.length - 1]];
const bounds = [0, 1].map((axis) => {
  let [low, high] = [Infinity, -Infinity];
  for (const layout of layouts) {
    for (let place = axis; place < layout.length; place += 2) [low, high] = [Math.min(low, layout[place]), Math.max(high, layout[place])];
  }
  return { middle: (low + high) / 2, half: Math.max(1e-6, (high - low) / 2) };
});
let frame = null;

function redraw() { frame ??= requestAnimationFrame(draw); }
function unit() { return 0.47 * view.zoom * Math.min(view.width / bounds[0].half, view.height / bounds[1].half); }
function at(id, axis) {
  const first = firstLayout[2 * id + axis];
  return first + (secondLayout[2 * id + axis] - first) * state.time;
}
function screen(id) {
  return [(at(id, 0) - view.x) * unit() + view.width / 2, (at(id, 1) - view.y) * unit() + view.height / 2];
}

function resize() {
  const box = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  [view.width, view.height] = [box.width, box.height];
  [canvas.width, canvas.height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  redraw();
}

// A point is bright unless a search or a legend entry selects others.
function bright(id) {
  return (state.hits === null || state.hits.has(id)) && (state.category === null || colors.of[id] === state.category);
}

function draw() {
  frame = null;
  const radius = Math.min(9, Math.max(1.1, Math.min(4.5, 110 / Math.sqrt(count))) * Math.pow(view.zoom, 0.35));
  context.clearRect(0, 0, view.width, view.height);
  const filtered = state.hits !== null || state.category !== null;
  if (filtered) drawPoints(radius, (dark.matches ? 0.25 : 0.15) * (count > 5000 ? 0.5 : 1), (id) => !bright(id));
  const few = state.hits !== null && state.hits.size < 2000; // found texts stay visible among very many
  drawPoints(few ? Math.max(radius, 3) : radius, count > 5000 && !few ? 0.7 : 0.85, filtered ? bright : null);
  if (state.selected !== null) drawSelection(radius);
  if (document.activeElement === canvas && canvas.matches(":focus-visible")) drawCross();
}

function drawPoints(radius, alpha, keep) {
  const [scale, time, width, height] = [unit(), state.time, view.width, view.height];
  const [left, top] = [width / 2 - view.x * scale, height / 2 - view.y * scale];
  const sprites = radius < 1.8 ? null : colors.palette.map((color) => sprite(color, radius));
  context.globalAlpha = alpha;
  let last = -1;
  for (const id of colors.drawn) {
    if (keep !== null && !keep(id)) continue;
    const place = 2 * id;
    const x = (firstLayout[place] + (secondLayout[place] - firstLayout[place]) * time) * scale + left;
    const y = (firstLayout[place + 1] + (secondLayout[place + 1] - firstLayout[place + 1]) * time) * scale + top;
    if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
    const color = colors.of[id];
    if (sprites) {
      const image = sprites[color];
      context.drawImage(image.canvas, x - image.half, y - image.half, 2 * image.half, 2 * image.half);
    } else {
      if (color !== last) context.fillStyle = colors.palette[color];
      last = color;
      context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
    }
  }
  context.globalAlpha = 1;
}

function sprite(color, radius) {
  const ratio = window.devicePixelRatio || 1;
  const half = Math.ceil(radius) + 1;
  const image = element("canvas", { width: Math.ceil(2 * half * ratio), height: Math.ceil(2 * half * ratio) });
  const pen = image.getContext("2d");
  pen.scale(image.width / (2 * half), image.height / (2 * half));
  pen.fillStyle = color;
  pen.beginPath();
  pen.arc(half, half, radius, 0, 2 * Math.PI);
  pen.fill();
  return { canvas: image, half };
}

function drawSelection(radius) {
  const [x, y] = screen(state.selected);
  nearest.forEach((lists, side) => {
    context.strokeStyle = context.fillStyle = cssColor(side ? "--after" : "--before");
    context.lineWidth = 1.5;
    context.setLineDash(side ? [5, 4] : []);
    for (const { id } of entries(lists, state.selected)) {
      const [toX, toY] = screen(id);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(toX, toY);
      context.stroke();
      ring(toX, toY, radius + 2 + 2 * side);
    }
  });
  context.setLineDash([]);
  context.strokeStyle = cssColor("--text");
  context.lineWidth = 2.5;
  ring(x, y, radius + 5);
}

function ring(x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.stroke();
}

function drawCross() {
  const [x, y] = [view.width / 2, view.height / 2];
  context.strokeStyle = cssColor("--text");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x - 8, y);
  context.lineTo(x + 8, y);
  context.moveTo(x, y - 8);
  context.lineTo(x, y + 8);
  context.stroke();
}

// The text whose point is nearest to a place on the screen, at most `reach` pixels away.
function pick(x, y, reach) {
  const scale = unit();
  const [mapX, mapY] = [(x - view.width / 2) / scale + view.x, (y - view.height / 2) / scale + view.y];
  let best = null;
  let least = (reach / scale) ** 2;
  for (let id = 0; id < count; id++) {
    const distance = (at(id, 0) - mapX) ** 2 + (at(id, 1) - mapY) ** 2;
    if (distance < least && bright(id)) [best, least] = [id, distance];
  }
  return best;
}

function zoomAt(factor, x = view.width / 2, y = view.height / 2) {
  const before = unit();
  view.zoom = Math.min(500, Math.max(0.5, view.zoom * factor));
  const after = unit();
  view.x += (x - view.width / 2) * (1 / before - 1 / after);
  view.y += (y - view.height / 2) * (1 / before - 1 / after);
  tip.hidden = true;
  redraw();
}

function pan(dx, dy) {
  view.x -= dx / unit();
  view.y -= dy / unit();
  tip.hidden = true;
  redraw();
}

function resetView() {
  Object.assign(view, { zoom: 1, x: bounds[0].middle, y: bounds[1].middle });
  redraw();
}

// Move the map so that a text is on it.
function reveal(id) {
  const [x, y] = screen(id);
  if (x < 20 || y < 20 || x > view.width - 20 || y > view.height - 20) [view.x, view.y] = [at(id, 0), at(id, 1)];
  redraw();
}

function showTip(x, y) {
  const id = pick(x, y, 8);
  tip.hidden = id === null;
  if (id === null) return;
  const words = texts[id];
  tip.textContent = words.length > 200 ? `${words.slice(0, 200)}…` : words;
  tip.style.left = `${Math.max(0, Math.min(x + 12, view.width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y + tip.offsetHeight + 20 > view.height ? Math.max(0, y - tip.offsetHeight - 10) : y + 14}px`;
}
