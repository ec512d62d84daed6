// SPDX-License-Identifier: Apache-2.0
// Elements of the page. All text goes in as text: names come from configurations and from the network.

// element makes an element with attributes and children, which are elements or text.
export function element(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== ""));
  return e;
}

// write sets the text of an element, if it is another one.
export function write(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// attribute sets an attribute of an element, if it is another one. Without a value it is removed.
export function attribute(e, name, value) {
  if (value === undefined || value === false || value === "") {
    if (e.hasAttribute(name)) e.removeAttribute(name);
  } else if (e.getAttribute(name) !== String(value)) {
    e.setAttribute(name, value);
  }
}

// children has an element have one child for each item, in this order, and keeps those that are there. key names an item, make makes
// its child, and update writes what changes.
export function children(parent, items, key, make, update) {
  parent.byKey ??= new Map();
  const gone = new Set(parent.byKey.keys());
  let at = parent.firstChild;
  for (const item of items) {
    const k = key(item);
    gone.delete(k);
    let e = parent.byKey.get(k);
    if (!e) {
      e = make(item);
      parent.byKey.set(k, e);
    }
    if (e === at) {
      at = at.nextSibling;
    } else {
      parent.insertBefore(e, at);
    }
    update(e, item);
  }
  for (const k of gone) {
    parent.byKey.get(k).remove();
    parent.byKey.delete(k);
  }
}

// state makes a state: a sign, which has a form of its own, and a word.
const signs = { good: "✓", bad: "✕", warn: "!", quiet: "○" };

// writeState writes a state into an element. kind is good, bad, warn or quiet.
export function writeState(e, kind, word) {
  if (!e.sign) {
    e.sign = element("span", { class: "sign", "aria-hidden": "true" });
    e.word = element("span");
    e.replaceChildren(e.sign, e.word);
    e.classList.add("state");
  }
  attribute(e, "data-state", kind);
  write(e.sign, signs[kind]);
  write(e.word, word);
}

// Panel is a section with a title, hidden while it has nothing to show.
export class Panel {
  constructor(parent, id, title) {
    this.about = element("p", { class: "about" });
    this.body = element("div", { class: "body" });
    this.section = element("section", { id, class: "panel", "aria-labelledby": id + "-title" },
      element("div", { class: "bar" }, element("h2", { id: id + "-title" }, title), this.about), this.body);
    this.section.hidden = true;
    parent.append(this.section);
  }

  // show shows the panel or hides it, with a text beside its title.
  show(shown, about = "") {
    this.section.hidden = !shown;
    write(this.about, about);
  }
}

// Table is a table with a row for each item. columns have a title, a class, and write(cell, item).
export class Table {
  constructor(parent, caption, columns) {
    this.columns = columns;
    this.rows = element("tbody");
    this.table = element("table", {},
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, element("tr", {}, ...columns.map((c) => element("th", { class: c.class, scope: "col" }, c.title)))), this.rows);
    parent.append(element("div", { class: "scroll" }, this.table));
  }

  // show shows items, by what key returns of them.
  show(items, key) {
    this.table.hidden = items.length === 0;
    children(this.rows, items, key,
      () => element("tr", {}, ...this.columns.map((c, n) => element(n ? "td" : "th", { class: c.class, scope: n ? undefined : "row", "data-title": c.title }))),
      (row, item) => {
        this.columns.forEach((c, n) => c.write(row.children[n], item));
        attribute(row, "data-key", key(item));
      });
  }
}
