"use strict";
/* What the pages do. Texts of results are only ever set as text, and Bokeh is given none to draw. */
const at = id => document.getElementById(id), data = window.DATA, explore = window.explore = {};
const MIXED = 0.2, TILES = 200, CLUSTERS = 20, CLASSES = 40, TILE = 40;
const GREY = "#9aa3ad", RAMP = ["#3b528b", "#21918c", "#5ec962", "#d8c219", "#f0811f", "#c51b3a"];
const HUES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#e08214", "#542788", "#8c510a", "#01665e",
  "#d6604d", "#9970ab", "#7fbc41", "#4393c3", "#dfc27d", "#de77ae", "#35978f", "#b2182b", "#999933", "#332288"];

const make = (tag, text, more = {}, ...within) => {
  const one = Object.assign(document.createElement(tag), text === null ? {} : {textContent: text}, more);
  one.append(...within);
  return one;
};
const button = (text, onclick, ...within) => make("button", text, {type: "button", onclick}, ...within);
const count = number => number.toLocaleString("en");
const nameOf = (column, code) => code < 0 ? "–" : column.names[code];
const called = (column, row) => nameOf(column, column.codes[row]);
const labelled = (...columns) => data.ids.map((_, row) => row).filter(row => columns.every(one => one.codes[row] >= 0));
const tally = (column, rows) => {
  const found = new Map();
  for (const row of rows) found.set(column.codes[row], (found.get(column.codes[row]) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
};
/* Fill a select with one option for each of some values, by group; returns what gives the one that is chosen. */
const choose = (id, values, words, chosen, group = () => "") => {
  const groups = new Map();
  values.forEach((value, index) => {
    const label = group(value);
    if (!groups.has(label)) groups.set(label, label ? at(id).appendChild(make("optgroup", null, {label})) : at(id));
    groups.get(label).append(make("option", words(value), {value: index, selected: value === chosen}));
  });
  return () => values[at(id).value];
};
const chooseColumn = (id, columns, chosen) => choose(id, columns, one => one.name, chosen, one => one.group);
const tableOf = (head, rows) => {
  const heading = scope => text => make("th", text, {scope, title: text});
  const body = rows.map(([first, ...cells]) => make("tr", null, {}, heading("row")(first), ...cells));
  const top = make("thead", null, {}, make("tr", null, {}, ...head.map(heading("col"))));
  return make("table", null, {hidden: !rows.length}, top, make("tbody", null, {}, ...body));
};
const paged = (where, items, build, size, from = 0) => {
  if (!from) where.replaceChildren();
  where.append(...items.slice(from, from + size).map(build));
  const go = () => { more.remove(); paged(where, items, build, size, from + size); };
  const more = button(`Show more of ${count(items.length)}`, go);
  if (from + size < items.length) where.append(more);
};
const download = (name, rows) => {
  const cell = value => /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  const text = rows.map(row => row.map(cell).join(",") + "\n").join("");
  make("a", null, {href: URL.createObjectURL(new Blob([text], {type: "text/csv"})), download: name}).click();
};

const sheets = {};
const tile = row => {
  const words = `${data.ids[row]}: ${called(data.columns[data.target], row)}`;
  const href = location.protocol === "file:" && data.originals[row];  // only pages that are files may open files
  const [tag, link] = href ? ["a", {href, target: "_blank", rel: "noopener"}] : ["span", {}];
  if (!data.tiles) return make(tag, data.ids[row], {className: "tile bare", title: words, ...link});
  const {side, across, each} = data.tiles, place = row % each, number = Math.floor(row / each);
  const one = make("canvas", null, {className: "tile", width: side, height: side, title: words, role: "img", ariaLabel: words});
  one.style.width = `${side > TILE ? Math.min(side, 2 * TILE) : side * Math.floor(TILE / side)}px`;
  const sheet = sheets[number] ??= Object.assign(new Image(), {src: data.sheets[number]});
  sheet.decode().then(() => {
    const [left, top] = [place % across * side, Math.floor(place / across) * side];
    one.getContext("2d").drawImage(sheet, left, top, side, side, 0, 0, side, side);
    one.dataset.row = row;
  });
  return make(tag, null, link, one);
};

/* Show the page's plots; returns their sources. `words`: what is shown beside a point or line under the pointer. */
const plot = async words => {
  const places = [...document.querySelectorAll(".plotted")], sources = [];
  for (const [index, item] of document.querySelectorAll("script.plot").entries()) {
    await Bokeh.embed.embed_item(JSON.parse(item.textContent), places[index]);
    const source = Bokeh.documents.at(-1).get_model_by_name("shown"), box = at("tip");
    places[index].onpointerleave = () => box.hidden = true;
    places[index].onpointermove = event => requestAnimationFrame(() => {
      const under = source.inspected.indices[0] ?? source.inspected.line_indices[0];
      box.hidden = under === undefined;
      if (!box.hidden) box.replaceChildren(...words(source, under));
      box.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8))}px`;
      box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)}px`;
    });
    sources.push(source);
  }
  return sources;
};
const colourOf = (column, code) => {
  if (code < 0) return GREY;
  const share = code / Math.max(1, column.names.length - 1);
  return column.group === "hardness" ? RAMP[Math.round(share * (RAMP.length - 1))] : HUES[code % HUES.length];
};

