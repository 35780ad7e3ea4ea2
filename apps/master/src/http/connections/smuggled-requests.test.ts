import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

// Requests whose end a proxy could find at another place than this server.

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

/** All that the server sends until it closes the connection. */
async function talk(bytes: string): Promise<string> {
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  let text = "";
  socket.on("data", (piece) => {
    text += piece;
  });
  socket.write(bytes);
  await once(socket, "close");
  return text;
}

const HIDDEN = "GET /api/v1/access/whoami HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
const ENDED = "0\r\n\r\n";

it.each([
  ["a length and chunks", `content-length: ${ENDED.length}\r\ntransfer-encoding: chunked`, ENDED],
  ["chunks and a length", "transfer-encoding: chunked\r\ncontent-length: 0", ENDED],
  ["two lengths", `content-length: 0\r\ncontent-length: ${HIDDEN.length}`, ""],
  ["a list of lengths", `content-length: 0, ${HIDDEN.length}`, ""],
  ["a signed length", "content-length: +0", ""],
  ["a hexadecimal length", "content-length: 0x0", ""],
  ["an unknown encoding", "transfer-encoding: xchunked", ENDED],
  ["an encoding behind chunks", "transfer-encoding: chunked, identity", ENDED],
  ["two encodings", "transfer-encoding: chunked\r\ntransfer-encoding: identity", ENDED],
  ["a space before the colon", "transfer-encoding : chunked", ENDED],
  ["a control character", "transfer-encoding:\x0bchunked", ENDED],
  ["a folded header", "x: y\r\n transfer-encoding: chunked\r\ncontent-length: 0", ""],
  ["a line feed in a header", "x: y\ntransfer-encoding: chunked\r\ncontent-length: 0", ""],
  ["a carriage return in a header", "x: y\rcontent-length: 5\r\ncontent-length: 0", ""],
  ["a chunk with a wrong length", "transfer-encoding: chunked", `2\r\nabc\r\n${ENDED}`],
  ["a chunk with a line feed alone", "transfer-encoding: chunked", "0\n\n"],
  ["a chunk with a signed length", "transfer-encoding: chunked", `-0\r\n\r\n${ENDED}`],
])("%s: refused, and nothing behind it is answered", async (_what, length, body) => {
  const head = `POST /api/v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${server.adminKey}\r\ncontent-type: application/json`;
  const text = await talk(`${head}\r\n${length}\r\n\r\n${body}${HIDDEN}`);
  expect(text).toMatch(/^HTTP\/1.1 400 /);
  expect(text.match(/HTTP\/1\.1 \d/g)).toHaveLength(1);
});

it("one request behind another is answered, so that the test sees one", async () => {
  const first = `GET /health HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${server.adminKey}\r\n\r\n`;
  const text = await talk(first + HIDDEN);
  expect(text).toMatch(/^HTTP\/1.1 200 [\s\S]*HTTP\/1.1 401 /);
});

it("a key in the query names no caller, and is in no answer", async () => {
  for (const name of ["access_token", "api_key", "key", "token", "authorization"]) {
    const query = `${name}=${encodeURIComponent(server.adminKey)}`;
    const reply = await fetch(`${server.url}/api/v1/access/whoami?${query}`);
    expect(reply.status, name).toBe(401);
    expect(await reply.text()).not.toContain(server.adminKey);
  }
});
