// Draws what the server sends. Every text goes in as textContent, so nothing that a pool, a job or a log says is markup.
// A part of the page is drawn anew only when its own data changed, so that what is selected or scrolled stays.

const SVG = "http://www.w3.org/2000/svg";
const HOUR = 3600;
// Of a history: what it is called, its seconds, and the time between samples from which on nothing is drawn between them:
// rates are looked at each minute while nobody watches.
const PERIODS = {
  hour: { name: "1 hour", seconds: HOUR, gap: 35, rateGap: 95, scoreGap: 95 },
  day: { name: "1 day", seconds: 24 * HOUR, gap: 650, rateGap: 650, scoreGap: 1850 },
  week: { name: "1 week", seconds: 168 * HOUR, gap: 650, rateGap: 650, scoreGap: 1850 },
};
const LOG_MILLISECONDS = 2000;
const MANIFEST_MILLISECONDS = 10000;
const RETRY_MILLISECONDS = 3000;

const main = document.getElementById("main");
const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

let stream = null; // ends what is watched
let pools = null; // the last event of that name
let past = null; // the last history
let period = "hour"; // that the picture shows
let skew = 0; // seconds that the server's clock is ahead of this one
let logName = null;
let logText = "";
let logTimer = null;
let shownKey; // of the pool that the page is laid out for
const drawn = new Map(); // part of the page -> the JSON it was drawn from

// Elements

function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function s(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function part(id, data, draw) {
  const place = document.getElementById(id);
  const json = JSON.stringify(data) ?? "";
  if (!place || drawn.get(id) === json) return;
  drawn.set(id, json);
  place.replaceChildren(...[draw(data)].flat().filter(Boolean));
  place.hidden = place.childNodes.length === 0;
}

// Words and numbers

const now = () => Date.now() / 1000 + skew;
const count = (value) => (value === null ? "–" : numbers.format(value));
const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;
const words = (name) => name.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);

function rate(value) {
  if (value === null) return "–";
  return value >= 100 ? count(value) : value.toFixed(value > 0 && value < 10 ? 2 : 1);
}

const amount = (value) => (value === null ? "–" : `${Number(value.toPrecision(4))}`);

function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 2 * HOUR) return `${Math.round(seconds / 60)} min`;
  return seconds < 48 * HOUR ? `${Math.round(seconds / HOUR)} h` : `${Math.round(seconds / 86400)} d`;
}

function ago(at) {
  const seconds = now() - at;
  return seconds < 1 ? "now" : `${duration(Math.round(seconds) < 10 ? Math.round(seconds) : seconds).replace(".00", "")} ago`;
}

function bytes(value) {
  if (value === null) return "?";
  return value >= 1e9 ? `${(value / 1e9).toFixed(1)} GB` : `${(value / 1e6).toFixed(0)} MB`;
}

const badge = (text, tone) => h("span", { class: `badge ${tone}`, title: text }, words(text));
const age = (at) => h("time", { class: "age", "data-at": at, title: new Date(at * 1000).toLocaleString() }, ago(at));

// Signing in

// The session is kept by the tab, and sent to this address alone. A cookie would go to every port of the same host.
const ask = (path, options = {}) =>
  fetch(path, { ...options, headers: { "X-RewardPool-Session": sessionStorage.getItem("session") ?? "" } });

async function start() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const token = asked.get("token");
  if (token !== null) {
    // Out of the address before anything else, so that it is in no bookmark and no history.
    history.replaceState(null, "", `${location.pathname}#${asked.get("pool") ?? ""}`);
    await signIn(token);
  } else {
    watch();
  }
}

async function signIn(token) {
  const answer = await fetch("/api/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) return askForToken(said(await answer.text()));
  sessionStorage.setItem("session", (await answer.json()).session);
  watch();
}

async function signOut() {
  const answer = await ask("/api/session", { method: "DELETE" });
  sessionStorage.removeItem("session");
  askForToken(said(await answer.text()));
}

// What an answer says that is no success: JSON from the page's own server, words from it or from what is before it.
function said(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { error: text.trim() || "the token was refused", hint: "" };
  }
}

// What stands between backquotes is typed.
const withCode = (text) => text.split("`").map((part, number) => (number % 2 ? h("code", {}, part) : part));

