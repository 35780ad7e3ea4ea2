// holds: access-former-members

import { afterAll, beforeAll, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { TokenMaster } from "../../../test/identity/token-master.ts";
import type { TestMaster } from "../../../test/test-master.ts";

let master: TokenMaster;
let server: TestMaster;
beforeAll(async () => {
  master = await TokenMaster.start();
  server = master.server;
});
afterAll(() => master.close());

const tokenOf = (sub: string) => master.tokenOf({ sub });

/** What the user `key` made in a project. */
interface Made {
  readonly file: string;
  readonly response: string;
  readonly conversation: string;
  readonly completion: string;
}

const inProject = (project: string | undefined): Record<string, string> =>
  project === undefined ? {} : { "x-heddle-project": project };

async function bind(method: "POST" | "DELETE", subject: string, project: string): Promise<void> {
  const binding = { kind: "user", subject, role: "developer", project };
  const path = `/api/v1/bindings${method === "DELETE" ? `?${new URLSearchParams(binding)}` : ""}`;
  const body = method === "POST" ? binding : undefined;
  expect((await send(server, method, path, body)).status).toBe(200);
}

async function upload(key: string, project: string): Promise<string> {
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new Blob(["canary text"]), "canary.txt");
  const headers = { authorization: `Bearer ${key}`, ...inProject(project) };
  const reply = await fetch(`${server.url}/api/v1/files`, { method: "POST", headers, body: form });
  expect(reply.status).toBe(200);
  return ((await reply.json()) as { id: string }).id;
}

async function make(key: string, project: string): Promise<Made> {
  const post = async (path: string, body: object, more = {}) => {
    const headers = { ...inProject(project), ...more };
    const reply = await send(server, "POST", `/api/v1/${path}`, body, { key, headers });
    expect(reply.status, path).toBeLessThan(300);
    return ((await reply.json()) as { id: string }).id;
  };
  const model = "FamilyA-1-2B";
  return {
    file: await upload(key, project),
    response: await post("responses", { model, input: "Hi" }),
    conversation: await post("conversations", {}),
    completion: await post("completions", { model, prompt: "Hi" }, { prefer: "respond-async" }),
  };
}

function pathsOf({ file, response, conversation, completion }: Made): string[] {
  return [
    `files/${file}`,
    `files/${file}/content`,
    `responses/${response}`,
    `responses/${response}?stream=true`,
    `responses/${response}/input_items`,
    `conversations/${conversation}`,
    `conversations/${conversation}/items`,
    `completions/${completion}`,
  ];
}

/** The statuses of reading and of deleting all of it. */
async function statuses(made: Made, key: string, project?: string): Promise<number[]> {
  const { file, response, conversation, completion } = made;
  const headers = inProject(project);
  const found: number[] = [];
  for (const path of pathsOf(made)) {
    const reply = await send(server, "GET", `/api/v1/${path}`, undefined, { key, headers });
    const text = await reply.text();
    if (reply.status >= 400) expect(text, path).not.toMatch(/canary/);
    found.push(reply.status);
  }
  const removed = [
    ["DELETE", `files/${file}`],
    ["DELETE", `responses/${response}`],
    ["DELETE", `conversations/${conversation}`],
    ["DELETE", `completions/${completion}`],
  ] as const;
  if (found.some((status) => status < 400)) return found;
  for (const [method, path] of removed) {
    const reply = await send(server, method, `/api/v1/${path}`, undefined, { key, headers });
    found.push(reply.status);
  }
  return found;
}

const all = (statusesOf: number[]) => [...new Set(statusesOf)];

it("a user: reads what it made in the project that it names, and nowhere else", async () => {
  const key = await tokenOf("erin");
  await bind("POST", "erin", "vision");
  await bind("POST", "erin", "speech");
  const made = await make(key, "vision");
  expect(all(await statuses(made, key, "vision"))).toEqual([200]);
  expect(all(await statuses(made, key, "speech"))).toEqual([404]);
  const headers = inProject("speech");
  const files = await send(server, "GET", "/api/v1/files", undefined, { key, headers });
  expect(await files.json()).toMatchObject({ data: [], has_more: false });
  const next = { model: "FamilyA-1-2B", input: "Hi", previous_response_id: made.response };
  const reply = await send(server, "POST", "/api/v1/responses", next, { key, headers });
  expect(reply.status).toBe(400);
});

it("a removed user: reads nothing of its project with the same token", async () => {
  const key = await tokenOf("frank");
  await bind("POST", "frank", "vision");
  await bind("POST", "frank", "speech");
  const made = await make(key, "vision");
  await bind("DELETE", "frank", "vision");
  expect(all(await statuses(made, key, "vision"))).toEqual([403]);
  expect(all(await statuses(made, key))).toEqual([404]);
  await bind("DELETE", "frank", "speech");
  expect(all(await statuses(made, key))).toEqual([403]);
  // What it made is still there for when it comes back.
  await bind("POST", "frank", "vision");
  expect(all(await statuses(made, key))).toEqual([200]);
});

it("an Idempotency-Key of completions: names another one in each project", async () => {
  const key = await tokenOf("grace");
  await bind("POST", "grace", "vision");
  await bind("POST", "grace", "speech");
  const ids: string[] = [];
  for (const project of ["vision", "speech", "vision"]) {
    const more = { prefer: "respond-async", "idempotency-key": "one" };
    const headers = { ...inProject(project), ...more };
    const body = { model: "FamilyA-1-2B", prompt: "Hi" };
    const reply = await send(server, "POST", "/api/v1/completions", body, { key, headers });
    expect(reply.status).toBe(202);
    ids.push(((await reply.json()) as { id: string }).id);
  }
  expect(ids[0]).toBe(ids[2]);
  expect(ids[0]).not.toBe(ids[1]);
});
