import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { UpstreamSpec } from "@heddle/contracts/models/upstream-spec";
import { startUpstream } from "../upstream/start-upstream.ts";
import { UpstreamPolicy } from "../upstream/upstream-policy.ts";
import { EngineSession } from "./engine-session.ts";

export type Handler = (
  reply: ServerResponse,
  body: Record<string, unknown>,
  request: IncomingMessage,
) => void;

export const usage = { prompt_tokens: 5, completion_tokens: 2 };

/** Chunks of a stream, each an event. */
export function stream(reply: ServerResponse, ...chunks: readonly unknown[]): ServerResponse {
  reply.writeHead(200, { "content-type": "text/event-stream" });
  for (const chunk of chunks) {
    reply.write(`data: ${typeof chunk === "string" ? chunk : JSON.stringify(chunk)}\n\n`);
  }
  return reply;
}

export const delta = (members: object) => ({ choices: [{ index: 0, delta: members }] });
export const finish = (reason = "stop") => ({
  choices: [{ index: 0, delta: {}, finish_reason: reason }],
});
export const whole = (text = "ok") => [
  delta({ role: "assistant", content: "" }),
  delta({ content: text }),
  finish(),
  { choices: [], usage },
  "[DONE]",
];
const answer: Handler = (reply) => void stream(reply, ...whole()).end();

/** A server whose next answers are scripted; it answers the rest, probes among them, as it should. */
class ScriptedServer {
  readonly script: Handler[] = [];
  readonly bodies: Record<string, unknown>[] = [];
  readonly headers: IncomingMessage["headers"][] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    server.on("request", async (request: IncomingMessage, reply: ServerResponse) => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece);
      const body = JSON.parse(Buffer.concat(pieces).toString());
      this.bodies.push(body);
      this.headers.push(request.headers);
      (this.script.shift() ?? answer)(reply, body, request);
    });
  }

  static async start(): Promise<ScriptedServer> {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    return new ScriptedServer(server);
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

interface ScriptedUpstream {
  readonly server: ScriptedServer;
  readonly session: EngineSession;
  /** Why it went down, and that it recovered. */
  readonly changes: string[];
}

/** For tests: the engine over a server whose answers are scripted. `onClose` gets what ends both. */
export async function scriptedUpstream(
  more: Partial<UpstreamSpec>,
  onClose: (close: () => unknown) => void,
): Promise<ScriptedUpstream> {
  const server = await ScriptedServer.start();
  onClose(() => server.close());
  const changes: string[] = [];
  const session = await EngineSession.over((sink) =>
    startUpstream({
      spec: {
        key: "u",
        engine: "openai",
        upstream: {
          baseUrl: `${server.origin}/v1`,
          model: "m",
          dialect: "openai",
          apiKey: "secret",
          probe: "chat",
          maxConcurrency: 2,
          connectTimeoutMs: 2_000,
          firstByteTimeoutMs: 20_000,
          idleTimeoutMs: 20_000,
          maxRetries: 1,
          probeIntervalMs: 60_000,
          ...more,
        },
        options: {},
      },
      modelPath: undefined,
      access: {
        policy: new UpstreamPolicy([server.origin]),
        keyFor: async () => "sk-hidden",
        commands: new Map(),
      },
      sink,
      onExit: () => {},
      onDown: ({ message }) => changes.push(message),
      onRecovered: () => changes.push("recovered"),
      signal: new AbortController().signal,
    }),
  );
  onClose(() => session.close());
  return { server, session, changes };
}
