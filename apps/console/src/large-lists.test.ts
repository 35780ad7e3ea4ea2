// holds: console-large

import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM } from "../test/browser.ts";
import { scrolled } from "../test/scrolling.ts";

const rig = new ConsoleRig();
const ROW_PX = 40;
const LINE_PX = 18;
const LINES = 100_000;
/** Elements for the visible rows and some around them, whatever the number of all rows. */
const MOST_ELEMENTS = 4_000;
const LONG_LOG = `seq -f 'line %.0f of the log' ${LINES}`;
let page: Page;
let job = "";

beforeAll(async () => {
  if (!CHROMIUM) return;
  await rig.start("--simulate-gpus", "8xH100-80GB", "--parameter-servers", "0");
  const talks = { name: "talks", command: LONG_LOG };
  job = (await rig.call("POST", "/jobs", talks))["job_id"] ?? "";
  page = await rig.signedIn(`/console/jobs/${job}?part=logs`);
  await page.getByText("succeeded").first().waitFor();
});
afterAll(() => rig.close());
beforeEach(async () => {
  rig.errors.length = 0;
  await page?.unrouteAll({ behavior: "ignoreErrors" });
});

type Listed = Readonly<Record<string, unknown>>;

/** Lists show this many copies of the master's first entry, each with its own name. */
async function multiply(path: string, count: number, copy: (at: number) => Listed): Promise<void> {
  const { data } = (await rig.call("GET", path)) as unknown as { readonly data: Listed[] };
  const [row] = data;
  expect(row, path).toBeDefined();
  await page.route(`**/api/v1${path}*`, async (route) => {
    const { searchParams: asked } = new URL(route.request().url());
    if (route.request().headers()["accept"]?.includes("event-stream")) return route.continue();
    const first = Number(asked.get("cursor") ?? asked.get("after") ?? 0);
    const end = Math.min(count, first + Number(asked.get("limit") ?? count));
    const copies = Array.from({ length: end - first }, (_, at) => ({
      ...row,
      ...copy(first + at),
    }));
    const place = { next_cursor: end < count ? `${end}` : null, last_event_id: `${end}` };
    await route.fulfill({ json: { object: "list", data: copies, ...place } });
  });
}

async function expectFew(selector: string, wholePx: number): Promise<void> {
  const { mostElements, mostAdded, steps, heightPx } = await scrolled(page, selector, wholePx);
  expect(heightPx).toBeGreaterThanOrEqual(wholePx);
  expect(steps).toBeGreaterThan(20);
  expect(mostElements).toBeLessThan(MOST_ELEMENTS);
  expect(mostAdded).toBeLessThan(MOST_ELEMENTS);
}

/** What of a list's element the tests use: they have no types of browsers. */
interface Scroller {
  readonly scrollWidth: number;
  readonly clientWidth: number;
  readonly clientHeight: number;
  readonly scrollTop: number;
  scrollTo(x: number, y: number): void;
}

// Each has names of its own: those of the list before are in the page until the next one is drawn.
const LISTS = [
  ["nodes", "/workers", 1_000, (at: number) => ({ id: `n${at}`, name: `nodes-${at}` })],
  ["gpus", "/workers", 1_000, (at: number) => ({ id: `n${at}`, name: `gpus-${at}` })],
  ["jobs", "/jobs", 10_000, (at: number) => ({ id: `job_${at}`, name: `jobs-${at}` })],
  ["events", "/events", 50_000, (at: number) => ({ id: `${at}.0`, node_name: `events-${at}` })],
] as const;