function askForToken({ error, hint }) {
  stopWatching();
  live("");
  pools = null;
  document.getElementById("where").textContent = "";
  document.getElementById("sign-out").hidden = true;
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", placeholder: "Token", required: true });
  const submit = (event) => {
    event.preventDefault();
    signIn(input.value);
  };
  shownKey = undefined;
  drawn.clear();
  main.className = "";
  main.replaceChildren(
    h("form", { class: "card sign-in", onsubmit: submit },
      h("h1", {}, "Sign in"), h("p", {}, ...withCode(hint)), h("div", { class: "row" }, input, h("button", {}, "Sign in")),
      h("p", { class: "dim" }, error === "sign in first" ? "" : `${error.replace(/\.$/, "")}.`)),
  );
}

// The stream

const chosen = () => decodeURIComponent(location.hash.slice(1));

async function watch() {
  stopWatching();
  const key = chosen() || firstPool();
  const own = (stream = new AbortController());
  try {
    const path = key ? `/api/events?pool=${encodeURIComponent(key)}&period=${period}` : "/api/events";
    const answer = await ask(path, { signal: own.signal });
    if (answer.status === 401) return askForToken(said(await answer.text()));
    if (answer.ok) {
      for await (const [kind, data] of events(answer.body)) {
        hear(kind, data, key);
        if (stream !== own) return;
      }
    }
  } catch {
    // It was ended, or the server went away.
  }
  if (stream !== own) return;
  live("reconnecting", "busy");
  setTimeout(() => stream === own && watch(), RETRY_MILLISECONDS);
}

function hear(kind, data, key) {
  if (kind === "history") past = { key, ...data };
  if (kind === "pools") {
    pools = data;
    skew = pools.at - Date.now() / 1000;
    live("live", "good");
  }
  show();
  if (kind === "pools" && !key && firstPool()) watch();
}

// Server-sent events; an EventSource sends no headers.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const [, kind, data] = /^event: (\w+)\ndata: (.*)$/.exec(part) ?? [];
      if (kind) yield [kind, JSON.parse(data)];
    }
  }
}

function stopWatching() {
  stream?.abort();
  stream = null;
}

function firstPool() {
  // Beside the list there is room for one.
  return pools?.pools.length && matchMedia("(min-width: 60rem)").matches ? pools.pools[0].key : "";
}

function live(text, tone = "idle") {
  const place = document.getElementById("live");
  place.textContent = text;
  place.className = `live ${tone}`;
}

addEventListener("hashchange", () => {
  logName = null;
  watch();
  show();
});

// The page

function show() {
  if (!pools) return;
  const key = chosen() || firstPool();
  if (key !== shownKey) layOut(key);
  document.getElementById("where").textContent = pools.where;
  document.getElementById("sign-out").hidden = !pools.signs_out;
  document.title = key ? `${key} · RewardPool` : "RewardPool";
  part("list", { lines: pools.pools, key, starts_by: pools.starts_by, signs_out: pools.signs_out }, list);
  const pool = pools.pool?.summary.key === key ? pools.pool : null;
  if (!pool) {
    const missing = key && !pools.pools.some((line) => line.key === key);
    part("title", { key, missing }, () => (missing ? h("p", { class: "notice" }, `There is no pool ${key} here.`) : []));
    return;
  }
  part("title", [pool.summary.state, pool.headline, pool.url, pool.revision], () => title(pool));
  part("tiles", [pool.summary, pool.sizing], () => tiles(pool));
  if (past?.key === key) chart();
  part("why", pool.sizing, why);
  part("workers", [pool.workers, pool.more_workers, pool.logs, pool.workers_hidden], () => workers(pool));
  part("jobs", pool.jobs, jobs);
  scores(pool.jobs.filter((job) => job.scores), past?.key === key && past.scores);
  part("costs", [pool.costs, pool.costs_since, Math.floor(now() / 60)], () => costs(pool));
  part("rollout", [pool.rollout, pool.download], () => rollout(pool));
  part("conditions", pool.conditions, conditions);
  part("changes", pool.changes, changes);
  part("manifest", pool.summary.key, manifest);
  logs(pool);
}

