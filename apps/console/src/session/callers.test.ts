// holds: console-permissions

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM } from "../../test/browser.ts";

const rig = new ConsoleRig();

beforeAll(async () => {
  if (CHROMIUM) await rig.start("--masters", "1", "--parameter-servers", "0");
});
afterAll(() => rig.close());
beforeEach(() => {
  rig.errors.length = 0;
});

const title = (page: Page, name: string | RegExp) =>
  page.getByRole("heading", { level: 1, name }).waitFor();

const pagesOf = (page: Page) =>
  page.getByRole("navigation", { name: "Pages" }).getByRole("link").allTextContents();

describe.skipIf(!CHROMIUM)(`callers of the console${NEEDS_CHROMIUM}`, () => {
  it("a member of a project: sees its pages, and is asked for nothing of the cluster", async () => {
    const spec = { name: "member", role: "developer", project: "vision" };
    const { key = "" } = await rig.call("POST", "/keys", spec);
    const page = await rig.signedIn("/console/", {}, key);
    await page.getByText("Recent events").waitFor();
    const own = ["Overview", "Jobs", "Models", "Playground", "Events", "Settings"];
    expect(await pagesOf(page)).toEqual(own);
    await page.getByText("FamilyA-1-2B").first().waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
    for (const name of own) {
      await page.getByRole("link", { name, exact: true }).click();
      await title(page, name);
    }
    await page.evaluate(`history.pushState(null, "", "/console/nodes")`);
    await page.getByText("This page needs the permission cluster:read").waitFor();
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("a member of two projects: acts in the one that it selects", async () => {
    const { key = "", id } = await rig.call("POST", "/keys", {
      name: "two",
      role: "viewer",
      project: "speech",
    });
    const binding = { kind: "key", subject: id, role: "developer", project: "vision" };
    await rig.call("POST", "/bindings", binding);
    const page = await rig.signedIn("/console/jobs", {}, key);
    const project = page.getByRole("combobox", { name: "Project" });
    expect(await project.inputValue()).toBe("speech");
    expect(await page.getByRole("link", { name: "Submit a job" }).count()).toBe(0);
    await project.selectOption("vision");
    await page.getByRole("link", { name: "Submit a job" }).click();
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await title(page, /hello/);
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByText("vision", { exact: true }).last().waitFor();
    expect(rig.errors).toEqual([]);
    await page.context().close();
  });

  it("rights that change: the open page offers them, and takes them back", async () => {
    const { key = "", id } = await rig.call("POST", "/keys", {
      name: "grows",
      scopes: ["jobs:read"],
    });
    const page = await rig.signedIn("/console/jobs", {}, key);
    await page.getByRole("table").waitFor();
    const submit = page.getByRole("link", { name: "Submit a job" });
    expect(await submit.count()).toBe(0);
    const binding = { kind: "key", subject: id ?? "", role: "developer", project: "default" };
    await rig.call("POST", "/bindings", binding);
    await submit.waitFor();
    await rig.call("DELETE", `/bindings?${new URLSearchParams(binding)}`);
    await submit.waitFor({ state: "detached" });
    await page.context().close();
  });

  it("sign-out: the next caller of the tab sees nothing that the one before saw", async () => {
    const page = await rig.signedIn();
    const spec = { name: "secret-plans", command: "true" };
    await rig.call("POST", "/jobs", spec);
    const seen = page.getByText(/secret-plans/);
    await seen.first().waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    const { key = "" } = await rig.call("POST", "/keys", {
      name: "next",
      role: "viewer",
      project: "speech",
    });
    await page.getByLabel("API key").fill(`  ${key}\t`);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("Recent events").waitFor();
    expect(await seen.count()).toBe(0);
    await page.getByRole("link", { name: "Events" }).click();
    await title(page, "Events");
    expect(await seen.count()).toBe(0);
    await page.context().close();
  });

  it("a master that is down: the pages of an open tab are there, without its data", async () => {
    const page = await rig.open();
    const loaded = page.waitForResponse(/assets\/settings-page/);
    await page.getByLabel("API key").fill(rig.key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await (await loaded).finished();
    await page.context().setOffline(true);
    await page.getByRole("link", { name: "Settings" }).click();
    await title(page, "Settings");
    await page.getByText("bootstrap administrator").waitFor();
    await page.getByText(/^No connection to this master/).waitFor();
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByRole("alert").getByText("That failed").waitFor();
    await page.context().setOffline(false);
    await page.getByRole("table", { name: /^Jobs/ }).waitFor();
    await page.context().close();
  });

  it("a browser that is not on the Internet: has the data of a master on its machine", async () => {
    const page = await rig.open();
    await page.addInitScript(
      "Object.defineProperty(Navigator.prototype, 'onLine', { get: () => false })",
    );
    await page.reload();
    await page.evaluate("dispatchEvent(new Event('offline'))");
    await page.getByLabel("API key").fill(rig.key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("Jobs by state").waitFor();
    await page.context().close();
  });

  it("the filters of jobs: follow the browser's back button", async () => {
    const page = await rig.signedIn("/console/jobs");
    const name = page.getByLabel("Name (exact)");
    for (const each of ["first", "second"]) {
      await name.fill(each);
      await page.keyboard.press("Enter");
      await page.waitForURL(`**/jobs?name=${each}`);
    }
    await page.goBack();
    await page.waitForURL("**/jobs?name=first");
    await expect.poll(() => name.inputValue()).toBe("first");
    await page.goBack();
    await page.waitForURL("**/jobs");
    await expect.poll(() => name.inputValue()).toBe("");
    await page.context().close();
  });

  it("a page without its code: says so, and opens later in the same session", async () => {
    const page = await rig.open();
    const code = /assets\/nodes-page/;
    await page.route(code, (route) => route.abort());
    await page.getByLabel("API key").fill(rig.key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("link", { name: "Nodes" }).click();
    await page.getByText("Loading ...").first().waitFor();
    await page.getByText(/^This page was not loaded/).waitFor();
    await page.unroute(code);
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("worker-1").first().waitFor();
    expect(await page.evaluate("sessionStorage.length")).toBe(0);
    await page.context().close();
  });

  it("the code of the playground: runs as it is copied", async () => {
    const page = await rig.signedIn("/console/playground");
    await page.getByLabel("Question").fill(`It's a "test" of $HOME, \\ and \`ticks\``);
    await page.getByRole("button", { name: "View code" }).click();
    const dialog = page.getByRole("dialog", { name: "View code" });
    const env = { PATH: process.env["PATH"], HEDDLE_API_KEY: rig.key };
    const run = async (language: string, program: string, flags: readonly string[]) => {
      await dialog.getByRole("button", { name: language }).click();
      const [code = ""] = await dialog.getByRole("region", { name: language }).allInnerTexts();
      return (await promisify(execFile)(program, [...flags, code], { env })).stdout;
    };
    expect(await run("curl", "sh", ["-c"])).toMatch(/data: [\s\S]*data: \[DONE\]/);
    const module = ["--input-type=module", "-e"];
    expect(await run("TypeScript", process.execPath, module)).toMatch(/\S/);
    await page.context().close();
  });
});
