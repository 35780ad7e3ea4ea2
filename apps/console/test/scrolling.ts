import type { Page } from "playwright-core";

/** Frames of more than 50 ms, by the browser's own long animation frames. */
export interface Frames {
  readonly longFrames: number;
  readonly longestMs: number;
  /** The time of the page's own scripts in one of them; the rest is the browser's, or the machine's. */
  readonly longestScriptMs: number;
}

/** What a page did while a list was scrolled from its beginning to its end. */
export interface ScrollUse extends Frames {
  readonly steps: number;
  /** The height of the whole element at the end. */
  readonly heightPx: number;
  /** Elements of the whole document, the most after any frame. */
  readonly mostElements: number;
  /** Elements that any one step has added. */
  readonly mostAdded: number;
}

/** The long frames of a page while something is done with it. */
export async function longFramesOf(page: Page, work: () => Promise<void>): Promise<Frames> {
  await page.evaluate(`
    window.longFrames = [];
    window.frameObserver = new PerformanceObserver((list) => {
      window.longFrames.push(...list.getEntries());
    });
    window.frameObserver.observe({ type: "long-animation-frame" });`);
  await work();
  return (await page.evaluate(`(${FRAMES})(window.longFrames)`)) as Frames;
}

const FRAMES = `(long) => {
  const scriptMs = ({ scripts }) => scripts.reduce((sum, { duration }) => sum + duration, 0);
  return {
    longFrames: long.length,
    longestMs: Math.max(0, ...long.map(({ duration }) => duration)),
    longestScriptMs: Math.max(0, ...long.map(scriptMs)),
  };
}`;

/** Steps of a whole list, a screen each at least. */
const STEPS = 200;
/** A list that has not grown for this long is at its end, though it is shorter. */
const TIMEOUT_MS = 60_000;

/** Scrolls the element from its beginning to its end, which is so far down once all is read. */
export async function scrolled(page: Page, selector: string, wholePx: number): Promise<ScrollUse> {
  const options = JSON.stringify({ selector, wholePx, STEPS, TIMEOUT_MS });
  return (await page.evaluate(`(${SCROLL})(${options})`)) as ScrollUse;
}

const SCROLL = `async ({ selector, wholePx, STEPS, TIMEOUT_MS }) => {
  const scroller = document.querySelector(selector);
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const long = [];
  const frames = new PerformanceObserver((list) => long.push(...list.getEntries()));
  frames.observe({ type: "long-animation-frame" });
  let added = 0;
  const changes = new MutationObserver((records) => {
    for (const { addedNodes } of records)
      for (const node of addedNodes) added += 1 + (node.querySelectorAll?.("*").length ?? 0);
  });
  changes.observe(scroller, { childList: true, subtree: true });
  const use = { steps: 0, mostElements: 0, mostAdded: 0 };
  scroller.scrollTop = 0;
  await frame();
  const step = Math.max(scroller.clientHeight, wholePx / STEPS);
  let movedMs = performance.now();
  for (; performance.now() - movedMs < TIMEOUT_MS; use.steps++) {
    const before = scroller.scrollTop;
    scroller.scrollTop = before + step;
    added = 0;
    await frame();
    await frame();
    use.mostElements = Math.max(use.mostElements, document.querySelectorAll("*").length);
    use.mostAdded = Math.max(use.mostAdded, added);
    if (scroller.scrollTop !== before) movedMs = performance.now();
    const endPx = scroller.scrollTop + scroller.clientHeight + 1;
    if (endPx >= Math.max(wholePx, scroller.scrollHeight)) break;
  }
  changes.disconnect();
  frames.disconnect();
  return { ...use, heightPx: scroller.scrollHeight, ...(${FRAMES})(long) };
}`;
