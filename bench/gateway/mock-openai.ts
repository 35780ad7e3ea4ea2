import { createServer, type ServerResponse } from "node:http";
import { mockDeltas, mockModel, mockText, mockUsage } from "./mock-answer.ts";

// An OpenAI-compatible upstream that answers at once: the engine behind the peer gateway.
// usage: node mock-openai.ts [PORT]; prints its URL.

const usage = {
  prompt_tokens: mockUsage.promptTokens,
  completion_tokens: mockUsage.completionTokens,
  total_tokens: mockUsage.promptTokens + mockUsage.completionTokens,
};
const head = { id: "chatcmpl-mock", created: 1_700_000_000, model: mockModel };
const answer = Buffer.from(
  JSON.stringify({
    ...head,
    object: "chat.completion",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: mockText, refusal: null },
        logprobs: null,
        finish_reason: "stop",
      },
    ],
    usage,
  }),
);
const frames = [
  frame({ role: "assistant", content: "" }, null),
  ...mockDeltas.map((content) => frame({ content }, null)),
  Buffer.concat([frame({}, "stop"), Buffer.from("data: [DONE]\n\n")]),
];

/** Answers that are being streamed, with the next frame of each. */
const live = new Map<ServerResponse, number>();

const server = createServer((request, response) => {
  const parts: Buffer[] = [];
  request.on("data", (part: Buffer) => parts.push(part));
  request.on("end", () => {
    if (Buffer.concat(parts).includes('"stream":true')) startStream(response);
    else response.writeHead(200, { "content-type": "application/json" }).end(answer);
  });
});
server.keepAliveTimeout = 60_000;
server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
  const address = server.address();
  if (address && typeof address === "object") console.log(`http://127.0.0.1:${address.port}`);
});

function startStream(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.on("close", () => live.delete(response));
  if (live.size === 0) setImmediate(step);
  live.set(response, 0);
}

/** One step gives every live answer one frame, as a batching engine does. */
function step(): void {
  for (const [response, next] of live) {
    const last = next === frames.length - 1;
    if (last) live.delete(response);
    else live.set(response, next + 1);
    if (last) response.end(frames[next]);
    else response.write(frames[next]);
  }
  if (live.size > 0) setImmediate(step);
}

function frame(delta: object, finishReason: string | null): Buffer {
  const choices = [{ index: 0, delta, logprobs: null, finish_reason: finishReason }];
  const chunk = { ...head, object: "chat.completion.chunk", choices };
  return Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`);
}
