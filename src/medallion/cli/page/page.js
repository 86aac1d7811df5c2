"use strict";
// Draws the charts, and makes tables sortable and filterable. Values reach the page as text only.

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const PALETTE = {
  light: ["#3a6fb7", "#d97a2b", "#2f8f6b", "#c14f6c", "#8262b8", "#8d6a3a", "#3f98a8", "#7a7f29"],
  dark: ["#7fb0f0", "#f0a461", "#63c7a0", "#ee8ba5", "#b59be6", "#c9a676", "#79cddb", "#c0c566"],
};
const darkMode = matchMedia("(prefers-color-scheme: dark)");
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const FATES = { silver: "silver", quarantined: "quarantine", duplicate: "duplicate", superseded: "other", deleted: "other", erased: "other", waiting: "waiting" };
const isNarrow = (element) => element.clientWidth < 480;
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function base() {
  return {
    animation: false,
    aria: { enabled: true },
    color: PALETTE[darkMode.matches ? "dark" : "light"],
    textStyle: { color: color("text"), fontFamily: getComputedStyle(document.body).fontFamily },
    tooltip: {
      confine: true,
      backgroundColor: color("card"),
      borderColor: color("line"),
      textStyle: { color: color("text"), fontSize: 12 },
      valueFormatter: (value) => (typeof value === "number" ? number.format(value) : value ?? "none"),
    },
  };
}

const axis = (more) => ({
  axisLabel: { color: color("muted"), hideOverlap: true, fontSize: 11, ...more.label },
  axisLine: { lineStyle: { color: color("line") } },
  splitLine: { lineStyle: { color: color("line") }, show: more.type !== "category" && more.type !== "time" },
  ...more,
});

function legend(names) {
  const style = { color: color("muted"), fontSize: 11 };
  return {
    type: "scroll", top: 0, left: 0, itemWidth: 12, itemHeight: 8, data: names, textStyle: style,
    formatter: (name) => cut(name, 28), show: names.length > 1,
    pageTextStyle: style, pageIconColor: color("text"), pageIconInactiveColor: color("line"), pageIconSize: 10,
  };
}

const grid = (names, more) => ({ left: 4, right: 14, top: names.length > 1 ? 30 : 10, bottom: 2, outerBoundsMode: "same", outerBoundsContain: "axisLabel", ...more });

// Series over time: lines, or stacked bars. `points` are [ISO time, value]; at a time of `gaps`, and
// at those of other series, a line is interrupted.
function overTime({ series, stacked, colors, gaps }) {
  const names = Object.keys(series);
  const known = new Set(Object.values(series).flat().map(([time]) => time));
  const times = [...known, ...gaps].sort();
  const isShort = known.size < 3;
  const drawn = names.map((name) => {
    const values = new Map(series[name]);
    return {
      name, type: stacked || isShort ? "bar" : "line", stack: stacked ? "all" : undefined,
      data: times.map((time) => [time, values.get(time) ?? (stacked ? 0 : null)]),
      color: colors?.[name] ? color(colors[name]) : undefined, barMaxWidth: 36, connectNulls: false,
      showSymbol: times.length < 60 || values.size < times.length, symbolSize: 5, lineStyle: { width: 2 },
    };
  });
  const options = base();
  options.tooltip.trigger = "axis";
  const label = { formatter: (time) => shortTime(time, times) };
  return {
    ...options, legend: legend(names), grid: grid(names), series: drawn, useUTC: true,
    xAxis: axis(isShort ? { type: "category", data: times, label } : { type: "time" }),
    yAxis: axis({ type: "value", label: { formatter: (value) => short.format(value) } }),
  };
}

// An ISO time without the part that all have in common.
function shortTime(time, times) {
  const [day, clock = ""] = time.replace("Z", "").split("T");
  const isDaily = times.every((each) => each.replace("Z", "").split("T")[1]?.startsWith("00:00") ?? true);
  const isOneDay = times.every((each) => each.startsWith(day));
  return isDaily ? day : isOneDay ? clock.slice(0, 5) : `${day.slice(5)} ${clock.slice(0, 5)}`;
}

function bars({ names, values, colors, unit }, element) {
  const options = base();
  const width = isNarrow(element) ? 110 : 190;
  const label = { width, overflow: "truncate", interval: 0 };
  element.style.height = `${Math.max(6, names.length * 1.7 + 2)}rem`;
  options.tooltip.valueFormatter = (value) => (unit === "bytes" ? bytes(value) : number.format(value));
  return {
    ...options, grid: grid([], { right: 56 }),
    xAxis: axis({ type: "value", label: { formatter: (value) => (unit === "bytes" ? bytes(value) : short.format(value)) } }),
    yAxis: axis({ type: "category", data: names, inverse: true, label }),
    series: [{
      type: "bar", barMaxWidth: 22,
      data: values.map((value, at) => ({ value, itemStyle: colors ? { color: color(colors[at]) } : undefined })),
      label: { show: true, position: "right", color: color("muted"), fontSize: 11, formatter: ({ value }) => (unit === "bytes" ? bytes(value) : short.format(value)) },
    }],
  };
}

