// The panel: search, the list of texts, and the neighbours of the selected text.
const PAGE = 50;
let shown = PAGE;
let lowered = null;

function words(text, query) {
  const node = element("span", { className: "words" });
  const place = query ? text.toLowerCase().indexOf(query) : -1;
  // Where lower case changes the length of a text, its matches cannot be marked.
  if (place < 0 || text.toLowerCase().length !== text.length) {
    node.textContent = text;
  } else {
    const end = place + query.length;
    const start = place > 120 ? place - 100 : 0;
    node.append(start ? "…" : "", text.slice(start, place), element("mark", { textContent: text.slice(place, end) }), text.slice(end));
  }
  return node;
}

function textButton(id, ...after) {
  const button = element("button", { type: "button", className: "text" }, words(texts[id], state.query), ...after);
  button.dataset.id = id;
  button.addEventListener("click", () => select(id, { focus: true }));
  return button;
}

function listed() {
  return state.hits === null ? order : [...state.hits];
}

function showList() {
  const ids = listed();
  const title = state.hits !== null ? "Texts found" : moves ? "Moved most" : "Texts";
  byId("list-title").textContent = title;
  byId("list-note").textContent = moves && state.hits === null
    ? `By change of neighbourhood: of the texts that are among the ${data.compared} nearest before or after, the share that is among them only once.`
    : "";
  byId("list").replaceChildren(...Array.from(ids.slice(0, shown), (id) => {
    const value = moves ? [element("span", { className: "value", textContent: `changed ${percent(change[id])}` })] : [];
    return element("li", {}, textButton(id, ...value));
  }));
  byId("more").hidden = ids.length <= shown;
}

function search(query) {
  state.query = query.trim().toLowerCase();
  shown = PAGE;
  if (state.query === "") {
    state.hits = null;
    byId("status").textContent = "";
  } else {
    select(null); // so that the texts found are at the top
    lowered ??= texts.map((text) => text.toLowerCase());
    state.hits = new Set();
    for (let place = 0; place < count; place++) {
      if (lowered[order[place]].includes(state.query)) state.hits.add(order[place]);
    }
    byId("status").textContent = `${state.hits.size.toLocaleString("en")} of ${count.toLocaleString("en")} texts contain this.`;
  }
  showList();
  redraw();
}

function neighbourTable(caption, className, name, lists, side, id) {
  const others = moves && name === "nearest" ? new Set(entries(nearest[1 - side], id).map((one) => one.id)) : new Set();
  const heads = moves ? sides : ["Cosine"];
  const head = element("tr", {}, element("th", { scope: "col", textContent: "Text" }));
  head.append(...heads.map((words) => element("th", { scope: "col", className: "number", textContent: words })));
  const rows = entries(lists, id).map((one) => {
    const both = others.has(one.id) ? [element("span", { className: "badge", textContent: "in both" })] : [];
    const row = element("tr", {}, element("td", {}, textButton(one.id, ...both)));
    row.append(...one.cosines.map((value) => element("td", { className: "number", textContent: value.toFixed(3) })));
    return row;
  });
  const table = element("table", {}, element("caption", { className, textContent: caption }), element("thead", {}, head));
  table.append(element("tbody", {}, ...rows));
  table.dataset.list = `${name}-${side}`;
  return table;
}

function showDetails(focus) {
  const details = byId("details");
  const id = state.selected;
  details.hidden = id === null;
  details.replaceChildren();
  if (id === null) return;
  const title = element("h2", { textContent: texts[id], tabIndex: -1 });
  const facts = element("dl");
  const add = (name, value) => facts.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
  if (moves) {
    add("Change", `${percent(change[id])} of the neighbourhood, place ${(rank[id] + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`);
  }
  for (const column of data.columns) add(column.name, columnValue(column, id) || "(empty)");
  const close = element("button", { type: "button", textContent: "Clear selection" });
  close.addEventListener("click", () => select(null));
  details.append(title, facts, close);
  nearest.forEach((lists, side) => {
    const caption = moves ? `Nearest ${sides[side].toLowerCase()}: ${data.models[side]}` : "Nearest";
    details.append(neighbourTable(caption, ["before", "after"][side], "nearest", lists, side, id));
  });
  farthest.forEach((lists, side) => {
    const caption = moves ? `Farthest ${sides[side].toLowerCase()}` : "Farthest";
    details.append(neighbourTable(caption, ["before", "after"][side], "farthest", lists, side, id));
  });
  if (focus) title.focus({ preventScroll: true });
  byId("panel").scrollTop = 0;
  if (focus) title.scrollIntoView({ block: "nearest" });
}

const decodedCodes = new Map();
function columnValue(column, id) {
  if (column.kind !== "categories") return column.values[id];
  if (!decodedCodes.has(column)) decodedCodes.set(column, decode(column.codes, Uint8Array));
  return column.categories[decodedCodes.get(column)[id]] ?? "";
}

function select(id, { focus = false } = {}) {
  state.selected = id;
  canvas.dataset.selected = id ?? "";
  byId("status").textContent = id === null ? "" : `Selected: ${texts[id].slice(0, 200)}`;
  showDetails(focus);
  if (id !== null) reveal(id);
  redraw();
}
