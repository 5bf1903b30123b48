// Elements made by scripts. Text from clients becomes text nodes only, never markup.

/** An element: `h("a", {href: "#/"}, "text", child)`. Properties that begin with `on` are listeners;
 * null and false are left out. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  set(element, properties);
  append(element, children);
  return element;
}

/** An element of a drawing. */
export function svg(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, properties);
  append(element, children);
  return element;
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replace what an element contains. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

const DRAWN = new WeakMap();

/** Replace what an element contains if the value it shows has changed: a refresh keeps the focus. */
export function drawn(element, value, make) {
  const text = JSON.stringify(value);
  if (DRAWN.get(element) === text) return;
  DRAWN.set(element, text);
  fill(element, make());
}
