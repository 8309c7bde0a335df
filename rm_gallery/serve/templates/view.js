"use strict";
// Keys press what is on the page, and what is not finished is looked at again; without this script every page works the same.
(() => {
  const EVERY = 2000;

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.target.closest("input, select, textarea")) return;
    const wanted = document.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (!wanted || wanted.disabled) return;
    event.preventDefault();
    wanted.click();
  });

  // a form that is sent twice at once would say two things of two rows
  for (const form of document.querySelectorAll("form[method=post]")) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "yes";
    });
  }

  // who opened the figure watches it from row to row
  const figure = document.getElementById("figure");
  if (figure) {
    figure.open ||= sessionStorage.getItem("figure") === "open";
    figure.addEventListener("toggle", () => sessionStorage.setItem("figure", figure.open ? "open" : ""));
  }

  async function again() {
    try {
      const reply = await fetch(location.href, { headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      for (const place of ["[data-part=figures]", ".runs tbody"]) {
        const [now, then] = [page.querySelector(place), document.querySelector(place)];
        if (now && then && now.innerHTML !== then.innerHTML && !then.contains(document.activeElement)) then.replaceChildren(...now.childNodes);
      }
      if (!page.documentElement.hasAttribute("data-live")) return;
    } catch {
      return; // the server ended
    }
    setTimeout(again, EVERY);
  }
  if (document.documentElement.hasAttribute("data-live")) setTimeout(again, EVERY);
})();
