import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import { afterAll, expect, test } from "vitest";
import { readPluginSetting } from "../loading/plugin-list.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-call-limits-"));
const running: HostedPlugin[] = [];
afterAll(() => {
  for (const plugin of running) plugin.close();
  rmSync(folder, { recursive: true });
});

const PLUGIN = `import { definePlugin, refusal, z } from "heddle/plugin-kit";
export default definePlugin({ name: "routes", version: "1.0.0", apiVersion: 1, capabilities: ["routes"],
  setup({ routes }) {
    const add = (path, handle) => routes.add({ method: "GET", path, permission: "public", summary: "S.",
      reply: z.object({ ok: z.boolean() }), handle });
    add("/good", () => ({ ok: true }));
    add("/later", () => ({ then: (resolve) => resolve({ ok: true }) }));
    add("/wrong", () => ({ ok: 1 }));
    add("/throws", () => { throw new Error("no"); });
    add("/refuses", () => { throw refusal("conflict", "taken"); });
    add("/never", () => new Promise(() => {}));
    add("/aborted", ({ signal }) => new Promise((resolve) =>
      signal.addEventListener("abort", () => resolve({ ok: true }))));
  } });`;

const note = () => undefined;
const log = { info: note, warn: note, error: note };

async function start(isolation: "process" | "none"): Promise<HostedPlugin> {
  const [file, list] = [join(folder, "routes.mjs"), join(folder, `${isolation}.json`)];
  writeFileSync(file, PLUGIN);
  writeFileSync(list, JSON.stringify({ plugins: [{ from: file, isolation }] }));
  const plugin = await HostedPlugin.start(readPluginSetting([list], folder).entries[0]!, log);
  running.push(plugin);
  return plugin;
}

interface Limits {
  readonly timeoutMs: number;
  readonly onStart?: (cancel: () => void) => void;
}

const get = (plugin: HostedPlugin, path: string, limits: Limits = { timeoutMs: 30_000 }) => {
  const rest = { params: {}, query: {}, body: undefined, caller: undefined };
  return plugin.call({ point: "route", key: `GET ${path}`, ...rest }, limits);
};

for (const isolation of ["process", "none"] as const) {
  test(`${isolation}: what a route gives at once is answered like a promise`, async () => {
    const plugin = await start(isolation);
    for (const path of ["/good", "/later"]) expect(await get(plugin, path)).toBe('{"ok":true}');
    for (const path of ["/wrong", "/throws"]) {
      await expect(get(plugin, path)).rejects.toMatchObject({ code: "server_error" });
    }
    await expect(get(plugin, "/refuses")).rejects.toMatchObject({ code: "conflict" });
    expect(plugin.status()).toMatchObject({ calls: 5, faults: { threw: 2, late: 0 } });
  });

  test(`${isolation}: each call ends at its own limit, whichever was asked first`, async () => {
    const plugin = await start(isolation);
    const ended: number[] = [];
    const call = async (timeoutMs: number) => {
      const began = performance.now();
      await expect(get(plugin, "/never", { timeoutMs })).rejects.toMatchObject({
        code: "deadline_exceeded",
      });
      expect(performance.now() - began).toBeGreaterThan(timeoutMs - 2);
      ended.push(timeoutMs);
    };
    await Promise.all([call(900), call(300), call(600)]);
    await call(50);
    expect(ended).toEqual([300, 600, 900, 50]);
    expect(plugin.status().faults.late).toBe(4);
  });

  test(`${isolation}: a call whose caller has left is cancelled, and is no fault`, async () => {
    const plugin = await start(isolation);
    const onStart = (cancel: () => void) => cancel();
    const left = get(plugin, "/aborted", { timeoutMs: 30_000, onStart });
    await expect(left).rejects.toMatchObject({ code: "cancelled" });
    expect(plugin.status().faults).toMatchObject({ threw: 0, late: 0 });
  });
}