function layOut(key) {
  shownKey = key;
  drawn.clear();
  clearInterval(logTimer);
  logTimer = null;
  logText = "";
  main.className = chosen() ? "with-pool" : "";
  const parts = ["chart", "why", "workers", "jobs", "scores", "costs", "rollout", "changes", "conditions", "manifest", "log"];
  main.replaceChildren(
    h("nav", { id: "list", "aria-label": "Pools" }),
    h("article", { id: "pool" },
      h("div", { id: "title" }), h("div", { id: "tiles" }),
      h("div", { class: "cards" }, parts.map((id) => h("section", { id, class: "card", hidden: true })))),
  );
}

function list({ lines, key, starts_by, signs_out }) {
  if (lines.length === 0) {
    const none = signs_out ? "There is no pool that you may see. " : "There is no pool here yet. ";
    return h("p", { class: "notice" }, none, h("code", {}, starts_by), " starts one.");
  }
  return [
    h("h2", {}, plural(lines.length, "pool")),
    ...lines.map((line) => {
      const [namespace, name] = line.key.split("/");
      const more = [line.waiting ? `${count(line.waiting)} waiting` : null,
        line.in_flight === null ? null : `${count(line.in_flight)} in flight`,
        line.per_second ? `${rate(line.per_second)}/s` : null].filter(Boolean).slice(0, 2);
      return h("a", { class: "line", href: `#${line.key}`, "aria-current": line.key === key ? "page" : null },
        h("span", { class: "pair" }, h("span", { class: "name" }, h("span", { class: "dim" }, `${namespace}/`), name),
          h("span", { class: "size" }, `${line.ready}/${line.desired}`)),
        h("span", { class: "pair" }, badge(line.state, line.tone), h("span", { class: "dim load" }, more.join(" · "))));
    }),
  ];
}

function title(pool) {
  const [namespace, name] = pool.summary.key.split("/");
  const gpus = pool.gpus ? `${plural(pool.gpus, "GPU")} a replica` : "no GPU";
  const facts = [pool.summary.type, pool.summary.engine, gpus, pool.max_model_len ? `${count(pool.max_model_len)} tokens at most` : null,
    pool.sleep ? `engines ${pool.sleep.toLowerCase()}` : null];
  const tone = pool.summary.tone;
  return [
    h("a", { class: "back", href: "#" }, "‹ All pools"),
    h("h1", {}, h("span", { class: "dim" }, `${namespace}/`), name, " ", badge(pool.summary.state, tone)),
    h("p", { class: "facts" }, h("code", {}, pool.summary.model), facts.filter(Boolean).map((fact) => h("span", {}, fact))),
    h("p", { class: "facts dim" }, pool.url ? h("code", {}, pool.url) : "no address: it does not run",
      h("span", {}, pool.router), pool.revision ? h("span", {}, `revision ${pool.revision}`) : null),
    pool.headline ? h("p", { class: `headline ${tone}` }, pool.headline) : null,
  ];
}

function tiles(pool) {
  const { ready, desired, starting, draining, in_flight, waiting, per_second, mean_seconds, p95_seconds } = pool.summary;
  const tokens = (number, otherwise) => (number ? `${count(number)} tokens` : otherwise);
  const moving = [starting ? `${starting} starting` : null, draining ? `${draining} draining` : null].filter(Boolean).join(", ");
  const of_one = pool.sizing?.service_rate ?? null;
  const tile = (name, value, unit, note, tone) => h("div", { class: `tile ${tone ?? ""}` },
    h("span", { class: "dim" }, name), h("strong", {}, value, unit ? h("small", {}, ` ${unit}`) : null), h("span", { class: "dim note" }, note));
  return [
    tile("Replicas", count(ready), `of ${count(desired)}`, moving || (ready >= desired ? "all serve" : "missing"), ready < desired ? "busy" : ""),
    tile("In flight", count(in_flight), "requests", tokens(pool.summary.tokens_in_flight, ready && in_flight ? `${count(in_flight / ready)} a replica` : "at workers")),
    tile("Waiting", count(waiting), "requests", tokens(pool.summary.tokens_waiting, "at no worker yet"), waiting ? "busy" : ""),
    tile("Rate", rate(per_second), "samples/s", of_one === null ? "last 5 s" : `a busy replica ${rate(of_one)}/s`),
    tile("Latency", duration(mean_seconds).split(" ")[0], duration(mean_seconds).split(" ")[1],
      p95_seconds === null ? "mean" : `mean; 95 % within ${duration(p95_seconds)}`),
  ];
}

