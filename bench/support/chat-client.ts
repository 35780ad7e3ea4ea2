import { ChatStream, type ChatUsage } from "./chat-stream.ts";
import { HttpConnection, type Origin, postBytes } from "./http-connection.ts";

/** An OpenAI-compatible chat endpoint. */
export interface ChatServer {
  readonly name: string;
  readonly origin: Origin;
  /** For example `/v1/chat/completions`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly model: string;
}

export interface MeasuredChat {
  readonly prompt: string;
  readonly maxTokens: number;
  readonly temperature: number;
  /** Tokens that must not be sampled, such as those that would end the answer early. */
  readonly bannedTokens: readonly number[];
  /** The answer is JSON that is valid for it. */
  readonly schema?: object | undefined;
  /** Called as each event with text comes in. */
  readonly onText?: (() => void) | undefined;
  /** Drops the connection when it aborts. */
  readonly hangUp?: AbortSignal | undefined;
  /** False asks for the answer in one piece; `textTimes` is then empty. */
  readonly stream?: boolean | undefined;
  /** Sent as x-request-id. */
  readonly requestId?: string | undefined;
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
  /** `answered`, closed by us, or why it failed. */
  readonly outcome: string;
}

/** Asks over a connection that is free, and resolves when the answer has ended. Never rejects. */
export function measureChat(
  server: ChatServer,
  connection: HttpConnection,
  request: MeasuredChat,
): Promise<ChatAnswer> {
  const textTimes: number[] = [];
  const parts: Buffer[] = [];
  const { promise, resolve } = Promise.withResolvers<ChatAnswer>();
  const whole = request.stream === false;
  const stream = new ChatStream(() => {
    textTimes.push(performance.now());
    request.onText?.();
  });
  const onHangUp = () => {
    connection.close();
    finish("aborted");
  };
  const finish = (outcome: string) => {
    request.hangUp?.removeEventListener("abort", onHangUp);
    const endedAt = performance.now();
    const { text, usage } = stream;
    resolve({ sentAt, textTimes, endedAt, text, usage, outcome });
  };
  request.hangUp?.addEventListener("abort", onHangUp);
  const sentAt = performance.now();
  connection.send(requestBytes(server, request), {
    body: (bytes) => {
      if (whole || stream.frames === 0) parts.push(Buffer.from(bytes));
      if (!whole) stream.push(bytes);
    },
    end: (status) => {
      const body = Buffer.concat(parts).toString();
      if (whole && status === 200) takeWhole(stream, body);
      finish(outcomeOf(status, stream, body));
    },
    fail: (error) => finish(error.message),
  });
  return promise;
}

function takeWhole(stream: ChatStream, body: string): void {
  const answer = JSON.parse(body) as {
    readonly usage: ChatUsage;
    readonly choices: readonly { readonly message: { readonly content: string } }[];
  };
  stream.text = answer.choices[0]?.message.content ?? "";
  stream.usage = answer.usage;
  stream.done = true;
}

/** A connection of its own for one answer. */
export async function askOnce(server: ChatServer, request: MeasuredChat): Promise<ChatAnswer> {
  const connection = new HttpConnection(server.origin);
  const answer = await measureChat(server, connection, request);
  connection.close();
  return answer;
}

function outcomeOf(status: number, stream: ChatStream, body: string): string {
  if (status !== 200) return `status ${status}: ${body.slice(0, 300)}`;
  if (stream.error !== undefined) return stream.error;
  return stream.done ? "answered" : "the stream ended without [DONE]";
}

function requestBytes(server: ChatServer, request: MeasuredChat): Buffer {
  const bias = Object.fromEntries(request.bannedTokens.map((token) => [String(token), -100]));
  const body = JSON.stringify({
    model: server.model,
    messages: [{ role: "user", content: request.prompt }],
    max_tokens: request.maxTokens,
    temperature: request.temperature,
    ...(request.stream === false
      ? { stream: false }
      : { stream: true, stream_options: { include_usage: true } }),
    ...(request.bannedTokens.length > 0 && { logit_bias: bias }),
    ...(request.schema !== undefined && {
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", schema: request.schema, strict: true },
      },
    }),
  });
  const { requestId } = request;
  const headers = { ...server.headers, ...(requestId && { "x-request-id": requestId }) };
  return postBytes({ origin: server.origin, path: server.path, headers, body });
}
