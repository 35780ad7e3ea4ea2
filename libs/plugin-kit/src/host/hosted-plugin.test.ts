// holds: plugins-contained

import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import { afterAll, expect, test, vi } from "vitest";
import { readPluginSetting } from "../loading/plugin-list.ts";
import { findSource } from "../loading/plugin-source.ts";
import type { PluginCall, RouteCall } from "./plugin-calls.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-plugins-"));
const secret = mkdtempSync(join(tmpdir(), "heddle-secret-"));
writeFileSync(join(secret, "key"), "secret");
const running: HostedPlugin[] = [];
afterAll(() => {
  for (const plugin of running) plugin.close();
  for (const each of [folder, secret]) rmSync(each, { recursive: true });
});

const lines: string[] = [];
const note = (fields: object, message: string) =>
  void lines.push(JSON.stringify([fields, message]));
const log = { info: note, warn: note, error: note };

let count = 0;
/** A plugin with one route, which runs this code. */
function plugin(body: string, rest: Readonly<Record<string, unknown>> = {}, more = ""): string {
  const file = join(folder, `plugin-${++count}.mjs`);
  const route = `{ method: "GET", path: "/do", permission: "jobs:read", summary: "Does.", timeoutMs: 500,
    reply: z.object({ ok: z.boolean() }), handle: async ({ query }) => { ${body} } }`;
  const fields = JSON.stringify({
    name: `plugin-${count}`,
    version: "1.0.0",
    apiVersion: 1,
    ...rest,
  });
  writeFileSync(
    file,
    `import { definePlugin, refusal, z } from "heddle/plugin-kit";
     import { closeSync, readFileSync, writeSync } from "node:fs";
     export default definePlugin({ ...${fields}, capabilities: ["routes"], ${more}
       setup({ routes, config, log }) { routes.add(${route}); } });`,
  );
  return file;
}

/** For plugins that compute without end: they are ended after a second. */
const PING_MS = 200;

async function start(file: string, settings: object = {}, pingMs?: number): Promise<HostedPlugin> {
  const list = join(folder, `list-${++count}.json`);
  writeFileSync(list, JSON.stringify({ plugins: [{ from: file, ...settings }] }));
  const { entries, unreadable } = readPluginSetting([list], folder);
  expect(unreadable).toEqual([]);
  const started = await HostedPlugin.start(entries[0]!, log, { pingMs });
  running.push(started);
  return started;
}

const CALL: RouteCall = {
  point: "route",
  key: "GET /do",
  params: {},
  query: {},
  body: undefined,
  caller: undefined,
};
/** For calls that may never end; others have time, since the machine may be slow. */
const SOON_MS = 500;
const call = (plugin: HostedPlugin, timeoutMs = 30_000) => plugin.call(CALL, { timeoutMs });

for (const isolation of ["process", "none"]) {
  test(`${isolation}: a call is answered; what it throws is the plugin's fault, counted`, async () => {
    const good = await start(plugin("return { ok: true };"), { isolation });
    expect(good.status()).toMatchObject({ state: "ready", reason: undefined });
    expect(await call(good)).toBe('{"ok":true}');
    const bad = await start(plugin('throw new Error("my secret detail");'), { isolation });
    const failed = call(bad);
    await expect(failed).rejects.toMatchObject({ code: "server_error" });
    await expect(failed).rejects.not.toThrow("my secret detail");
    expect(lines.join()).toContain("my secret detail");
    const wrong = await start(plugin("return { ok: 1 };"), { isolation });
    await expect(call(wrong)).rejects.toMatchObject({ code: "server_error" });
    expect([bad, wrong].map((each) => each.status().faults.threw)).toEqual([1, 1]);
    const refusing = await start(plugin('throw refusal("conflict", "taken", "name");'), {
      isolation,
    });
    await expect(call(refusing)).rejects.toMatchObject({ code: "conflict", param: "name" });
    expect(refusing.status().faults.threw).toBe(0);
  });

  test(`${isolation}: a call that never ends is late, counted, and others are answered`, async () => {
    const slow = await start(plugin("await new Promise(() => {});"), { isolation });
    await expect(call(slow, SOON_MS)).rejects.toMatchObject({ code: "deadline_exceeded" });
    expect(slow.status()).toMatchObject({ state: "ready", faults: { late: 1 } });
  });
}

