// holds: api-disconnect

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());
beforeEach(() => {
  server.dispatch.script = {};
});

/** Sends a chat call on a socket of its own, which may close its sending side and read on. */
async function call(fields: object, version = "1.1"): Promise<Socket> {
  const { hostname, port } = new URL(server.url);
  const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
  socket.on("error", () => undefined);
  await once(socket, "connect");
  const messages = [{ role: "user", content: "one two three" }];
  const body = JSON.stringify({ model: "FamilyA-1-2B", messages, ...fields });
  const headers = `host: a\r\nauthorization: Bearer ${server.adminKey}\r\ncontent-type: application/json`;
  socket.write(
    `POST /api/v1/chat/completions HTTP/${version}\r\n${headers}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  return socket;
}

/** Everything up to the server's close. */
async function textOf(socket: Socket): Promise<string> {
  let text = "";
  socket.on("data", (bytes: Buffer) => {
    text += bytes.toString();
  });
  await once(socket, "end");
  socket.destroy();
  return text;
}

describe("half-closed: a client that closes its sending side after the request", () => {
  it.each([
    ["1.1", 0],
    ["1.1", 200],
    ["1.0", 0],
  ])(
    "gets a whole answer over HTTP/%s, at %s ms a token, and the connection ends",
    async (version, tokenDelayMs) => {
      server.dispatch.script = { tokenDelayMs };
      const socket = await call({ max_tokens: 3 }, version);
      socket.end();
      const text = await textOf(socket);
      expect(text).toMatch(/^HTTP\/1\.1 (102 Processing\r\n\r\nHTTP\/1\.1 )*200 OK\r\n/);
      expect(text).toContain('"content":"one two three"');
    },
  );

  it("gets a whole stream, also if its tokens are far apart", async () => {
    server.dispatch.script = { tokenDelayMs: 400 };
    const socket = await call({ max_tokens: 3, stream: true });
    socket.end();
    const text = await textOf(socket);
    expect(text).toMatch(/"content":"one".*"content":" two".*"content":" three".*\[DONE\]/s);
    expect(text).toContain(": \n\n");
  });

  it("gets the refusals of its key and its body", async () => {
    const socket = await call({ max_tokens: "many" });
    socket.end();
    expect(await textOf(socket)).toMatch(/HTTP\/1\.1 400 .*"param":"max_tokens"/s);
  });
});

describe("half-closed: a client that disconnects", () => {
  const endless = { max_tokens: 5000 };
  const goings: readonly [string, (socket: Socket) => void][] = [
    ["closes", (socket) => socket.destroy()],
    ["resets", (socket) => socket.resetAndDestroy()],
    ["closes its sending side and then all", (socket) => socket.end(() => socket.destroy())],
  ];
  for (const [how, go] of goings) {
    it.each([false, true])(
      `and ${how} its connection frees its call, stream %s`,
      async (stream) => {
        server.dispatch.script = { tokenDelayMs: 20 };
        const socket = await call({ ...endless, stream });
        if (stream) await once(socket, "data");
        await eventually(() => server.dispatch.running === 1);
        const before = server.dispatch.cancelled;
        go(socket);
        await eventually(() => server.dispatch.cancelled === before + 1);
        expect(server.dispatch.running).toBe(0);
      },
    );
  }

  it("frees its call over HTTP/1.0, which has no probe", async () => {
    server.dispatch.script = { tokenDelayMs: 20 };
    const socket = await call(endless, "1.0");
    await eventually(() => server.dispatch.running === 1);
    const before = server.dispatch.cancelled;
    socket.destroy();
    await eventually(() => server.dispatch.cancelled === before + 1);
  });
});
