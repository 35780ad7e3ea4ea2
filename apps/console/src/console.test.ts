// holds: console-pages, console-permissions, console-leader, console-proof

import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM, violations } from "../test/browser.ts";
import { unreachable } from "../test/keyboard.ts";

const rig = new ConsoleRig();
/** Prints, reports losses, and runs until it is cancelled: longer than the tests on any machine. */
const STEPS = `for i in $(seq 20000); do echo "line $i"; echo "{\\"step\\":$i,\\"loss\\":$((1000 - i))}" >> "$HEDDLE_PROGRESS_FILE"; sleep 0.2; done`;
let job = "";

beforeAll(async () => {
  if (!CHROMIUM) return;
  // Secrets of projects need it.
  const keyFile = join(rig.folder, "secrets-key");
  writeFileSync(keyFile, randomBytes(32).toString("base64"), { mode: 0o600 });
  const size = ["--simulate-gpus", "4xH100-80GB", "--masters", "3", "--parameter-servers", "0"];
  await rig.start(...size, "--secrets-key-file", keyFile);
  job = (await rig.call("POST", "/jobs", { name: "counts", command: STEPS }))["job_id"] ?? "";
});
afterAll(() => rig.close());
beforeEach(() => {
  rig.errors.length = 0;
});

const title = (page: Page, name: string | RegExp) =>
  page.getByRole("heading", { level: 1, name }).waitFor();

/** Pages by their paths, and a text that each shows when its data are there. */
const PAGES: readonly (readonly [string, string | RegExp])[] = [
  ["/console/", "Jobs by state"],
  ["/console/nodes", "worker-1"],
  ["/console/jobs", "counts"],
  ["/console/jobs/JOB", "Facts"],
  ["/console/jobs/JOB?part=logs", /line \d+/],
  ["/console/jobs/JOB?part=events", "running"],
  ["/console/submit", "It would start at once"],
  ["/console/models", "Replicas"],
  ["/console/playground", "Compare with"],
  ["/console/gpus", "worker-1"],
  ["/console/usage", "Input tokens"],
  ["/console/events", "counts"],
  ["/console/events?part=log", "JOB_SUBMIT"],
  ["/console/control-plane", "master-1"],
  ["/console/settings", "max_concurrent_jobs"],
];
const VIEWPORTS = [
  ["dark", 390],
  ["light", 390],
  ["light", 1280],
  ["dark", 2560],
] as const;