const ENDINGS = [
  ["exits", "process.exit(3);", "exited"],
  ["sends itself a signal", 'process.kill(process.pid, "SIGKILL");', "exited"],
  ["aborts", "process.abort();", "exited"],
  [
    "rejects without a handler",
    'Promise.reject(new Error("lost")); return { ok: true };',
    "exited",
  ],
  [
    "fills its memory",
    "const all = []; for (;;) { all.push(Buffer.alloc(1e6, 1)); await null; }",
    "blocked|memory",
  ],
  [
    "fills its memory and denies it",
    "process.memoryUsage.rss = process.memoryUsage = () => 0; const all = []; setInterval(() => all.push(Buffer.alloc(2e7, 1)), 10);",
    "memory",
  ],
  ["blocks its loop", "for (;;) {}", "blocked"],
] as const;

test.concurrent.for(ENDINGS)(
  "a plugin that %s is started again and counted",
  async ([, body, kind]) => {
    const file = plugin(`if (!globalThis.calm) { ${body} }`);
    const plug = await start(file, { memory_mib: 200 }, PING_MS);
    await call(plug, SOON_MS).catch(() => undefined);
    const counted = () =>
      kind.split("|").some((each) => plug.status().faults[each as "exited"] > 0);
    await eventually(async () => counted() && plug.state === "ready", "it is ready again", 50_000);
    expect(plug.status().restarts).toBeGreaterThan(0);
  },
);

const ODD_ANSWERS = [
  ["a getter that throws", "return { get ok() { throw new Error('no'); } };"],
  ["nothing", "return undefined;"],
  ["a thrown text", "throw 'text';"],
  ["a thrown nothing", "throw undefined;"],
  [
    "a thrown object whose every part throws",
    "const no = () => { throw new Error('no'); }; throw new Proxy({}, { get: no, getPrototypeOf: no });",
  ],
  [
    "an answer whose parts throw",
    "return new Proxy({}, { get() { throw new Error('no'); }, ownKeys() { throw new Error('no'); } });",
  ],
  ["endless recursion", "const again = () => again() + 1; return again();"],
  [
    "an error of a strange code",
    "throw Object.assign(new Error('x'), { name: 'AppError', code: 'nonsense' });",
  ],
] as const;

test.concurrent.for(ODD_ANSWERS)(
  "%s as an answer is a fault of the call alone",
  async ([, body]) => {
    const plug = await start(
      plugin(`if (!globalThis.calm) { globalThis.calm = true; ${body} } return { ok: true };`),
    );
    await expect(call(plug)).rejects.toMatchObject({ code: "server_error" });
    expect(await call(plug)).toBe('{"ok":true}');
    expect(plug.status()).toMatchObject({ state: "ready", restarts: 0, faults: { threw: 1 } });
  },
);

