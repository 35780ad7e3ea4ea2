// Takes the pictures of docs/guide/console.md again, from a cluster that it starts.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM } from "../../apps/console/test/browser.ts";

const FOLDER = join(import.meta.dirname, "../../docs/guide/console");
/** Time for drawn figures, which nothing in the page announces. */
const DRAWN_MS = 3_000;
/** Its loss falls, and there are lines to follow. */
const STEPS = `for i in $(seq 300); do echo "step $i of 300"; echo "{\\"step\\":$i,\\"loss\\":$((900 / i)).5}" >> "$HEDDLE_PROGRESS_FILE"; sleep 0.2; done`;

if (!CHROMIUM) throw new Error(`There is no browser to take pictures with${NEEDS_CHROMIUM}.`);
mkdirSync(FOLDER, { recursive: true });
const rig = new ConsoleRig();
try {
  await rig.start("--simulate-gpus", "4xH100-80GB", "--masters", "3", "--parameter-servers", "0");
  await takeAll();
} finally {
  await rig.close();
}

async function takeAll(): Promise<void> {
  const { job_id: job } = await rig.call("POST", "/jobs", { name: "train-loom", command: STEPS });
  await rig.call("POST", "/jobs", { name: "evaluate", command: "echo accuracy 0.93" });
  const waiting = { name: "wide", command: "true", resources: { gpu_count: 64 } };
  await rig.call("POST", "/jobs", waiting);
  const page = await rig.signedIn("/console/", { colorScheme: "light", deviceScaleFactor: 1 });
  const pages = {
    overview: "",
    nodes: "nodes",
    gpus: "gpus",
    jobs: "jobs",
    job: `jobs/${job}`,
    submit: "submit",
    models: "models",
    playground: "playground",
    usage: "usage",
    events: "events",
    "control-plane": "control-plane",
    settings: "settings",
  };
  for (const [name, path] of Object.entries(pages)) {
    // Within the page: a reload would end the session.
    await page.evaluate(`history.pushState(null, "", ${JSON.stringify(`/console/${path}`)})`);
    await page.getByRole("heading", { level: 1 }).waitFor();
    if (name === "playground") {
      await page.getByRole("button", { name: "Send" }).click();
      await page.getByText(/first token after .* tokens\/s/).waitFor();
    }
    await page.waitForTimeout(DRAWN_MS);
    await page.screenshot({ path: join(FOLDER, `${name}.png`) });
  }
}