/* New labels by sample_id, and as a column. The browser keeps them from page to page; what it returns may be anything. */
const key = `granularity labels ${data?.digest}`, outside = new Set(data?.outside.map(row => data.ids[row]));
const mine = {group: "new", name: "new labels", names: [], codes: []};
let given = new Map(), keeps = true;
const recall = () => {
  try {
    const kept = JSON.parse(localStorage.getItem(key) ?? "[]"), texts = pair => pair.every(one => one && typeof one === "string");
    if (keeps) given = new Map(kept.filter(pair => texts(pair) && !outside.has(pair[0])));
  } catch { /* no storage, or not ours: the labels of this page stay */ }
  mine.names = [...new Set(given.values())].sort();
  const codes = new Map(mine.names.map((name, code) => [name, code]));
  mine.codes = data.ids.map(id => codes.get(given.get(id)) ?? -1);
  at("relabelled").textContent = `Images with a new label: ${count(given.size)}. New classes: ${count(mine.names.length)}.`;
  return given;
};
const relabel = (rows, name) => {
  const labels = recall(), ids = rows.map(row => data.ids[row]), own = ids.filter(id => !outside.has(id));
  for (const id of own) name ? labels.set(id, name) : labels.delete(id);
  let words = `${count(own.length)} images ${name ? `are now “${name}”` : "have no new label now"}.`;
  if (own.length < ids.length) words += ` ${count(ids.length - own.length)} outside the training split (validation) were left out.`;
  try { localStorage.setItem(key, JSON.stringify([...labels])); } catch { keeps = false; }
  if (!keeps) words += " This browser does not keep them: download them before you leave the page.";
  recall();
  return words;
};
/* A form that names the class of some images. */
const naming = (what, rows, after = () => {}) => {
  const name = make("input", null, {placeholder: "Name of a class", ariaLabel: `Name of a class for ${what}`});
  const said = make("output", null, {className: "note"});
  const onsubmit = () => { said.textContent = relabel(rows(), name.value.trim()); after(); return false; };
  return make("form", null, {onsubmit}, name, make("button", `Name ${what}`), said);
};
if (at("relabelled")) {
  for (const event of ["pageshow", "storage"]) addEventListener(event, recall);
  at("labels").onclick = () => download("labels.csv", [["sample_id", "label"], ...recall()]);
  data.columns.push(mine);
  recall();
}