const TAMPERING = [
  [
    "prints without end",
    "const print = () => { for (let i = 0; i < 1000; i++) console.log('x'.repeat(500)); setImmediate(print); }; print(); return { ok: true };",
  ],
  [
    "writes no message to the descriptor of its messages",
    "writeSync(3, Buffer.from([4, 0, 0, 0, 255, 255, 255, 255])); return { ok: true };",
  ],
  [
    "sends answers to no call there, without end",
    `const text = Buffer.from('{"type":"pong"}\\n'.repeat(1_000)); let at = 0;
     for (;;) { try { at = (at + writeSync(3, text, at)) % text.length; } catch {} }`,
  ],
  ["writes an endless message there", "for (;;) writeSync(3, Buffer.alloc(1e6, 255));"],
  ["closes that descriptor", "closeSync(3); return { ok: true };"],
  [
    "sends odd messages",
    "for (const type of ['result', 'item', 'end', 'failed', 'pong', 'x']) process.channel?.constructor; process.emit('message', { type: 'more', id: 99, count: 1e9 }); return { ok: true };",
  ],
  [
    "removes the listeners of messages",
    "process.removeAllListeners('message'); return { ok: true };",
  ],
  [
    "ends all that it has open",
    "for (const each of process._getActiveHandles()) each.destroy?.(); return { ok: true };",
  ],
  [
    "replaces what others use",
    "Promise.prototype.then = () => {}; Map.prototype.get = () => undefined; return { ok: true };",
  ],
  [
    "loops in promises",
    "const spin = () => Promise.resolve().then(spin); spin(); return { ok: true };",
  ],
] as const;

test.concurrent.for(TAMPERING)("a plugin that %s harms only itself", async ([, body]) => {
  const file = plugin(
    `if (!globalThis.calm) { globalThis.calm = true; ${body} } return { ok: true };`,
  );
  const plug = await start(file, {}, PING_MS);
  await call(plug, SOON_MS).catch(() => undefined);
  const answers = async () => (await call(plug, SOON_MS).catch(() => "")) === '{"ok":true}';
  const isNew = () => plug.status().restarts > 0 && plug.state === "ready";
  await eventually(async () => isNew() || (await answers()), "it is there again", 50_000);
});

test("a plugin that replaces JSON and timers of its process answers with JSON", async () => {
  const replaced = `JSON.stringify = () => "{"; JSON.parse = () => ({ evil: true });
    globalThis.fetch = globalThis.setTimeout = () => { throw new Error("replaced"); };`;
  const later = `if (globalThis.asked) { ${replaced} } globalThis.asked = true;`;
  const plug = await start(plugin(`${later} return { ok: true };`));
  for (let at = 0; at < 3; at++) expect(await call(plug)).toBe('{"ok":true}');
  expect(plug.status()).toMatchObject({ state: "ready", restarts: 0 });
});

test("a plugin may not read other files, signal others or start processes", async () => {
  const file = join(secret, "key");
  mkdirSync(join(folder, "below"));
  for (const name of ["beside", "below/key"]) writeFileSync(join(folder, name), "secret");
  const tries = {
    read: `readFileSync(${JSON.stringify(file)});`,
    "read beside it": `readFileSync(${JSON.stringify(join(folder, "beside"))});`,
    "read below it": `readFileSync(${JSON.stringify(join(folder, "below/key"))});`,
    database: `new ((await import("node:sqlite")).DatabaseSync)(${JSON.stringify(join(secret, "new"))});`,
    signal: "process.kill(process.ppid, 0);",
    "signal below": "process._kill(process.ppid, 0);",
    "signal as itself": "process.pid = process.ppid; process.kill(process.ppid, 0);",
    debug: "process._debugProcess(process.ppid);",
    "slow down": '(await import("node:os")).setPriority(process.ppid, 5);',
    start: '(await import("node:child_process")).execFileSync("true");',
    environment:
      "if (!Object.keys(process.env).some((name) => name.startsWith('HEDDLE'))) throw 1;",
  };
  vi.stubEnv("HEDDLE_SECRETS_KEY", "secret");
  for (const [what, body] of Object.entries(tries)) {
    const plug = await start(plugin(`${body} return { ok: true };`));
    await expect(call(plug), what).rejects.toMatchObject({ code: "server_error" });
    expect(plug.state, what).toBe("ready");
  }
  vi.unstubAllEnvs();
  expect(readdirSync(secret)).toEqual(["key"]);
  const allowed = await start(plugin(`${tries.read} return { ok: true };`), { read: [secret] });
  expect(await call(allowed)).toBe('{"ok":true}');
});