function why(sizing) {
  if (!sizing) return [];
  const facts = [
    ["decided by", sizing.policies.length ? sizing.policies.join(" and ") : "spec.replicas"],
    ["bounds", sizing.most === null ? null : `${sizing.least} to ${sizing.most}`],
    ["policies ask for", sizing.recommended === null ? null : plural(sizing.recommended, "replica")],
    ["limited by", sizing.limit],
    ["a start takes", sizing.start_seconds === null ? null : duration(sizing.start_seconds)],
    ["idle since", sizing.idle_since === null ? null : age(sizing.idle_since)],
  ];
  return [
    h("h2", {}, "Why this size"), sizing.reason ? h("p", { class: "reason" }, sizing.reason) : null,
    h("dl", {}, facts.filter(([, value]) => value !== null).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  ].filter(Boolean);
}

function table(titles, rows) {
  return h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, titles.map((one) => h("th", { class: one.number ? "number" : null }, one.name ?? one)))),
    h("tbody", {}, rows.map((row) => h("tr", { class: row.class }, row.cells.map((cell, at) =>
      h("td", { class: titles[at].number ? "number" : titles[at].class }, cell)))))));
}

function workers(pool) {
  const total = pool.workers.length + pool.more_workers;
  const most = Math.max(1, ...pool.workers.map((worker) => worker.in_flight ?? 0));
  const rows = pool.workers.map((worker) => {
    const bar = h("span", { class: "bar-of" }, h("span", {}));
    bar.firstChild.style.width = `${(100 * (worker.in_flight ?? 0)) / most}%`;
    const name = pool.logs.includes(worker.name)
      ? h("button", { class: "link", title: "Show its log", onclick: () => openLog(worker.name) }, worker.name)
      : worker.name;
    return { cells: [name, badge(worker.phase, worker.tone), [bar, h("span", { class: "digits" }, count(worker.in_flight))],
      worker.restarts ? count(worker.restarts) : h("span", { class: "dim" }, "0"), worker.place, h("code", {}, worker.revision)] };
  });
  const titles = ["Worker", "State", { name: "In flight", number: true }, { name: "Restarts", number: true }, "Where", "Revision"];
  return [
    h("h2", {}, total ? plural(total, "worker") : "Workers"),
    total ? table(titles, rows) : h("p", { class: "dim" }, pool.workers_hidden ? "You may not list pods of this namespace." : "There is none."),
    pool.more_workers ? h("p", { class: "dim" }, `and ${count(pool.more_workers)} more`) : null,
  ].filter(Boolean);
}

function jobs(found) {
  if (found.length === 0) return [];
  const next = (job) => {
    if (job.state !== "Live") return "";
    if (job.phase === "Rollout") return "now";
    if (job.next_burst === null) return "not known";
    return h("time", { class: "until", "data-at": job.next_burst }, until(job.next_burst));
  };
  const rows = found.map((job) => ({ cells: [job.name, [badge(job.state, job.tone), job.stalled ? " waits for scores" : ""], job.phase,
    job.samples === null ? "–" : count(job.samples), next(job), job.state === "Live" ? count(job.replicas) : "–",
    job.score_wait === null ? "–" : `${Math.round(100 * job.score_wait)} %`, job.message] }));
  const titles = ["Job", "State", "Phase", { name: "Samples a burst", number: true }, { name: "Next burst", number: true },
    { name: "Replicas for it", number: true }, { name: "Step waits for scores", number: true }, { name: "", class: "wide" }];
  return [h("h2", {}, plural(found.length, "job")), table(titles, rows)];
}