const pages = {
  duplicates() {},

  index() {
    for (const one of document.querySelectorAll(".copy")) one.onclick = () => {
      getSelection().selectAllChildren(one.previousElementSibling);
      if (document.execCommand("copy")) one.textContent = "Copied";
    };
  },

  async map() {
    if (!at("colour")) return;
    const column = chooseColumn("colour", data.columns, data.columns[data.target]);
    const place = choose("place", Object.keys(data.places), name => name);
    const told = (_, row) => [tile(row), ...[data.ids[row], `${column().name}: ${called(column(), row)}`].map(text => make("div", text))];
    const [source] = await plot(told), every = labelled();
    const selected = () => [...source.selected.indices].sort((a, b) => a - b);
    const paint = () => {
      const {codes} = column(), [x, y] = data.places[place()];
      const colour = codes.map(code => colourOf(column(), code)), alpha = codes.map(code => code < 0 ? 0.25 : 0.85);
      source.data = {x, y, colour, alpha};
      const present = tally(column(), labelled(column()));
      if (column().group === "hardness") present.sort((a, b) => a[0] - b[0]);
      paged(at("legend"), present, ([code, number]) => {
        const one = button(null, () => explore.select(every.filter(row => codes[row] === code)), make("i", null));
        one.firstChild.style.background = colourOf(column(), code);
        one.append(`${nameOf(column(), code)} (${count(number)})`);
        return one;
      }, CLASSES);
      show();
    };
    const show = () => {
      const rows = selected(), of = new Map(tally(column(), every));
      const lines = tally(column(), rows).slice(0, CLASSES).map(([code, number]) => {
        const bar = make("td", count(number), {className: "bar"});
        bar.style.backgroundSize = `${100 * number / rows.length}% 100%`;
        return [nameOf(column(), code), bar, make("td", count(of.get(code)))];
      });
      at("number").textContent = count(rows.length);
      at("counts").replaceChildren(tableOf([column().name, "selected", "of"], lines));
      paged(at("tiles"), rows, tile, TILES);
    };
    source.selected.properties.indices.change.connect(show);
    explore.select = rows => { source.selected.indices = rows; };
    at("colour").onchange = at("place").onchange = paint;
    at("clear").onclick = () => explore.select([]);
    at("save").onclick = () => {
      const rows = selected().map(row => [data.ids[row], called(column(), row)]);
      download("selection.csv", [["sample_id", column().name], ...rows]);
    };
    at("relabel").append(naming("the selected images", selected, () => column() === mine && paint()));
    paint();
  },

  cluster() {
    if (!at("tree")) return;
    const ranks = data.columns.filter(one => one.group === "rank"), rank = chooseColumn("rank", [...ranks, mine], ranks.at(-1));
    const tree = choose("tree", data.trees, one => data.columns[one.column].name);
    const to = (one, step) => button(`cluster ${one}`, () => {
      at("tree").value = Number(at("tree").value) + step;
      at("mixed").checked = false;
      list(one);
      at(`cluster-${one}`).scrollIntoView();
    });
    const described = one => {
      const classes = one.classes.map(([code, number]) => `, ${Math.round(100 * number / one.images)} % ${nameOf(rank(), code)}`);
      const size = one.images < one.size ? `${count(one.images)} of ${count(one.size)}` : count(one.size);
      const line = make("p", `${size} images${classes.join("")} `), family = make("p", null);
      if (one.mixed) line.append(make("span", `mixes ${one.classes.map(([code]) => nameOf(rank(), code)).join(" and ")}`, {className: "verdict worse"}));
      if (one.parent !== null) family.append("Within ", to(one.parent, -1), " ");
      if (one.children.length) family.append("Splits into ", ...one.children.map(child => to(child, 1)));
      const sets = ["nearest", "farthest", "random"].filter(name => one[name].length).map(name =>
        make("div", null, {}, make("span", name, {className: "note"}), make("div", null, {className: "tiles"}, ...one[name].map(tile))));
      const title = make("h3", `Cluster ${one.number}`);
      const within = [title, line, family, make("div", null, {className: "sets"}, ...sets), naming(`cluster ${one.number}`, () => one.rows)];
      return make("section", null, {className: "cluster", id: `cluster-${one.number}`}, ...within);
    };
    const list = (upTo = 0) => {
      const codes = data.columns[tree().column].codes, members = tree().clusters.map(() => []);
      codes.forEach((code, row) => code >= 0 && members[code].push(row));
      const every = tree().clusters.map((one, number) => {
        const rows = members[number], images = rows.length, classes = tally(rank(), rows).slice(0, 2);
        return {...one, number, rows, images, classes, mixed: classes.length > 1 && classes[1][1] >= MIXED * images};
      });
      const mixed = every.filter(one => one.mixed);
      at("number").textContent = `${count(every.length)} clusters, ${count(mixed.length)} mixed.`;
      paged(at("clusters"), at("mixed").checked ? mixed : every, described, Math.max(CLUSTERS, upTo + 1));
    };
    at("tree").onchange = at("rank").onchange = at("mixed").onchange = () => list();
    list();
  },

  compare() {
    if (!at("one")) return;
    const of = group => data.columns.filter(one => one.group === group), arms = of("prediction"), truth = data.columns[data.target];
    const every = data.columns.filter(one => one.group !== "hardness"), target = arms.find(one => one.name.split(", ")[0] === "target");
    const one = chooseColumn("one", every, of("clustering")[0] ?? of("label space").at(-1)), other = chooseColumn("other", every, of("rank").at(-1));
    const arm = chooseColumn("arm", arms, arms.find(one => one !== target)), against = chooseColumn("against", arms, target);
    const table = () => {
      const [a, b] = [one(), other()], rows = labelled(a, b), [down, across] = [tally(a, rows), tally(b, rows)];
      const both = {codes: a.codes.map((code, row) => code * b.names.length + b.codes[row])}, joint = new Map(tally(both, rows));
      const entropy = found => -found.reduce((sum, [, n]) => sum + n / rows.length * Math.log(n / rows.length), 0);
      const [h, k, hk] = [down, across, [...joint]].map(entropy), nmi = h + k > 0 ? 2 * (h + k - hk) / (h + k) : 1;
      const most = Math.max(...joint.values()), columns = across.slice(0, CLASSES);
      const cut = Math.max(down.length, across.length) > CLASSES ? `; shown are the ${CLASSES} largest` : "";
      at("nmi").textContent = rows.length ? `NMI ${nmi.toFixed(3)} over ${count(rows.length)} images: ${count(down.length)} by ` +
        `${count(across.length)} classes${cut}.` : "No image has a label in both.";
      at("table").replaceChildren(tableOf([a.name, ...columns.map(([j]) => nameOf(b, j))], down.slice(0, CLASSES).map(([i]) =>
        [nameOf(a, i), ...columns.map(([j]) => {
          const number = joint.get(i * b.names.length + j) ?? 0, cell = make("td", number ? count(number) : "");
          cell.style.background = `color-mix(in srgb, var(--link) ${Math.round(60 * number / most)}%, transparent)`;
          return cell;
        })])));
    };
    const flips = () => {
      const [a, b] = [arm(), against()], right = (column, row) => called(column, row) === called(truth, row);
      const rows = labelled(a, b), sets = [["right", "right"], ["right", "wrong"], ["wrong", "right"], ["wrong", "wrong"]];
      at("flips").replaceChildren(...sets.flatMap(([first, second]) => {
        const own = rows.filter(row => right(a, row) === (first === "right") && right(b, row) === (second === "right"));
        const tiles = make("div", null, {className: "tiles"});
        if (first !== second) paged(tiles, own, tile, TILES);
        const same = own.filter(row => called(a, row) === called(b, row)).length;
        const words = first === second ? ` under both${first === "wrong" ? `, ${count(same)} of them alike` : ""}` : ` under ${a.name}, ${second} under ${b.name}`;
        return [make("h3", `${count(own.length)} ${first}${words}`), tiles];
      }));
    };
    at("one").onchange = at("other").onchange = table;
    at("arm").onchange = at("against").onchange = flips;
    table();
    if (arms.length) flips();
  },

  async training() {
    if (!at("space")) return;
    const sources = await plot((source, index) => ["run", "space"].map(name => make("div", source.data[name][index])));
    const every = "all label spaces", space = choose("space", [every, ...new Set(sources.flatMap(one => one.data.space))], name => name);
    at("space").onchange = () => sources.forEach(one => {
      one.data = {...one.data, alpha: one.data.space.map(name => [every, name].includes(space()) ? 0.85 : 0.04)};
    });
  },
};
explore.ready = Promise.resolve(pages[document.body.dataset.view]());
