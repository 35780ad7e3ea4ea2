import { HttpConnection, type Origin, postBytes } from "./http-connection.ts";
import { ChatStream, type ChatUsage } from "./sse-reader.ts";

/** An OpenAI-compatible chat endpoint. */
export interface ChatServer {
  readonly name: string;
  readonly origin: Origin;
  /** As `/v1/chat/completions`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly model: string;
}

export interface ChatRequest {
  readonly prompt: string;
  readonly maxTokens: number;
  readonly temperature: number;
  /** Tokens that must not be sampled, such as those that would end the answer early. */
  readonly bannedTokens: readonly number[];
  /** Called as each event with text comes in; returning false hangs up. */
  readonly onText?: (() => boolean) | undefined;
}

/** One streamed answer, on the clock of `performance.now()`. */
export interface ChatAnswer {
  readonly sentAt: number;
  /** When each event with text came; its tokens are counted by `usage`. */
  readonly textTimes: readonly number[];
  readonly endedAt: number;
  readonly text: string;
  /** Absent where the answer was cut short. */
  readonly usage: ChatUsage | undefined;
  /** `answered`, `hung up` by us, or why it failed. */
  readonly outcome: string;
}

/** Asks over a connection that is free, and resolves when the answer has ended. Never rejects. */
export function streamChat(
  server: ChatServer,
  connection: HttpConnection,
  request: ChatRequest,
): Promise<ChatAnswer> {
  const textTimes: number[] = [];
  const head: Buffer[] = [];
  const { promise, resolve } = Promise.withResolvers<ChatAnswer>();
  const stream = new ChatStream(() => {
    textTimes.push(performance.now());
    if (request.onText?.() !== false) return;
    connection.close();
    finish("hung up");
  });
  const finish = (outcome: string) => {
    const endedAt = performance.now();
    const { text, usage } = stream;
    resolve({ sentAt, textTimes, endedAt, text, usage, outcome });
  };
  const sentAt = performance.now();
  connection.send(requestBytes(server, request), {
    body: (bytes) => {
      if (stream.frames === 0) head.push(Buffer.from(bytes));
      stream.push(bytes);
    },
    end: (status) => finish(outcomeOf(status, stream, head)),
    fail: (error) => finish(error.message),
  });
  return promise;
}

/** A connection of its own for one answer. */
export async function askOnce(server: ChatServer, request: ChatRequest): Promise<ChatAnswer> {
  const connection = new HttpConnection(server.origin);
  const answer = await streamChat(server, connection, request);
  connection.close();
  return answer;
}

function outcomeOf(status: number, stream: ChatStream, head: readonly Buffer[]): string {
  if (status !== 200) return `status ${status}: ${Buffer.concat(head).toString().slice(0, 300)}`;
  if (stream.error !== undefined) return stream.error;
  return stream.done ? "answered" : "the stream ended without [DONE]";
}

function requestBytes(server: ChatServer, request: ChatRequest): Buffer {
  const bias = Object.fromEntries(request.bannedTokens.map((token) => [String(token), -100]));
  const body = JSON.stringify({
    model: server.model,
    messages: [{ role: "user", content: request.prompt }],
    max_tokens: request.maxTokens,
    temperature: request.temperature,
    stream: true,
    stream_options: { include_usage: true },
    ...(request.bannedTokens.length > 0 && { logit_bias: bias }),
  });
  return postBytes({ origin: server.origin, path: server.path, headers: server.headers, body });
}
