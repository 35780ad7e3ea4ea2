import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

const LOOPBACK = "127.0.0.1";

interface Pair {
  readonly near: Socket;
  readonly far: Socket;
  /** It stays when others are cut. */
  isKept: boolean;
}

/** Carries connections to a port of this machine, until it cuts some as a partition does. */
export class CuttableProxy {
  readonly #server: Server;
  readonly #pairs = new Set<Pair>();
  #isCut = false;

  private constructor(port: number) {
    this.#server = createServer((near) => this.#carry(near, connect(port, LOOPBACK)));
  }

  static async to(port: number): Promise<CuttableProxy> {
    const proxy = new CuttableProxy(port);
    await once(proxy.#server.listen(0, LOOPBACK), "listening");
    return proxy;
  }

  get address(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `${LOOPBACK}:${port}`;
  }

  /** The present connections are not cut later. */
  keepPresent(): void {
    for (const pair of this.#pairs) pair.isKept = true;
  }

  /** No packet of the other connections passes any more, also of new ones, and none says so. */
  cut(): void {
    this.#isCut = true;
    for (const pair of this.#pairs) if (!pair.isKept) part(pair);
  }

  mend(): void {
    this.#isCut = false;
    for (const pair of this.#pairs) if (!pair.isKept) end(pair);
  }

  close(): void {
    this.#server.close();
    for (const pair of this.#pairs) end(pair);
  }

  #carry(near: Socket, far: Socket): void {
    const pair = { near, far, isKept: false };
    this.#pairs.add(pair);
    for (const socket of [near, far]) {
      socket.on("error", () => undefined);
      socket.once("close", () => {
        this.#pairs.delete(pair);
        if (!this.#isCut || pair.isKept) end(pair);
      });
    }
    near.pipe(far).pipe(near);
    if (this.#isCut) part(pair);
  }
}

function part({ near, far }: Pair): void {
  near.unpipe(far).pause();
  far.unpipe(near).pause();
}

function end({ near, far }: Pair): void {
  near.destroy();
  far.destroy();
}
