import { createServer, type IncomingMessage, type Server, request as send } from "node:http";
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Server as TcpServer,
} from "node:net";
import type { Place } from "./canary-search.ts";

/** A proxy of HTTP that keeps every reply: its head and its whole body. */
export class RecordingProxy {
  readonly replies: Place[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** `target` is asked at each request. */
  static async start(target: () => string): Promise<RecordingProxy> {
    const server = createServer();
    const proxy = new RecordingProxy(server);
    server.on("request", (request, reply) => {
      const { method, url = "", headers } = request;
      const passed = send(new URL(url, target()), { method, headers }, (answer) => {
        reply.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
        answer.pipe(reply);
        proxy.#record(`reply ${method} ${url.split("?")[0]}`, answer);
      });
      passed.on("error", () => reply.destroy());
      request.pipe(passed);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  #record(name: string, answer: IncomingMessage): void {
    const head = `${answer.statusCode} ${answer.statusMessage}\n${answer.rawHeaders.join("\n")}\n`;
    const pieces: Buffer[] = [Buffer.from(head)];
    answer.on("data", (piece: Buffer) => pieces.push(piece));
    answer.once("close", () => this.replies.push({ name, bytes: Buffer.concat(pieces) }));
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** A proxy of TCP that keeps what the server has sent. */
export class RecordingPipe {
  readonly #server: TcpServer;
  readonly #pieces: Buffer[] = [];

  private constructor(server: TcpServer) {
    this.#server = server;
  }

  static async start(host: string, port: number): Promise<RecordingPipe> {
    const server = createTcpServer();
    const pipe = new RecordingPipe(server);
    server.on("connection", (client) => {
      const upstream = connect({ host, port });
      upstream.on("data", (piece: Buffer) => pipe.#pieces.push(piece));
      client.pipe(upstream).pipe(client);
      client.on("error", () => upstream.destroy());
      upstream.on("error", () => client.destroy());
      client.once("close", () => upstream.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    server.unref();
    return pipe;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  sent(name: string): Place {
    return { name, bytes: Buffer.concat(this.#pieces) };
  }

  close(): void {
    this.#server.close();
  }
}
