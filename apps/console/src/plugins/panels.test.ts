// holds: console-panels

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CHROMIUM, ConsoleRig, NEEDS_CHROMIUM, violations } from "../../test/browser.ts";

const rig = new ConsoleRig();

const PLUGIN = `
export default { name: "costs", version: "1", apiVersion: 1, capabilities: ["console"], setup({ console }) {
  let asked = 0;
  console.add({ name: "spend", title: "Spend", permission: "cluster:read", show: ({ caller }) => ({ parts: [
    { kind: "text", text: "For " + caller.name + ", <b>not markup</b>" },
    { kind: "facts", rows: [["asked", ++asked], ["nothing", null]] },
    { kind: "table", label: "By team", columns: ["Team", "Cost"], rows: [["a", 1], ["a", 2500]] },
    { kind: "series", label: "By day", points: [[1, 2], [2, 7], [3, 5]] },
  ] }) });
  console.add({ name: "secret", title: "Board", permission: "cluster:admin", show: () => ({ parts: [] }) });
  console.add({ name: "wrong", title: "Wrong", permission: "authenticated", show: () => ({ parts: [{ kind: "html" }] }) });
} };`;

beforeAll(async () => {
  if (!CHROMIUM) return;
  const file = join(rig.folder, "costs.mjs");
  writeFileSync(file, PLUGIN);
  await rig.start("--plugins", file, "--parameter-servers", "0");
});
afterAll(() => rig.close());

describe.skipIf(!CHROMIUM)(`panels of plugins${NEEDS_CHROMIUM}`, () => {
  it("show texts, facts, tables and series, and are asked again", async () => {
    const page = await rig.signedIn();
    await page.getByRole("link", { name: "Panels" }).click();
    await page.getByText("For bootstrap administrator, <b>not markup</b>").waitFor();
    await page.getByRole("row", { name: "a 2.5K" }).waitFor();
    await page.getByText("By day").waitFor({ state: "attached" });
    await page.getByRole("heading", { name: "Board" }).waitFor();
    expect(await violations(page)).toEqual([]);
    await page.getByText(/^asked\s*[2-9]$/).waitFor();
    await page.context().close();
  });

  it("one whose data are wrong shows an error, and the others stay", async () => {
    const page = await rig.signedIn("/console/panels");
    await page.getByRole("alert").waitFor();
    await page.getByRole("table", { name: "By team" }).waitFor();
    await page.context().close();
  });

  it("are shown to those who may see them", async () => {
    const scopes = ["cluster:read"];
    const { key = "" } = await rig.call("POST", "/keys", { name: "reader", scopes });
    const page = await rig.signedIn("/console/panels", {}, key);
    await page.getByRole("heading", { name: "Spend" }).waitFor();
    expect(await page.getByRole("heading", { name: "Board" }).count()).toBe(0);
    const refused = await fetch(`${rig.url}/api/v1/custom/costs/console/secret`, {
      headers: { authorization: `Bearer ${key}` },
    });
    expect(refused.status).toBe(403);
    await page.context().close();
  });
});
