import type { Page } from "playwright-core";

const CONTROLS = `a[href], button:not(:disabled), input:not(:disabled), select, textarea, summary, [tabindex="0"]`;
/** More keys than any page has controls. */
const MAX_KEYS = 300;

/**
 * Walks through the page with the Tab key. Returns the controls that it does not reach, and those that it
 * reaches without a mark that a reader sees.
 */
export async function unreachable(page: Page): Promise<string[]> {
  await page.evaluate(`for (const control of document.querySelectorAll(\`${CONTROLS}\`))
    if (control.checkVisibility()) control.dataset.walk = "asked"`);
  const unmarked: string[] = [];
  for (let keys = 0; keys < MAX_KEYS; keys++) {
    await page.keyboard.press("Tab");
    const reached = (await page.evaluate(REACHED)) as { isAgain: boolean; unmarked?: string };
    if (reached.isAgain) break;
    if (reached.unmarked) unmarked.push(`without a mark: ${reached.unmarked}`);
  }
  const missed = (await page.evaluate(MISSED)) as string[];
  return [...missed.map((each) => `not reached: ${each}`), ...unmarked];
}

const REACHED = `(() => {
  const at = document.activeElement;
  if (at === document.body) return { isAgain: false };
  const isAgain = at.dataset.walk === "reached";
  at.dataset.walk = "reached";
  const { outlineStyle, boxShadow } = getComputedStyle(at);
  const isMarked = outlineStyle !== "none" || boxShadow !== "none";
  return { isAgain, unmarked: isMarked ? undefined : at.outerHTML.slice(0, 200) };
})()`;

/** A group of radio buttons is one stop of the Tab key. */
const MISSED = `(() => {
  const missed = [...document.querySelectorAll("[data-walk=asked]")].filter(
    (control) => control.checkVisibility() && control.type !== "radio",
  );
  for (const control of document.querySelectorAll("[data-walk]")) delete control.dataset.walk;
  return missed.map(({ outerHTML }) => outerHTML.slice(0, 200));
})()`;
