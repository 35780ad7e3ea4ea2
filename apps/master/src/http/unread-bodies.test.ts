import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { postChat } from "../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";

const maxReadingBytes = 300_000;
const chatPath = "/api/v1/chat/completions";
const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "hi" }] };

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster({ maxBodyBytes: 250_000, maxReadingBytes });
});
afterAll(() => server.master.close());

function head(key: string | undefined, lengthOf: string, path = chatPath): string {
  const authorization = key === undefined ? "" : `authorization: Bearer ${key}\r\n`;
  return `POST ${path} HTTP/1.1\r\nhost: a\r\n${authorization}content-type: application/json\r\n${lengthOf}\r\n\r\n`;
}

async function open(target: TestMaster, bytes = ""): Promise<Socket> {
  const { hostname, port } = new URL(target.url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => undefined);
  await once(socket, "connect");
  socket.write(bytes);
  return socket;
}

/** The answer to a request whose body never completes; hangs if there is none. */
async function answerTo(bytes: string): Promise<string> {
  const socket = await open(server, bytes);
  const [data] = (await once(socket, "data")) as [Buffer];
  socket.destroy();
  return data.toString();
}

describe("HTTP: a body that never arrives", () => {
  const length = "content-length: 200000";

  it("does not delay 401, 403 and 404", async () => {
    expect(await answerTo(head(undefined, length))).toMatch(/^HTTP\/1.1 401 .*x-request-id: /s);
    expect(await answerTo(head("sk-nobody", length))).toMatch(/^HTTP\/1.1 401 /);
    const { text } = await server.addKey({ scopes: ["models:read"] });
    expect(await answerTo(head(text, length))).toMatch(/^HTTP\/1.1 403 .*inference:create/s);
    expect(await answerTo(head(undefined, length, "/api/v1/none"))).toMatch(/^HTTP\/1.1 404 /);
    expect(await answerTo(head(undefined, length, "/api/v1/endpoints"))).toMatch(
      /^HTTP\/1.1 405 .*allow: GET/s,
    );
  });

  it("is refused by its declared length and its encoding", async () => {
    const declared = "content-length: 250001";
    expect(await answerTo(head(server.adminKey, declared))).toMatch(/^HTTP\/1.1 413 /);
    const gzip = `${length}\r\ncontent-encoding: gzip`;
    expect(await answerTo(head(server.adminKey, gzip))).toMatch(/^HTTP\/1.1 415 /);
  });

  it("is refused if its key has spent its calls, and spends none", async () => {
    const { text } = await server.addKey({ limits: { requestsPerMinute: 1 } });
    expect((await postChat(server, hello, { key: text })).status).toBe(200);
    const refused = await answerTo(head(text, length));
    expect(refused).toMatch(/^HTTP\/1.1 429 .*x-ratelimit-limit-requests: 1\r\n/s);
    expect(refused).toMatch(/retry-after-ms: \d+/);
  });
});

describe("HTTP: bodies being read", () => {
  it("are bounded over all connections, and free their share when abandoned", async () => {
    const stalled = await open(
      server,
      head(server.adminKey, "content-length: 240000") + " ".repeat(200_000),
    );
    const next = head(server.adminKey, "content-length: 200000");
    const isRefused = async (): Promise<boolean> => {
      const socket = await open(server, `${next}${"x".repeat(200_000)}`);
      const [data] = (await once(socket, "data")) as [Buffer];
      socket.destroy();
      if (!data.toString().startsWith("HTTP/1.1 503 ")) return false;
      expect(data.toString()).toMatch(/retry-after: 1\r\n.*"overloaded"/s);
      return true;
    };
    await eventually(isRefused);
    expect(
      await answerTo(
        `${head(server.adminKey, "transfer-encoding: chunked")}30d40\r\n${"x".repeat(200_000)}\r\n`,
      ),
    ).toMatch(/^HTTP\/1.1 503 /);
    expect((await postChat(server, hello)).status).toBe(200);
    stalled.destroy();
    await eventually(async () => !(await isRefused()));
  });
});

describe("HTTP: connections", () => {
  it("are bounded; a further one is closed, and a closed one frees its place", async () => {
    const small = await startTestMaster({ maxConnections: 2 });
    const held = [await open(small), await open(small)];
    const further = await open(small, "GET /health HTTP/1.1\r\nhost: a\r\n\r\n");
    const chunks: Buffer[] = [];
    further.on("data", (chunk) => chunks.push(chunk));
    await once(further, "close");
    expect(chunks).toEqual([]);
    for (const socket of held) socket.destroy();
    await eventually(async () => {
      const answer = await fetch(`${small.url}/health`).catch(() => undefined);
      return answer?.status === 200;
    });
    await small.master.close();
  });
});