function scores(of_jobs, past_scores) {
  const failures = (job) => Object.entries(job.scores.failures).filter(([, number]) => number);
  part("scores", [of_jobs.map((job) => [job.name, job.scores]), past_scores && Object.keys(past_scores)], () => {
    if (of_jobs.length === 0 && !Object.keys(past_scores || {}).length) return [];
    drawn.delete("score-pictures");
    const rows = of_jobs.map((job) => ({ cells: [job.name, count(job.scores.count), amount(job.scores.mean),
      amount(job.scores.standard_deviation), failures(job).map(([fault, number]) => `${count(number)} ${fault}`).join(", ") || "none", count(job.scores.retries)] }));
    const titles = ["Job", { name: "Scores", number: true }, { name: "Mean", number: true }, { name: "Standard deviation", number: true },
      { name: "Without a score, by fault", number: true }, { name: "Retries", number: true }];
    return [
      h("h2", {}, "Scores"),
      h("p", { class: "dim" }, "Raw scores of this pool, before weights and penalties, of each job’s rank 0 alone, since it opened the pool. A sample without a score is in no mean."),
      rows.length ? table(titles, rows) : null,
      h("div", { id: "score-pictures" }),
    ].filter(Boolean);
  });
  const width = pictureWidth("scores");
  part("score-pictures", [past_scores, width, Math.floor(now() / 10)], () =>
    Object.entries(past_scores || {}).flatMap(([job, data]) => {
      const faults = Object.keys(data.failures);
      const kinds = [data.mean.some((mean) => mean !== null) ? ["score", "mean of the scores"] : null,
        data.mean.some((mean) => mean !== null) ? ["spread", "± standard deviation"] : null,
        ...faults.map((fault) => [fault, `without a score: ${fault}`]), data.retries.some(Boolean) ? ["retries", "retries"] : null].filter(Boolean);
      return [h("h3", {}, job), h("p", { class: "legend" }, kinds.map(([kind, text]) => h("span", { class: kind }, text))), scorePicture(job, data, width)];
    }));
}

function costs(pool) {
  if (pool.costs.length === 0) return [];
  const hours = (part) => (part.gpu_seconds + part.gpus * Math.max(0, now() - pool.costs_until)) / HOUR;
  const total = pool.costs.reduce((sum, part) => sum + hours(part), 0);
  const rows = pool.costs.map((part) => ({ cells: [part.name, part.samples === null ? "–" : count(part.samples), hours(part).toFixed(2),
    total === 0 ? "–" : `${Math.round(100 * hours(part) / total)} %`] }));
  const titles = ["Job", { name: "Samples scored", number: true }, { name: "GPU-hours", number: true }, { name: "Share", number: true }];
  return [h("h2", {}, `${total.toFixed(2)} GPU-hours in ${duration(now() - pool.costs_since)}`), table(titles, rows)];
}

function until(at) {
  const seconds = at - now();
  return seconds >= 1 ? `in ${duration(Math.round(seconds)).replace(".00", "")}` : "due";
}

function rollout(pool) {
  const { rollout: found, download } = pool;
  const inProgress = found && (found.failed || found.parity || found.message || (found.stable && found.stable !== found.current));
  if (!inProgress && !download) return [];
  const facts = found && inProgress ? [["current revision", found.current], ["stable revision", found.stable ?? "none yet"],
    ["failed", found.failed ? words(found.failed) : null], ["scores compared", found.parity], ["cause", found.message || null]] : [];
  const loaded = download ? [["model", `${words(download.phase)}: ${bytes(download.done_bytes)} of ${bytes(download.total_bytes)}`],
    ["delayed by", download.note || null]] : [];
  return [h("h2", {}, found && inProgress ? "Rollout" : "Download"),
    h("dl", {}, [...facts, ...loaded].filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))];
}

function conditions(found) {
  if (found.length === 0) return [];
  const rows = found.map((one) => ({ cells: [h("span", { class: `dot ${one.tone}` }), one.type, one.status, words(one.reason),
    one.message, age(one.since)] }));
  const titles = ["", "Condition", "Status", "Reason", { name: "Message", class: "wide" }, { name: "Since", number: true }];
  return [h("h2", {}, "Conditions"), table(titles, rows)];
}

function changes(found) {
  if (found.length === 0) return [];
  return [h("h2", {}, "Recent changes"), h("ol", { class: "changes" }, found.map((one) => h("li", {},
    h("span", { class: `dot ${one.tone}` }), age(one.at), h("span", {}, h("b", {}, one.what), " ", h("span", { class: "dim" }, one.why)))))];
}

// The picture of what was

