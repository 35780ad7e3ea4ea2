import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { Heddle } from "@heddle/client/heddle";
import { afterEach, describe, expect, it, vi } from "vitest";
import { describeSpeed, streamChat, tokensPerSecond } from "./chat-stream.ts";

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function serve(listener: RequestListener): Promise<Heddle> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return new Heddle({ endpoint, auth_token: "hdl_k" });
}

const chunk = (value: object) => `data: ${JSON.stringify(value)}\n\n`;
const REQUEST = { model: "m", messages: [{ role: "user" as const, content: "hi" }], max_tokens: 5 };

describe("a streamed chat", () => {
  it("returns each chunk, and the token count of the usage", async () => {
    let sent: unknown;
    const client = await serve(async (request, response) => {
      let body = "";
      for await (const piece of request) body += piece;
      sent = { body: JSON.parse(body), key: request.headers.authorization };
      response.write(chunk({ choices: [{ delta: { role: "assistant", content: "" } }] }));
      response.write(chunk({ choices: [{ delta: { content: "a" } }] }));
      response.write(chunk({ choices: [{ delta: { content: "b" }, finish_reason: "length" }] }));
      response.write(chunk({ choices: [], usage: { completion_tokens: 5 } }));
      response.end("data: [DONE]\n\n");
    });
    const pieces: string[] = [];
    const result = await streamChat(client, REQUEST, (text) => pieces.push(text));
    expect(pieces).toEqual(["a", "b"]);
    expect(result).toMatchObject({ text: "ab", completionTokens: 5, finishReason: "length" });
    expect(sent).toEqual({
      key: "Bearer hdl_k",
      body: {
        model: "m",
        messages: REQUEST.messages,
        max_tokens: 5,
        stream: true,
        stream_options: { include_usage: true },
      },
    });
  });

  it("fails with the error code in a broken stream", async () => {
    const client = await serve((_request, response) => {
      response.write(chunk({ choices: [{ delta: { content: "a" } }] }));
      response.end(chunk({ error: { code: "worker_lost", message: "Its worker is gone." } }));
    });
    await expect(streamChat(client, REQUEST, () => {})).rejects.toMatchObject({
      code: "worker_lost",
      message: "Its worker is gone.",
    });
  });

  it("fails if the stream ends early", async () => {
    const short = await serve((_request, response) => {
      response.end(chunk({ choices: [{ delta: { content: "a" } }] }));
    });
    await expect(streamChat(short, REQUEST, () => {})).rejects.toThrow("before it was complete");
    const broken = await serve((_request, response) => {
      response.write(chunk({ choices: [{ delta: { content: "a" } }] }), () => response.destroy());
    });
    await expect(streamChat(broken, REQUEST, () => {})).rejects.toThrow("broke off");
  });

  it("is cancelled by an interrupt, before and during the answer", async () => {
    const silent = await serve(() => {});
    const early = AbortSignal.timeout(50);
    await expect(streamChat(silent, REQUEST, () => {}, early)).rejects.toMatchObject({
      code: "cancelled",
    });
    const slow = await serve((_request, response) => {
      response.write(chunk({ choices: [{ delta: { content: "a" } }] }));
    });
    const late = new AbortController();
    const answer = streamChat(slow, REQUEST, () => late.abort(), late.signal);
    await expect(answer).rejects.toMatchObject({ code: "cancelled" });
  });

  it("reports its speed without the time to the first token", () => {
    const result = {
      text: "",
      completionTokens: 20,
      finishReason: "stop",
      usage: undefined,
      firstTokenMs: 500,
      lastTextMs: 1400,
      totalMs: 1500,
      laterShare: 0.9,
    };
    expect(describeSpeed(result)).toBe(
      "20 tokens in 1.50 s, 20.0 tokens/s, first token after 500 ms",
    );
  });

  it("reports no rate if the answer arrived almost at once", async () => {
    const client = await serve((_request, response) => {
      const pieces = ["a", "b", "c"].map((content) => chunk({ choices: [{ delta: { content } }] }));
      response.end(
        `${pieces.join("")}${chunk({ choices: [], usage: { completion_tokens: 30 } })}data: [DONE]\n\n`,
      );
    });
    // A machine that stalls between two chunks would make them two bursts.
    const clock = vi.spyOn(performance, "now").mockReturnValue(1_000);
    const result = await streamChat(client, REQUEST, () => {}).finally(() => clock.mockRestore());
    expect(result).toMatchObject({ completionTokens: 30, laterShare: 0 });
    expect(tokensPerSecond({ ...result, lastTextMs: result.firstTokenMs })).toBeUndefined();
    const late = { ...result, lastTextMs: result.firstTokenMs + 200, laterShare: 0.5 };
    expect(tokensPerSecond(late)).toBeCloseTo(75, 6);
  });
});
