import { eventually } from "@heddle/base/testing/eventually";
import type { Job } from "@heddle/contracts/api/job-replies";
import type { Page } from "playwright-core";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM } from "../apps/console/test/browser.ts";
import { type Frames, longFramesOf, scrolled } from "../apps/console/test/scrolling.ts";
import { initialBytes, totalBytes } from "../apps/console/test/site-size.ts";
import { printLongestTasks } from "./console/longest-tasks.ts";
import { measureJobStorm } from "./scale/job-storm.ts";
import { startCluster } from "./scale/steady.ts";
import { withCleanup } from "./support/child-process.ts";
import { readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { summarizeSamples } from "./support/statistics.ts";
import { atMost, printTable, printVerdicts, type Verdict } from "./support/table.ts";

// The console's pages in a browser, over lists of real masters. Measured are size, first paint,
// frames while they are scrolled and a curve is drawn, and the next leader.

const usage =
  "npm run bench:console -- [--nodes 1000] [--jobs 10000] [--lines 100000] [--points 1000000] [--trace 0]";
const options = readOptions(usage, ["nodes", "jobs", "lines", "points", "trace"]);
const nodes = Number(options["nodes"] ?? 1_000);
const jobs = Number(options["jobs"] ?? 10_000);
const lines = Number(options["lines"] ?? 100_000);
const points = Number(options["points"] ?? 1_000_000);
/** How many longest tasks of the curve and of each list are printed; a trace makes all longer. */
const traced = Number(options["trace"] ?? 0);

const bars = { paintMs: 300, frameMs: 50, leaderMs: 5_000, initialKb: 180, totalKb: 350 };
const PAINTS = 9;
const SETTLE_MS = 5_000;
/** A loaded machine reads a thousand nodes slowly. */
const TIMEOUT_MS = 300_000;
const ROW_PX = 40;
/** A page of it alone shows what the machine itself takes; it has no bar. */
const PLAIN_TEXT = "rows of plain text alone";
const PLAIN_ROWS = 10_000;
const LINE_PX = 18;
const FIRST_PAINT = `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`;

/** How long a curve is watched while its job reports on; it is read every 5 s. */
const WATCH_MS = 12_000;
const REPORT = `seq ${points} | awk '{printf "{\\"step\\":%d,\\"loss\\":%.6f}\\n", $1, 1 + 100 / $1}'`;
const CONTINUE = `for i in $(seq 600); do echo "{\\"step\\":$((${points} + i)),\\"loss\\":1}" >> "$HEDDLE_PROGRESS_FILE"; sleep 0.1; done`;

interface Shown extends Frames {
  readonly what: string;
  readonly count: number;
}

if (!CHROMIUM) throw new Error(`There is no browser to measure${NEEDS_CHROMIUM}.`);
await withCleanup(async () => {
  const rig = new ConsoleRig();
  try {
    await rig.start("--simulate-gpus", "8xH100-80GB", "--parameter-servers", "0");
    const paintsMs = await firstPaints(rig);
    const shown = [await drawnCurve(rig), await scrolledLog(rig), ...(await scrolledLists(rig))];
    report(paintsMs, shown, await nextLeaderMs());
  } finally {
    await rig.close();
  }
});

/** Times from the navigation to a page whose files the browser has. */
async function firstPaints(rig: ConsoleRig): Promise<number[]> {
  const page = await rig.open();
  const paintsMs: number[] = [];
  for (let at = 0; at < PAINTS; at++) {
    await page.reload();
    await page.getByLabel("API key").waitFor();
    paintsMs.push((await page.evaluate(FIRST_PAINT)) as number);
  }
  await page.context().close();
  return paintsMs;
}

/**
 * From the opening of a job's page, while its curve is drawn and grows. The cluster has read the
 * points before: that takes both cores of a small machine.
 */
async function drawnCurve(rig: ConsoleRig): Promise<Shown> {
  const command = `${REPORT} >> "$HEDDLE_PROGRESS_FILE"; ${CONTINUE}`;
  const { job_id: job } = await rig.call("POST", "/jobs", { name: "learns", command });
  await eventually(
    async () => {
      const { progress } = (await rig.call("GET", `/jobs/${job}`)) as unknown as Job;
      return (progress?.step ?? 0) >= points;
    },
    `step ${points} is not reported`,
    TIMEOUT_MS,
  );
  const page = await rig.signedIn();
  const watch = async () => {
    await page.evaluate(`history.pushState(null, "", "/console/jobs/${job}")`);
    await page.getByRole("img", { name: "loss by step" }).waitFor();
    await page.waitForTimeout(WATCH_MS);
  };
  const frames = await longFramesOf(page, () => withTrace(page, watch));
  await rig.call("DELETE", `/jobs/${job}`);
  await page.context().close();
  return { what: "loss points", count: points, ...frames };
}

function withTrace<Result>(page: Page, work: () => Promise<Result>): Promise<Result> {
  return traced > 0 ? printLongestTasks(page.context().browser()!, traced, work) : work();
}

async function scrolledLog(rig: ConsoleRig): Promise<Shown> {
  const command = `seq -f 'line %.0f of the log' ${lines}`;
  const { job_id: job } = await rig.call("POST", "/jobs", { name: "talks", command });
  const page = await rig.signedIn(`/console/jobs/${job}?part=logs`);
  await page.getByText("succeeded").first().waitFor();
  await page.getByRole("button", { name: "From the start" }).click();
  await page.getByText(`${lines.toLocaleString("en")} lines`).waitFor();
  const use = await scrolled(page, ".log", lines * LINE_PX);
  await page.context().close();
  return { what: "log lines", count: lines, ...use };
}

/** Lists of another cluster, with simulated nodes and the jobs and events of a storm. */
async function scrolledLists(rig: ConsoleRig): Promise<Shown[]> {
  const cluster = await startCluster(1, nodes, SETTLE_MS);
  try {
    await measureJobStorm(cluster, jobs, 0);
    const { group } = cluster.masters;
    const url = group.url(await group.leader()) ?? "";
    const page = await rig.signedInAt(`${url}/console/`, group.adminKey);
    page.setDefaultTimeout(TIMEOUT_MS);
    const shown: Shown[] = [];
    for (const [list, least] of [
      ["Nodes", nodes],
      ["GPUs", nodes],
      ["Jobs", jobs],
      ["Events", 1],
    ] as const) {
      const path = `/console/${list.toLowerCase()}`;
      await page.evaluate(`history.pushState(null, "", ${JSON.stringify(path)})`);
      // Else it would find the rows of the page before.
      await page.getByRole("heading", { level: 1, name: list }).waitFor();
      await page.locator(".table-body .table-row").first().waitFor();
      console.log(`scrolling ${list}`);
      const scroll = () => scrolled(page, ".table-scroller", least * ROW_PX);
      const use = await withTrace(page, scroll);
      shown.push({ what: list.toLowerCase(), count: await rowsOf(page), ...use });
    }
    shown.push(await scrolledText(rig));
    return shown;
  } finally {
    await cluster.fleet.stop();
    await cluster.masters.stop();
  }
}

/** The least that a list can be: each jump gives the rows in view other texts. */
async function scrolledText(rig: ConsoleRig): Promise<Shown> {
  const page = await rig.openAt("about:blank");
  const heightPx = PLAIN_ROWS * ROW_PX;
  await page.setContent(
    `<div class="plain" style="height: 640px; overflow: auto; overflow-anchor: none; font: 14px/${ROW_PX}px sans-serif">
      <div style="height: ${heightPx}px; box-sizing: border-box"></div>
    </div>`,
  );
  await page.evaluate(`(() => {
    const scroller = document.querySelector(".plain");
    const list = scroller.firstElementChild;
    for (let at = 0; at < 16; at++) list.append(document.createElement("div"));
    scroller.addEventListener("scroll", () => {
      const first = Math.floor(scroller.scrollTop / ${ROW_PX});
      list.style.paddingTop = first * ${ROW_PX} + "px";
      [...list.children].forEach((row, at) => {
        row.textContent = ("row " + (first + at) + " of plain text ").repeat(5);
      });
    });
  })()`);
  const use = await scrolled(page, ".plain", heightPx);
  await page.context().close();
  return { what: PLAIN_TEXT, count: PLAIN_ROWS, ...use };
}

async function rowsOf(page: Page): Promise<number> {
  const count = await page.getByRole("table").first().getAttribute("aria-rowcount");
  return Number(count) - 1;
}

/** From the kill of the leader until an open page of another master shows the next one. */
async function nextLeaderMs(): Promise<number> {
  const rig = new ConsoleRig();
  try {
    await rig.start("--masters", "3", "--parameter-servers", "0");
    const leader = (await rig.leaderOf("master-1")) ?? "";
    const other = leader === "master-1" ? "master-2" : "master-1";
    const page = await rig.signedIn("/console/control-plane", {}, rig.key, other);
    await page.getByText(`Leader: ${leader}`).waitFor();
    const killed = performance.now();
    rig.killMaster(leader);
    await page.getByText(new RegExp(`Leader: (?!${leader})master-\\d`)).waitFor();
    return performance.now() - killed;
  } finally {
    await rig.close();
  }
}

function report(paintsMs: readonly number[], shown: readonly Shown[], leaderMs: number): void {
  const paint = summarizeSamples(paintsMs);
  printTable(
    "A growing curve, and lists scrolled to their ends, a screen or more each step",
    ["what", "count", "frames over 50 ms", "longest, ms", "its scripts at most, ms"],
    shown.map(({ what, count, longFrames, longestMs, longestScriptMs }) => {
      return [what, count, longFrames, longestMs, longestScriptMs];
    }),
  );
  const verdicts: Verdict[] = [
    atMost("JavaScript of the first page, gzipped, KB", initialBytes() / 1_000, bars.initialKb),
    atMost("JavaScript and styles, gzipped, KB", totalBytes() / 1_000, bars.totalKb),
    atMost("first paint with a warm cache, median, ms", paint.p50, bars.paintMs),
    ...shown
      .filter(({ what }) => what !== PLAIN_TEXT)
      .map(({ what, count, longestMs }) =>
        atMost(`longest frame, ${count} ${what}, ms`, longestMs, bars.frameMs),
      ),
    atMost("an open page shows the next leader after, ms", leaderMs, bars.leaderMs),
  ];
  printVerdicts(verdicts);
  writeReport(options, "console", { paintsMs, shown, leaderMs, verdicts });
}
