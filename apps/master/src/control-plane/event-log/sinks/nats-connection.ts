import { once } from "node:events";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { AppError } from "@heddle/base/errors";

export interface NatsServer {
  readonly host: string;
  readonly port: number;
  /** Required of the server. */
  readonly tls: boolean;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  readonly token?: string | undefined;
}

const CONNECT_MS = 10_000;
/**
 * The longest message of the server, unless its caller expects more; acknowledgements are short.
 */
const MAX_FRAME_BYTES = 64 * 1024;

interface ServerInfo {
  readonly tls_required?: boolean;
  readonly headers?: boolean;
  readonly max_payload?: number;
}

type OnMessage = (subject: string, headers: string, payload: string) => void;

/** A connection by the client protocol of NATS: it publishes, and receives one inbox. */
export class NatsConnection {
  readonly #socket: Socket;
  readonly #onMessage: OnMessage;
  readonly #maxFrameBytes: number;
  readonly #ended = Promise.withResolvers<never>();
  #pending: Buffer = Buffer.alloc(0);
  #pong = Promise.withResolvers<void>();
  #fault: AppError | undefined;

  private constructor(socket: Socket, rest: Buffer, onMessage: OnMessage, maxFrameBytes: number) {
    this.#socket = socket;
    this.#pending = rest;
    this.#onMessage = onMessage;
    this.#maxFrameBytes = maxFrameBytes;
    this.#ended.promise.catch(() => undefined);
    socket.on("data", (bytes: Buffer) => this.#take(bytes));
    socket.once("error", (error) => this.#end(error.message));
    socket.once("close", () => this.#end("the connection was closed"));
  }

  /** Rejects where the server refuses. */
  static async open(
    server: NatsServer,
    inbox: string,
    onMessage: OnMessage,
    maxFrameBytes = MAX_FRAME_BYTES,
  ): Promise<NatsConnection> {
    const plain = connectTcp({ host: server.host, port: server.port });
    const timer = setTimeout(() => {
      plain.destroy(new Error(`no answer within ${CONNECT_MS / 1_000} s`));
    }, CONNECT_MS);
    try {
      const [info, rest] = await greeting(plain);
      if (!info.headers) throw new Error("the server is too old: it has no headers");
      const isTls = server.tls || info.tls_required === true;
      let socket: Socket = plain;
      if (isTls) {
        // An address is verified, but no name to ask for.
        const name = isIP(server.host) ? {} : { servername: server.host };
        const secured = connectTls({ socket: plain, host: server.host, ...name });
        await once(secured, "secureConnect");
        socket = secured;
      }
      const connection = new NatsConnection(socket, rest, onMessage, maxFrameBytes);
      const { user, password: pass, token } = server;
      const options = {
        verbose: false,
        pedantic: false,
        headers: true,
        no_responders: true,
        protocol: 1,
        name: "heddle-events",
        lang: "node",
        version: "1",
        tls_required: isTls,
        ...(token ? { auth_token: token } : user && { user, pass }),
      };
      socket.write(`CONNECT ${JSON.stringify(options)}\r\nSUB ${inbox}.* 1\r\nPING\r\n`);
      await Promise.race([connection.#pong.promise, connection.#ended.promise]);
      return connection;
    } catch (error) {
      plain.destroy();
      const why = error instanceof Error ? error.message : String(error);
      throw new AppError("unavailable", `${server.host}:${server.port}: ${why}`);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Rejects when the connection ends. */
  get ended(): Promise<never> {
    return this.#ended.promise;
  }

  get isOpen(): boolean {
    return this.#fault === undefined;
  }

  publish(subject: string, replyTo: string, headers: string, payload: string): void {
    const head = Buffer.byteLength(`NATS/1.0\r\n${headers}\r\n`);
    const total = head + Buffer.byteLength(payload);
    const line = `HPUB ${subject} ${replyTo} ${head} ${total}\r\n`;
    this.#socket.write(`${line}NATS/1.0\r\n${headers}\r\n${payload}\r\n`);
  }

  close(): void {
    this.#socket.destroy();
  }

  #end(why: string): void {
    if (this.#fault) return;
    this.#fault = new AppError("unavailable", `the NATS server is gone: ${why}`);
    this.#ended.reject(this.#fault);
    this.#socket.destroy();
  }

  #take(bytes: Buffer): void {
    this.#pending = this.#pending.byteLength === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    while (!this.#fault) {
      const used = this.#frame();
      if (used === 0) break;
      this.#pending = this.#pending.subarray(used);
    }
    if (this.#pending.byteLength > this.#maxFrameBytes)
      this.#end("it sent a message that is too large");
  }

  /** The bytes of the first frame, which is handled; 0 where it is not whole yet. */
  #frame(): number {
    const end = this.#pending.indexOf("\r\n");
    if (end < 0) return 0;
    const line = this.#pending.subarray(0, end).toString();
    const words = line.split(" ");
    const [verb = ""] = words;
    if (verb === "MSG" || verb === "HMSG") {
      const total = Number(words.at(-1));
      const whole = end + 2 + total + 2;
      if (!(total <= this.#maxFrameBytes)) this.#end("it sent a message that is too large");
      if (this.#fault || this.#pending.byteLength < whole) return 0;
      const body = this.#pending.subarray(end + 2, end + 2 + total);
      const head = verb === "HMSG" ? Number(words.at(-2)) : 0;
      this.#onMessage(
        words[1] ?? "",
        body.subarray(0, head).toString(),
        body.subarray(head).toString(),
      );
      return whole;
    }
    if (verb === "PING") this.#socket.write("PONG\r\n");
    if (verb === "PONG") this.#pong.resolve();
    if (verb === "-ERR") this.#end(line.slice(5, 200));
    return end + 2;
  }
}

/** The first line of the server, and what followed it. */
async function greeting(socket: Socket): Promise<[ServerInfo, Buffer]> {
  let bytes: Buffer = Buffer.alloc(0);
  for (;;) {
    const [chunk] = (await once(socket, "data")) as [Buffer];
    bytes = Buffer.concat([bytes, chunk]);
    const end = bytes.indexOf("\r\n");
    if (end < 0 && bytes.byteLength < MAX_FRAME_BYTES) continue;
    const line = bytes.subarray(0, Math.max(0, end)).toString();
    if (!line.startsWith("INFO ")) throw new Error("it is no NATS server");
    return [JSON.parse(line.slice(5)) as ServerInfo, bytes.subarray(end + 2)];
  }
}