test("an end of a stream by the caller ends it in the plugin; a flood is bounded", async () => {
  const file = join(folder, "stream.mjs");
  writeFileSync(
    file,
    `import { z } from "heddle/plugin-kit";
     let sent = 0;
     export default { name: "stream", version: "1", apiVersion: 1, capabilities: ["routes"],
       setup({ routes }) {
         const common = { method: "GET", permission: "public", summary: "Counts." };
         routes.add({ ...common, path: "/do", events: { n: z.number() },
           async *handle() { for (;;) { yield { event: "n", data: sent++ }; await null; } } });
         routes.add({ ...common, path: "/sent", reply: z.number(), handle: () => sent });
       } };`,
  );
  const plug = await start(file);
  const sent = () => plug.call({ ...CALL, key: "GET /sent" }, { timeoutMs: 2_000 });
  const seen: string[] = [];
  for await (const text of plug.stream(CALL, { timeoutMs: 2_000 })) {
    seen.push(text);
    if (seen.length === 5) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      break;
    }
  }
  expect(seen[4]).toBe("event: n\ndata: 4\n\n");
  const first = Number(await sent());
  expect(first).toBeLessThan(100);
  expect(Number(await sent())).toBe(first);
});

test("answers that are too large are faults of the call alone", async () => {
  const file = join(folder, "large.mjs");
  writeFileSync(
    file,
    `import { refusal, z } from "heddle/plugin-kit";
     const large = (characters) => "x".repeat(characters);
     export default { name: "large", version: "1", apiVersion: 1,
       capabilities: ["routes", "admission", "blocks"], setup({ routes, admission, blocks }) {
         const common = { method: "GET", permission: "public", summary: "Is large.", timeoutMs: 10_000 };
         routes.add({ ...common, path: "/do", events: { n: z.string() },
           async *handle() { yield { event: "n", data: large(1_000) }; yield { event: "n", data: large(300_000) }; } });
         routes.add({ ...common, path: "/reply", reply: z.string(), handle: () => large(17_000_000) });
         routes.add({ ...common, path: "/refusal", reply: z.string(),
           handle: () => { throw refusal("conflict", large(9_000), large(9_000)); } });
         admission.add({ name: "rule", review: () => ({ change: { labels: { a: large(2_000_000) } } }) });
         blocks.add({ name: "block", version: 1, summary: "S.", config: z.object({}),
           job: () => ({ command: large(2_000_000) }) });
       } };`,
  );
  const plug = await start(file);
  const stream = async () => {
    for await (const text of plug.stream(CALL, { timeoutMs: 10_000 })) {
      expect(text.length).toBeLessThan(2_000);
    }
  };
  const ask = (call: PluginCall) => plug.call(call, { timeoutMs: 10_000 });
  const submission = { caller: { id: "a", name: "a", project: "a" }, isDryRun: false };
  const calls = [
    stream(),
    ask({ ...CALL, key: "GET /reply" }),
    ask({ point: "admission", name: "rule", job: {} as never, submission }),
    ask({ point: "block", name: "block", config: {}, inputs: [] }),
  ];
  const fault = { status: "rejected", reason: { code: "server_error" } };
  expect(await Promise.allSettled(calls)).toMatchObject(calls.map(() => fault));
  expect(plug.status()).toMatchObject({ state: "ready", faults: { threw: calls.length } });
  const refused = await ask({ ...CALL, key: "GET /refusal" }).catch((error: AppError) => error);
  expect(refused).toMatchObject({ code: "conflict", param: "x".repeat(200) });
  expect((refused as AppError).message).toHaveLength(2_000);
});