function chart() {
  part("chart", true, () => {
    drawn.delete("picture");
    const choose = (event) => {
      period = event.target.value;
      watch();
    };
    return [
      h("div", { class: "row" }, h("h2", {}, "Size, load, rate and latency"),
        h("select", { "aria-label": "Over", onchange: choose },
          Object.entries(PERIODS).map(([value, { name }]) => h("option", { value, selected: value === period }, name)))),
      h("div", { id: "picture" }),
    ];
  });
  const width = pictureWidth("chart");
  part("picture", [past, width, Math.floor(now() / 10)], () => {
    const kinds = [["desired", "desired replicas"], ["ready", "ready replicas"], ["flight", "in flight"], ["waiting", "waiting"],
      past.per_second.some((rate_) => rate_ !== null) ? ["rate", "samples/s"] : null,
      past.mean_seconds.some((seconds) => seconds !== null) ? ["mean", "latency, mean"] : null,
      past.p95_seconds.some((seconds) => seconds !== null) ? ["p95", "95 % within"] : null].filter(Boolean);
    return [h("p", { class: "legend" }, kinds.map(([kind, text]) => h("span", { class: kind }, text))), picture(past, width)];
  });
}

const pictureWidth = (card) => Math.max(280, document.getElementById(card).clientWidth - 32);

// What pictures have in common: the time from left to right, and bands of values below each other.
function canvas(name, width, span) {
  const left = 52, right = 8, gap = 22, bottom = 22;
  const end = now();
  const begin = end - span;
  const x = (at) => left + ((Math.max(begin, Math.min(end, at)) - begin) / span) * (width - left - right);
  const image = s("svg", { width, role: "img", "aria-label": `${name} over ${PERIODS[past.period].name}` });
  const label = (text, at, height_, anchor = "end") => s("text", { x: at, y: height_, "text-anchor": anchor }, text);
  let base = -12;
  // Room for values from `low` to `top`, below what is there; gives the height of a value.
  const band = (high, top, marks, text, low = 0) => {
    const under = (base += gap + high);
    const y = (value) => under - (high * (value - low)) / (top - low);
    for (const value of marks) {
      image.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }), label(text(value), left - 8, y(value) + 4));
    }
    return y;
  };
  // A line through what is known, with breaks where nothing is.
  const curve = (kind, times, values, y, most) => {
    const known = times.map((_, at) => at).filter((at) => values[at] !== null);
    for (const run of runs(known.map((at) => times[at]), begin, end, most)) {
      const points = run.map((at) => `${x(times[known[at]]).toFixed(1)},${y(values[known[at]]).toFixed(1)}`);
      image.append(s("path", { class: kind, d: `M${points.join("L")}${points.length === 1 ? "h1" : ""}` }));
    }
  };
  const finish = () => {
    const ticks = past.period === "week" ? 7 : width < 480 ? 2 : 4;
    const [unit, sign] = { hour: [60, "min"], day: [HOUR, "h"], week: [24 * HOUR, "d"] }[past.period];
    for (let tick = 0; tick <= ticks; tick += 1) {
      const at = end - (span * tick) / ticks;
      image.append(label(tick === 0 ? "now" : `−${Math.round((end - at) / unit)} ${sign}`, x(at), base + bottom - 4, tick === 0 ? "end" : tick === ticks ? "start" : "middle"));
    }
    image.setAttribute("height", base + bottom);
    image.setAttribute("viewBox", `0 0 ${width} ${base + bottom}`);
    return image;
  };
  return { image, begin, end, x, band, curve, finish };
}

// An hour that has just begun is drawn larger.
function spanFrom(first) {
  return past.period === "hour" ? [600, 1200, 1800].find((short) => first >= now() - short) ?? HOUR : PERIODS[past.period].seconds;
}

