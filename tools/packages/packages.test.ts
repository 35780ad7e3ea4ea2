// holds: client-package, plugins-types

import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { JobApi } from "../../apps/master/test/job-api.ts";

// The packages as their users have them, in a folder that has nothing else.

const ROOT = join(import.meta.dirname, "..", "..");
const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), "heddle-packages-"));
const user = join(folder, "user");
let api: JobApi;

beforeAll(async () => {
  mkdirSync(user);
  writeFileSync(join(user, "package.json"), '{"type":"module"}');
  api = await JobApi.start();
  const pack = [join(ROOT, "tools/packages/pack-client.ts"), "--out", folder];
  const { stdout } = await run(process.execPath, pack, { cwd: ROOT });
  const install = ["install", "--offline", "--no-audit", "--no-fund", stdout.trim()];
  await run("npm", install, { cwd: user });
});
afterAll(async () => {
  await api.close();
  rmSync(folder, { recursive: true });
});

/** The numbers of the lines that end with why the compiler is to refuse them. */
function refusedLines(text: string): number[] {
  return text.split("\n").flatMap((line, at) => (line.includes("// refused: ") ? [at + 1] : []));
}

/** The lines that the compiler refuses; no package of this repository can be resolved from there. */
async function linesInError(text: string, resolution: string): Promise<number[]> {
  writeFileSync(join(user, "use.ts"), text);
  const language = ["--strict", "--target", "es2024", "--lib", "es2024,esnext,dom,dom.iterable"];
  const module = resolution === "bundler" ? "esnext" : resolution;
  const form = ["--module", module, "--moduleResolution", resolution, "--types", ""];
  const output = ["--skipLibCheck", "false", "--noEmit", "--pretty", "false"];
  const args = [...language, ...form, ...output, "use.ts"];
  const tsc = join(ROOT, "node_modules/.bin/tsc");
  const failed = (error: { stdout: string }) => error;
  const { stdout } = await run(tsc, args, { cwd: user }).catch(failed);
  const errors = stdout.split("\n").filter((line) => /^\S.*: error /.test(line));
  return errors.map((line) => Number(/^use\.ts\((\d+),/.exec(line)?.[1]));
}

const TYPED = `import { ConflictError } from "@heddle/client/errors";
import { Heddle } from "@heddle/client/heddle";

const heddle = new Heddle({ endpoint: "http://127.0.0.1:8080", auth_token: "key" });
export async function use(): Promise<number> {
  const { job_id } = await heddle.jobs.create({ name: "typed", resources: { gpu_count: 1 } });
  const { state } = await heddle.jobs.get(job_id);
  for await (const { id, scopes } of heddle.keys.list()) console.log(id.length + scopes.length);
  await heddle.jobs.create({ name: "typed", resorces: {} }); // refused: no field of a job
  if (state === "finished") throw new Error(ConflictError.name); // refused: no state of a job
  await heddle.jobs.create({ name: 5 }); // refused: no text
  return heddle.models.list().then(([first]) => first?.replicas.length ?? 0);
}
`;

const PROGRAM = `import { NotFoundError } from "@heddle/client/errors";
import { Heddle } from "@heddle/client/heddle";

const [endpoint, auth_token] = process.argv.slice(2);
const heddle = new Heddle({ endpoint, auth_token });
const { job_id } = await heddle.jobs.create({ name: "packed", command: "true" });
const names = [];
for await (const { name } of heddle.jobs.list()) names.push(name);
const isTyped = await heddle.jobs.get("job_none").catch((error) => error instanceof NotFoundError);
console.log(JSON.stringify({ id: (await heddle.jobs.get(job_id)).id === job_id, names, isTyped }));
`;

describe("the packed client", () => {
  it("client package: brings no other package", () => {
    expect(readdirSync(join(user, "node_modules")).filter((name) => !name.startsWith("."))).toEqual(
      ["@heddle"],
    );
    expect(readdirSync(join(user, "node_modules/@heddle"))).toEqual(["client"]);
  });

  it.each(["nodenext", "bundler"])("client package: has its types, resolved by %s", async (by) => {
    expect(await linesInError(TYPED, by)).toEqual(refusedLines(TYPED));
  });

  it("client package: calls a master from Node", async () => {
    writeFileSync(join(user, "main.mjs"), PROGRAM);
    const { url, adminKey } = api.master;
    const { stdout } = await run(process.execPath, ["main.mjs", url, adminKey], { cwd: user });
    expect(JSON.parse(stdout)).toEqual({ id: true, names: ["packed"], isTyped: true });
  });
});

const PLUGIN = `import { definePlugin, refusal, z } from "heddle/plugin-kit";

export default definePlugin({
  name: "typed",
  version: "1.0.0",
  apiVersion: 1,
  config: z.object({ limit: z.number() }),
  capabilities: ["routes"],
  setup({ config, routes }) {
    routes.add({
      method: "POST",
      path: "/notes",
      permission: "jobs:create",
      summary: "Adds a note.",
      body: z.object({ text: z.string() }),
      handle: ({ body }) => {
        if (body.text.length > config.limit) throw refusal("conflict", "too long");
        return body.txt; // refused: no field of the body
      },
    });
    const last = { method: "GET", path: "/x", summary: "x", handle: () => 1 } as const;
    routes.add({ ...last, permission: "any" }); // refused: no permission
    return void config.limits; // refused: no setting
  },
});
`;

describe("the packed plugin kit", () => {
  it("plugin kit: the package has its types", async () => {
    const package_ = join(user, "node_modules/heddle");
    for (const path of ["package.json", "packaged/types"]) {
      cpSync(join(ROOT, path), join(package_, path), { recursive: true });
    }
    expect(await linesInError(PLUGIN, "nodenext")).toEqual(refusedLines(PLUGIN));
  });
});