test("secrets of its settings are in no log, state or answer, whatever it throws", async () => {
  const secrets = ["canary-in-a-thrown-error", "canary-in-its-output", "canary-at-its-start"];
  const [inThrown, inOutput, atStart] = secrets;
  const config = { api_token: inThrown, nested: { passwords: [inOutput] } };
  const schema = "config: z.object({ api_token: z.string(), nested: z.any() }),";
  const body = "log(config.nested.passwords[0]); throw new Error(config.api_token);";
  const plug = await start(plugin(body, {}, schema), { config });
  await expect(call(plug)).rejects.toMatchObject({ code: "server_error" });
  await eventually(async () => lines.some((line) => line.includes("***")), "it is logged");
  const strict =
    "config: z.object({ key: z.string().refine(() => false, { error: ({ input }) => input }) }),";
  const refused = await start(plugin("", {}, strict), { config: { key: atStart } });
  expect(refused.status()).toMatchObject({ state: "refused", reason: "config.key: ***" });
  for (const secret of secrets) expect(lines.join(), secret).not.toContain(secret);
});

const REFUSALS = [
  ["its apiVersion is 2, and this master has 1", () => plugin("", { apiVersion: 2 })],
  ['its apiVersion is "^1", and this master has 1', () => plugin("", { apiVersion: "^1" })],
  ["its name is ../x", () => plugin("", { name: "../x" })],
  ["config.size: ", () => plugin("", {}, "config: z.object({ size: z.number() }),")],
  ["it takes no config", () => plugin(""), { config: { a: 1 } }],
  ["which is not allowed", () => plugin(""), { digest: `sha256:${"0".repeat(64)}` }],
  ["its setup takes longer than", () => write("return new Promise(() => {});")],
  ["there is no file", () => join(folder, "none.mjs")],
  [
    "does not provide an export named 'nothing'",
    () => write('import { nothing } from "heddle/plugin-kit";'),
  ],
  ["while it loaded, its process ended with the exit code 0", () => write("process.exit(0);")],
  [
    "a path is like /items/{id}",
    () => write(routeOf('permission: "public"').replace("/x", "/../y")),
  ],
  ["declares no permission", () => write(routeOf("permission: undefined"))],
  ["declares the permission everything", () => write(routeOf('permission: "everything"'))],
  ["does not declare it", () => write(routeOf('permission: "public"'), "[]")],
  [
    "the panel p: its title is a text of 1 to 80 characters",
    () => write('console.add({ name: "p", title: "", show() {} });', '["console"]'),
  ],
  [
    "the route GET /console/p declares no permission",
    () => write('console.add({ name: "p", title: "P", show() {} });', '["console"]'),
  ],
  [
    "its `config` is not a schema of zod 4",
    () => plugin("", {}, "config: { safeParse: () => ({ success: true }) },"),
  ],
  [
    "the executor e has no function `list`",
    () =>
      write('executors.add({ name: "e", offer() {}, submit() {}, cancel() {} });', '["executors"]'),
  ],
  ["the block b has either a function `job` or", () => blockOf("job() {}, run() {}")],
  ["the block b has either a function `job` or", () => blockOf("")],
  ["the block b: `resume` is a schema of zod 4", () => blockOf("run() {}, resume: {}")],
  ["the block b: resources: ", () => blockOf("run() {}, resources: { cpus: 1 }")],
  ["there is no capability magic", () => write("", '["magic"]')],
] as const;

function write(setup: string, capabilities = '["routes"]'): string {
  const file = join(folder, `other-${++count}.mjs`);
  const [head, body] =
    setup.startsWith("import") || setup.startsWith("process") ? [setup, ""] : ["", setup];
  writeFileSync(
    file,
    `${head}\nexport default { name: "other", version: "1", apiVersion: 1, capabilities: ${capabilities}, setup({ routes, console, executors, blocks }) { ${body} } };`,
  );
  return file;
}

function routeOf(field: string): string {
  return `routes.add({ method: "GET", path: "/x", summary: "S.", handle: () => 1, ${field} });`;
}

function blockOf(fields: string): string {
  const add = `blocks.add({ name: "b", version: 1, summary: "B.", config: z.object({}), ${fields} });`;
  const file = write(add, '["blocks"]');
  const text = readFileSync(file, "utf8");
  writeFileSync(file, `import { z } from "heddle/plugin-kit";${text}`);
  return file;
}