function picture(data, width) {
  const { gap: most, rateGap } = PERIODS[data.period];
  const first = Math.min(data.times[0] ?? now(), ...data.desired.map(([at]) => at));
  const { image, begin, end, x, band, curve, finish } = canvas("Replicas, requests in flight and waiting, rate and latency", width, spanFrom(first));
  const shown = runs(data.times, begin, end, most);
  const visible = (values) => shown.flat().map((at) => values[at] ?? 0);
  const sizes = ceiling(Math.max(1, ...data.desired.map(([, size]) => size), ...visible(data.ready)));
  const all = data.times.map((_, at) => (data.in_flight[at] ?? 0) + (data.waiting[at] ?? 0));
  const load = ceiling(Math.max(4, ...visible(all)));
  const y = band(118, sizes, [0, sizes / 2, sizes].filter(Number.isInteger), count);
  const z = band(72, load, [0, load], count);
  for (const run of shown) {
    const times = run.map((at) => data.times[at]);
    const until_ = run[run.length - 1] === data.times.length - 1 ? end : times[times.length - 1];
    image.append(
      area("ready", times, run.map((at) => data.ready[at]), until_, x, y, true),
      area("waiting", times, run.map((at) => all[at]), until_, x, z, false),
      area("flight", times, run.map((at) => data.in_flight[at] ?? 0), until_, x, z, false),
    );
  }
  image.append(line(data.desired, end, x, y));
  for (const [kinds, text] of [[{ rate: data.per_second }, rate], [{ mean: data.mean_seconds, p95: data.p95_seconds }, duration]]) {
    const values = Object.values(kinds).flatMap(visible);
    if (!values.some(Boolean)) continue;
    const top = round(Math.max(...values));
    const height = band(60, top, [0, top], (value) => (value ? text(value) : "0"));
    for (const [kind, of_kind] of Object.entries(kinds)) curve(kind, data.times, of_kind, height, rateGap);
  }
  return finish();
}

function scorePicture(job, data, width) {
  const most = PERIODS[past.period].scoreGap;
  const { image, begin, end, x, band, curve, finish } = canvas(`Scores of ${job}`, width, spanFrom(data.times[0]));
  const scored = data.times.map((_, at) => at).filter((at) => data.mean[at] !== null);
  if (scored.length) {
    const times = scored.map((at) => data.times[at]);
    const [under, over] = [-1, 1].map((sign) => scored.map((at) => data.mean[at] + sign * data.standard_deviation[at]));
    const step = round((Math.max(...over) - Math.min(...under)) / 3 || Math.abs(over[0]) || 1);
    const [low, high] = [Math.floor(Math.min(...under) / step), Math.ceil(Math.max(...over) / step)];
    const marks = Array.from({ length: high - low + 1 }, (_, at) => (low + at) * step);
    const y = band(96, marks[marks.length - 1] + (high === low ? step : 0), marks, (value) => `${Number(value.toPrecision(12))}`, marks[0]);
    for (const run of runs(times, begin, end, most)) {
      const point = (values) => (at) => `${x(times[at]).toFixed(1)},${y(values[at]).toFixed(1)}`;
      image.append(s("path", { class: "spread", d: `M${[...run.map(point(over)), ...run.reverse().map(point(under))].join("L")}Z` }));
    }
    curve("score", data.times, data.mean, y, most);
  }
  const counts = { ...data.failures, retries: data.retries };
  const top = Math.max(0, ...Object.values(counts).flat());
  if (top) {
    const y = band(48, round(top), [0, round(top)], count);
    for (const [kind, values] of Object.entries(counts)) if (values.some(Boolean)) curve(kind, data.times, values, y, most);
  }
  return finish();
}

// The next of 1, 2, 5, 10, 20, …, 0.1, 0.2, 0.5, …
function round(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return Number(([1, 2, 5, 10].find((one) => one * unit >= value) * unit).toPrecision(1));
}

// The next of 2, 4, 6, 8, 10, 20, 40, …: a round number whose half is one as well.
function ceiling(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(2, value)));
  return [1, 2, 4, 6, 8, 10].map((one) => one * unit).find((one) => one >= value && (one > 1 || unit > 1)) ?? value;
}

// Indices of samples that follow each other without a gap.
function runs(times, begin, end, most) {
  const found = [];
  times.forEach((at, index) => {
    if (at < begin - most || at > end) return;
    const run = found[found.length - 1];
    if (run && at - times[run[run.length - 1]] <= most) run.push(index);
    else found.push([index]);
  });
  return found;
}

function area(kind, times, values, end, x, y, steps) {
  let path = `M${x(times[0]).toFixed(1)},${y(0).toFixed(1)}`;
  times.forEach((at, index) => {
    if (steps && index) path += `H${x(at).toFixed(1)}`;
    path += `L${x(at).toFixed(1)},${y(values[index]).toFixed(1)}`;
  });
  return s("path", { class: kind, d: `${path}H${x(end).toFixed(1)}V${y(0).toFixed(1)}Z` });
}