describe.skipIf(!CHROMIUM)(`the console in a browser${NEEDS_CHROMIUM}`, () => {
  describe("pages: themes, widths and keyboard, without errors and violations", () => {
    let page: Page;
    beforeAll(async () => {
      page = await rig.signedIn();
    });
    afterAll(() => page?.context().close());

    it.each(PAGES)("%s", async (path, shown) => {
      // Within the page: a reload would end the session.
      const to = JSON.stringify(path.replace("JOB", job));
      await page.evaluate(`history.pushState(null, "", ${to})`);
      await page.getByText(shown).first().waitFor();
      for (const [colorScheme, width] of VIEWPORTS) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 800 });
        expect(await violations(page), colorScheme).toEqual([]);
        const isWide = "document.documentElement.scrollWidth > innerWidth";
        expect(await page.evaluate(isWide), `wider than ${width}, ${colorScheme}`).toBe(false);
      }
      expect(await unreachable(page), "by the keyboard").toEqual([]);
      expect(rig.errors).toEqual([]);
    });
  });

  it("sign-in: a wrong key is refused, and the right one opens the asked page", async () => {
    const page = await rig.open("/console/nodes");
    await page.getByLabel("API key").fill("hdl_live_wrong");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").waitFor();
    await page.getByLabel("API key").fill(rig.key);
    await page.keyboard.press("Enter");
    await title(page, "Nodes");
    // The key is in no store of the browser.
    const stored = await page.evaluate("JSON.stringify([{...localStorage}, document.cookie])");
    expect(stored).toBe('[{},""]');
    await page.context().close();
  });

  it("sign-in: the link that the start prints works once", async () => {
    const link = /http:\S+\/console\/#sign-in=[\w-]+/.exec(rig.output)?.[0] ?? "";
    const path = link.slice(rig.url.length);
    const page = await rig.open(path);
    await title(page, "Overview");
    expect(page.url()).toBe(`${rig.url}/console/`);
    const second = await rig.open(path);
    await second.getByText(/This sign-in link was used already/).waitFor();
    await page.context().close();
    await second.context().close();
  });

  it("overview: a click each leads to a first answer and to an example job", async () => {
    const page = await rig.signedIn();
    await page.getByRole("link", { name: "Chat with a model" }).click();
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText(/first token after .* tokens\/s/).waitFor();
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByRole("button", { name: "Run an example job" }).click();
    await title(page, /hello/);
    await page.context().close();
  });

  it("jobs: a cancel is confirmed, and the page follows the job without a reload", async () => {
    const { job_id: id } = await rig.call("POST", "/jobs", { name: "followed", command: STEPS });
    const page = await rig.signedIn(`/console/jobs/${id}?part=logs`);
    await page
      .getByText(/^line \d+$/)
      .first()
      .waitFor();
    // It reports its steps and losses, and no share of its work.
    await page.getByRole("link", { name: "Summary" }).click();
    await page.getByText(/^step \d/).waitFor();
    await page.getByRole("img", { name: "loss by step" }).waitFor();
    const attempts = page.getByRole("table", { name: "Attempts" });
    await attempts.getByRole("row", { name: /^1 .*running \d+ s/ }).waitFor();
    await page.getByRole("button", { name: "Cancel job" }).click();
    await page.getByRole("button", { name: "Keep it" }).click();
    await page.getByRole("button", { name: "Cancel job" }).click();
    await page.getByRole("button", { name: "Cancel the job" }).click();
    await title(page, /cancelled/);
    await attempts.getByRole("row", { name: /^1 .*running .*, cancelled/ }).waitFor();
    await page.context().close();
    // A page that is opened after the job's end has its curve too.
    const later = await rig.signedIn(`/console/jobs/${id}`);
    await later.getByRole("img", { name: "loss by step" }).waitFor();
    expect(rig.errors).toEqual([]);
    await later.context().close();
  });

  it("jobs: a waiting one is started with the proposed change, suspended and resumed", async () => {
    const spec = (name: string, gpu_count: number) => {
      return { name, command: "sleep 300", resources: { gpu_count, cpu_cores: 0.1 } };
    };
    const { job_id: held = "" } = await rig.call("POST", "/jobs", spec("holds", 3));
    const { job_id: id = "" } = await rig.call("POST", "/jobs", spec("narrow", 2));
    const page = await rig.signedIn(`/console/jobs/${id}`);
    await page.getByText("With gpu_count 1 in place of 2: it would start now.").waitFor();
    await page.getByRole("button", { name: "Start with this" }).click();
    await page.getByText("submitted again with gpu_count 1.").waitFor();
    await page.getByRole("button", { name: "Cancel and submit" }).click();
    await title(page, /narrow running/);
    const changed = page.url().split("/").at(-1) ?? "";
    expect(changed).not.toBe(id);
    await page.getByRole("button", { name: "Suspend" }).click();
    await page.getByRole("button", { name: "Suspend it" }).click();
    await title(page, /narrow suspended/);
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("button", { name: "Resume it" }).click();
    await title(page, /narrow running/);
    for (const each of [held, changed]) await rig.call("DELETE", `/jobs/${each}`);
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("playground: an answer streams with its speed, and a long one is stopped", async () => {
    const page = await rig.signedIn("/console/playground");
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText(/first token after .* tokens\/s/).waitFor();
    const max = page.getByLabel("Max tokens");
    await max.fill("");
    await max.pressSequentially("4000");
    expect(await max.inputValue()).toBe("4000");
    await page.getByLabel("System message").fill("Repeat.");
    const stopped = page.getByText(/^stopped|· stopped|stopped ·/);
    // The tiny model may end an answer before it can be stopped.
    const stops = async () => {
      await page.getByLabel("Question").fill("Count.");
      await page.keyboard.press("Enter");
      const stop = page.getByRole("button", { name: "Stop" });
      await stop.click({ timeout: 5_000 }).catch(() => undefined);
      return (await stopped.count()) > 0;
    };
    await eventually(stops, "an answer is stopped", 50_000);
    await page.getByRole("button", { name: "View code" }).click();
    await page.getByRole("button", { name: "Python" }).click();
    await page.getByText("from openai import OpenAI").waitFor();
    await page.context().close();
  });

  it("playground: a model that must call a tool does, and the code offers it too", async () => {
    const page = await rig.signedIn("/console/playground");
    await page.getByText("Tools", { exact: true }).click();
    const tools = page.getByLabel(/as a JSON list/);
    await tools.fill("{}");
    await page.getByText("The tools are no JSON list.").waitFor();
    expect(await page.getByRole("button", { name: "Send" }).isDisabled()).toBe(true);
    const parameters = {
      type: "object",
      properties: { zone: { enum: ["UTC"] } },
      required: ["zone"],
    };
    const called = { type: "function", function: { name: "now", parameters } };
    await tools.fill(JSON.stringify([called]));
    await page.getByLabel("The model must call one").check();
    await page.getByRole("button", { name: "Send" }).click();
    await page
      .getByText(/^now\(\{\s*"zone":\s*"UTC"\s*\}\)$/)
      .first()
      .waitFor();
    await page.getByRole("button", { name: "View code" }).click();
    await page.getByText('"tool_choice": "required"').waitFor();
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("submit: a wrong field is named while it is written, and the right job starts", async () => {
    const page = await rig.signedIn("/console/submit");
    const source = page.getByLabel("The whole job, as YAML or JSON");
    await source.fill("name: written\ncommand: echo done\nresorces: {}\n");
    await page
      .getByText(/resorces/)
      .last()
      .waitFor();
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("button", { name: "Submit", exact: true }).isDisabled()).toBe(true);
    await source.fill("name: written\ncommand: echo done\n");
    await page.getByLabel("Memory (GB)").fill("2");
    expect(await source.inputValue()).toContain("memory_gb: 2");
    await page.getByText("It would start at once").waitFor();
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await title(page, /written/);
    await page.context().close();
  });

  it("models: a model is unloaded and loaded again", async () => {
    await rig.call("POST", "/models", { id: "own", source: "builtin://tiny", replicas: 1 });
    const page = await rig.signedIn("/console/models");
    const card = page.locator("section", { has: page.getByRole("heading", { name: "own" }) });
    await card.getByRole("button", { name: "Unload", exact: true }).click();
    await page.getByRole("button", { name: "Unload it" }).click();
    await card.getByRole("button", { name: "Load", exact: true }).click();
    await page.getByRole("button", { name: "Set" }).click();
    await card.getByRole("heading").getByText("ready").waitFor();
    await page.context().close();
  });

  it("events: the browser checks proofs, and names one that does not hold", async () => {
    const page = await rig.signedIn("/console/events?part=log");
    const check = page.getByRole("button", { name: /^Check the proof of event/ });
    await check.first().click();
    await page.getByText(/^in the signed log of \d+ events$/).waitFor();
    await page.route("**/events/log/entries/*", async (route) => {
      const reply = await route.fetch();
      const body = (await reply.text()).replace('"type":"', '"type":"x');
      await route.fulfill({ response: reply, body });
    });
    await check.first().click();
    await page.getByText(/^Not proved: the event is not the one/).waitFor();
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("settings: a role and a secret are given and taken back", async () => {
    const page = await rig.signedIn("/console/settings");
    await page.getByText("This master has no plugins.").waitFor();
    await page.getByRole("button", { name: "Give a role" }).click();
    await page.getByLabel("Subject").fill("carol");
    await page.getByRole("combobox", { name: "Role" }).selectOption("viewer");
    await page.getByRole("button", { name: "Save" }).click();
    const carol = page.getByRole("row", { name: /user carol viewer the whole cluster/ });
    await carol.getByRole("button", { name: "Take away" }).click();
    await page.getByRole("button", { name: "Take it away" }).click();
    await carol.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Add a secret" }).click();
    await page.getByLabel("Name").fill("token");
    await page.getByLabel(/^Value/).fill(" two\nlines ");
    await page.getByRole("button", { name: "Save" }).click();
    const secret = page.getByRole("row", { name: /^token default/ });
    await secret.getByRole("button", { name: "Change" }).click();
    await page.getByLabel(/^Value/).fill("other");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("row", { name: /^token default 2/ }).waitFor();
    await secret.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("button", { name: "Remove it" }).click();
    await secret.waitFor({ state: "detached" });
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("slow network: pages say that they load, and lose nothing", async () => {
    const page = await rig.signedIn();
    const network = await page.context().newCDPSession(page);
    const bytes = 50_000;
    await network.send("Network.emulateNetworkConditions", {
      offline: false,
      latency: 1_000,
      downloadThroughput: bytes,
      uploadThroughput: bytes,
    });
    await page.getByRole("link", { name: "Nodes" }).click();
    await page.getByText("Loading ...").first().waitFor();
    await page.getByText("worker-1").first().waitFor();
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByText("counts").first().waitFor();
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("permissions: what a key may not do is not offered", async () => {
    const scopes = ["jobs:read", "cluster:read"];
    const { key = "" } = await rig.call("POST", "/keys", { name: "reader", scopes });
    const { job_id: id } = await rig.call("POST", "/jobs", { name: "kept", command: "sleep 600" });
    const page = await rig.signedIn(`/console/jobs/${id}`, {}, key);
    await title(page, /kept/);
    expect(await page.getByRole("button", { name: "Cancel job" }).count()).toBe(0);
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByText("Jobs by state").waitFor();
    expect(await page.getByRole("heading", { name: "Models" }).count()).toBe(0);
    expect(await page.getByText(/Chat with a model|Run an example job/).count()).toBe(0);
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByText("max_concurrent_jobs").waitFor();
    for (const name of ["Secrets", "API keys"]) {
      expect(await page.getByRole("heading", { name }).count(), name).toBe(0);
    }
    for (const name of ["Give a role", "Add a secret", "Change"]) {
      expect(await page.getByRole("button", { name }).count(), name).toBe(0);
    }
    // What is not offered is not asked for either.
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("session: a revoked key ends it, and the page says so", async () => {
    const scopes = ["jobs:read", "cluster:read"];
    const { key = "", id } = await rig.call("POST", "/keys", { name: "short", scopes });
    const page = await rig.signedIn("/console/", {}, key);
    await rig.call("DELETE", `/keys/${id}`);
    await page.getByText(/The session has ended/).waitFor();
    expect(await page.getByText("Jobs by state").count()).toBe(0);
    await page.context().close();
  });

  it("leader: an open page shows the next one without a reload", async () => {
    const leader = (await rig.leaderOf("master-1")) ?? "";
    const other = leader === "master-1" ? "master-2" : "master-1";
    const page = await rig.signedIn("/console/control-plane", {}, rig.key, other);
    await page.getByText(`Leader: ${leader}`).waitFor();
    await page.evaluate("window.isSamePage = true");
    rig.killMaster(leader);
    let next: string | undefined;
    await eventually(async () => {
      next = await rig.leaderOf(other);
      return next !== undefined && next !== leader;
    });
    await page.getByText(`Leader: ${next}`).waitFor();
    expect(await page.evaluate("window.isSamePage")).toBe(true);
    await page.context().close();
  });
});