function bytes(value) {
  const unit = ["B", "KB", "MB", "GB", "TB"];
  const at = value ? Math.min(Math.floor(Math.log10(value) / 3), 4) : 0;
  return `${number.format(Math.round((value / 1000 ** at) * 10) / 10)} ${unit[at]}`;
}

// The balance of a source: the height of a band is its number of rows.
function flow({ landed, bronze, erased, fates }, element) {
  const options = base();
  const nodes = [
    { name: "landed", value: landed, itemStyle: { color: color("other") } },
    { name: "bronze", value: bronze, itemStyle: { color: color("bronze") } },
    ...Object.entries({ ...fates, ...(erased ? { erased } : {}) }).map(([name, value]) => ({ name, value, itemStyle: { color: color(FATES[name]) } })),
  ];
  // A band of one row among millions would be invisible: each is at least a hundredth of the height.
  const least = Math.max(bronze, 1) / 100;
  const links = [
    { source: "landed", target: "bronze", value: Math.max(bronze, least), rows: bronze },
    ...(erased ? [{ source: "landed", target: "erased", value: Math.max(erased, least), rows: erased }] : []),
    ...Object.entries(fates).map(([target, value]) => ({ source: "bronze", target, value: Math.max(value, least), rows: value })),
  ];
  const rows = Object.fromEntries(nodes.map(({ name, value }) => [name, value]));
  options.tooltip.formatter = ({ name, data, dataType }) =>
    dataType === "edge" ? `${data.source} to ${data.target}: ${number.format(data.rows)} rows` : `${name}: ${number.format(rows[name])} rows`;
  const space = isNarrow(element) ? 128 : 150;
  return {
    ...options,
    series: [{
      type: "sankey", left: 2, right: space, top: 14, bottom: 14, nodeWidth: 12, nodeGap: 20, draggable: false, layoutIterations: 0,
      data: nodes.map(({ name, itemStyle }) => ({ name, itemStyle })), links,
      lineStyle: { color: "gradient", opacity: 0.35 }, emphasis: { focus: "adjacency" },
      label: { color: color("text"), fontSize: 12, formatter: ({ name }) => `${name}${isNarrow(element) && !(name in FATES) ? "\n" : " "}${number.format(rows[name])}`, lineHeight: 15 },
    }],
  };
}

const LAYER_COLORS = { bronze: "bronze", silver: "silver", quarantine: "quarantine", gold: "gold" };

function lineage({ columns, edges, troubled }, element) {
  const tallest = Math.max(...columns.map((names) => names.length));
  element.style.height = `${Math.max(10, tallest * 2.9 + 2)}rem`;
  const options = base();
  const height = 26;
  const width = Math.min(190, (element.clientWidth - 30) / columns.length - 34);
  const nodes = columns.flatMap((names, column) => names.map((name, row) => ({
    name, x: column * 100, y: ((row + 0.5) * 100) / names.length, symbol: "rect", symbolSize: [width, height],
    itemStyle: {
      color: color(LAYER_COLORS[name.split(".")[0]] ?? "other"), opacity: 1,
      borderColor: color("bad"), borderWidth: troubled.includes(name) ? 3 : 0,
    },
    label: { show: true, formatter: cut(name, Math.floor(width / 7.2)), color: "#fff", fontSize: 11, fontWeight: 600, textBorderWidth: 2, textBorderColor: "rgba(0,0,0,.45)" },
  })));
  options.tooltip.formatter = ({ name, data, dataType }) => (dataType === "edge" ? `${escapeText(data.source)} → ${escapeText(data.target)}` : escapeText(name));
  return {
    ...options,
    series: [{
      type: "graph", layout: "none", left: width / 2 + 4, right: width / 2 + 4, top: height, bottom: height, preserveAspect: false,
      data: nodes, links: edges.map(([source, target]) => ({ source, target })), roam: false,
      lineStyle: { color: color("muted"), opacity: 0.7, width: 1.3 },
    }],
  };
}

// A tooltip's formatter returns HTML.
function escapeText(text) {
  const element = document.createElement("i");
  element.textContent = text;
  return element.innerHTML;
}

const DRAW = { overTime, bars, flow, lineage };
const observer = new ResizeObserver((entries) => entries.forEach(({ target }) => draw(target)));
const widths = new WeakMap();