function line(steps, end, x, y) {
  let path = "";
  steps.forEach(([at, size], index) => {
    path += index ? `H${x(at).toFixed(1)}V${y(size).toFixed(1)}` : `M${x(at).toFixed(1)},${y(size).toFixed(1)}`;
  });
  return s("path", { class: "desired", d: path ? `${path}H${x(end).toFixed(1)}` : "M0,0" });
}

// The manifest

function manifest() {
  return h("details", { ontoggle: readManifest },
    h("summary", {}, h("h2", {}, "Manifest")), h("pre", { id: "manifest-text", tabindex: "0" }));
}

// Only while it is open; it is not among what is streamed.
async function readManifest() {
  const key = shownKey;
  const place = document.getElementById("manifest-text");
  if (!place?.parentElement.open || document.hidden) return;
  const answer = await ask(`/api/manifest?pool=${encodeURIComponent(key)}`).catch(() => null);
  if (!answer || key !== shownKey) return;
  const text = await answer.text();
  if (place.textContent !== text) place.textContent = text;
}

setInterval(readManifest, MANIFEST_MILLISECONDS);

// Logs

function logs(pool) {
  part("log", pool.logs.length > 0, (some) => {
    if (!some) return [];
    drawn.delete("log-name");
    return [
      h("div", { class: "row" }, h("h2", {}, "Log"),
        h("select", { id: "log-name", "aria-label": "Log of", onchange: (event) => openLog(event.target.value, false) }),
        h("input", { id: "log-filter", type: "search", "aria-label": "Lines with", placeholder: "Lines with …", maxlength: "200", oninput: drawLog }),
        h("span", { id: "log-note", class: "dim", role: "status" })),
      h("pre", { id: "log-text", tabindex: "0" }),
    ];
  });
  if (pool.logs.length === 0) return;
  logName = pool.logs.includes(logName) ? logName : pool.logs[0];
  part("log-name", [pool.logs, logName], ([names]) => names.map((name) => h("option", { value: name, selected: name === logName }, name)));
  if (!logTimer) {
    logTimer = setInterval(readLog, LOG_MILLISECONDS);
    readLog();
  }
}

function openLog(name, scroll = true) {
  logName = name;
  logText = "";
  drawLog();
  show();
  if (scroll) document.getElementById("log").scrollIntoView({ behavior: "smooth", block: "start" });
  readLog();
}

async function readLog() {
  const [key, name] = [shownKey, logName];
  if (!document.getElementById("log-text") || document.hidden) return;
  const answer = await ask(`/api/logs?pool=${encodeURIComponent(key)}&name=${encodeURIComponent(name)}`).catch(() => null);
  if (!answer || key !== shownKey || name !== logName) return;
  const text = await answer.text();
  if (logText === text) return;
  logText = text;
  drawLog();
}

function drawLog() {
  const place = document.getElementById("log-text");
  if (!place) return;
  const wanted = document.getElementById("log-filter").value;
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 8;
  if (wanted) {
    // Split by a group, every second part is what the group matched.
    const pattern = new RegExp(`(${wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`, "gi");
    const lines = logText.split("\n").filter((line, at, all) => line || at < all.length - 1);
    const found = lines.map((line) => line.split(pattern)).filter((parts) => parts.length > 1);
    place.replaceChildren(...found.flatMap((parts) => [...parts.map((text, at) => (at % 2 ? h("mark", {}, text) : text)), "\n"]));
    document.getElementById("log-note").textContent = `${count(found.length)} of ${plural(lines.length, "line")} in the last 64 KiB`;
  } else {
    place.textContent = logText;
    document.getElementById("log-note").textContent = "the last 64 KiB";
  }
  if (atEnd) place.scrollTop = place.scrollHeight;
}

setInterval(() => {
  for (const place of document.querySelectorAll("time.age")) place.textContent = ago(Number(place.dataset.at));
  for (const place of document.querySelectorAll("time.until")) place.textContent = until(Number(place.dataset.at));
}, 1000);
addEventListener("resize", show);
document.getElementById("sign-out").addEventListener("click", signOut);

start();