describe.skipIf(!CHROMIUM)(`large lists of the console${NEEDS_CHROMIUM}`, () => {
  it(`logs: of ${LINES} lines those in view are in the page`, async () => {
    await page.getByRole("button", { name: "From the start" }).click();
    await page.getByText("100,000 lines").waitFor();
    await expectFew(".log", LINES * LINE_PX);
    await page.getByText(`line ${LINES} of the log`).waitFor();
    expect(rig.errors).toEqual([]);
  });

  it.each(LISTS)(
    "%s: of all rows those in view are in the page",
    async (name, path, count, copy) => {
      await multiply(path, count, copy);
      // Within the page: a reload would end the session.
      await page.evaluate(`history.pushState(null, "", "/console/${name}")`);
      await page
        .getByText(new RegExp(`^${name}-\\d+$`))
        .first()
        .waitFor();
      await expectFew(".table-scroller", count * ROW_PX);
      // Events have the newest first.
      const last = name === "events" ? 0 : count - 1;
      await page.getByText(`${name}-${last}`, { exact: true }).waitFor();
      expect(rig.errors).toEqual([]);
    },
  );

  it("a narrow screen: lists and logs scroll in themselves, pages begin at their top", async () => {
    const [, path, count, copy] = LISTS[2];
    await multiply(path, count, copy);
    await page.setViewportSize({ width: 390, height: 800 });
    await page.evaluate(`history.pushState(null, "", "/console/jobs")`);
    await page.getByRole("link", { name: "jobs-0", exact: true }).waitFor();
    const heightOf = (selector: string) =>
      page.locator(selector).evaluate((each: Scroller) => each.clientHeight);
    expect(await heightOf(".table-scroller")).toBeLessThan(800);
    await page.evaluate(`history.pushState(null, "", "/console/jobs/${job}?part=logs")`);
    await page.getByText(`line ${LINES} of the log`).waitFor();
    expect(await heightOf(".log")).toBeLessThan(800);
    const open = async (name: string, shown: string) => {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { name: shown }).first().waitFor();
    };
    await open("Models", "FamilyA-1-2B");
    await open("Settings", "Settings of the cluster");
    const main = page.locator("main");
    const top = () => main.evaluate((each: Scroller) => each.scrollTop);
    await main.evaluate((each: Scroller) => each.scrollTo(0, 10_000));
    expect(await top()).toBeGreaterThan(0);
    await open("Models", "FamilyA-1-2B");
    expect(await top()).toBe(0);
    await page.setViewportSize({ width: 1280, height: 800 });
  });

  it("jump: rows take the elements before, and the focus goes to the list", async () => {
    const [, path, count, copy] = LISTS[2];
    await multiply(path, count, copy);
    await page.evaluate(`history.pushState(null, "", "/console/jobs")`);
    const list = page.locator(".table-scroller");
    const first = page.getByRole("link", { name: "jobs-0", exact: true });
    await first.waitFor();
    await list.evaluate((each: Scroller) => each.scrollTo(0, 0));
    await first.focus();
    await page.evaluate(`document.activeElement.dataset.mark = "first"`);
    await list.evaluate((each: Scroller) => each.scrollTo(0, 4_000));
    await page.getByRole("link", { name: "jobs-100", exact: true }).waitFor();
    expect(await page.evaluate("document.activeElement.className")).toBe("table-scroller");
    const marked = page.locator("[data-mark=first]");
    expect(await marked.getAttribute("href")).toMatch(/^\/console\/jobs\/job_9\d$/);
    const row = page.getByRole("row").filter({ has: marked });
    expect(await row.getAttribute("aria-rowindex")).toMatch(/^9\d$/);
    await marked.click();
    await page.waitForURL(/jobs\/job_9\d$/);
  });

  it.each(LISTS)("%s: all columns fit into 1280 pixels", async (name) => {
    await page.evaluate(`history.pushState(null, "", "/console/${name}")`);
    await page.getByRole("heading", { level: 1, name }).waitFor();
    await page.locator(".table-body .table-row").first().waitFor();
    // The list of the page before may still be there, and goes.
    const list = page.locator(".table-scroller").first();
    const wider = ({ scrollWidth, clientWidth }: Scroller) => scrollWidth - clientWidth;
    expect(await list.evaluate(wider)).toBe(0);
  });
});