function draw(element, again = false) {
  const spec = charts[element.dataset.chart];
  if (!spec || !element.clientWidth || (!again && widths.get(element) === element.clientWidth)) return;
  widths.set(element, element.clientWidth);
  const measure = element.closest("figure").querySelector("select")?.value;
  const chosen = spec.measures ? { ...spec, ...spec.measures[measure ?? Object.keys(spec.measures)[0]] } : spec;
  const options = DRAW[spec.type](chosen, element);
  const chart = element.chart ?? (element.chart = echarts.init(element, null, { renderer: "svg" }));
  chart.resize();
  chart.setOption(options, true);
}

function addMeasures(element) {
  const names = Object.keys(charts[element.dataset.chart]?.measures ?? {});
  if (names.length < 2) return;
  const select = document.createElement("select");
  select.setAttribute("aria-label", "measure");
  select.append(...names.map((name) => new Option(name, name)));
  select.addEventListener("change", () => draw(element, true));
  element.before(select);
}

function makeTable(box, remembered) {
  const table = box.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const wrapper = document.createElement("div");
  wrapper.className = "rows";
  wrapper.tabIndex = 0;
  table.replaceWith(wrapper);
  wrapper.append(table);
  const buttons = [...table.querySelectorAll("th button")];
  [...(rows[0]?.cells ?? [])].forEach((cell, at) => table.tHead.rows[0].cells[at].classList.toggle("n", cell.classList.contains("n")));
  const state = (box.state = { filter: "", column: null, isDescending: false, ...remembered });
  const tools = document.createElement("div");
  tools.className = "tools";
  const input = Object.assign(document.createElement("input"), { type: "search", placeholder: "filter rows", value: state.filter });
  const count = document.createElement("span");
  tools.append(input, count);
  if (box.dataset.table && rows.length > 5) box.prepend(tools);
  const key = (row) => {
    const cell = row.cells[state.column];
    return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent;
  };
  const compare = (a, b) => {
    const [one, other] = [key(a), key(b)];
    if (typeof one === "number" && typeof other === "number") return one - other;
    return typeof one === typeof other ? one.localeCompare(other, "en", { numeric: true }) : typeof one === "number" ? -1 : 1;
  };
  const update = () => {
    const words = state.filter.toLowerCase();
    const sorted = state.column === null ? rows : [...rows].sort((a, b) => (state.isDescending ? -1 : 1) * compare(a, b));
    const shown = sorted.filter((row) => row.textContent.toLowerCase().includes(words));
    table.tBodies[0].replaceChildren(...shown);
    count.textContent = shown.length === rows.length ? `${rows.length} rows` : `${shown.length} of ${rows.length} rows`;
    buttons.forEach((button, at) => {
      const order = at !== state.column ? "none" : state.isDescending ? "descending" : "ascending";
      button.closest("th").setAttribute("aria-sort", order);
    });
  };
  input.addEventListener("input", () => { state.filter = input.value; update(); });
  buttons.forEach((button, at) => button.addEventListener("click", () => {
    state.isDescending = state.column === at && !state.isDescending;
    state.column = at;
    update();
  }));
  update();
}

let charts = {};

function start(states = {}) {
  charts = JSON.parse(document.getElementById("charts").textContent);
  for (const box of document.querySelectorAll(".table")) makeTable(box, states[box.dataset.table]);
  for (const element of document.querySelectorAll("[data-chart]")) {
    addMeasures(element);
    draw(element);
    observer.observe(element);
  }
}

// Replaces the content by that of a newer page; filters, orders and open details stay.
async function refresh() {
  const response = await fetch(location.pathname);
  if (!response.ok) throw new Error(`${response.status}`);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (document.activeElement?.matches("input, select")) return;
  const states = Object.fromEntries([...document.querySelectorAll("[data-table]")].map((box) => [box.dataset.table, box.state]));
  const open = [...document.querySelectorAll("details")].map((each) => each.open);
  const scrolled = scrollY;
  observer.disconnect();
  document.querySelectorAll("[data-chart]").forEach((element) => element.chart?.dispose());
  document.querySelector("main").replaceWith(page.querySelector("main"));
  document.title = page.title;
  start(states);
  document.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? false; });
  scrollTo(0, scrolled);
}

start();
darkMode.addEventListener("change", () => document.querySelectorAll("[data-chart]").forEach((element) => draw(element, true)));
const seconds = Number(document.body.dataset.refresh);
if (seconds) {
  const again = () => setTimeout(() => refresh().then(
    () => document.body.classList.remove("stale"),
    () => document.body.classList.add("stale"),
  ).finally(again), seconds * 1000);
  again();
}
