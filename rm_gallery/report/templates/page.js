"use strict";
// Texts from the data only ever become text nodes.
(() => {
  const rows = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const controls = { search: at("search"), outcome: at("outcome"), subset: at("subset"), sort: at("sort"), size: at("size") };
  const ORDER = ["wrong", "partly", "right", "wins", "tie", "loses", "scored", "unscored", "failed", "stopped"];
  let found = [];
  let page = 0;

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function show(value) {
    if (value === undefined || value === null) return "–";
    const size = Math.abs(value);
    const text = size && (size >= 1e6 || size < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(4)));
    return text.replace("-", "−");
  }

  function words(row) {
    if (row.words === undefined) {
      const parts = [row.id, row.subset, row.prompt];
      for (const answer of row.answers || []) parts.push(answer.text, answer.reason);
      for (const issue of row.issues || []) parts.push(issue.join(" "));
      for (const reply of row.replies || []) parts.push(reply.reply, reply.problem);
      row.words = parts.filter(Boolean).join("\n").toLowerCase();
    }
    return row.words;
  }

  const length = (row) => Math.max(0, ...(row.answers || []).map((answer) => answer.length));
  const KEYS = { gap: (row) => row.gap, length, id: (row) => row.id };

  function sorted(list) {
    const name = controls.sort.value.replace("-", "");
    if (!name) return list;
    const turn = controls.sort.value.startsWith("-") ? -1 : 1;
    const key = KEYS[name];
    const known = list.filter((row) => key(row) !== undefined);
    const compare = name === "id"
      ? (a, b) => a.id.localeCompare(b.id, undefined, { numeric: true })
      : (a, b) => turn * (key(a) - key(b));
    return known.sort(compare).concat(list.filter((row) => key(row) === undefined));
  }

  function highlighted(element, text, needle) {
    if (!needle) { element.textContent = text; return element; }
    const lower = text.toLowerCase();
    if (lower.length !== text.length) { element.textContent = text; return element; }
    let from = 0;
    for (let hit = lower.indexOf(needle), k = 0; hit >= 0 && k < 200; hit = lower.indexOf(needle, from), k += 1) {
      element.append(text.slice(from, hit), make("mark", "", text.slice(hit, hit + needle.length)));
      from = hit + needle.length;
    }
    element.append(text.slice(from));
    return element;
  }

  function textBlock(text, needle) {
    const block = make("pre", "text");
    block.dir = "auto";
    if (text.length > 900) { block.tabIndex = 0; block.setAttribute("role", "region"); block.setAttribute("aria-label", "long text"); }
    return highlighted(block, text || "(empty)", needle);
  }

  const named = (row, place) => (row.names ? row.names[place] : `answer ${place + 1}`);

  function answerCard(row, answer, place, top, needle) {
    const card = make("article", "answer");
    const head = make("header", answer.score !== undefined && answer.score === top ? "top" : "");
    head.append(make("b", "", row.names ? row.names[place] : `Answer ${place + 1}`));
    if (answer.label) head.append(make("span", `badge ${answer.label === "chosen" ? "chosen" : "rejected"}`, answer.label));
    head.append(make("span", "", answer.score === undefined ? "no score" : `score ${show(answer.score)}`));
    head.append(make("span", "", `${answer.length.toLocaleString("en")} characters`));
    card.append(head, textBlock(answer.text || "", needle));
    if (answer.reason) {
      const said = highlighted(make("p", "said"), answer.reason, needle);
      said.dir = "auto";
      card.append(said);
    }
    return card;
  }

  function list(items) {
    const element = make("ul", "list");
    for (const item of items) { const line = make("li", "", item); line.dir = "auto"; element.append(line); }
    return element;
  }

  function verdictLine(row, [first, second, verdict]) {
    const said = verdict === null ? "no usable verdict" : verdict === 0 ? "a tie" : `${named(row, verdict > 0 ? first : second)} wins`;
    return `${named(row, first)} shown before ${named(row, second)}: ${said}`;
  }

  function judgedPlace(row, place) {
    if (typeof place === "number") return ` of ${named(row, place)}`;
    if (!place) return "";
    if (row.steps && place.length === 2) return ` of step ${place[1] + 1} of ${named(row, place[0])}`;
    if (place.length === 2) return ` of ${named(row, place[0])} before ${named(row, place[1])}`;
    return ` of all answers, shown in the order ${place.map((one) => one + 1).join(", ")}`;
  }

  function replyBlock(row, reply, needle) {
    const block = make("details", "");
    const tokens = `${reply.tokens[0].toLocaleString("en")} + ${reply.tokens[1].toLocaleString("en")} tokens`;
    const time = reply.cached ? "from the cache" : `${reply.seconds} s`;
    block.append(make("summary", "", `Raw reply, judgement${judgedPlace(row, reply.place)}, attempt ${reply.attempt}: ${reply.status}, ${tokens}, ${time}`));
    if (reply.problem) block.append(make("p", "note", reply.problem));
    block.append(reply.reply === null ? make("p", "note", "There was no reply.") : textBlock(reply.reply, needle));
    return block;
  }

  function filled(row, needle) {
    const body = make("div", "body");
    const part = (title, ...children) => body.append(make("h4", "", title), ...children);
    if (row.issues) part("Why there is no score", list(row.issues.map((issue) => `${issue[0]}: ${issue[1]}${issue[2] ? `: ${issue[2]}` : ""}`)));
    part("Prompt", textBlock(row.prompt || "", needle));
    const answers = make("div", (row.answers || []).length === 3 ? "answers three" : "answers");
    const scores = (row.answers || []).map((answer) => answer.score).filter((score) => score !== undefined);
    const top = scores.length > 1 ? Math.max(...scores) : undefined;
    (row.answers || []).forEach((answer, place) => answers.append(answerCard(row, answer, place, top, needle)));
    if (row.answers) part(row.answers.length > 1 ? "Answers" : "Answer", answers);
    if (row.verdicts) part("Verdicts", list(row.verdicts.map((verdict) => verdictLine(row, verdict))));
    (row.steps || []).forEach((steps, place) => {
      if (steps.length) part(`Steps of answer ${place + 1}`, list(steps.map((step, k) => `${k + 1}. [${show(step[1])}${step[2] ? `, ${step[2]}` : ""}] ${step[0]}`)));
    });
    if (row.replies) part("What the judge replied", ...row.replies.map((reply) => replyBlock(row, reply, needle)));
    return body;
  }

  function sampleElement(row) {
    const element = make("details", "sample");
    const head = make("summary");
    const outcome = make("span");
    outcome.append(make("span", `badge ${row.outcome}`, row.outcome));
    const id = make("bdi", "id", row.subset ? `${row.subset} · ${row.id}` : row.id);
    id.title = row.id;
    const excerpt = make("bdi", "excerpt", (row.prompt || "").slice(0, 240).replace(/\s+/g, " ") || "(no prompt)");
    head.append(outcome, id, excerpt, make("span", "gap", row.gap === undefined ? "" : `gap ${show(row.gap)}`));
    element.append(head);
    element.addEventListener("toggle", () => {
      if (element.open && element.childElementCount === 1) element.append(filled(row, needle()));
    });
    return element;
  }

  const needle = () => controls.search.value.trim().toLowerCase();

  function draw() {
    const size = Number(controls.size.value);
    const pages = Math.max(1, Math.ceil(found.length / size));
    page = Math.min(Math.max(page, 0), pages - 1);
    at("rows").replaceChildren(...found.slice(page * size, (page + 1) * size).map(sampleElement));
    at("count").textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} samples`;
    at("page").textContent = `page ${page + 1} of ${pages}`;
    at("previous").disabled = page === 0;
    at("next").disabled = page === pages - 1;
    at("pager").hidden = pages === 1;
    at("nothing").hidden = found.length > 0 || rows.length === 0;
  }

  let waiting;

  function filter() {
    clearTimeout(waiting);
    const wanted = needle();
    const outcome = controls.outcome.value;
    const subset = controls.subset.value;
    found = sorted(rows.filter((row) =>
      (!outcome || row.outcome === outcome) &&
      (!subset || (subset === "\u0000" ? !row.subset : row.subset === subset)) &&
      (!wanted || words(row).includes(wanted))));
    page = 0;
    draw();
  }

  function choices(select, names, all, counts) {
    const option = (value, text) => { const element = make("option", "", text); element.value = value; return element; };
    select.append(option("", all));
    for (const name of names) select.append(option(name || "\u0000", `${name || "(no subset)"} (${counts.get(name).toLocaleString("en")})`));
    if (names.length < 2) select.parentElement.hidden = true;
  }

  function counted(key) {
    const counts = new Map();
    for (const row of rows) counts.set(key(row), (counts.get(key(row)) || 0) + 1);
    return counts;
  }

  const outcomes = counted((row) => row.outcome);
  const subsets = counted((row) => row.subset || "");
  choices(controls.outcome, ORDER.filter((name) => outcomes.has(name)), "all", outcomes);
  choices(controls.subset, [...subsets.keys()].sort(), "all", subsets);
  controls.search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  for (const name of ["outcome", "subset", "sort", "size"]) controls[name].addEventListener("change", filter);
  at("controls").addEventListener("submit", (event) => { event.preventDefault(); filter(); });
  const turn = (by) => { page += by; draw(); at("samples").scrollIntoView(); };
  at("previous").addEventListener("click", () => turn(-1));
  at("next").addEventListener("click", () => turn(1));
  at("clear").addEventListener("click", () => { controls.search.value = controls.outcome.value = controls.subset.value = ""; filter(); });
  at("controls").hidden = rows.length < 2;
  filter();
})();
