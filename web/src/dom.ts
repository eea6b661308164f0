// Elements of the page. Texts are set as text alone, so no name in a recording becomes markup.

export function find<T extends HTMLElement>(selector: string): T {
  return document.querySelector<T>(selector)!;
}

export function make<K extends keyof HTMLElementTagNameMap>(
  name: K,
  className = "",
  text = "",
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  if (className !== "") element.className = className;
  if (text !== "") element.textContent = text;
  return element;
}

export function button(text: string, title: string, act: () => void): HTMLButtonElement {
  const element = make("button", "", text);
  element.type = "button";
  element.title = title;
  element.addEventListener("click", act);
  return element;
}

/** Returns a color of the style sheet, for a canvas. */
export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
