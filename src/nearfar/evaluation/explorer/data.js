// The data of the page: texts, columns, and for each encoder a layout, nearest and farthest texts with cosines.
const data = JSON.parse(document.getElementById("data").textContent);
const texts = data.texts;
const count = texts.length;
const moves = data.models.length > 1;
const sides = moves ? ["Before", "After"] : [data.models[0]];

function decode(base64, Kind) {
  const raw = atob(base64);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

function decodeLists(lists) {
  return { width: lists.width, ids: decode(lists.ids, Uint16Array), cosines: lists.cosines.map((one) => decode(one, Int16Array)) };
}

const layouts = data.layouts.map((one) => decode(one, Float32Array));
const nearest = data.nearest.map(decodeLists);
const farthest = data.farthest.map(decodeLists);
const change = moves ? decode(data.change, Float32Array) : null;
const order = moves ? decode(data.order, Uint16Array) : Uint16Array.from({ length: count }, (_, i) => i);
const rank = new Uint16Array(count);
order.forEach((id, place) => { rank[id] = place; });

// The entries of one text in lists of neighbours: {id, cosines: one for each encoder}.
function entries(lists, id) {
  return Array.from({ length: lists.width }, (_, column) => {
    const place = id * lists.width + column;
    return { id: lists.ids[place], cosines: lists.cosines.map((one) => one[place] / 32767) };
  });
}

const state = {
  time: 0, // 0: the first layout, 1: the second
  selected: null,
  hits: null, // a Set of the texts that match the search, or null
  query: "",
  category: null, // the legend entry that is highlighted
};

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function byId(id) { return document.getElementById(id); }
function cssColor(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function percent(share) { return `${Math.round(100 * share)}%`; }
