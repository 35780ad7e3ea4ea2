import { randomBytes } from "node:crypto";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
let openai: OpenAI;
let otherKey: OpenAI;

beforeAll(async () => {
  server = await startTestMaster();
  const clientOf = (apiKey: string) =>
    new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey, maxRetries: 0 });
  openai = clientOf(server.adminKey);
  otherKey = clientOf((await server.addKey()).text);
});
afterAll(() => server.master.close());

const upload = async (content: Uint8Array | string, name = "lines.jsonl") =>
  openai.files.create({ file: await toFile(Buffer.from(content), name), purpose: "batch" });

/** Posts a form as it is; the reply's status, code and param. */
async function posted(form: FormData | string, type?: string): Promise<unknown[]> {
  const reply = await fetch(`${server.url}/api/v1/files`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${server.adminKey}`,
      ...(type === undefined ? {} : { "content-type": type }),
    },
    body: form,
  });
  const { error } = (await reply.json()) as { error?: { code: string; param: string | null } };
  return [reply.status, error?.code, error?.param];
}

function formOf(fields: Record<string, string>, content: string | undefined = "{}"): FormData {
  const form = new FormData();
  if (content !== undefined) form.set("file", new Blob([content]), "a.jsonl");
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  return form;
}

// holds: api-files
describe("files: stored ones", () => {
  it("are found with their content until they are deleted, whatever their size", async () => {
    // More than two parts of a document, and no multiple of one.
    const content = randomBytes(9 * 2 ** 20 + 17);
    const file = await upload(content, "größe.jsonl");
    expect(file).toMatchObject({
      object: "file",
      bytes: content.byteLength,
      filename: "größe.jsonl",
      purpose: "batch",
      expires_at: null,
    });
    expect(await openai.files.retrieve(file.id)).toEqual(file);
    const whole = await openai.files.content(file.id);
    expect(Buffer.from(await whole.arrayBuffer()).equals(content)).toBe(true);
    expect(await openai.files.delete(file.id)).toMatchObject({ id: file.id, deleted: true });
    await expect(openai.files.retrieve(file.id)).rejects.toMatchObject({ status: 404 });
    await expect(openai.files.content(file.id)).rejects.toMatchObject({ status: 404 });
    await expect(openai.files.delete(file.id)).rejects.toMatchObject({ status: 404 });
  });

  it("are read in ranges, across their parts too", async () => {
    const content = randomBytes(5 * 2 ** 20);
    const { id } = await upload(content);
    const from = 4 * 2 ** 20 - 3;
    const ranged = async (range: string) =>
      openai.files.content(id, { headers: { range } }).asResponse();
    const middle = await ranged(`bytes=${from}-${from + 9}`);
    expect(middle.status).toBe(206);
    expect(middle.headers.get("content-range")).toBe(
      `bytes ${from}-${from + 9}/${content.byteLength}`,
    );
    expect(Buffer.from(await middle.arrayBuffer())).toEqual(content.subarray(from, from + 10));
    const beyond = await fetch(`${server.url}/api/v1/files/${id}/content`, {
      headers: { authorization: `Bearer ${server.adminKey}`, range: "bytes=99999999-" },
    });
    expect(beyond.status).toBe(416);
  });

  it("are another key's for no other one, and need the permissions of files", async () => {
    const { id } = await upload("{}");
    await expect(otherKey.files.retrieve(id)).rejects.toMatchObject({ status: 404 });
    await expect(otherKey.files.content(id)).rejects.toMatchObject({ status: 404 });
    await expect(otherKey.files.delete(id)).rejects.toMatchObject({ status: 404 });
    expect((await otherKey.files.list()).data).toEqual([]);
    const { text: key } = await server.addKey({ scopes: ["files:read"] });
    expect((await send(server, "GET", "/api/v1/files", undefined, { key })).status).toBe(200);
    const denied = await send(server, "DELETE", `/api/v1/files/${id}`, undefined, { key });
    expect(denied.status).toBe(403);
  });

  it("are listed in pages by age, or by purpose", async () => {
    const own = new OpenAI({
      baseURL: `${server.url}/api/v1`,
      apiKey: (await server.addKey()).text,
    });
    const ids: string[] = [];
    for (const purpose of ["batch", "user_data", "batch"] as const) {
      const file = await toFile(Buffer.from("x"), "x");
      ids.push((await own.files.create({ file, purpose })).id);
    }
    const listed: string[] = [];
    for await (const { id } of own.files.list({ limit: 2, order: "asc" })) listed.push(id);
    expect(listed).toEqual(ids);
    const { data } = await own.files.list({ purpose: "batch" });
    expect(data.map(({ id }) => id)).toEqual([ids[2], ids[0]]);
    await expect(own.files.list({ after: "file-none" })).rejects.toMatchObject({ param: "after" });
  });

  it("expire when the caller says", async () => {
    const file = await openai.files.create({
      file: await toFile(Buffer.from("{}"), "a"),
      purpose: "batch",
      expires_after: { anchor: "created_at", seconds: 3_600 },
    });
    expect((file.expires_at ?? 0) - file.created_at).toBe(3_600);
  });
});

describe("files: bad uploads", () => {
  it("name the parameter", async () => {
    expect(await posted(formOf({}))).toEqual([400, "missing_required_parameter", "purpose"]);
    expect(await posted(formOf({ purpose: "x" }))).toEqual([400, "invalid_value", "purpose"]);
    const noFile = new FormData();
    noFile.set("purpose", "batch");
    expect(await posted(noFile)).toEqual([400, "missing_required_parameter", "file"]);
    const soon = { purpose: "batch", "expires_after[seconds]": "60" };
    expect((await posted(formOf(soon)))[0]).toBe(400);
    const two = formOf({ purpose: "batch" });
    two.append("file", new Blob(["{}"]), "b");
    expect(await posted(two)).toEqual([400, "invalid_value", "file"]);
  });

  it("are refused where they are no form, or a form goes to another route", async () => {
    expect((await posted("{}", "application/json"))[0]).toBe(415);
    expect((await posted("x", "multipart/form-data"))[0]).toBe(400);
    expect((await posted("--b\r\nx", "multipart/form-data; boundary=b"))[0]).toBe(400);
    const reply = await fetch(`${server.url}/api/v1/embeddings`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.adminKey}` },
      body: formOf({ purpose: "batch" }),
    });
    expect(reply.status).toBe(415);
    await reply.text();
  });

  it("are refused above the size of the setting, declared or not, and store nothing", async () => {
    const put = await send(server, "PUT", "/api/v1/cluster/settings/file_mib", { value: 1 });
    expect(put.status).toBe(200);
    const before = server.control.state.documents.size;
    const content = "x".repeat(2 ** 20 + 1);
    expect(await posted(formOf({ purpose: "batch" }, content))).toEqual([
      413,
      "request_too_large",
      "file",
    ]);
    const declared = "x".repeat(2 * 2 ** 20);
    expect((await posted(formOf({ purpose: "batch" }, declared)))[0]).toBe(413);
    expect(server.control.state.documents.size).toBe(before);
    await send(server, "PUT", "/api/v1/cluster/settings/file_mib", { value: 200 });
  });

  it("are refused where the key's documents are full", async () => {
    await send(server, "PUT", "/api/v1/cluster/settings/owner_documents_mib", { value: 0 });
    expect((await posted(formOf({ purpose: "batch" })))[0]).toBe(507);
    await send(server, "PUT", "/api/v1/cluster/settings/owner_documents_mib", { value: 5_120 });
  });
});
