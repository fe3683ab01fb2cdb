// Asks for the moving part of the page again, so that the owner sees charges as they come.
// Without this script the page says the same, as of when it was loaded.
"use strict";
(() => {
  const SECONDS = 5;
  const live = document.getElementById("live");
  const news = document.getElementById("news");
  const form = document.querySelector("form");
  if (form) {
    // One question, one sending; the server would charge it once in any case.
    form.addEventListener("submit", () => {
      const button = form.querySelector("button");
      button.setAttribute("aria-disabled", "true");
      button.textContent = "Asking ...";
    });
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "yes";
    });
    // Back from the answer, the browser may show the page as it was left.
    window.addEventListener("pageshow", (event) => {
      if (event.persisted) window.location.reload();
    });
  }
  if (!live) return;
  let shown = null;
  let lost = false;
  const say = (text) => { news.textContent = text; };
  const open = () => [...live.querySelectorAll("details")].map((item) => item.open);
  const tiles = () => [...live.querySelectorAll(".tiles div")].map((tile) =>
    `${tile.querySelector("dt").textContent} ${tile.querySelector("dd").textContent}`).join(", ");
  const update = async () => {
    if (document.hidden || live.contains(document.activeElement)) return;
    let answer;
    try {
      answer = await fetch("live", { headers: { Accept: "text/html" }, cache: "no-store" });
    } catch {
      answer = null;
    }
    if (!answer || !answer.ok) {
      if (!lost) say("The service cannot be reached; the numbers are as of the last update.");
      lost = true;
      return;
    }
    const text = await answer.text();
    if (lost) say("The service is reached again.");
    lost = false;
    if (text === shown) return;
    const first = shown === null;
    const states = open();
    const before = tiles();
    shown = text;
    // The server's own, escaped HTML.
    live.replaceChildren(document.createRange().createContextualFragment(text));
    live.querySelectorAll("details").forEach((item, place) => { item.open = Boolean(states[place]); });
    // The time on the picture moves too: only numbers are worth hearing.
    if (!first && tiles() !== before) say(`Updated: ${tiles()}.`);
  };
  update();
  setInterval(update, SECONDS * 1000);
})();