test.concurrent.for(REFUSALS)("refused with the reason: %s", async ([reason, file, settings]) => {
  const plug = await start(file(), settings);
  expect(plug.status()).toMatchObject({
    state: "refused",
    reason: expect.stringContaining(reason),
  });
  await expect(call(plug)).rejects.toMatchObject({ code: "unavailable" });
});

test("digests: what is imported must be part of it, and as it was", async () => {
  const package_ = join(folder, "package");
  mkdirSync(package_);
  writeFileSync(join(package_, "package.json"), '{ "type": "module", "exports": "./main.js" }');
  writeFileSync(join(package_, "part.js"), "export const ok = true;");
  const main = (from: string) =>
    `import { z } from "heddle/plugin-kit"; import { ok } from "${from}";
     export default { name: "parts", version: "1", apiVersion: 1, capabilities: ["routes"], setup({ routes }) {
       routes.add({ method: "GET", path: "/do", permission: "public", summary: "S.",
         reply: z.object({ ok: z.boolean() }), handle: () => ({ ok }) }); } };`;
  writeFileSync(join(package_, "main.js"), main("./part.js"));
  const { digest } = findSource({ from: package_, base: folder });
  const good = await start(package_, { digest });
  expect(await call(good)).toBe('{"ok":true}');
  writeFileSync(join(package_, "part.js"), "export const ok = false;");
  const changed = await start(package_, { digest });
  expect(changed.status().reason).toContain("which is not allowed");
  writeFileSync(join(folder, "outside.js"), "export const ok = true;");
  const alone = join(folder, "alone.mjs");
  writeFileSync(alone, main("./outside.js"));
  const loose = await start(alone);
  expect(loose.state).toBe("ready");
  const held = await start(alone, { digest: findSource({ from: alone, base: folder }).digest });
  expect(held.status().reason).toContain("is no part of");
});

test("folders: links and exports that lead out of them are refused with the reason", async () => {
  const package_ = (name: string, exports: string) => {
    const path = join(folder, name);
    mkdirSync(join(path, "node_modules"), { recursive: true });
    writeFileSync(join(path, "package.json"), JSON.stringify({ type: "module", exports }));
    return path;
  };
  const code = readFileSync(plugin("return { ok: true };"), "utf8");
  writeFileSync(join(folder, "elsewhere.js"), code);
  const outcome = async (path: string) => {
    const { state, reason } = (await start(path)).status();
    return state === "ready" ? state : reason;
  };
  const linked = package_("linked", "./main.js");
  symlinkSync(join(folder, "elsewhere.js"), join(linked, "main.js"));
  expect(await outcome(linked)).toMatch(/its link .*main\.js leads to .*elsewhere\.js, out of/);
  const above = package_("above", "../elsewhere.js");
  expect(await outcome(above)).toMatch(/exports .*elsewhere\.js, which is not in/);
  const whole = package_("whole", "./main.js");
  writeFileSync(join(whole, "main.js"), code);
  symlinkSync("main.js", join(whole, "inner.js"));
  const heddle = fileURLToPath(new URL("../../../..", import.meta.url)).replace(/\/$/, "");
  symlinkSync(heddle, join(whole, "node_modules/heddle"));
  mkdirSync(join(whole, "node_modules/.bin"));
  symlinkSync(join(heddle, "bin/heddle.mjs"), join(whole, "node_modules/.bin/heddle"));
  expect(await outcome(whole)).toBe("ready");
  for (const target of [secret, "/", join(folder, "nothing"), dirname(heddle), "../../linked"]) {
    const link = join(whole, "node_modules/data");
    symlinkSync(target, link);
    expect(await outcome(whole), target).toMatch(/leads to .*, out of .*--install-links/);
    rmSync(link);
  }
});
