// What is asked before something is done, and what is said while it is being done.

import { make } from "./elements.js";

/** Ask whether to go on. `typed`: what has to be typed for that. Answers true or false; Escape is false.
 *
 * Each question is an element of its own: a browser tells the end of one a little later, when the next may be open. What
 * had the focus gets it again; a view that was drawn anew meanwhile has another element of the same `data-focus`.
 */
export function confirm({ title, words, button, typed = "", danger = false }) {
  return new Promise((done) => {
    const box = make("dialog", { "aria-labelledby": "dialog-title" });
    const go = make(`button.${danger ? "danger" : "main"}`, { type: "submit", value: "go", disabled: Boolean(typed) }, button);
    const field = typed && make("input", { name: "typed", autocomplete: "off", spellcheck: "false", oninput: () => { go.disabled = field.value !== typed; } });
    const form = make("form", { method: "dialog" },
      make("h2", { id: "dialog-title" }, title),
      ...words.map((one) => make("p", {}, one)),
      typed && make("label", {}, make("span", {}, "Type ", make("b", {}, typed), " to go on"), field),
      make("div.ends", {}, make("button", { type: "button", onclick: () => box.close("") }, "Cancel"), go));
    const before = document.activeElement;
    const key = before?.dataset.focus;
    box.append(form);
    box.addEventListener("close", () => {
      box.remove();
      const same = before?.isConnected ? before : key && document.querySelector(`[data-focus="${CSS.escape(key)}"]`);
      if (same && !document.querySelector("dialog[open]")) same.focus();
      done(box.returnValue === "go");
    });
    document.body.append(box);
    box.showModal();
    (field || form.querySelector("button")).focus();
  });
}

/** A message above the view, which stays until it is closed. Answers how it is changed: `say(words, mood, share)`. */
export function notice(words) {
  const text = make("div", {}, words);
  const bar = make("progress", { max: 1, hidden: true, "aria-label": "How far it is" });
  const close = make("button", { type: "button", hidden: true, onclick: () => box.remove() }, "Close");
  const box = make("div.sheet.notice", {}, text, bar, make("div.tools", {}, close));
  document.getElementById("notices").append(box);
  return (said, mood = "", share = null) => {
    text.textContent = said;
    bar.hidden = share === null;
    if (share !== null) bar.value = share;
    box.classList.toggle("bad-notice", mood === "bad");
    close.hidden = !mood;
  };
}
